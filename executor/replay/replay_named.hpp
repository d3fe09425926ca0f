// delta executor: replays under a policy that is named at run time, by delta::engine's managers.
#pragma once

#include <string_view>

#include "delta/engine/engine.hpp"
#include "delta/trace.hpp"
#include "replay/replay_result.hpp"

namespace delta::executor {

/// `replay` of replay_policy.hpp under the preset or the peer of that name (policy_names.hpp).
/// Throws unknown_policy.
[[nodiscard]] replay_result replay_named(std::string_view policy, const trace& t,
                                         const replay_machine& on,
                                         const manager_options& options = {});

}  // namespace delta::executor
