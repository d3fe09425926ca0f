#include "replay/replay_named.hpp"

#include "delta/engine/engine.hpp"
#include "delta/storage/simulated.hpp"
#include "replay/replay.hpp"

namespace delta::executor {

replay_result replay_named(std::string_view policy, const trace& t, const replay_machine& on,
                           const manager_options& options) {
  simulated storage(storage_for(t, on));
  const auto m = make_manager(policy, over(storage), options);
  return replay_by(*m, storage, t, on);
}

}  // namespace delta::executor
