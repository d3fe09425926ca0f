// delta executor: replays under a policy of one's own, in a manager that is compiled here.
#pragma once

#include <memory>
#include <utility>

#include "delta/engine/manager_of.hpp"
#include "replay/replay_named.hpp"

namespace delta::executor {

/// Replays a trace under that policy, which is a type; `told` is told of every event, and outlives
/// the replay (null: nobody). Those that have names are compiled already (replay_named.hpp).
/// Results as replay_under's.
template <class P>
replay_result replay(const trace& t, P p, const replay_machine& on, any_observer* told = nullptr) {
  return replay_under(
      [&](std::unique_ptr<any_storage> s) {
        return make_manager(p, std::move(s), {.observer = told});
      },
      t, on);
}

}  // namespace delta::executor
