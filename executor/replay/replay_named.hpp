// delta executor: replays under a policy that is named at run time. Compiled once for whoever needs
// no policy of its own: every preset is a manager of its own, and takes seconds to compile.
#pragma once

#include <string_view>

#include "delta/trace.hpp"
#include "replay/replay.hpp"

namespace delta::executor {

struct watchers;

/// `replay` of replay.hpp under the preset or the peer of that name (presets.hpp). Those that are
/// told of events outlive the call; null: nobody is, and events cost nothing. Throws
/// std::invalid_argument for an unknown name.
[[nodiscard]] replay_result replay_named(std::string_view policy, const trace& t,
                                         const replay_machine& on, watchers* told = nullptr);

}  // namespace delta::executor
