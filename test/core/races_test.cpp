// The whole manager against the adversary: random programs with real bytes, at tight budgets, where
// all that may be late is late. What is left at the end is what plain evaluation leaves.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adversary.hpp"
#include "delta/engine/manager_of.hpp"
#include "delta/presets.hpp"
#include "lifo_prefetch.hpp"
#include "more_heuristics.hpp"
#include "random_program.hpp"
#include "seeds.hpp"
#include "storage_check.hpp"

using namespace delta;
using namespace delta::test;

namespace {

struct outcome {
  bool passed = false;
  std::string error;
  counters counts;
};

/// Makes a manager over a storage. Behind an interface, so that programs are compiled once for all
/// policies; and compiled here, as the preset tsan would have to build delta::engine for this
/// alone.
using managed_by = std::function<std::unique_ptr<manager_interface>(std::unique_ptr<any_storage>)>;
template <class P>
managed_by by(P p) {
  return [p](std::unique_ptr<any_storage> s) { return make_manager(p, std::move(s)); };
}

/// The same, and every operator is run twice and compared (replay_check).
template <class P>
managed_by checked(P p) {
  return [p](std::unique_ptr<any_storage> s) {
    return make_manager(p, std::move(s), {.check_replays = true});
  };
}

/// Checks everything that can be checked of one run; only a failure for want of memory is left to
/// the caller.
outcome race(std::uint64_t seed, const program& p, const std::map<int, std::uint64_t>& expected,
             const managed_by& manage, bytes budget, bytes host, manner how) {
  adversary device(seed);
  arena<adversary> storage(device, {.capacity = budget, .host_capacity = host});
  outcome result;
  {
    const auto m = manage(over(storage));
    try {
      const auto left = run_program(
          *m, p, launch_late{&device},
          [&] {
            CHECK(storage.used() <= storage.capacity());
            CHECK(storage.host_used() <= storage.host_capacity());
            CHECK(check_invariants(storage) == "");
          },
          how);
      device.drain();
      CHECK(left == expected);
      result.passed = true;
    } catch (const budget_exceeded& e) {
      result.error = e.what();
    }
    result.counts = m->counts();
  }
  device.drain();
  CHECK(storage.used() == bytes{});
  CHECK(storage.host_used() == bytes{});
  CHECK(storage.largest_hole() == storage.capacity());
  CHECK(check_invariants(storage) == "");
  for (const auto& text : device.violations()) FAIL_CHECK(text);
  return result;
}

/// What all seeds of one test did together: a policy that never had to act tests nothing.
struct total {
  std::uint64_t evictions = 0, offloads = 0, reloads = 0, prefetches = 0, recomputes = 0;
  std::uint64_t revivals = 0, passed = 0, failed = 0, checked = 0, unchecked = 0;
  void add(const outcome& o) {
    evictions += o.counts.evictions, offloads += o.counts.offloads, reloads += o.counts.reloads;
    prefetches += o.counts.prefetches, recomputes += o.counts.recomputes;
    revivals += o.counts.revivals;
    checked += o.counts.replays_checked, unchecked += o.counts.replays_unchecked;
    ++(o.passed ? passed : failed);
  }
};

total races(const managed_by& manage, bytes host, bool always_passes, bool updates_made = false,
            manner how = manner::whole) {
  total sum;
  for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
    const program p = random_program(seed, {.largest = 200, .updates_made = updates_made});
    const auto expected = evaluate(p);
    const bytes least = largest_footprint(p, 64);
    for (const std::uint64_t percent : {100u, 130u, 200u}) {
      const bytes budget = round_up(bytes{least.count * percent / 100}, 64);
      CAPTURE(seed);
      CAPTURE(percent);
      const outcome o = race(seed, p, expected, manage, budget, host, how);
      INFO(o.error);
      if (always_passes) CHECK(o.passed);
      sum.add(o);
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("races: online") {
  const total sum = races(by(online()), 1_MiB, true);
  CHECK(sum.evictions > 0);
  CHECK(sum.offloads > 0);
  CHECK(sum.reloads > 0);
  CHECK(sum.recomputes > 0);
  CHECK(sum.revivals > 0);
}

TEST_CASE("races: replays are checked while copies and moves run late") {
  for (const manner how : {manner::whole, manner::open}) {
    const total sum = races(checked(online()), 1_MiB, true, false, how);
    CHECK(sum.evictions > 0);
    CHECK(sum.offloads > 0);
    CHECK(sum.checked > sum.unchecked);
    CHECK(sum.unchecked > 0);
  }
}

TEST_CASE("races: paper") {
  const total sum = races(by(paper()), 1_MiB, true);
  CHECK(sum.evictions > 0);
  CHECK(sum.offloads > 0);
  CHECK(sum.prefetches > 0);
  CHECK(sum.recomputes > 0);
}

TEST_CASE("races: recomputation only") {
  const total sum = races(by(recompute_only()), bytes{}, false);
  CHECK(sum.evictions > 0);
  CHECK(sum.recomputes > 0);
  CHECK(sum.offloads == 0);
  CHECK(sum.passed > 0);
  CHECK(sum.failed > 0);
}

TEST_CASE("races: offloading only, least recently used first") {
  const total sum = races(by(policy<lru, offload_only, no_prefetch>{}), 1_MiB, true);
  CHECK(sum.evictions == 0);
  CHECK(sum.offloads > 0);
  CHECK(sum.reloads > 0);
  CHECK(sum.revivals > 0);
}

TEST_CASE("races: the cheaper way out, last in first out back") {
  const total sum = races(by(policy<joint, cheaper, lifo_prefetch>{}), 1_MiB, true);
  CHECK(sum.evictions > 0);
  CHECK(sum.offloads > 0);
  CHECK(sum.prefetches > 0);
}

TEST_CASE("races: a host that is nearly full") {
  const total sum = races(by(policy<lru, cheaper, lifo_prefetch>{}), 512_B, false);
  CHECK(sum.evictions > 0);
  CHECK(sum.offloads > 0);
  CHECK(sum.passed > 0);
}

TEST_CASE("races: updates in place of what operators made") {
  CHECK(races(by(online()), 1_MiB, true, true).recomputes > 0);
  CHECK(races(by(paper()), 1_MiB, true, true).recomputes > 0);
  CHECK(races(by(recompute_only()), bytes{}, false, true).recomputes > 0);
}

TEST_CASE("races: operators begun and ended, their sizes told on the way") {
  for (const total& sum : {races(by(online()), 1_MiB, true, true, manner::open),
                           races(by(paper()), 1_MiB, true, true, manner::open)}) {
    CHECK(sum.evictions > 0);
    CHECK(sum.offloads > 0);
    CHECK(sum.recomputes > 0);
    CHECK(sum.revivals > 0);
  }
}

// What was looked at stays where it is, so that a request may find its free bytes in pieces: at
// the tightest budgets that is an error, which says so. Everything else is as before.
TEST_CASE("races: and looked at in between") {
  const total sum = races(by(online()), 1_MiB, false, true, manner::looking);
  CHECK(sum.evictions > 0);
  CHECK(sum.offloads > 0);
  CHECK(sum.recomputes > 0);
  CHECK(sum.passed > sum.failed);
}
