// Progress: every run ends, within its budget; policies that may offload pass wherever the largest
// operator fits; recomputation alone passes wherever any schedule does.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <queue>
#include <set>
#include <vector>

#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "lifo_prefetch.hpp"
#include "more_heuristics.hpp"
#include "random_program.hpp"
#include "seeds.hpp"
#include "storage_check.hpp"
#include "tested_policy.hpp"

using namespace delta;
using namespace delta::test;

namespace {

struct verdict {
  bool passed = false;
  std::uint64_t decisions = 0, allowed = 0;
  std::string error;
  bytes smallest{};
};

verdict attempt(const program& p, const tested_policy& policy, bytes budget, bytes host) {
  simulated storage({.capacity = budget, .host_capacity = host, .rate_out = 2e9, .rate_in = 2e9});
  verdict v;
  const auto managed = policy.manage(over(storage));
  manager_interface& m = *managed;
  std::uint64_t before = 0, live = 0, records = 0;
  try {
    run_program(m, p, run_now{}, [&] {
      CHECK(storage.used() <= budget);
      CHECK(check_invariants(storage) == "");
      before = m.counts().decisions;
      live = m.live_tensors(), records = m.live_records();
    });
    v.passed = true;
  } catch (const budget_exceeded& e) {
    // Decisions of the call that gave up, per operator that it could replay and tensor it could
    // ask.
    v.decisions = m.counts().decisions - before;
    v.allowed = 10 * (records + 1) * (live + 1);
    v.error = e.what();
    v.smallest = e.report.smallest_budget;
  }
  return v;
}

/// Every policy that may offload: the named ones, and some whose parts are mixed.
std::vector<tested_policy> offloading_policies() {
  std::vector<tested_policy> all{
      own("greedy cheaper lifo", policy<greedy, cheaper, lifo_prefetch>{}),
      own("msps paper", policy<msps, paper_director, no_prefetch>{}),
      own("dtr cheaper fifo", policy<dtr, cheaper, fifo_prefetch>{})};
  for (const char* name : {"online", "paper", "adaptive", "swap_lru"}) all.push_back(by_name(name));
  return all;
}

}  // namespace

TEST_CASE("with host memory, every policy that may offload passes once the largest operator fits") {
  const auto policies = offloading_policies();
  for (std::uint64_t seed = 1; seed <= seeds(1000); ++seed) {
    const program p = random_program(seed);
    const bytes least = largest_footprint(p);
    for (const bytes budget : {least, least + bytes{least.count / 3}, least + least})
      for (const tested_policy& policy : policies) {
        const verdict v = attempt(p, policy, budget, 1_MiB);
        CAPTURE(seed);
        CAPTURE(policy.name);
        CAPTURE(budget.count);
        INFO(v.error);
        CHECK(v.passed);
      }
  }
}

TEST_CASE("below the largest operator's footprint the error names just that") {
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    const program p = random_program(seed);
    const bytes least = largest_footprint(p);
    const verdict v = attempt(p, by_name("online"), bytes{least.count - 1}, 1_MiB);
    CAPTURE(seed);
    CHECK(!v.passed);
    CHECK(v.smallest == least);
  }
}

TEST_CASE("recomputation alone ends: it passes, or throws within a bounded number of decisions") {
  for (std::uint64_t seed = 1; seed <= seeds(1000); ++seed) {
    const program p = random_program(seed);
    const bytes least = largest_footprint(p);
    for (const std::uint64_t percent : {100u, 130u, 200u, 400u}) {
      const verdict v = attempt(p, by_name("dtr"), bytes{least.count * percent / 100}, bytes{});
      CAPTURE(seed);
      if (v.passed) continue;
      CHECK(v.decisions <= v.allowed);
      CHECK(v.smallest.count >= least.count * percent / 100);
    }
  }
}

namespace {

/// Does any schedule of runs, replays and evictions carry out a small pure program within the
/// budget? Breadth first over (operators done, tensors here).
bool schedule_exists(const program& p, bytes budget) {
  const int sources = p.sources();
  std::uint64_t fixed = 0;
  for (const auto n : p.constants) fixed += n;
  for (const auto n : p.variables) fixed += n;
  struct made {
    int op;
    std::uint32_t size;
  };
  std::vector<made> values;
  for (int o = 0; o < int(p.ops.size()); ++o)
    for (const auto n : p.ops[std::size_t(o)].outputs) values.push_back({o, n});
  const auto bit = [&](int v) { return 1u << (v - sources); };
  using state = std::pair<int, std::uint32_t>;
  std::set<state> seen{{0, 0}};
  std::queue<state> open;
  open.push({0, 0});
  while (!open.empty()) {
    const auto [done, here] = open.front();
    open.pop();
    if (done == int(p.ops.size())) return true;
    std::uint64_t held = fixed;
    for (std::size_t i = 0; i < values.size(); ++i)
      if ((here >> i & 1u) != 0) held += values[i].size;
    const auto reach = [&](int d, std::uint32_t h) {
      if (seen.insert({d, h}).second) open.push({d, h});
    };
    for (std::size_t i = 0; i < values.size(); ++i)
      if ((here >> i & 1u) != 0) reach(done, here & ~(1u << i));
    for (int o = 0; o <= done; ++o) {
      const program::op& x = p.ops[std::size_t(o)];
      std::uint64_t need = x.workspace;
      bool ready = true;
      for (const int v : x.inputs) ready = ready && (v < sources || (here & bit(v)) != 0);
      std::uint32_t gives = 0;
      for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i].op == o) need += values[i].size, gives |= 1u << i;
      if (!ready || held + need > budget.count) continue;
      if (o == done)
        reach(done + 1, here | gives);
      else
        reach(done, here | gives);
    }
  }
  return false;
}

}  // namespace

TEST_CASE("recomputation alone passes wherever brute force finds a schedule") {
  const std::uint64_t programs = seeds(1500);
  std::uint64_t passed = 0, impossible = 0;
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    program p = random_program(
        seed, {.operators = 8, .steps = 1, .largest = 24, .updates = false, .effects = false});
    for (auto& o : p.ops) o.drops.clear(), o.step = false, o.workspace %= 16;
    const bytes least = largest_footprint(p);
    std::uint64_t fixed = 0;
    for (const auto n : p.variables) fixed += n;
    for (std::uint64_t budget = least.count; budget <= least.count + fixed + 24; budget += 6) {
      const bool possible = schedule_exists(p, bytes{budget});
      const verdict v = attempt(p, by_name("dtr"), bytes{budget}, bytes{});
      CAPTURE(seed);
      CAPTURE(budget);
      INFO(v.error);
      // At the end the test looks at every value, one after the other: that needs no more than the
      // operators did, as each value was an output once.
      CHECK(v.passed == possible);
      ++(possible ? passed : impossible);
    }
  }
  std::printf("oracle: %llu cells possible, %llu impossible\n",
              static_cast<unsigned long long>(passed), static_cast<unsigned long long>(impossible));
  CHECK(passed > programs * 2 / 3);
  CHECK(impossible > programs / 15);
}
