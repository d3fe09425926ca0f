// Every model with every optimizer, saved and resumed under another budget, policy and number of
// threads: the bits of training at once.
// ctest-labels: slow;long
#include <doctest/doctest.h>

#include "resumed.hpp"

using namespace delta::test;

TEST_CASE("each model and optimizer: saved and resumed elsewhere, the bits of training at once") {
  for (const std::string_view model : {"resnet18", "resnet50", "resnet101", "resnext50_32x4d"})
    for (const std::string optimizer : {"sgd", "adam"})
      check_resumed_elsewhere({model, 32, 2, 2}, optimizer);
}
