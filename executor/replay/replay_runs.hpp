// delta executor: what delta-replay's command line asks for: every trace with every policy and
// budget, or the smallest budgets that will do.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "replay/find_budget.hpp"
#include "replay/replay_jobs.hpp"
#include "replay/replay_options.hpp"
#include "replay/replay_report.hpp"
#include "replay/replay_result.hpp"
#include "traces/trace.hpp"

namespace delta::executor {

/// A trace and what its rows are called.
struct named_trace {
  std::string name;
  trace content;
};

/// Reads the traces. Their names are the files' without folder, ".gz" and one more extension, or
/// the paths where two would be called the same. Throws as read_trace.
std::vector<named_trace> read_traces(std::span<const std::filesystem::path>);

/// The machine that a trace is replayed on, but for the budget: rates and latency as the options
/// say, else as the trace says of where it was recorded, else the defaults; the host's budget for
/// that unmanaged peak.
[[nodiscard]] replay_machine machine_for(const trace&, bytes unmanaged_peak, const replay_options&);

/// By trace: the rows of every combination, by policy, then budget, each in the order given, then
/// iteration. `watch` sees the one replay that there is then. Throws usage_error for --iterations
/// or the perturbations where a trace can't be repeated or changed so, or a plan that is for
/// another one; bad_trace for a file with a plan that can't be read; else as replay_iterations.
std::vector<std::vector<replay_row>> replay_all(std::span<const named_trace>, const replay_options&,
                                                const replay_watch& watch = {});

/// One answer per policy for this trace, in the order given. With several iterations the last one
/// has to keep to the overhead. Throws likewise.
std::vector<budget_answer> find_budgets(const named_trace&, const replay_options&);

}  // namespace delta::executor
