#include "train/budget_training.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <utility>

#include "cli/format.hpp"
#include "cli/output_file.hpp"
#include "cli/text_table.hpp"
#include "delta/error.hpp"
#include "replay/budget_report.hpp"
#include "replay/replay_result.hpp"
#include "trace/file.hpp"
#include "trace/steps.hpp"
#include "traces/trace.hpp"
#include "train/trainer.hpp"
#include "train/training_run.hpp"

namespace delta::executor {
namespace {

constexpr std::size_t most_trials = 3;
constexpr std::uint64_t observed_steps = 3;  // pages and caches make the first a slow one
constexpr std::uint64_t most_replayed = 8;   // a longer run goes on as the last of these
constexpr std::uint64_t trials_apart = 50;   // by that part of the unmanaged peak at least

std::string overhead_text(double overhead) {
  return format_fixed(overhead, 3) + "x";
}

/// One search.
class budget_search {
 public:
  budget_search(const train_options& o, std::ostream& progress)
      : options_(o), bench_(o, progress) {}

  budget_finding run() && {
    observe();
    ask();
    for (auto at = found_.answer.smallest; at; at = next_after(*at)) attempt(*at);
    if (!found_.report.measured_overhead) found_.report.error = why_unconfirmed(found_);
    return std::move(found_);
  }

 private:
  /// The unmanaged run: what a step does and takes.
  void observe() {
    run_request wanted = unmanaged_run(bench_, observed_steps, "unmanaged");
    wanted.evaluations = false;
    wanted.recording = true;
    unmanaged_ = train_once(bench_, wanted);
    step_ = repeat_last_step(*unmanaged_.recorded, 1);
    program_ = repeat_last_step(*unmanaged_.recorded, std::min(bench_.steps, most_replayed));
    unmanaged_.recorded.reset();
    if (!options_.record.empty()) write_trace(step_, options_.record);
    const bool compared = options_.verify && bench_.steps != observed_steps;
    if (!compared && unmanaged_.timed_alone) return;
    // Once more: for as long as it is compared, and without what recording costs where kernels run
    // on.
    const std::uint64_t steps = options_.verify ? bench_.steps : observed_steps;
    run_request twin = unmanaged_run(bench_, steps, "unmanaged twin");
    twin.evaluations = compared;
    unmanaged_ = train_once(bench_, twin);
  }

  void ask() {
    bench_.progress << "replaying a step with " << options_.policy << " in many budgets"
                    << std::endl;
    budget_question question{.machine = machine_of(program_),
                             .max_overhead = options_.max_overhead,
                             .name = options_.model,
                             .step = &step_};
    question.machine.host_budget = bench_.host_budget;
    question.machine.burden_out = unmanaged_.burden[0];
    question.machine.burden_in = unmanaged_.burden[1];
    question.machine.thrash_limit = std::max(question.machine.thrash_limit, options_.max_overhead);
    found_.answer = find_budget(program_, options_.policy, question);
    found_.report = head();
  }

  /// What all runs' reports say.
  [[nodiscard]] train_report head() const {
    train_report r = describe(options_);
    r.steps = bench_.steps;
    r.device_name = bench_.on->description();
    report_algorithms(r, bench_.training);
    r.host_budget_bytes = bench_.host_budget.count;
    r.max_overhead = options_.max_overhead;
    r.budget_confirmed = false;
    report_twin(r, unmanaged_);
    return r;
  }

  /// Trains in a budget of the curve.
  void attempt(std::size_t at) {
    const replay_row& row = found_.answer.curve[at];
    budget_trial& trial = found_.trials.emplace_back();
    trial.budget = bytes{row.budget_bytes};
    trial.predicted = row.overhead.value_or(1);
    const std::string title = options_.policy + " in " + format_bytes(trial.budget);
    live_file lanes("--timeline", options_.timeline), decisions("--decisions", options_.decisions);
    try {
      conclude(trial, train_once(bench_, {.policy = options_.policy,
                                          .budget = trial.budget,
                                          .host_budget = bench_.host_budget,
                                          .steps = bench_.steps,
                                          .title = title,
                                          .timeline = lanes.stream(),
                                          .decisions = decisions.stream()}));
    } catch (const budget_exceeded& e) {
      bench_.progress << title << ": " << e.what() << std::endl;
    }
    lanes.finish();
    decisions.finish();
  }

  /// Compares the run with what was predicted of it.
  void conclude(budget_trial& trial, run_outcome&& run) {
    trial.measured = overhead_of(run);
    trial.peak = run.peak;
    trial.confirmed = run.peak <= trial.budget && *trial.measured <= options_.max_overhead;
    train_report r = head();
    r.budget_bytes = trial.budget.count;
    r.predicted_overhead = trial.predicted;
    r.measured_overhead = trial.measured;
    r.budget_confirmed = trial.confirmed;
    if (options_.verify)
      r.bit_identical = same_bits(unmanaged_, run) && found_.report.bit_identical.value_or(true);
    report_run(r, std::move(run));
    found_.report = std::move(r);
  }

  /// As predicted, of what comes behind the first step: by the clock of the usual step, as single
  /// ones vary; in virtual time of the last, as in the replay.
  [[nodiscard]] double overhead_of(const run_outcome& run) const {
    if (!options_.virtual_clock) return run.step_seconds / unmanaged_.step_seconds;
    return static_cast<double>(run.last_step.count()) /
           static_cast<double>(total_cost(step_).count());
  }

  /// Where in the curve the next trial is; nullopt: there is none.
  [[nodiscard]] std::optional<std::size_t> next_after(std::size_t at) const {
    const budget_trial& last = found_.trials.back();
    if (last.confirmed || found_.trials.size() == most_trials) return std::nullopt;
    return next_budget(found_.answer, at, last);
  }

  const train_options& options_;
  training_bench bench_;
  run_outcome unmanaged_;
  trace step_, program_;  // once, and as often as it is replayed
  budget_finding found_;
};

/// What the replay may predict for the next trial.
double limit_behind(const budget_trial& last, double most) {
  if (!last.measured || *last.measured <= most) return most;
  return 1 + (last.predicted - 1) * (most - 1) / (*last.measured - 1);
}

text_row cells(const budget_trial& t) {
  if (!t.measured)
    return {format_bytes(t.budget), overhead_text(t.predicted), "-", "-", "memory error"};
  return {format_bytes(t.budget), overhead_text(t.predicted), overhead_text(*t.measured),
          format_bytes(t.peak), t.confirmed ? "confirmed" : "takes too long"};
}

}  // namespace

budget_finding find_and_confirm(const train_options& o, std::ostream& progress) {
  return budget_search(o, progress).run();
}

std::optional<std::size_t> next_budget(const budget_answer& answer, std::size_t at,
                                       const budget_trial& last) {
  const auto& curve = answer.curve;
  const double limit = limit_behind(last, answer.max_overhead);
  const std::uint64_t least = last.budget.count + curve[at].unmanaged_peak_bytes / trials_apart;
  for (std::size_t i = at + 1; i < curve.size(); ++i)
    if (curve[i].budget_bytes >= least && *curve[i].keeps && curve[i].overhead <= limit) return i;
  return std::nullopt;
}

std::string why_unconfirmed(const budget_finding& f) {
  const std::string most = overhead_text(f.answer.max_overhead);
  if (f.trials.empty()) return "no budget that was replayed keeps to an overhead of " + most;
  const budget_trial& last = f.trials.back();
  return "no budget was confirmed to keep to an overhead of " + most + "; the last run, in " +
         format_bytes(last.budget) + ", " +
         (last.measured ? "took " + overhead_text(*last.measured) : "ended in a memory error");
}

void print_finding(std::ostream& out, const budget_finding& f) {
  print_answers(out, {&f.answer, 1});
  if (f.trials.empty()) return;
  std::vector<text_row> lines{{"run in", "predicted", "measured", "peak", "result"}};
  for (const budget_trial& t : f.trials) lines.push_back(cells(t));
  out << '\n';
  print_aligned(out, lines, 0);
  if (!f.report.measured_overhead) return;
  out << '\n';
  print_table(out, {&f.report, 1});
}

}  // namespace delta::executor
