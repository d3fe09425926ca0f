// A training run that is recorded under the virtual clock, written, read and replayed decides again
// what it decided, one decision after the other: the trace holds all that decisions depend on.
// ctest-labels: slow
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "observe/watchers.hpp"
#include "replay/replay_named.hpp"
#include "temporary_folder.hpp"
#include "tool.hpp"
#include "trace/file.hpp"
#include "train/feasibility.hpp"
#include "training.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

/// One run: a model under a policy and a part of its unmanaged peak.
struct cell {
  workload what;
  std::string_view policy;
  std::uint64_t percent = 100;
  double copy_rate = 0;  ///< bytes per second; 0: the default
};

struct live_run {
  std::variant<train_report, refusal> outcome;
  std::string decisions;
  std::optional<trace> recorded;  ///< of a run that came to its end

  [[nodiscard]] const train_report* report() const { return std::get_if<train_report>(&outcome); }
};

struct replayed_run {
  replay_result result;
  std::string decisions;
};

/// The same run with a part of its own unmanaged peak.
train_options in_part(train_options o, std::uint64_t percent) {
  const std::uint64_t peak = unmanaged_peak(graph_of(o)).total;
  o.budget = absolute(peak * percent / 100);
  o.host_budget = bytes{peak};
  return o;
}

train_options options_of(const cell& c) {
  train_options o = unmanaged(c.what);
  o.virtual_clock = true;
  o.copy_rate = c.copy_rate;
  o.policy = c.policy;
  return in_part(o, c.percent);
}

/// Trains, as delta-train would with --decisions and --record.
live_run train_and_record(train_options o) {
  const temporary_folder folder;
  o.decisions = folder / "decisions.jsonl";
  o.record = folder / "trace.jsonl.gz";
  live_run run{.outcome = try_to_train(o), .decisions = read_text(o.decisions), .recorded = {}};
  if (run.report() != nullptr) run.recorded = read_trace(o.record);
  CHECK(std::filesystem::exists(o.record) == run.recorded.has_value());
  return run;
}

replayed_run replay_again(const trace& t, const train_options& o) {
  replay_machine on = machine_of(t);
  on.budget = o.budget.size;
  on.host_budget = *o.host_budget;
  on.thrash_limit = 1e6;  // a live run has none
  std::ostringstream text;
  watchers told(nullptr, &text);
  replayed_run run;
  run.result = replay_named(o.policy, t, on, {.observer = &told});
  run.decisions = text.str();
  return run;
}

/// The first line in which two logs differ, from both; empty: they are the same.
std::string first_difference(const std::string& live, const std::string& replayed) {
  std::istringstream a(live), b(replayed);
  for (std::string x, y;;) {
    const bool more = static_cast<bool>(std::getline(a, x));
    const bool also = static_cast<bool>(std::getline(b, y));
    if (!more && !also) return {};
    if (more != also || x != y)
      return "\n  live:     " + (more ? x : "(ended)") + "\n  replayed: " + (also ? y : "(ended)");
  }
}

void check_same_counts(const train_report& live, const replay_result& replayed) {
  check_same_decisions(live, replayed.counts);
  CHECK(live.peak_bytes == replayed.peak.count);
  CHECK(live.host_peak_bytes == replayed.host_peak.count);
}

/// The peak of an unmanaged run on the machine.
std::uint64_t measured_peak(const workload& w) {
  return train(unmanaged(w)).peak_bytes;
}

/// Runs and replays, and compares. `program` is what earlier cells recorded of the same
/// model: the program is the same whatever the policy, so a run that fails has it, too. True: the
/// run came to its end.
bool decides_the_same(const train_options& o, std::optional<trace>& program) {
  const live_run live = train_and_record(o);
  if (!program) program = live.recorded;
  REQUIRE(program.has_value());
  const replayed_run replayed = replay_again(*program, o);
  CHECK(first_difference(live.decisions, replayed.decisions) == "");

  const bool passed = live.report() != nullptr;
  CHECK(passed == (replayed.result.result == replay_result::verdict::pass));
  if (!passed) {
    MESSAGE(std::get<refusal>(live.outcome).line);
    return false;
  }
  MESSAGE(row(*live.report()));
  CHECK(!live.decisions.empty());
  check_same_counts(*live.report(), replayed.result);
  CHECK(*live.recorded == *program);
  return true;
}

const std::vector<std::string_view> all_policies{"online", "paper", "dtr"};

struct tally {
  int cells = 0, passed = 0;
};

/// All of these policies and budgets.
tally compare_all(const workload& w, const std::vector<std::string_view>& policies,
                  double copy_rate = 0) {
  std::optional<trace> program;
  tally t;
  for (const std::string_view policy : policies)
    for (const std::uint64_t percent : {60u, 40u}) {
      CAPTURE(w.model);
      CAPTURE(policy);
      CAPTURE(percent);
      CAPTURE(copy_rate);
      ++t.cells;
      t.passed += decides_the_same(options_of({w, policy, percent, copy_rate}), program);
    }
  CHECK(unmanaged_peak(*program).count == measured_peak(w));
  CHECK(!program->has_results());
  return t;
}

}  // namespace

TEST_CASE("ResNet-20: a replay of the recording takes the live run's decisions") {
  for (const double copy_rate : {0.0, 2e9}) {
    const tally t =
        compare_all({.model = "resnet20", .batch = 8, .steps = 3}, all_policies, copy_rate);
    CHECK(t.cells == 6);
    CHECK(t.passed == 6);
  }
}

TEST_CASE("ResNet-50: a replay of the recording takes the live run's decisions") {
  const tally t = compare_all({.model = "resnet50", .batch = 4, .steps = 2}, all_policies);
  CHECK(t.cells == 6);
  CHECK(t.passed == 4);  // weights and velocities alone are more than dtr, which keeps them, has

  // More images, and they are a smaller part.
  const tally more = compare_all({.model = "resnet50", .batch = 128, .steps = 2}, {"dtr"});
  CHECK(more.cells == 2);
  CHECK(more.passed == 1);
}

TEST_CASE("evaluation passes, Adam's state and dropout are in the recording") {
  for (const std::string_view policy : all_policies) {
    CAPTURE(policy);
    train_options o = options_of({.what = {.model = "resnet20", .batch = 8}, .policy = policy});
    o.evaluate = true;
    o.optimizer = "adam";
    o.lr = 0.001;
    o.dropout = 0.3;
    std::optional<trace> program;
    CHECK(decides_the_same(in_part(o, 60), program));
    const auto with = [&](trait t) {
      return std::ranges::any_of(program->operations,
                                 [&](const auto& made) { return has(made.traits, t); });
    };
    CHECK(with(trait::random));
    const auto ends =
        std::ranges::count(program->events, trace::kind::end_of_step, &trace::event::what);
    CHECK(ends > std::int64_t(o.steps));
  }
}
