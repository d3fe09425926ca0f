// ctest-labels: slow
// Keeping answers changes no decision, on DTR's authors' traces: every preset at many budgets
// decides as it does when each candidate is asked at each search; and asks less.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>

#include "delta/presets.hpp"
#include "observe/decision_log.hpp"
#include "replay/replay_named.hpp"
#include "replay/replay_policy.hpp"
#include "simrd_reference.hpp"
#include "training.hpp"
#include "undeclared.hpp"

using namespace delta;
using namespace delta::executor;

namespace {

struct replayed {
  replay_result row;
  std::string decisions;
};
/// Replays under a policy that tells the observer what it decides.
using replays = std::function<replay_result(any_observer&)>;
replayed replay_with(const replays& replay_it) {
  struct writer final : any_observer {
    explicit writer(std::ostream& to) : log(to) {}
    void on(const event& e) override { log.on(e); }
    decision_log log;
  };
  std::ostringstream log;
  writer decisions(log);
  const replay_result row = replay_it(decisions);
  return {row, log.str()};
}

struct sums {
  std::uint64_t runs = 0, passed = 0, decisions = 0, asked = 0, asked_anew = 0;
};
void check_same(const char* name, bytes budget, const replays& keeping, const replays& asking,
                sums& sum) {
  INFO(name << " in " << budget.count << " bytes");
  const replayed kept = replay_with(keeping);
  const replayed anew = replay_with(asking);
  CHECK(kept.row.result == anew.row.result);
  CHECK(kept.row.time == anew.row.time);
  CHECK(kept.row.recompute == anew.row.recompute);
  CHECK(kept.row.stall == anew.row.stall);
  CHECK(kept.row.peak == anew.row.peak);
  CHECK(kept.row.host_peak == anew.row.host_peak);
  CHECK(kept.row.counts.decisions == anew.row.counts.decisions);
  test::check_same_decisions(kept.row.counts, anew.row.counts);
  const bool same = kept.decisions == anew.decisions;  // not printed: they are long
  CHECK(same);
  ++sum.runs;
  sum.passed += kept.row.result == replay_result::verdict::pass;
  sum.decisions += kept.row.counts.decisions;
  sum.asked += kept.row.evaluations, sum.asked_anew += anew.row.evaluations;
}

}  // namespace

TEST_CASE("DTR's traces: the same victims, one after the other") {
  const auto folder = test::dtr_traces("same_victims_test");
  if (folder.empty()) return;
  for (const char* model : {"resnet32", "unet", "densenet121", "transformer", "lstm"}) {
    INFO(std::string(model));
    const trace t = test::dtr_trace(folder, model);
    const bytes peak = unmanaged(t).peak;
    sums sum;
    for (const std::uint64_t tenths : {3u, 5u, 7u, 9u}) {
      const replay_machine on{
          .budget = bytes{peak.count / 10 * tenths}, .host_budget = peak * 4, .places = true};
      // What has a name is compiled in delta::engine.
      const auto check = [&](const char* name, const replays& keeping, const auto& policy) {
        check_same(
            name, on.budget, keeping,
            [&](any_observer& o) { return replay(t, test::asking_always(policy), on, &o); }, sum);
      };
      const auto named = [&](const char* name) -> replays {
        return [&, name](any_observer& o) { return replay_named(name, t, on, {.observer = &o}); };
      };
      const policy<base, evict_only, no_prefetch> by_size;
      check(
          "base", [&](any_observer& o) { return replay(t, by_size, on, &o); }, by_size);
      check("paper", named("paper"), paper());
      check("dtr", named("dtr"), recompute_only());
      check("online", named("online"), online());
    }
    std::printf(
        "%s: %llu runs, %llu pass; %llu decisions, asked %llu times and %llu\n", model,
        static_cast<unsigned long long>(sum.runs), static_cast<unsigned long long>(sum.passed),
        static_cast<unsigned long long>(sum.decisions), static_cast<unsigned long long>(sum.asked),
        static_cast<unsigned long long>(sum.asked_anew));
    CHECK(sum.asked < sum.asked_anew);
  }
}
