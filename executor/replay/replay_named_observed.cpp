#include "replay/replay_named_observed.hpp"

#include <utility>

#include "delta/peers/peer_presets.hpp"
#include "delta/presets.hpp"

namespace delta::executor {

std::optional<replay_result> replay_observed(std::string_view policy, const trace& t,
                                             const replay_machine& on, watchers& told) {
  std::optional<replay_result> result;
  const auto run = [&](auto p) { result = replay(t, std::move(p), on, observed_by{&told}); };
  if (!with_preset(policy, run)) with_peer(policy, run);
  return result;
}

}  // namespace delta::executor
