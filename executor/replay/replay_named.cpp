#include "replay/replay_named.hpp"

#include <utility>

#include "peers/make_manager.hpp"
#include "replay/replay.hpp"

namespace delta::executor {

replay_result replay_under(
    const std::function<std::unique_ptr<manager_interface>(std::unique_ptr<any_storage>)>& make,
    const trace& t, const replay_machine& on) {
  simulated_rank storage(storage_for(t, on), on.one_link);
  const auto m = make(over(storage));
  return replay_by(*m, storage, t, on);
}

replay_result replay_named(std::string_view policy, const trace& t, const replay_machine& on,
                           const manager_options& options) {
  return replay_under(
      [&](std::unique_ptr<any_storage> s) {
        return make_any_manager(policy, std::move(s), options);
      },
      t, on);
}

}  // namespace delta::executor
