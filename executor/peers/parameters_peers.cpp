// delta executor: managers of the published policies whose rules move parameters or optimizer
// state, too.
#include <memory>
#include <string_view>
#include <utility>

#include "delta/engine/manager_of.hpp"
#include "peers/make_manager.hpp"
#include "peers/peers.hpp"

namespace delta::executor {

std::unique_ptr<manager_interface> make_parameters_peer(std::string_view policy,
                                                        std::unique_ptr<any_storage>& storage,
                                                        const manager_options& options) {
  std::unique_ptr<manager_interface> made;
  with_parameters_peer(
      policy, [&](auto p) { made = make_manager(std::move(p), std::move(storage), options); });
  return made;
}

}  // namespace delta::executor
