// delta_torch: what belongs to one thread of the program: whether its operators are managed, and
// the modules that it is in.
#pragma once

#include <cstdint>
#include <vector>

namespace delta_torch {

/// The module that this thread is in, and whether what is made in it stays on the device.
struct module_scope {
  std::uint32_t module = 0;
  bool keep = false;
};

[[nodiscard]] inline std::vector<module_scope>& modules_of_thread() noexcept {
  static thread_local std::vector<module_scope> modules;
  return modules;
}

/// An operator of this thread is open: operators within its kernel are part of it.
[[nodiscard]] inline bool& within_operator() noexcept {
  static thread_local bool within = false;
  return within;
}

}  // namespace delta_torch
