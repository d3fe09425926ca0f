// delta executor: training in the smallest budget that does not take too long: a replay finds it,
// a run confirms it.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.hpp"
#include "delta/units.hpp"
#include "replay/find_budget.hpp"
#include "train/report.hpp"

namespace delta::executor {

/// A budget that was trained in.
struct budget_trial {
  bytes budget{};
  double predicted = 0;              ///< time / unmanaged time, of the replay
  std::optional<double> measured{};  ///< the same, of the run; absent: a memory error ended it
  bytes peak{};                      ///< of a run that came to its end
  bool confirmed = false;            ///< it did, within the budget and the overhead
};

/// What came of looking for a budget.
struct budget_finding {
  budget_answer answer;              ///< of the replays
  std::vector<budget_trial> trials;  ///< in the order of the runs, budgets ascending; 3 at most
  /// Of the last run that came to its end; with an error where none did. Bits that differ in an
  /// earlier run count here, too.
  train_report report;

  [[nodiscard]] bool confirmed() const { return !trials.empty() && trials.back().confirmed; }
};

/// Trains three steps without a budget, replays the last one as often in a row as the run has
/// steps, but 8 times at most, with options.policy in many budgets (`find_budget`), and trains as
/// the options say in the smallest in which the last repetition keeps to options.max_overhead: in
/// the first step a policy that learns knows nothing, and pays for it once. Where that run ends in
/// a memory error or takes longer, up to two larger budgets follow, which the replay says keep to
/// it: each at least 2 % of the unmanaged peak larger and, behind a run that took longer, with a
/// predicted overhead that is as much smaller as the measured one was too large.
///
/// The measured overhead is the median step's time over the unmanaged one's, the first step left
/// out of both; under the virtual clock the last step's over the recorded step's cost, as in the
/// replay. Of a run of one step it is that one's. options.record gets the
/// recorded step, options.timeline and options.decisions what the last run does. Progress and
/// errors as `train`, but that memory errors are results.
budget_finding find_and_confirm(const train_options&, std::ostream& progress);

/// Into answer.curve: the budget to train in behind a trial in answer.curve[at] that was not
/// confirmed, by the rule above; nullopt: there is none.
std::optional<std::size_t> next_budget(const budget_answer&, std::size_t at, const budget_trial&);

/// Why there is no confirmed budget, in one line.
std::string why_unconfirmed(const budget_finding&);

/// The answer of the replays, a line per run, and the table of the last run that came to its end.
void print_finding(std::ostream&, const budget_finding&);

}  // namespace delta::executor
