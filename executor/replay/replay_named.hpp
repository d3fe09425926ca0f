// delta executor: replays under a policy that is named at run time, by delta::engine's managers.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "delta/engine/engine.hpp"
#include "replay/replay_result.hpp"
#include "traces/trace.hpp"

namespace delta::executor {

/// Replays a trace by the manager that `make` gives over a storage in virtual time. Results as
/// replay_by's (replay.hpp). Throws what `make` throws.
[[nodiscard]] replay_result replay_under(
    const std::function<std::unique_ptr<manager_interface>(std::unique_ptr<any_storage>)>& make,
    const trace& t, const replay_machine& on);

/// The same under the preset or the peer of that name (peers/peer_names.hpp).
/// Throws unknown_policy.
[[nodiscard]] replay_result replay_named(std::string_view policy, const trace& t,
                                         const replay_machine& on,
                                         const manager_options& options = {});

}  // namespace delta::executor
