// delta executor: replays under a policy of one's own, in a manager that is compiled here.
#pragma once

#include <utility>

#include "delta/manager.hpp"
#include "delta/storage/simulated.hpp"
#include "replay/replay.hpp"

namespace delta::executor {

/// Replays a trace under that policy, which is a type. Those that have names are compiled already
/// (replay_named.hpp). Results as replay_by's.
template <class H, class D, class P, class O = no_observer>
replay_result replay(const trace& t, policy<H, D, P> p, const replay_machine& on, O observer = {}) {
  simulated storage(storage_for(t, on));
  manager m{std::move(p), storage, std::move(observer)};
  return replay_by(m, storage, t, on);
}

}  // namespace delta::executor
