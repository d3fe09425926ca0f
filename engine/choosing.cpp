// delta engine: the presets that choose among several policies.
#include "delta/presets.hpp"
#include "made_by_name.hpp"
#include "make_found.hpp"
#include "rehearsals.hpp"

namespace delta::detail {

std::unique_ptr<manager_interface> make_choosing(std::string_view policy,
                                                 std::unique_ptr<any_storage>& storage,
                                                 const manager_options& options) {
  return make_found([&](auto f) { with_choosing_preset(policy, f); }, storage, options.observer);
}

}  // namespace delta::detail
