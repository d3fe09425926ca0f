// Plans: in order, complete, each operator once, and a peak that is never less than what running
// them takes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "delta/detail/runtime/restore_by_plan.hpp"

using namespace delta;
using namespace delta::detail;

namespace {

/// A random graph: some sources, operators on what came before, some tensors gone.
struct sample {
  detail::graph g;
  std::vector<tensor_id> tensors;
  std::vector<tensor_id> targets;
  bytes tail{};

  sample(std::uint64_t seed, int operators, bool one_output, bool with_host) {
    std::mt19937_64 rng(seed);
    const auto below = [&](std::uint64_t n) { return rng() % n; };
    const auto add = [&] {
      const bytes n{1 + below(20)};
      tensors.push_back(g.add_tensor(n, n));
      return tensors.back();
    };
    for (std::uint64_t i = 1 + below(2); i-- > 0;) g[add()].where = residency::resident;
    for (int i = 0; i < operators; ++i) {
      std::vector<tensor_id> inputs, outputs;
      for (std::uint64_t k = below(4); k-- > 0;) inputs.push_back(tensors[below(tensors.size())]);
      for (std::uint64_t k = one_output ? 1 : 1 + below(3); k-- > 0;) {
        const tensor_id t = add();
        outputs.push_back(t);
        const auto dice = below(8);
        g[t].where = dice < 2                 ? residency::resident
                     : dice == 2 && with_host ? residency::host
                     : dice < 5               ? residency::dead
                                              : residency::evicted;
        g[t].references = g[t].where == residency::dead ? 0 : 1;
      }
      const operator_id o = g.add_record(inputs, outputs);
      g[o].workspace = bytes{below(3) == 0 ? below(10) : 0};
      g[o].cost = nanoseconds{1 + std::int64_t(below(9))};
    }
    for (std::uint64_t k = 1 + below(3); k-- > 0;)
      targets.push_back(
          tensors[tensors.size() - 1 - below(std::min<std::size_t>(4, tensors.size()))]);
    tail = bytes{below(20)};
  }
};

constexpr auto as_is = [](bytes n) { return n; };

/// What running the plan adds at its worst moment, by the rules alone: a replay takes its outputs
/// (scratch for those that are here) and workspace; what it read for the last time goes.
std::uint64_t really_added(const sample& s, const plan& p) {
  const detail::graph& g = s.g;
  std::multiset<tensor_id> uses(s.targets.begin(), s.targets.end());
  for (const auto& step : p.steps)
    if (step.what == plan_step::kind::replay)
      for (const tensor_id in : g.inputs(step.op)) uses.insert(in);
  std::set<tensor_id> here;
  for (const tensor_id t : s.tensors)
    if (detail::on_device(g[t].where)) here.insert(t);
  std::uint64_t live = 0, peak = 0;
  const auto come = [&](tensor_id t) {
    if (uses.contains(t) && here.insert(t).second) live += g[t].footprint.count;
  };
  for (const auto& step : p.steps) {
    if (step.what == plan_step::kind::reload) {
      CHECK(g[step.tensor].where == residency::host);
      CHECK(!here.contains(step.tensor));
      come(step.tensor);
      peak = std::max(peak, live);
      continue;
    }
    for (const tensor_id in : g.inputs(step.op)) CHECK(here.contains(in));
    std::uint64_t more = g[step.op].workspace.count;
    for (const tensor_id out : g.outputs(step.op)) more += g[out].footprint.count;
    peak = std::max(peak, live + more);
    for (const tensor_id out : g.outputs(step.op)) come(out);
    for (const tensor_id in : g.inputs(step.op)) {
      uses.erase(uses.find(in));
      if (!uses.contains(in) && !detail::on_device(g[in].where) && here.erase(in) > 0)
        live -= g[in].footprint.count;
    }
  }
  for (const tensor_id t : s.targets) CHECK(here.contains(t));
  return std::max(peak, live + s.tail.count);
}

}  // namespace

TEST_CASE("a plan is in order, complete, runs each operator once, and knows its peak") {
  int steps = 0, exact = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    for (const bool one_output : {true, false}) {
      CAPTURE(seed);
      CAPTURE(one_output);
      sample s(seed, 14, one_output, true);
      std::mt19937_64 rng(seed);
      std::vector<bool> reloads;
      for (std::size_t i = 0; i < s.tensors.size(); ++i) reloads.push_back(rng() % 2 == 0);
      planner maker;
      const plan& p = maker.closure(
          s.g, s.targets, s.tail, [&](tensor_id t) { return bool(reloads[index(t)]); }, as_is);
      std::set<operator_id> run;
      for (const auto& step : p.steps)
        if (step.what == plan_step::kind::replay) CHECK(run.insert(step.op).second);
      const std::uint64_t added = really_added(s, p);
      CHECK(p.peak.count >= added);
      if (one_output) CHECK(p.peak.count == added);
      exact += p.peak.count == added;
      steps += int(p.steps.size());
      for (const auto& r : p.rows) CHECK(s.g[r.tensor].planned != detail::tensor_record::nowhere);
      maker.forget(s.g);
      for (const tensor_id t : s.tensors) CHECK(s.g[t].planned == detail::tensor_record::nowhere);
    }
  }
  CHECK(steps > 10'000);
  CHECK(exact > 5'000);
}

TEST_CASE("a plan ten thousand operators deep needs no stack") {
  detail::graph g;
  tensor_id last = g.add_tensor(bytes{1}, bytes{1});
  g[last].where = residency::resident;
  for (int i = 0; i < 10'000; ++i) {
    const std::array in{last}, out{g.add_tensor(bytes{1}, bytes{1})};
    g.add_record(in, out);
    last = out[0];
    g[last].where = residency::evicted;
  }
  planner maker;
  const std::vector<tensor_id> targets{last};
  const plan& p = maker.closure(
      g, targets, bytes{}, [](tensor_id) { return true; }, as_is);
  CHECK(p.steps.size() == 10'000);
  CHECK(p.peak == bytes{2});
}
