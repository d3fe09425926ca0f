// delta executor: a training run's state to a checkpoint and back, and what must be the same where
// it goes on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/options.hpp"
#include "data/dataset.hpp"
#include "model/graph.hpp"
#include "train/checkpoint.hpp"
#include "train/session.hpp"

namespace delta::executor {

/// The flags that the bits of a run depend on; `on`: "cpu" or "cuda". Budget, policy, host memory,
/// threads, how copies are made and how long it trains are none of them.
std::vector<fixed_flag> fixed_flags(const train_options&, const dataset&, std::string_view on);

/// Which algorithms the backend took, as one more of them.
fixed_flag algorithms_of(const graph& training);

/// Reads --resume's file and checks it against the flags and the number of steps of the run. Throws
/// usage_error.
checkpoint open_checkpoint(const train_options&, const std::vector<fixed_flag>&,
                           std::uint64_t steps);

/// Throws usage_error unless the checkpoint has this graph's persistent tensors, in its order, and
/// its algorithms.
void check_against_graph(const checkpoint&, const graph& training,
                         const std::filesystem::path& file);

/// Fills the persistent values of a session that is new, and sets its counts.
void restore(session&, const checkpoint&);

/// Writes the session's state and what `head` has of the run. Room for a tensor that is away is
/// made as for any that is read, so that the budget is kept.
void save(const std::filesystem::path& file, session&, const graph& training, checkpoint_head head);

}  // namespace delta::executor
