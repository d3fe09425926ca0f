// The baseline is honest: the unmanaged run holds what a liveness count over the graph says, and
// no more; its parts add up.
#include <doctest/doctest.h>

#include <cmath>

#include "liveness.hpp"
#include "train/feasibility.hpp"
#include "training.hpp"

using namespace delta::test;
using namespace delta::executor;

TEST_CASE("the unmanaged peak is the graph's liveness peak, to 3 %") {
  for (const workload& w : {workload{.model = "resnet20", .image = 32, .batch = 16},
                            workload{.model = "resnet20", .image = 32, .batch = 1},
                            workload{.model = "resnet20", .image = 28, .batch = 5},
                            workload{.model = "resnet20", .image = 64, .batch = 32},
                            workload{.model = "resnet50", .image = 32, .batch = 4},
                            workload{.model = "resnet50", .image = 64, .batch = 16},
                            workload{.model = "resnet50", .image = 96, .batch = 2}}) {
    CAPTURE(w.model);
    CAPTURE(w.image);
    CAPTURE(w.batch);
    train_options o = unmanaged(w);
    o.steps = 2;
    const train_report r = train(o);
    const auto counted = double(liveness_peak(graph_of(o), cpu_granularity));
    CHECK(std::fabs(double(r.peak_bytes) - counted) <= 0.03 * counted);
    MESSAGE(row(r) << ", counted " << std::uint64_t(counted));

    REQUIRE(r.unmanaged_peak_bytes);
    const bytes_by_class& parts = *r.unmanaged_peak_bytes;
    CHECK(parts.total == r.peak_bytes);
    CHECK(parts.parameters + parts.gradients + parts.optimizer_state + parts.activations +
              parts.workspace ==
          parts.total);
    CHECK(parts.parameters > 0);
    CHECK(parts.parameters == parts.optimizer_state);
  }
}

TEST_CASE("the unmanaged policy does with its own peak as a budget, and with nothing less") {
  train_options o = unmanaged({.model = "resnet20", .steps = 2});
  const train_report whole = train(o);
  const train_report within = train(managed(o, "unmanaged", absolute(whole.peak_bytes)));
  CHECK(same_bits(whole, within));
  CHECK(within.peak_bytes == whole.peak_bytes);
  CHECK_THROWS_AS(train(managed(o, "unmanaged", absolute(whole.peak_bytes - cpu_granularity))),
                  delta::budget_exceeded);
}
