// What questions about recompute costs take: records visited per answer that the Filter asks for,
// walks that forget kept costs included. Counts, which repeat exactly.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "more_heuristics.hpp"
#include "replay/replay_named.hpp"
#include "replay/replay_policy.hpp"
#include "simrd_reference.hpp"
#include "tested_policy.hpp"

using namespace delta;
using namespace delta::executor;

namespace {

struct work {
  std::uint64_t walked = 0, answers = 0;
  [[nodiscard]] double per_answer() const { return double(walked) / double(answers); }
};

auto msps_evict() {
  return policy<msps, evict_only, no_prefetch>{};
}

/// A chain of `layers` operators, and back again: every backward operator reads its layer's input
/// and the gradient behind it. A tenth of it fits.
work chain(const test::tested_policy& p, std::size_t layers) {
  constexpr bytes size{1 << 20};
  simulated storage({.capacity = bytes{size.count * (layers / 10 + 4)},
                     .host_capacity = bytes{size.count * layers}});
  const auto managed = p.manage(over(storage));
  manager_interface& m = *managed;
  const auto run = [&](std::initializer_list<tensor_id> inputs) {
    return m.run({.inputs = inputs, .outputs = {size}, .cost = nanoseconds{1'000'000}},
                 [](call&) {});
  };
  std::vector<tensor_id> x{m.variable(size)};
  for (std::size_t i = 0; i < layers; ++i) x.push_back(run({x.back()}));
  tensor_id gradient = run({x.back()});
  for (std::size_t i = layers; i-- > 0;) {
    const tensor_id next = run({x[i], gradient});
    m.drop(gradient), m.drop(x[i + 1]);
    gradient = next;
  }
  return {m.walked(), m.evaluations()};
}

}  // namespace

TEST_CASE("a cost is told by few records, on real traces") {
  const auto folder = test::dtr_traces("walks_test");
  if (folder.empty()) return;
  work dtr_all, online_all, msps_all;
  for (const char* model : {"resnet32", "unet", "densenet121", "transformer", "lstm"}) {
    const trace t = test::dtr_trace(folder, model);
    const unmanaged_cost alone = unmanaged(t);
    // `replay_it` replays the trace on a machine.
    const auto add = [&](work& all, const char* name, const auto& replay_it) {
      work here;
      for (const double ratio : {0.3, 0.4, 0.6, 0.8}) {
        const bytes budget{static_cast<std::uint64_t>(double(alone.peak.count) * ratio)};
        const replay_result r = replay_it({.budget = budget, .places = true});
        here.walked += r.walked, here.answers += r.evaluations;
      }
      std::printf("%-12s %-7s %6.2f records per answer, %llu answers\n", model, name,
                  here.per_answer(), static_cast<unsigned long long>(here.answers));
      all.walked += here.walked, all.answers += here.answers;
    };
    const auto named = [&](const char* policy) {
      return [&t, policy](const replay_machine& on) { return replay_named(policy, t, on); };
    };
    add(dtr_all, "dtr", named("dtr"));
    add(online_all, "online", named("online"));
    add(msps_all, "msps", [&](const replay_machine& on) { return replay(t, msps_evict(), on); });
  }
  // Not msps: without staleness it evicts what lies side by side, and closures get long. (Where it
  // thrashes they do: that is the policy's price, and the walk's limit bounds it.)
  for (const work& all : {dtr_all, online_all}) {
    CHECK(all.answers > 0);
    CHECK(all.per_answer() <= 8);
  }
  CHECK(msps_all.per_answer() <= 100);
}

TEST_CASE("a cost is told by as few records in a graph of any size") {
  const auto both = [](const test::tested_policy& policy) {
    const work small = chain(policy, 500), large = chain(policy, 8000);
    std::printf("chain, %-7s %6.2f records per answer with 500 layers, %6.2f with 8,000\n",
                policy.name.c_str(), small.per_answer(), large.per_answer());
    CHECK(large.per_answer() <= 1.5 * small.per_answer() + 1);
  };
  both(test::by_name("dtr"));
  both(test::by_name("online"));
  both(test::own("msps", msps_evict()));
}
