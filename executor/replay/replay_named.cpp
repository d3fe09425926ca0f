#include "replay/replay_named.hpp"

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "delta/presets.hpp"
#include "observe/watchers.hpp"
#include "replay/replay_named_observed.hpp"

namespace delta::executor {

replay_result replay_named(std::string_view policy, const trace& t, const replay_machine& on,
                           watchers* told) {
  watchers nobody(nullptr, nullptr);
  std::optional<replay_result> result;
  const auto run = [&](auto p) { result = replay(t, std::move(p), on); };
  // Peers are compared, not timed: theirs are compiled for observers alone.
  if (told != nullptr && told->any())
    result = replay_observed(policy, t, on, *told);
  else if (!with_preset(policy, run))
    result = replay_observed(policy, t, on, nobody);
  if (!result) throw std::invalid_argument("replay_named: no policy '" + std::string(policy) + "'");
  return std::move(*result);
}

}  // namespace delta::executor
