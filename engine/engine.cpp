// delta engine: finds the group that a policy is in.
#include "delta/engine/engine.hpp"

#include <utility>

#include "delta/storage/simulated.hpp"
#include "made_by_name.hpp"

namespace delta {

std::unique_ptr<manager_interface> make_manager(std::string_view policy,
                                                std::unique_ptr<any_storage> storage,
                                                const manager_options& options) {
  for (const auto make : {detail::make_plain, detail::make_choosing, detail::make_activations_peer,
                          detail::make_parameters_peer})
    if (auto made = make(policy, storage, options)) return made;
  throw unknown_policy(policy);
}

std::unique_ptr<any_storage> over(simulated& storage) {
  return std::make_unique<detail::storage_of<simulated>>(storage);
}

}  // namespace delta
