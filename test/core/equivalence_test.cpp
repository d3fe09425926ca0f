// With a virtual clock, an arena decides what the simulator decides: same counters, same clock,
// whatever the device under it does. So a rehearsal without a machine tells the truth.
#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "adversary.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "machine.hpp"
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

template <class Policy, class S, class Launch>
trace follow(const program& p, Policy policy, S& storage, const Launch& launch) {
  trace t;
  const auto note = [&](auto... values) { (t.steps.push_back(std::uint64_t(values)), ...); };
  manager m{std::move(policy), storage};
  t.left = run_program(m, p, launch, [&] {
    const counters& n = m.counts();
    note(n.operators, n.evictions, n.offloads, n.clean_drops, n.reloads, n.prefetches, n.recomputes,
         n.revivals, n.backward_releases, n.waits, n.decisions, n.bytes_out, n.bytes_in,
         n.recompute_time.count(), m.evaluations(), storage.now().count(), storage.waited().count(),
         storage.used().count, storage.host_used().count, storage.moves());
  });
  return t;
}

}  // namespace

TEST_CASE("arena and simulator take the same decisions") {
  std::uint64_t moved = 0, waited = 0;
  for (std::uint64_t seed = 1; seed <= seeds(300); ++seed) {
    const program p = random_program(seed, {.largest = 200});
    const auto expected = evaluate(p);
    const bytes budget = round_up(bytes{largest_footprint(p, 64).count * (10 + seed % 5) / 10}, 64);
    const auto compare = [&](const char* name, auto policy) {
      CAPTURE(seed);
      CAPTURE(name);
      simulated there({.capacity = budget,
                       .host_capacity = 64_KiB,
                       .rate_out = rates.out,
                       .rate_in = rates.in,
                       .latency = rates.latency,
                       .granularity = 64,
                       .rate_move = rates.move});
      const trace told = follow(p, policy, there, run_now{});
      immediate device;
      arena<immediate> here(device,
                            {.capacity = budget, .host_capacity = 64_KiB, .virtual_clock = rates});
      const trace done = follow(p, policy, here, run_now{});
      CHECK(done == told);
      CHECK(done.left == expected);
      adversary late(seed);
      arena<adversary> slow(late,
                            {.capacity = budget, .host_capacity = 64_KiB, .virtual_clock = rates});
      const trace at_last = follow(p, policy, slow, [&](auto&& reads, auto&& writes, auto body) {
        std::vector<range> from, to;
        for (const auto& r : reads) from.push_back({r.data(), r.size()});
        for (const auto& w : writes) to.push_back({w.data(), w.size()});
        late.launch(from, to, body);
      });
      late.drain();
      CHECK(at_last == told);
      CHECK(at_last.left == expected);
      CHECK(late.violations().empty());
      moved += there.moves();
      waited += std::uint64_t(there.waited().count());
    };
    compare("online", online());
    compare("paper", paper());
    compare("learned", learned());
    compare("adaptive", adaptive());
    compare("lru lifo", policy<lru, offload_only, lifo_prefetch>{});
  }
  CHECK(moved > 0);
  CHECK(waited > 0);
}
