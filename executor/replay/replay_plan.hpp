// delta executor: replays of a plan that is written down, and of `adaptive` to write one down, in
// virtual time.
#pragma once

#include "delta/engine/engine.hpp"
#include "peers/offline_plan.hpp"
#include "replay/replay_result.hpp"
#include "traces/trace.hpp"

namespace delta::executor {

/// Replays a trace under that plan of its step, by delta's manager; `told` is told of every event
/// (null: nobody). Results as replay_by's (replay.hpp).
[[nodiscard]] replay_result replay_plan(const offline_plan&, const trace&, const replay_machine&,
                                        any_observer* told = nullptr);

/// Replays a trace under `adaptive`, and saves the plan that its last step has followed; of no
/// operators where it followed none. Results as replay_by's.
[[nodiscard]] replay_result replay_saving_plan(offline_plan& to, const trace&,
                                               const replay_machine&, any_observer* told = nullptr);

}  // namespace delta::executor
