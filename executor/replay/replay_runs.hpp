// delta executor: every trace with every policy and budget, on all cores.
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "delta/trace.hpp"
#include "replay/replay_options.hpp"
#include "replay/replay_report.hpp"

namespace delta::executor {

/// A trace and what its rows are called.
struct named_trace {
  std::string name;
  trace content;
};

/// Reads the traces. Their names are the files' without folder, ".gz" and one more extension, or
/// the paths where two would be called the same. Throws as read_trace.
std::vector<named_trace> read_traces(std::span<const std::filesystem::path>);

/// One row per combination: by trace, then policy, then budget, each in the order given. The rows
/// are the same for any number of cores. `watched` (may be null) gets the timeline of the one
/// replay that there is then. Throws what replays throw, std::system_error without threads.
std::vector<replay_row> replay_all(std::span<const named_trace>, const replay_options&,
                                   std::ostream* watched = nullptr);

}  // namespace delta::executor
