// The timeline: JSON that a parser takes, with the lanes, counters and decisions that happened.
// ctest-labels: long_sanitized
#include "delta/timeline.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "delta/engine/engine.hpp"
#include "delta/storage/simulated.hpp"
#include "machine.hpp"
#include "observe/watchers.hpp"
#include "random_program.hpp"

using namespace delta;
using delta::executor::watchers;
using namespace delta::test;
using nlohmann::json;

namespace {

struct told {
  json events;
  counters counts;
  nanoseconds end{};
};

told follow(const program& p, const char* policy) {
  simulated storage({.capacity = bytes{largest_footprint(p).count * 6 / 5},
                     .host_capacity = 64_KiB,
                     .rate_out = 2e9,
                     .rate_in = 2e9});
  std::ostringstream text;
  told result;
  {
    watchers seen(&text, nullptr);
    const auto m = make_manager(policy, over(storage), {.observer = &seen});
    run_program(*m, p, run_now{}, [&] { CHECK(storage.used() <= storage.capacity()); });
    result.counts = m->counts();
  }
  result.end = storage.now();
  result.events = json::parse(text.str());
  return result;
}

std::uint64_t count(const json& events, const std::string& name, const std::string& phase) {
  std::uint64_t n = 0;
  for (const json& e : events) n += e["name"] == name && e["ph"] == phase;
  return n;
}
std::uint64_t in_category(const json& events, const std::string& category) {
  std::uint64_t n = 0;
  for (const json& e : events) n += e["ph"] == "X" && e["cat"] == category;
  return n;
}

std::uint64_t bytes_of(const json& events, const std::string& category) {
  std::uint64_t n = 0;
  for (const json& e : events)
    if (e["ph"] == "X" && e["cat"] == category) n += std::uint64_t(e["args"]["bytes"]);
  return n;
}

}  // namespace

TEST_CASE("a timeline tells what the counters count") {
  std::uint64_t decisions = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    const program p = random_program(seed);
    for (const told& t : {follow(p, "online"), follow(p, "paper")}) {
      const counters& n = t.counts;
      CHECK(in_category(t.events, "run") == n.operators);
      CHECK(in_category(t.events, "recompute") == n.recomputes);
      CHECK(in_category(t.events, "copy out") <= n.offloads);  // one may serve two, if it is long
      CHECK(bytes_of(t.events, "copy out") == n.bytes_out);
      CHECK(bytes_of(t.events, "copy in") == n.bytes_in);
      CHECK(in_category(t.events, "copy in") == n.reloads);
      CHECK(count(t.events, "offload", "i") == n.offloads);
      CHECK(count(t.events, "reload", "i") + count(t.events, "prefetch", "i") == n.reloads);
      CHECK(count(t.events, "prefetch", "i") == n.prefetches);
      CHECK(count(t.events, "clean drop", "i") == n.clean_drops);
      CHECK(count(t.events, "evict", "i") <= n.evictions);  // the dropped leave without a word
      decisions += n.offloads + n.prefetches + n.clean_drops;
    }
  }
  CHECK(decisions > 100);
}

TEST_CASE("a timeline's lanes are serial, its counters within the budget, its numbers in order") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    const program p = random_program(seed);
    const told t = follow(p, "online");
    std::map<int, double> end;
    std::uint64_t last = 0;
    for (const json& e : t.events) {
      if (e["ph"] == "X") {
        const double ts = e["ts"], dur = e["dur"];
        CHECK(ts >= end[e["tid"]] - 1e-6);
        end[e["tid"]] = ts + dur;
      } else if (e["ph"] == "C") {
        const std::uint64_t here = e["args"]["resident"], moving = e["args"]["in flight"];
        CHECK(here + moving <= largest_footprint(p).count * 6 / 5);
      } else if (e["ph"] == "i") {
        CHECK(std::uint64_t(e["args"]["decision"]) == ++last);
        CHECK(e["args"]["for"].is_string());
        if (e["name"] == "offload" || e["name"] == "evict") {
          CHECK(e["args"]["score"].is_number());
          CHECK(e["args"]["cost_ns"].is_number());
          CHECK((e["args"]["alternative_ns"].is_number() || e["args"]["alternative_ns"].is_null()));
        }
      }
    }
    CHECK(end[0] <= double(t.end.count()) / 1000 + 1e-6);
  }
}

TEST_CASE("a timeline is JSON whatever operators are called, and with nothing in it") {
  std::ostringstream text;
  {
    timeline lanes{text};
    event e;
    e.operation = "a \"quoted\\ name\n\t";
    e.began = nanoseconds{1234567};
    e.took = nanoseconds{1};
    lanes.on(e);
    e.what = event_kind::evict;
    e.cost = never;
    lanes.on(e);
  }
  const json events = json::parse(text.str());
  CHECK(events.at(5)["name"] == "a \"quoted\\ name  ");
  CHECK(events.at(5)["ts"] == 1234.567);
  CHECK(events.at(5)["args"]["tensor"].is_null());
  CHECK(events.at(7)["args"]["cost_ns"].is_null());
  CHECK(events.at(7)["args"]["score"].is_null());
  std::ostringstream empty;
  { const timeline lanes{empty}; }
  CHECK(json::parse(empty.str()).size() == 5);
}
