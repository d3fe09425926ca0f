// ctest-labels: slow
// A budget that a replay finds and a run confirms. Under the virtual clock the run does what the
// replay did, to the decision.
#include "train/budget_training.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "temporary_folder.hpp"
#include "tool.hpp"
#include "trace/file.hpp"
#include "training.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

train_options searching(std::string_view policy, std::uint64_t steps = 3) {
  train_options o = unmanaged({.model = "resnet20", .image = 32, .batch = 8, .steps = steps});
  o.find_budget = true;
  o.policy = policy;
  o.virtual_clock = true;
  return o;
}

budget_finding find(const train_options& o) {
  std::ostream nowhere(nullptr);
  return find_and_confirm(o, nowhere);
}

/// A curve of five budgets, of a peak of 1000 bytes.
budget_answer made_up_answer() {
  budget_answer a{.policy = "online", .max_overhead = 1.2};
  const auto add = [&](std::uint64_t budget, double overhead) {
    replay_row r;
    r.trace = "m";
    r.budget_bytes = budget;
    r.unmanaged_peak_bytes = 1000;
    r.result = "pass";
    r.overhead = overhead;
    r.keeps = overhead <= a.max_overhead;
    a.curve.push_back(r);
  };
  add(400, 1.2);
  add(410, 1.1);
  add(420, 1.3);
  add(430, 1.15);
  add(900, 1.0);
  a.smallest = 0;
  return a;
}

}  // namespace

TEST_CASE("under the virtual clock the confirming run decides and takes what the replay did") {
  const auto check_same = [](std::string_view policy, std::uint64_t steps) {
    CAPTURE(policy);
    CAPTURE(steps);
    train_options o = searching(policy, steps);
    o.verify = true;
    const budget_finding found = find(o);
    REQUIRE(found.answer.smallest.has_value());
    const replay_row& row = found.answer.curve[*found.answer.smallest];
    REQUIRE(found.trials.size() == 1);
    CHECK(found.confirmed());
    CHECK(found.trials[0].budget.count == row.budget_bytes);
    CHECK(found.trials[0].predicted == row.overhead);
    CHECK(found.trials[0].measured == doctest::Approx(*row.overhead).epsilon(1e-9));
    const train_report& r = found.report;
    CHECK(r.bit_identical == true);
    CHECK(r.budget_bytes == row.budget_bytes);
    CHECK(r.budget_bytes < row.unmanaged_peak_bytes);
    CHECK(r.peak_bytes <= r.budget_bytes);
    CHECK(r.peak_bytes == row.peak_bytes);
    CHECK(r.host_peak_bytes == row.host_peak_bytes);
    CHECK(row.iteration == steps);
    CHECK(r.evictions >= row.evictions);
    CHECK(r.offloads >= row.offloads);
    CHECK(r.evictions + r.offloads > 0);
    CHECK(row.unmanaged_peak_bytes == r.unmanaged_peak_bytes->total);
  };
  for (const std::string_view policy : {"online", "paper", "dtr", "adaptive"})
    check_same(policy, 3);
  for (const std::uint64_t steps : {1u, 2u, 8u}) check_same("adaptive", steps);
}

TEST_CASE("the step that is recorded is a run of one step, evaluation or not") {
  const temporary_folder folder;
  train_options o = searching("online");
  o.evaluate = true;
  o.batch = 512;  // one evaluation pass is a few batches
  o.image = 8;
  o.record = folder / "step.jsonl";
  CHECK(find(o).report.evaluation_accuracy.size() == 1);
  train_options one = o;
  one.find_budget = false;
  one.evaluate = false;
  one.policy = "unmanaged";
  one.steps = 1;
  one.record = folder / "one.jsonl";
  (void)train(one);
  CHECK(read_trace(o.record) == read_trace(one.record));
}

TEST_CASE("more steps than are replayed: the run keeps to the budget, the log is the last run's") {
  const temporary_folder folder;
  train_options o = searching("online", 12);
  o.verify = true;
  o.max_overhead = 1.3;
  o.decisions = folder / "decisions.jsonl";
  const budget_finding found = find(o);
  CHECK(found.report.steps == 12);
  CHECK(found.report.losses.size() == 12);
  CHECK(found.report.bit_identical == true);
  CHECK(found.report.peak_bytes <= found.report.budget_bytes);
  CHECK(read_text(o.decisions).starts_with("{\"decision\":1,"));
}

TEST_CASE("no budget keeps to it: no run, and the report says so") {
  train_options o = searching("dtr");
  o.max_overhead = 1;
  o.image = 8;
  const budget_finding found = find(o);
  CHECK(found.trials.empty());
  CHECK_FALSE(found.confirmed());
  CHECK(found.report.budget_confirmed == false);
  CHECK(found.report.error == "no budget that was replayed keeps to an overhead of 1.000x");
  CHECK_FALSE(found.report.bit_identical.has_value());
}

TEST_CASE("the next budget: 2 % of the peak larger, and as much better as the run was worse") {
  const budget_answer a = made_up_answer();
  const budget_trial failed{.budget = bytes{400}, .predicted = 1.2};
  CHECK(next_budget(a, 0, failed) == 3);  // 410 is too near, 420 does not keep
  budget_trial slow = failed;
  slow.measured = 1.25;  // may predict 1 + 0.2 * 0.2 / 0.25 = 1.16
  CHECK(next_budget(a, 0, slow) == 3);
  slow.measured = 1.3;  // 1.133
  CHECK(next_budget(a, 0, slow) == 4);
  slow.measured = 100;
  CHECK(next_budget(a, 0, slow) == 4);
  CHECK(next_budget(a, 4, {.budget = bytes{900}, .predicted = 1.0}) == std::nullopt);
}

TEST_CASE("the runs are listed, and why none will do is one line") {
  budget_finding f{.answer = made_up_answer(), .trials = {}, .report = {}};
  f.trials.push_back({.budget = bytes{400}, .predicted = 1.2});
  CHECK(why_unconfirmed(f) ==
        "no budget was confirmed to keep to an overhead of 1.200x; the last run, in 400 B, ended "
        "in a memory error");
  f.trials.push_back(
      {.budget = bytes{430}, .predicted = 1.15, .measured = 1.25, .peak = bytes{420}});
  CHECK(why_unconfirmed(f) ==
        "no budget was confirmed to keep to an overhead of 1.200x; the last run, in 430 B, took "
        "1.250x");
  CHECK_FALSE(f.confirmed());
  f.trials.push_back({.budget = bytes{900},
                      .predicted = 1,
                      .measured = 1.01,
                      .peak = bytes{880},
                      .confirmed = true});
  CHECK(f.confirmed());
  std::ostringstream out;
  print_finding(out, f);
  CHECK(
      out.str().ends_with("\n"
                          "run in  predicted  measured   peak          result\n"
                          " 400 B     1.200x         -      -    memory error\n"
                          " 430 B     1.150x    1.250x  420 B  takes too long\n"
                          " 900 B     1.000x    1.010x  880 B       confirmed\n"));
}
