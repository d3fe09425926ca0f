// delta engine: what others published.
#include <utility>

#include "delta/engine/manager_of.hpp"
#include "delta/peers/peer_presets.hpp"
#include "made_by_name.hpp"

namespace delta::detail {

std::unique_ptr<any_manager> make_peer(std::string_view policy,
                                       std::unique_ptr<any_storage>& storage,
                                       const manager_options& options) {
  std::unique_ptr<any_manager> made;
  with_peer(policy, [&](auto p) {
    made = make_manager(std::move(p), std::move(storage), options.observer);
  });
  return made;
}

}  // namespace delta::detail
