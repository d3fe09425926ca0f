// With a virtual clock, an arena decides what the simulator decides: same counters, same clock,
// whatever the device under it does. So a rehearsal without a machine tells the truth. And a
// manager by name decides what the template decides.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adversary.hpp"
#include "delta/adaptive.hpp"
#include "delta/engine/engine.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "machine.hpp"
#include "peers/make_manager.hpp"
#include "peers/peer_names.hpp"
#include "random_program.hpp"
#include "seeds.hpp"

using namespace delta;
using namespace delta::test;

namespace {

constexpr copy_rates rates{.out = 2e9, .in = 3e9, .move = 5e8, .latency = nanoseconds{7}};

struct trace {
  std::vector<std::uint64_t> steps;  ///< counters, clock and bytes after every operator
  std::map<int, std::uint64_t> left;
  bool operator==(const trace& o) const { return steps == o.steps; }
};

template <class Manager, class S, class Launch>
trace follow(const program& p, Manager& m, S& storage, const Launch& launch) {
  trace t;
  const auto note = [&](auto... values) { (t.steps.push_back(std::uint64_t(values)), ...); };
  t.left = run_program(m, p, launch, [&] {
    const counters& n = m.counts();
    note(n.operators, n.evictions, n.offloads, n.clean_drops, n.reloads, n.prefetches, n.recomputes,
         n.revivals, n.backward_releases, n.waits, n.decisions, n.bytes_out, n.bytes_in,
         n.recompute_time.count(), m.evaluations(), m.walked(), m.live_tensors(), m.live_records(),
         storage.now().count(), storage.waited().count(), storage.used().count,
         storage.host_used().count, storage.moves());
  });
  return t;
}

/// A program, and the budget that it is run under.
struct subject {
  program p;
  std::map<int, std::uint64_t> expected;
  bytes budget{};
};
subject subject_of(std::uint64_t seed) {
  program p = random_program(seed, {.largest = 200});
  const bytes budget = round_up(bytes{largest_footprint(p, 64).count * (10 + seed % 5) / 10}, 64);
  auto expected = evaluate(p);
  return {std::move(p), std::move(expected), budget};
}
simulated in_virtual_time(const subject& s) {
  return simulated({.capacity = s.budget,
                    .host_capacity = 64_KiB,
                    .rate_out = rates.out,
                    .rate_in = rates.in,
                    .latency = rates.latency,
                    .granularity = 64,
                    .rate_move = rates.move});
}

}  // namespace

TEST_CASE("arena and simulator take the same decisions, under every policy that has a name") {
  std::uint64_t moved = 0, waited = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= seeds(150); ++seed) {
    const subject s = subject_of(seed);
    for (const preset& policy : executor::all_policies) {
      CAPTURE(seed);
      CAPTURE(policy.name);
      simulated there = in_virtual_time(s);
      std::optional<trace> told;
      try {
        told = follow(s.p, *executor::make_any_manager(policy.name, over(there)), there, run_now{});
      } catch (const budget_exceeded&) {
        ++refused;
      }
      const arena_options memory{.capacity = s.budget, .host_capacity = 64_KiB};
      immediate device;
      timed_arena<immediate> here(device, memory, rates);
      const auto at_once = executor::make_any_manager(policy.name, over(here));
      adversary late(seed);
      timed_arena<adversary> slow(late, memory, rates);
      const auto at_last = executor::make_any_manager(policy.name, over(slow));
      const auto launch = [&](auto&& reads, auto&& writes, auto body) {
        std::vector<range> from, to;
        for (const auto& r : reads) from.push_back({r.data(), r.size()});
        for (const auto& w : writes) to.push_back({w.data(), w.size()});
        late.launch(from, to, body);
      };
      if (!told) {
        CHECK_THROWS_AS(follow(s.p, *at_once, here, run_now{}), budget_exceeded);
        CHECK_THROWS_AS(follow(s.p, *at_last, slow, launch), budget_exceeded);
      } else {
        const trace done = follow(s.p, *at_once, here, run_now{});
        CHECK(done == *told);
        CHECK(done.left == s.expected);
        const trace done_late = follow(s.p, *at_last, slow, launch);
        late.drain();
        CHECK(done_late == *told);
        CHECK(done_late.left == s.expected);
      }
      late.drain();
      CHECK(late.violations().empty());
      moved += there.moves();
      waited += std::uint64_t(there.waited().count());
    }
  }
  CHECK(moved > 0);
  CHECK(waited > 0);
  CHECK(refused > 0);  // by those that never offload
}

TEST_CASE("a manager behind virtual functions decides what the template decides") {
  for (std::uint64_t seed = 1; seed <= seeds(150); ++seed) {
    const subject s = subject_of(seed);
    const auto compare = [&](const char* name, auto policy) {
      CAPTURE(seed);
      CAPTURE(name);
      simulated of_template = in_virtual_time(s), by_name = in_virtual_time(s);
      manager m{std::move(policy), of_template};
      CHECK(follow(s.p, m, of_template, run_now{}) ==
            follow(s.p, *make_manager(name, over(by_name)), by_name, run_now{}));
    };
    compare("online", online());
    compare("paper", paper());
    compare("adaptive", adaptive());
  }
}

TEST_CASE("an unknown name is an error that carries it") {
  simulated storage({.capacity = 1_KiB});
  try {
    (void)make_manager("onlin", over(storage));
    FAIL("made");
  } catch (const unknown_policy& e) {
    CHECK(e.name() == "onlin");
    CHECK(std::string(e.what()) == "there is no policy 'onlin'");
  }
}
