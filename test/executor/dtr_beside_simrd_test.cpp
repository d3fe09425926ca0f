// The preset dtr on delta::manager beside DTR's own simulator, on its authors' traces: it passes
// wherever the simulator does, and takes no more than a hundredth of the unmanaged time longer.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "delta/presets.hpp"
#include "replay/replay.hpp"
#include "simrd_reference.hpp"

using namespace delta;
using namespace delta::executor;

TEST_CASE("DTR's traces: the preset dtr is never far behind DTR's simulator") {
  const auto folder = test::dtr_traces("dtr_beside_simrd_test");
  if (folder.empty()) return;
  constexpr double allowed = 0.01;
  std::map<std::string, trace> traces;
  int compared = 0, rescued = 0;
  double sum = 0, worst = -1;
  for (const auto& row : test::simrd_rows(folder)) {
    if (row.policy != simrd_policy::dtr) continue;
    if (!traces.contains(row.model)) traces[row.model] = test::dtr_trace(folder, row.model);
    const auto ours =
        replay(traces[row.model], recompute_only(), replay_machine{.budget = row.budget});
    const bool passes = ours.result == replay_result::verdict::pass;
    INFO(row.model << " at " << row.ratio << " of the peak");
    if (row.expected.result != simrd_result::verdict::pass) {
      rescued += passes ? 1 : 0;
      continue;
    }
    REQUIRE(passes);
    CHECK(ours.peak <= row.budget);
    const auto over = static_cast<double>((ours.recompute - row.expected.recompute).count()) /
                      static_cast<double>(row.unmanaged_time.count());
    CHECK(over <= allowed);
    sum += over, worst = std::max(worst, over);
    ++compared;
  }
  CHECK(compared == 42);
  std::printf(
      "%d cells, overhead %+.4f of DTR's simulator on average, %+.4f at worst; %d pass where "
      "it fails\n",
      compared, sum / compared, worst, rescued);
}
