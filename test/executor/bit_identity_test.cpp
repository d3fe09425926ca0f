// ctest-labels: slow
// A budget changes no bit: ResNet-20 under every policy, from 80 % of the unmanaged peak down to
// what its largest operator needs.
#include "bit_identity.hpp"

#include "train/feasibility.hpp"

using namespace delta::test;
using namespace delta::executor;

namespace {

const workload small{.model = "resnet20", .image = 32, .batch = 16, .steps = 4};

/// With the virtual clock decisions repeat exactly, so a budget that the error names must work.
const twin& repeatable() {
  static const twin t = [] {
    train_options o = unmanaged(small);
    o.virtual_clock = true;
    return twin(o);
  }();
  return t;
}

}  // namespace

TEST_CASE("dtr and online: 80, 60, 50 and 40 %; paper: 80 and 60 %, verified by the run itself") {
  const twin t(unmanaged(small));
  for (const std::string_view policy : {"dtr", "online", "paper"})
    for (const double part : {80, 60, 50, 40}) {
      if (policy == "paper" && part < 60) continue;
      CAPTURE(policy);
      CAPTURE(part);
      train_options o = managed(t.options, policy, percent(part));
      o.verify = true;
      const train_report r = train(o);
      CHECK(r.bit_identical == true);
      CHECK(r.evictions + r.offloads > 0);
      check_equal(r, t);
    }
}

TEST_CASE("the policy that learns: 60 and 40 %, by the clock and without it") {
  const twin real(unmanaged(small));
  for (const int part : {60, 40}) {
    CAPTURE(part);
    check_passes(real, "adaptive", real.part(part));
    check_passes(repeatable(), "adaptive", repeatable().part(part));
  }
}

TEST_CASE("below: equal, or a budget is named that works") {
  for (const std::string_view policy : {"dtr", "online", "paper"})
    for (const int part : {50, 40, 30, 20, 10, 1}) {
      if (policy != "paper" && part > 30) continue;
      CAPTURE(policy);
      CAPTURE(part);
      check_passes_or_names_a_budget(repeatable(), policy, repeatable().part(part));
    }
}

TEST_CASE("the budget that an error names does for as many steps as are asked for") {
  workload longer = small;
  longer.steps = 8;
  train_options o = unmanaged(longer);
  o.virtual_clock = true;
  const twin t(o);
  for (const std::string_view policy : {"dtr", "online", "paper"})
    check_passes_or_names_a_budget(t, policy, t.part(10));
  // With little host memory these found a budget that lasts for three steps and not for four.
  twin scarce = t;
  scarce.options.host_budget = delta::bytes{t.part(1) / 10};
  check_passes_or_names_a_budget(scarce, "online", t.part(20));
  scarce.options.host_budget = delta::bytes{t.part(30)};
  check_passes_or_names_a_budget(scarce, "paper", t.part(20));
}

TEST_CASE("online and paper do with what the largest operator needs") {
  const std::uint64_t least = largest_footprint(graph_of(repeatable().options)).count;
  check_passes(repeatable(), "online", least);
  check_passes(repeatable(), "online", least * 13 / 10);
  const twin real(unmanaged(small));
  check_passes(real, "online", least);
  check_passes(real, "online", least * 13 / 10);
}
