// ctest-labels: slow;long
// A budget changes no bit: ResNet-50 on 64x64 images, 128 of them a step, where activations are
// most of the memory. All cells, or every other one (all_cells).
#include "bit_identity.hpp"

#include "seeds.hpp"
#include "train/feasibility.hpp"

using namespace delta::test;
using namespace delta::executor;

namespace {

const workload large{.model = "resnet50", .image = 64, .batch = 128, .steps = 2};

}  // namespace

TEST_CASE("dtr and online: 60 and 40 %, paper: 60 %; all cells: 80 and 50 %, too") {
  const twin t(unmanaged(large));
  for (const std::string_view policy : {"dtr", "online", "paper"})
    for (const int part : {80, 60, 50, 40}) {
      if (policy == "paper" && part < 60) continue;
      if (!all_cells() && (part == 80 || part == 50)) continue;
      CAPTURE(policy);
      CAPTURE(part);
      check_passes(t, policy, t.part(part));
    }
}

TEST_CASE("below: equal, or a budget is named that works") {
  workload once = large;
  once.steps = 1;
  train_options o = unmanaged(once);
  o.virtual_clock = true;
  const twin t(o);
  for (const std::string_view policy : {"dtr", "online", "paper"})
    for (const int part : {30, 20, 10}) {
      if (!all_cells() && part == 20) continue;
      CAPTURE(policy);
      CAPTURE(part);
      check_passes_or_names_a_budget(t, policy, t.part(part));
    }
  const std::uint64_t least = largest_footprint(graph_of(o)).count;
  check_passes(t, "online", least);
  check_passes(t, "online", least * 13 / 10);
}
