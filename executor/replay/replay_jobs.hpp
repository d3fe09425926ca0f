// delta executor: replays to be done, and doing them on all cores.
#pragma once

#include <iosfwd>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "delta/trace.hpp"
#include "replay/replay.hpp"
#include "replay/replay_report.hpp"

namespace delta::executor {

/// One replay. What it points to outlives it.
struct replay_job {
  const trace* subject = nullptr;
  std::string_view name;          ///< the trace's, for its row
  unmanaged_cost unmanaged;       ///< of the trace
  std::string_view policy;        ///< one of replay_policies
  replay_machine machine;         ///< the budget, too
  std::optional<double> ratio{};  ///< the budget over the unmanaged peak; absent: worked out
};

/// Who watches a replay: streams that outlive it; null: nobody.
struct replay_watch {
  std::ostream* timeline = nullptr;   ///< gets what delta::timeline writes
  std::ostream* decisions = nullptr;  ///< gets what decision_log writes
};

/// One row per job, in their order, the same for any number of cores. Bounds are computed once per
/// trace, budget and rates. `watch` is for a single job of a preset: the simrd policies tell
/// nothing. Throws what replays throw, std::system_error without threads.
std::vector<replay_row> replay_jobs(std::span<const replay_job>, const replay_watch& watch = {});

}  // namespace delta::executor
