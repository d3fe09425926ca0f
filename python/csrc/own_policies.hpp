// delta_torch: policies of one's own, compiled to shared libraries and known by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "delta/engine/engine.hpp"

namespace delta_torch {

/// Loads the library `file`, whose policy has the name `name` from now on, also where another had
/// it. A library stays loaded until the process ends, as managers may be left that it has made.
/// Throws std::runtime_error where it can't be loaded or was compiled for another delta.
void load_policy(const std::string& name, const std::string& file);

/// The names, in the order of the alphabet.
[[nodiscard]] std::vector<std::string> own_policies();

/// A manager of the policy of that name: one's own, or one of delta's. Throws as
/// delta::make_manager.
[[nodiscard]] std::unique_ptr<delta::manager_interface> make_manager_of(
    const std::string& policy, std::unique_ptr<delta::any_storage> storage,
    const delta::manager_options& options);

}  // namespace delta_torch
