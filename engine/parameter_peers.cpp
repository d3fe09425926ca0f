// delta engine: the published policies of others that move parameters or optimizer state, too.
#include "delta/peers/peer_presets.hpp"
#include "made_by_name.hpp"
#include "make_found.hpp"

namespace delta::detail {

std::unique_ptr<manager_interface> make_parameters_peer(std::string_view policy,
                                                        std::unique_ptr<any_storage>& storage,
                                                        const manager_options& options) {
  return make_found([&](auto f) { with_parameters_peer(policy, f); }, storage, options);
}

}  // namespace delta::detail
