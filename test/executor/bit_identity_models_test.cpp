// ctest-labels: slow;long
// A budget changes no bit: the models, and Adam with dropout, under the policies that manage, at 60
// and 40 % of the unmanaged peak. In the large models' small batches parameters, gradients and
// what the optimizer keeps are most of the memory, so a policy that only computes again soon meets
// its limit and has to name it. (ResNet-20 with SGD: bit_identity_test.)
#include "bit_identity.hpp"

#include <initializer_list>
#include <string_view>

using namespace delta::test;
using namespace delta::executor;

namespace {

/// Decisions repeat under the virtual clock, so a budget that an error names must work.
void check(const twin& t, std::initializer_list<std::string_view> policies,
           std::initializer_list<int> parts) {
  for (const std::string_view policy : policies)
    for (const int part : parts) {
      CAPTURE(policy);
      CAPTURE(part);
      check_passes_or_names_a_budget(t, policy, t.part(part));
    }
}
void check_all_policies(train_options o) {
  o.virtual_clock = true;
  CAPTURE(o.model);
  check(twin(o), {"paper", "dtr", "online"}, {60, 40});
}
/// Those that learn, with a step to learn from, one to try what was rehearsed, and one more.
void check_learning(train_options o, std::initializer_list<int> parts) {
  o.virtual_clock = true;
  o.steps = 3;
  CAPTURE(o.model);
  check(twin(o), {"adaptive"}, parts);
}

}  // namespace

TEST_CASE("ResNet-20 with Adam and dropout, verified by the run itself") {
  train_options o = unmanaged({.model = "resnet20", .image = 32, .batch = 16, .steps = 3});
  const train_report plain = train(o);
  o.optimizer = "adam";
  o.lr = 0.001;
  const train_report adam = train(o);
  CHECK_FALSE(same_bits(adam, plain));
  o.dropout = 0.3;
  CHECK_FALSE(same_bits(train(o), adam));
  o.verify = true;  // then the twin and the managed run share one graph, and its count of steps
  check_all_policies(o);
  check_learning(o, {60, 40});
}

TEST_CASE("ResNet-18") {
  check_all_policies(unmanaged({.model = "resnet18", .image = 32, .batch = 4, .steps = 2}));
}

TEST_CASE("ResNet-50") {
  check_all_policies(unmanaged({.model = "resnet50", .image = 32, .batch = 4, .steps = 2}));
  check_learning(unmanaged({.model = "resnet50", .image = 32, .batch = 4}), {40});
}

TEST_CASE("ResNet-101") {
  check_all_policies(unmanaged({.model = "resnet101", .image = 32, .batch = 2, .steps = 2}));
}

TEST_CASE("ResNeXt-50") {
  check_all_policies(unmanaged({.model = "resnext50_32x4d", .image = 32, .batch = 4, .steps = 2}));
  check_learning(unmanaged({.model = "resnext50_32x4d", .image = 32, .batch = 4}), {60});
}
