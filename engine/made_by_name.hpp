// delta engine: the policies in four groups, each compiled in a unit of its own: a manager takes
// seconds to compile.
#pragma once

#include <memory>
#include <string_view>

#include "delta/engine/engine.hpp"

namespace delta::detail {

/// A manager of the policy of that name; null: the group has none of that name, and the storage is
/// still the caller's.
std::unique_ptr<manager_interface> make_plain(std::string_view policy,
                                              std::unique_ptr<any_storage>& storage,
                                              const manager_options& options);
std::unique_ptr<manager_interface> make_choosing(std::string_view policy,
                                                 std::unique_ptr<any_storage>& storage,
                                                 const manager_options& options);
std::unique_ptr<manager_interface> make_activations_peer(std::string_view policy,
                                                         std::unique_ptr<any_storage>& storage,
                                                         const manager_options& options);
std::unique_ptr<manager_interface> make_parameters_peer(std::string_view policy,
                                                        std::unique_ptr<any_storage>& storage,
                                                        const manager_options& options);

}  // namespace delta::detail
