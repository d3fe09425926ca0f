// delta executor: replays to be done, and doing them on all cores.
#pragma once

#include <iosfwd>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "peers/offline_plan.hpp"
#include "replay/replay_report.hpp"
#include "replay/replay_result.hpp"
#include "trace/perturb.hpp"
#include "traces/trace.hpp"

namespace delta::executor {

/// One replay. What it points to outlives it.
struct replay_job {
  const trace* subject = nullptr;
  std::string_view name;          ///< the trace's, for its row
  unmanaged_cost unmanaged;       ///< of the trace
  std::string_view policy;        ///< one of replay_policies, or plan_policy
  replay_machine machine;         ///< the budget, too
  std::optional<double> ratio{};  ///< the budget over the unmanaged peak; absent: worked out
  /// One step of the trace as a trace of its own; null: `subject` is judged as a whole. With it
  /// every step is an iteration: it has a row and a thrash limit of its own, and its bound is that
  /// of `step`. The simrd policies know one iteration: they replay `step`.
  const trace* step = nullptr;
  perturbation perturbed_by{};         ///< what was done to the trace already, for its row
  const offline_plan* plan = nullptr;  ///< where the policy is plan_policy
};

/// Who watches a replay, and outlives it; null: nobody.
struct replay_watch {
  std::ostream* timeline = nullptr;   ///< gets what delta::timeline writes
  std::ostream* decisions = nullptr;  ///< gets what decision_log writes
  offline_plan* plan = nullptr;       ///< gets what `adaptive` followed (replay_saving_plan)
};

/// The rows of each job, in their order, the same for any number of cores: one, or one for every
/// iteration up to the one that failed. Bounds are computed once per trace, budget and rates; where
/// costs are noisy those of later iterations are not known. `watch` is for a single job of a
/// preset: the simrd policies tell nothing. Throws what replays throw, std::system_error without
/// threads.
std::vector<std::vector<replay_row>> replay_iterations(std::span<const replay_job>,
                                                       const replay_watch& watch = {});
/// The last row of each job: all there is of one that is judged as a whole. Throws likewise.
std::vector<replay_row> replay_jobs(std::span<const replay_job>, const replay_watch& watch = {});

}  // namespace delta::executor
