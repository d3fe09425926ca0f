// delta executor: managers by the name of any policy: delta's, a peer's, compiled once, or one that
// own_policy_file.hpp has loaded.
#pragma once

#include <memory>
#include <string_view>

#include "delta/engine/engine.hpp"

namespace delta::executor {

/// As delta::make_manager, and for the names of `all_policies` and of policies that were loaded.
/// Throws unknown_policy, misuse where there is no storage, std::bad_alloc.
[[nodiscard]] std::unique_ptr<manager_interface> make_any_manager(
    std::string_view policy, std::unique_ptr<any_storage> storage,
    const manager_options& options = {});

/// A manager of the peer of that name; null: the group has none of that name, and the storage is
/// still the caller's. Each group is compiled in a unit of its own: a manager takes seconds.
std::unique_ptr<manager_interface> make_activations_peer(std::string_view policy,
                                                         std::unique_ptr<any_storage>& storage,
                                                         const manager_options& options);
std::unique_ptr<manager_interface> make_parameters_peer(std::string_view policy,
                                                        std::unique_ptr<any_storage>& storage,
                                                        const manager_options& options);

}  // namespace delta::executor
