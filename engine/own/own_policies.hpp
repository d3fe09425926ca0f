// delta: policies of one's own, compiled to shared libraries (own_policy.hpp) and known by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "delta/engine/engine.hpp"

namespace delta::own {

/// Loads the library `file`, whose policy has the name `name` from now on, also where another had
/// it. A library stays loaded until the process ends, as managers may be left that it has made.
/// Throws std::runtime_error where it can't be loaded or was compiled for another delta. May be
/// called by several threads.
void load_policy(const std::string& name, const std::string& file);

/// The names, in the order of the alphabet.
[[nodiscard]] std::vector<std::string> policies();

/// A manager of the policy of that name: one's own, or one of delta's. Throws as
/// delta::make_manager.
[[nodiscard]] std::unique_ptr<manager_interface> make_manager(std::string_view policy,
                                                              std::unique_ptr<any_storage> storage,
                                                              const manager_options& options = {});

}  // namespace delta::own
