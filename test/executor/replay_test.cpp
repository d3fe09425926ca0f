// Replaying a trace through the manager in virtual time: what it costs without a budget, and that
// every verdict is what it says.
#include "replay/replay_named.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "delta/presets.hpp"
#include "trace/file.hpp"
#include "trace/repeat.hpp"

using namespace delta;
using namespace delta::executor;

namespace {

/// A chain of `n` operators forward, of 10 bytes and 5 ns each, and back; every result is read by
/// the next and by its own way back.
trace chain(std::uint32_t n) {
  trace t;
  t.names = {"forward", "backward"};
  const auto add = [&](bytes size, std::uint32_t producer) {
    t.tensors.push_back({size, trace::none, producer});
    return std::uint32_t(t.tensors.size() - 1);
  };
  const auto run = [&](std::uint32_t name, std::initializer_list<std::uint32_t> inputs) {
    const auto op = std::uint32_t(t.operations.size());
    const std::uint32_t made = add(bytes{10}, op);
    trace::operation o;
    o.name = name, o.cost = nanoseconds{5};
    o.first = std::uint32_t(t.lists.size());
    o.inputs = std::uint32_t(inputs.size()), o.outputs = 1;
    t.lists.insert(t.lists.end(), inputs);
    t.lists.push_back(made);
    t.operations.push_back(o);
    t.events.push_back({trace::kind::run, op});
    return made;
  };
  std::vector<std::uint32_t> x{add(bytes{10}, trace::none)};
  t.events.push_back({trace::kind::constant, 0});
  for (std::uint32_t i = 0; i < n; ++i) x.push_back(run(0, {x.back()}));
  t.events.push_back({trace::kind::backward, 0});
  std::uint32_t g = x.back();
  for (std::uint32_t i = n; i-- > 0;) {
    const std::uint32_t next = run(1, {x[i], g});
    t.events.push_back({trace::kind::drop, g});
    if (i > 0 && i < n) t.events.push_back({trace::kind::drop, x[i]});
    g = next;
  }
  check(t);
  return t;
}

}  // namespace

TEST_CASE("replay: without a budget") {
  const unmanaged_cost cost = unmanaged(chain(8));
  CHECK(cost.time == nanoseconds{80});
  CHECK(cost.peak == bytes{100});  // the constant, eight results, one gradient
}

TEST_CASE("replay: with room for all of it nothing happens, with less it takes longer") {
  const trace t = chain(8);
  const replay_result all = replay_named("dtr", t, {.budget = bytes{100}});
  CHECK(all.result == replay_result::verdict::pass);
  CHECK(all.time == nanoseconds{80});
  CHECK(all.counts.evictions == 0);
  CHECK(all.peak == bytes{100});
  const replay_result less = replay_named("dtr", t, {.budget = bytes{60}});
  CHECK(less.result == replay_result::verdict::pass);
  CHECK(less.recompute > nanoseconds{});
  CHECK(less.time == nanoseconds{80} + less.recompute);
  CHECK(less.peak <= bytes{60});
  const replay_result swapped = replay_named(
      "swap_lru", t,
      {.budget = bytes{60}, .host_budget = bytes{1000}, .rate_out = 10e9, .rate_in = 10e9});
  CHECK(swapped.result == replay_result::verdict::pass);
  CHECK(swapped.recompute == nanoseconds{});
  CHECK(swapped.counts.offloads > 0);
  CHECK(swapped.time == nanoseconds{80} + swapped.stall);
}

TEST_CASE("replay: too small is a result, and so is too slow") {
  const trace t = chain(8);
  const replay_result none = replay_named("dtr", t, {.budget = bytes{30}});
  CHECK(none.result == replay_result::verdict::oom);
  CHECK(!none.error.empty());
  const replay_result slow = replay_named("dtr", t, {.budget = bytes{50}, .thrash_limit = 1.05});
  CHECK(slow.result == replay_result::verdict::thrash);
  CHECK(slow.time > nanoseconds{84});
}

namespace {

/// Two variables of 10 bytes in a granularity of 16: w, and v without a name; f makes 10 from v.
/// Then `events`.
trace accesses(const std::vector<trace::event>& events) {
  trace t;
  t.recorded_on = {.rate_out = 1'000'000'000,
                   .rate_in = 1'000'000'000,
                   .latency = nanoseconds{3},
                   .granularity = 16};
  t.names = {"w", "f"};
  t.tensors = {
      {.size = bytes{10}, .name = 0}, {.size = bytes{10}}, {.size = bytes{10}, .producer = 0}};
  t.lists = {1, 2};
  t.operations = {{.name = 1, .cost = nanoseconds{5}, .inputs = 1, .outputs = 1}};
  t.events = {{trace::kind::variable, 0}, {trace::kind::variable, 1}, {trace::kind::run, 0}};
  t.events.insert(t.events.end(), events.begin(), events.end());
  check(t);
  return t;
}

/// Which tensors an observer sees come back, by their labels.
class teller final : public any_observer {
 public:
  explicit teller(std::vector<std::string>& reloads) : reloads_(&reloads) {}
  void on(const event& e) override {
    if (e.what == event_kind::reload) reloads_->emplace_back(e.label);
  }

 private:
  std::vector<std::string>* reloads_;
};

struct told_result {
  replay_result result;
  std::vector<std::string> reloads;
};

/// With room for two of the three tensors.
told_result replay_in_two(const trace& t) {
  replay_machine on = machine_of(t);
  on.budget = bytes{32};
  on.host_budget = bytes{1000};
  on.thrash_limit = 100;
  told_result r;
  teller told(r.reloads);
  r.result = replay_named("swap_lru", t, on, {.observer = &told});
  return r;
}

}  // namespace

TEST_CASE("replay: rates, latency and granularity are those of the header") {
  const trace t = accesses({});
  const replay_machine on = machine_of(t, {.budget = bytes{7}, .rate_out = 5, .latency = {}});
  CHECK(on.budget == bytes{7});
  CHECK(on.rate_out == 1e9);
  CHECK(on.rate_in == 1e9);
  CHECK(on.latency == nanoseconds{3});
  const replay_machine unknown = machine_of(chain(1), {.rate_out = 5, .latency = nanoseconds{4}});
  CHECK(unknown.rate_out == 5);
  CHECK(unknown.latency == nanoseconds{4});

  const replay_result all = replay_named("unmanaged", t, {.budget = bytes{48}});
  CHECK(all.result == replay_result::verdict::pass);
  CHECK(all.peak == bytes{48});
  CHECK(replay_named("unmanaged", t, {.budget = bytes{47}}).result == replay_result::verdict::oom);
  CHECK(replay_named("unmanaged", t, {.budget = bytes{47}}).error.find("'f'") != std::string::npos);
}

TEST_CASE("replay: reads and writes bring tensors in, under the names that the program gave them") {
  using labels = std::vector<std::string>;
  const std::vector<trace::event> end{{trace::kind::end_of_step, 0}};
  CHECK(replay_in_two(accesses(end)).reloads.empty());
  CHECK(replay_in_two(accesses({{trace::kind::read, 0}, end[0]})).reloads == labels{"w"});
  const told_result written =
      replay_in_two(accesses({{trace::kind::write, 0}, {trace::kind::read, 1}, end[0]}));
  CHECK(written.reloads == labels{"w", "variable"});
  // A copy of 16 bytes takes 16 ns, and 3 to begin with.
  CHECK(written.result.time == written.result.stall + nanoseconds{5});
  CHECK(written.result.stall >= nanoseconds{19});
}

TEST_CASE("replay: results come together, but not behind the end of a step") {
  CHECK(replay_in_two(accesses({})).result.result == replay_result::verdict::oom);
  CHECK(replay_in_two(accesses({{trace::kind::end_of_step, 0}})).result.result ==
        replay_result::verdict::pass);
}

// Recomputing its gradients, which leave as that is cheap, thrashes behind the first update of a
// weight: PyTorch's encoder of three layers and AdamW, one parameter after another.
TEST_CASE("replay: recomputation that thrashes is no end where the host has room") {
  const auto file =
      std::filesystem::path(DELTA_SOURCE_DIR) / "test/reference/encoder_adamw.jsonl.gz";
  const trace step = read_trace(file), program = repeat_trace(step, 3);
  const bytes peak = unmanaged_peak(step);
  int fail_without_host = 0;
  for (const char* policy : {"online", "adaptive", "paper"})
    for (const double part : {0.12, 0.15, 0.2, 0.25, 0.3})
      for (const bool places : {false, true}) {
        CAPTURE(policy);
        CAPTURE(part);
        CAPTURE(places);
        replay_machine on = machine_of(step, {.thrash_limit = 100});
        on.budget = bytes{std::uint64_t(part * double(peak.count))};
        on.host_budget = peak * 4, on.places = places;
        const replay_result r = replay_named(policy, program, on);
        CHECK_MESSAGE(r.result == replay_result::verdict::pass, r.error);
        CHECK(r.peak <= on.budget);
        CHECK(r.steps.back().host_after <= peak);
        on.host_budget = bytes{};
        fail_without_host +=
            replay_named(policy, program, on).result != replay_result::verdict::pass;
      }
  CHECK(fail_without_host > 0);
}
