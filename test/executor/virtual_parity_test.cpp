// With the virtual clock a training run decides what the rehearsal in simulated memory decides, and
// decides it again: otherwise a budget that an error names would be a guess.
// ctest-labels: slow;long
#include <doctest/doctest.h>

#include "train/feasibility.hpp"
#include "training.hpp"

using namespace delta::test;
using namespace delta::executor;

namespace {

train_options with_virtual_clock(const workload& w) {
  train_options o = unmanaged(w);
  o.virtual_clock = true;
  return o;
}

}  // namespace

TEST_CASE("the arena under a virtual clock decides what the simulated storage decides") {
  for (const workload& w : {workload{.model = "resnet20", .image = 32, .batch = 8, .steps = 4},
                            workload{.model = "resnet50", .image = 32, .batch = 4, .steps = 2}})
    for (const double copy_rate : {0.0, 2e9})
      for (const std::string_view policy : {"online", "dtr", "paper", "adaptive"})
        for (const double part : {70, 40, 20}) {
          if (copy_rate > 0 && w.model == "resnet50") continue;  // copies are really that slow
          CAPTURE(w.model);
          CAPTURE(policy);
          CAPTURE(part);
          CAPTURE(copy_rate);
          train_options o = managed(with_virtual_clock(w), policy, percent(part));
          o.copy_rate = copy_rate;
          const auto result = try_to_train(o);
          const auto peak = unmanaged_peak(graph_of(o)).total;
          const auto rehearsed =
              rehearse(graph_of(o), {.policy = policy,
                                     .budget = o.budget.resolve(delta::bytes{peak}),
                                     .host_budget = delta::bytes{peak},
                                     .copy_rate = copy_rate,
                                     .steps = int(w.steps)});
          const auto* r = std::get_if<train_report>(&result);
          REQUIRE((r != nullptr) == rehearsed.has_value());
          if (r == nullptr) continue;
          MESSAGE(row(*r));
          check_same_decisions(*r, *rehearsed);
        }
}

TEST_CASE("two runs under a virtual clock decide the same") {
  for (const std::string_view policy : {"online", "dtr", "paper", "adaptive"}) {
    CAPTURE(policy);
    const train_options o =
        managed(with_virtual_clock({.model = "resnet20", .steps = 3}), policy, percent(40));
    const train_report a = train(o), b = train(o);
    CHECK(same_bits(a, b));
    check_same_decisions(a, b);
    CHECK(a.moves == b.moves);
    CHECK(a.moved_bytes == b.moved_bytes);
    CHECK(a.peak_bytes == b.peak_bytes);
    CHECK(a.host_peak_bytes == b.host_peak_bytes);
  }
}
