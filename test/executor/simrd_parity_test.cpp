// DTR's own simulator and run_simrd agree on every trace, policy and budget.
// ctest-labels: slow
#include <doctest/doctest.h>

#include "simrd_reference.hpp"

TEST_CASE("all 300 runs of DTR's simulator agree in verdict, clock and recompute") {
  const auto folder = delta::test::dtr_traces("simrd_parity_test");
  if (folder.empty()) return;
  delta::test::check_simrd(folder, {"resnet32", "unet", "transformer", "densenet121", "lstm"});
}
