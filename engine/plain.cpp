// delta engine: the presets that decide by one rule.
#include "delta/presets.hpp"
#include "made_by_name.hpp"
#include "make_found.hpp"

namespace delta::detail {

std::unique_ptr<manager_interface> make_plain(std::string_view policy,
                                              std::unique_ptr<any_storage>& storage,
                                              const manager_options& options) {
  return make_found([&](auto f) { with_plain_preset(policy, f, options.strict); }, storage,
                    options.observer);
}

}  // namespace delta::detail
