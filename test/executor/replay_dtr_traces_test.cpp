// The presets on DTR's authors' traces: dtr beside DTR's own simulator, where it passes wherever
// the simulator does and takes no more than a hundredth of the unmanaged time longer; and all of
// them above the lower bound.
// ctest-labels: slow
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "replay/replay_named.hpp"
#include "simrd_reference.hpp"
#include "trace/repeat.hpp"
#include "traces/bound.hpp"

using namespace delta;
using namespace delta::executor;

TEST_CASE("DTR's traces: the preset dtr is never far behind DTR's simulator") {
  const auto folder = test::dtr_traces("replay_dtr_traces_test");
  if (folder.empty()) return;
  constexpr double allowed = 0.01;
  std::map<std::string, trace> traces;
  int compared = 0, rescued = 0;
  double sum = 0, worst = -1;
  for (const auto& row : test::simrd_rows(folder)) {
    if (row.policy != simrd_policy::dtr) continue;
    if (!traces.contains(row.model)) traces[row.model] = test::dtr_trace(folder, row.model);
    const auto ours =
        replay_named("dtr", traces[row.model], {.budget = row.budget, .places = true});
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

TEST_CASE("DTR's traces: no run is below the bound") {
  const auto folder = test::dtr_traces("replay_dtr_traces_test, the bound");
  if (folder.empty()) return;
  int compared = 0;
  for (const char* model : {"resnet32", "unet", "densenet121", "transformer", "lstm"}) {
    const trace t = test::dtr_trace(folder, model);
    const unmanaged_cost alone = unmanaged(t);
    for (const double rate : {12e9, 25e9})
      for (const std::uint64_t tenths : {1u, 2u, 3u, 5u, 7u, 9u, 10u}) {
        const replay_machine on{.budget = bytes{alone.peak.count / 10 * tenths},
                                .host_budget = alone.peak * 4,
                                .rate_out = rate,
                                .rate_in = rate};
        const double bound = lower_bound(t, {on.budget, rate, rate});
        const auto hold = [&](const char* policy, const replay_result& r) {
          if (r.result != replay_result::verdict::pass) return;
          INFO(model << ", " << policy << ", " << tenths << " tenths, " << rate << " bytes/s");
          const auto overhead =
              static_cast<double>(r.time.count()) / static_cast<double>(alone.time.count());
          CHECK(overhead >= bound * (1 - 1e-12));
          ++compared;
        };
        for (const char* policy : {"online", "paper"}) hold(policy, replay_named(policy, t, on));
      }
  }
  CHECK(compared > 80);
  std::printf("%d runs above their bounds\n", compared);
}

TEST_CASE("DTR's traces: published rules pass at half the peak, or end in a typed error") {
  const auto folder = test::dtr_traces("replay_dtr_traces_test, published rules");
  if (folder.empty()) return;
  for (const char* model : {"resnet32", "unet", "densenet121", "transformer", "lstm"}) {
    const trace t = test::dtr_trace(folder, model);
    const unmanaged_cost alone = unmanaged(t);
    const trace steps = repeat_trace(t, 2);
    const replay_machine on{.budget = bytes{alone.peak.count / 2},
                            .host_budget = alone.peak * 4,
                            .latency = nanoseconds{10'000},
                            .thrash_limit = 10,
                            .limit_steps = true};
    const auto run = [&](const char* policy) {
      INFO(model << ", " << policy);
      const replay_result r = replay_named(policy, steps, on);
      CHECK(r.peak <= on.budget);
      CHECK((r.result == replay_result::verdict::oom) == !r.error.empty());
      return r;
    };
    const auto passes = [&](const char* policy) {
      const replay_result r = run(policy);
      CHECK(r.result == replay_result::verdict::pass);
      return r;
    };
    const auto swapping = passes("swap_lru");
    // Prefetching and planning are worth something.
    CHECK(passes("vdnn").time < swapping.time);
    const auto planned = passes("capuchin");
    CHECK(planned.steps[0].time == swapping.steps[0].time);
    CHECK(planned.steps[1].time < planned.steps[0].time);
    run("superneurons");
    run("chen");
  }
}
