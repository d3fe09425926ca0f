// delta executor: managers of the published policies that leave alone what outlives a step.
#include <memory>
#include <string_view>
#include <utility>

#include "delta/engine/manager_of.hpp"
#include "own/own_policies.hpp"
#include "peers/make_manager.hpp"
#include "peers/peers.hpp"

namespace delta::executor {

std::unique_ptr<manager_interface> make_activations_peer(std::string_view policy,
                                                         std::unique_ptr<any_storage>& storage,
                                                         const manager_options& options) {
  std::unique_ptr<manager_interface> made;
  with_activations_peer(
      policy, [&](auto p) { made = make_manager(std::move(p), std::move(storage), options); });
  return made;
}

std::unique_ptr<manager_interface> make_any_manager(std::string_view policy,
                                                    std::unique_ptr<any_storage> storage,
                                                    const manager_options& options) {
  for (const auto make : {make_activations_peer, make_parameters_peer})
    if (auto made = make(policy, storage, options)) return made;
  return own::make_manager(policy, std::move(storage), options);
}

}  // namespace delta::executor
