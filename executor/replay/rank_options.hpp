// delta executor: the flags of delta-replay for several devices that train together.
#pragma once

#include "cli/command_line.hpp"
#include "replay/replay_options.hpp"

namespace delta::executor {

/// Adds --ranks and what goes with it.
void describe_ranks(command_line&);

/// Reads them, behind the policies: `group`, `one_link` and of `perturbed_by` the jitter. Throws
/// usage_error.
void read_ranks(const command_line&, replay_options&);

}  // namespace delta::executor
