// The log of decisions: a line of JSON for each decision, in order, and none for anything else.
// ctest-labels: long_sanitized
#include "observe/decision_log.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "delta/engine/engine.hpp"
#include "delta/storage/simulated.hpp"
#include "observe/watchers.hpp"
#include "random_program.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;
using nlohmann::json;

namespace {

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) result.push_back(json::parse(line));
  return result;
}

std::string log_of(const std::vector<event>& events) {
  std::ostringstream text;
  decision_log log{text};
  for (const event& e : events) log.on(e);
  return text.str();
}

struct told {
  std::string text;
  counters counts;
};

told follow(const program& p, const char* policy) {
  simulated storage({.capacity = bytes{largest_footprint(p).count * 6 / 5},
                     .host_capacity = 64_KiB,
                     .rate_out = 2e9,
                     .rate_in = 2e9});
  std::ostringstream text;
  watchers seen(nullptr, &text);
  const auto m = make_manager(policy, over(storage), {.observer = &seen});
  run_program(*m, p, run_now{}, [] {});
  return {text.str(), m->counts()};
}

}  // namespace

TEST_CASE("a decision is a line with everything that is known of it") {
  const event leaves{.what = event_kind::offload,
                     .tensor = tensor_id{7},
                     .label = "conv1",
                     .operation = "conv2",
                     .size = 4_KiB,
                     .began = nanoseconds{5000},
                     .score = 0.25,
                     .cost = 700,
                     .alternative = never};
  const event again{.what = event_kind::recompute,
                    .tensor = tensor_id{0},
                    .label = "conv1",
                    .operation = "conv1",
                    .size = 1_B,
                    .began = nanoseconds{6000},
                    .took = nanoseconds{1000}};
  const event waits{.what = event_kind::wait, .operation = "a \"b\"\\\n"};
  CHECK(log_of({leaves, again, waits}) ==
        R"({"decision":1,"time_ns":5000,"for":"conv2","what":"offload","tensor":7,)"
        R"("label":"conv1","bytes":4096,"score":0.25,"cost_ns":700,"alternative_ns":null})"
        "\n"
        R"({"decision":2,"time_ns":6000,"for":"conv1","what":"recompute","tensor":0,)"
        R"("label":"conv1","bytes":1,"score":null,"cost_ns":1000,"alternative_ns":null})"
        "\n"
        R"({"decision":3,"time_ns":0,"for":"a \"b\"\\\u000a","what":"wait","tensor":null,)"
        R"("label":"","bytes":0,"score":null,"cost_ns":null,"alternative_ns":null})"
        "\n");
}

TEST_CASE("work that nobody decided is not in the log") {
  CHECK(log_of({{.what = event_kind::run},
                {.what = event_kind::copy_out},
                {.what = event_kind::copy_in}})
            .empty());
  for (const event_kind what :
       {event_kind::recompute, event_kind::evict, event_kind::offload, event_kind::clean_drop,
        event_kind::reload, event_kind::prefetch, event_kind::wait, event_kind::costs_unknown})
    CHECK(lines_of(log_of({{.what = what}})).size() == 1);
}

TEST_CASE("the log tells what the counters count, in order, and the same again") {
  std::uint64_t decisions = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    const program p = random_program(seed);
    for (const told& t : {follow(p, "online"), follow(p, "paper")}) {
      std::map<std::string, std::uint64_t> n;
      std::uint64_t number = 0;
      std::int64_t last = 0;
      for (const json& line : lines_of(t.text)) {
        ++n[line.at("what")];
        CHECK(line.at("decision") == ++number);
        CHECK(line.at("time_ns") >= last);
        last = line.at("time_ns");
      }
      decisions += number;
      CHECK(n["offload"] == t.counts.offloads);
      CHECK(n["clean_drop"] == t.counts.clean_drops);
      CHECK(n["prefetch"] == t.counts.prefetches);
      CHECK(n["reload"] + n["prefetch"] == t.counts.reloads);
      CHECK(n["recompute"] == t.counts.recomputes);
      CHECK(n["wait"] <= t.counts.waits);       // clearing a window waits without a word
      CHECK(n["evict"] <= t.counts.evictions);  // the dropped leave without a word
    }
    CHECK(follow(p, "online").text == follow(p, "online").text);
  }
  CHECK(decisions > 1000);
}
