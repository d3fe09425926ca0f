// delta executor: the half of replay_named that is compiled for observers, in a unit of its own.
#pragma once

#include <optional>
#include <string_view>

#include "delta/trace.hpp"
#include "observe/watchers.hpp"
#include "replay/replay.hpp"

namespace delta::executor {

/// Nothing for an unknown name.
[[nodiscard]] std::optional<replay_result> replay_observed(std::string_view policy, const trace& t,
                                                           const replay_machine& on,
                                                           watchers& told);

}  // namespace delta::executor
