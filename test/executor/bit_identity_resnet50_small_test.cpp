// A budget changes no bit: ResNet-50 in batches that a sanitizer run can afford. The parameters and
// velocities, which only a copy can release, are most of the memory here.
// ctest-labels: long_sanitized
#include "bit_identity.hpp"

#include "train/feasibility.hpp"

using namespace delta::test;
using namespace delta::executor;

TEST_CASE("ResNet-50, 64x64, batch 16") {
  train_options o = unmanaged({.model = "resnet50", .image = 64, .batch = 16, .steps = 2});
  const twin t(o);
  check_passes(t, "online", t.part(40));
  check_passes(t, "paper", t.part(60));
  check_passes(t, "dtr", t.part(90));
  const std::uint64_t least = largest_footprint(graph_of(o)).count;
  check_passes(t, "online", least * 13 / 10);
}

TEST_CASE("ResNet-50, 32x32, batch 4: equal, or a budget is named that works") {
  train_options o = unmanaged({.model = "resnet50", .image = 32, .batch = 4, .steps = 2});
  o.virtual_clock = true;
  const twin t(o);
  for (const std::string_view policy : {"dtr", "online", "paper"})
    check_passes_or_names_a_budget(t, policy, t.part(30));
}
