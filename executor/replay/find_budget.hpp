// delta executor: the smallest budget under which a trace does not take too long.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replay/replay_report.hpp"
#include "replay/replay_result.hpp"
#include "trace/perturb.hpp"
#include "traces/trace.hpp"

namespace delta::executor {

/// What is asked of a trace.
struct budget_question {
  replay_machine machine;           ///< its budget plays no part, the host's does
  double max_overhead = 1.2;        ///< time / unmanaged time, from 1 to machine.thrash_limit
  std::string_view name = "trace";  ///< what the rows call the trace
  /// As in replay_job: one step of the trace, and the last iteration alone has to keep to the
  /// overhead, though all have to pass. Null: the whole has to.
  const trace* step = nullptr;
  perturbation perturbed_by{};  ///< what was done to the trace already, for its rows
};

/// What was found for one policy.
struct budget_answer {
  std::string policy;
  double max_overhead = 0;
  std::vector<replay_row> curve{};  ///< of every budget tried, ascending; never empty

  /// Into `curve`: the smallest budget that keeps to the overhead; nullopt: none does.
  std::optional<std::size_t> smallest{};
  /// Into `curve`: from this one on all keep to it; nullopt: the largest does not.
  std::optional<std::size_t> safe{};
  /// How many larger than `smallest` do not keep to it.
  std::size_t holes = 0;
};

/// For each policy the smallest budget that keeps to question.max_overhead. Policies are not
/// monotone in the budget: one may do worse with more. So nothing is bisected: 64 budgets from
/// least_budget to the unmanaged peak are tried, evenly spread, then as many below the smallest
/// that keeps to it as it takes to be within 0.5 % of the peak of one that does not. Between
/// budgets tried anything may happen. On all cores; the same for any number of them. `policies` are
/// among replay_policies. Throws as replay_jobs.
[[nodiscard]] std::vector<budget_answer> find_budgets(const trace&,
                                                      std::span<const std::string> policies,
                                                      const budget_question&);
/// The same for one policy.
[[nodiscard]] budget_answer find_budget(const trace&, std::string_view policy,
                                        const budget_question&);

}  // namespace delta::executor
