// delta_torch: what belongs to one thread of the program: whether its operators are managed, which
// of them it replays, and the module that it is in.
#pragma once

#include <cstdint>
#include <vector>

namespace delta_torch {

class replaying;

/// The module that a thread is in, and whether what is made in it stays on the device.
struct module_scope {
  std::uint32_t module = 0;
  bool keep = false;
};

/// One variable for all of it: from within a shared library each takes a call to be found, several
/// times in every operator.
struct thread_state {
  /// An operator of this thread is open: operators within its kernel are part of it.
  bool within_operator = false;
  bool within_callback = false;   ///< of a collective, which others may be waiting for
  bool within_manager = false;    ///< it holds the session's lock `state`
  std::uint32_t allocations = 0;  ///< of the operator that is open, so far
  replaying* replay = nullptr;    ///< the operator that it runs again; null: none
  module_scope module;            ///< the innermost that it is in
  std::uint64_t run = 0;          ///< in the run of that number
};
inline constinit thread_local thread_state state_of_thread;
[[nodiscard]] inline thread_state& this_thread() noexcept {
  return state_of_thread;
}

/// The modules that this thread was in when it entered the innermost one, which `module` is.
[[nodiscard]] inline std::vector<module_scope>& outer_modules() noexcept {
  static thread_local std::vector<module_scope> modules;
  return modules;
}

/// The thread works for the run of that number: modules that it entered in another one, and was in
/// when that ended, are not this one's.
inline void follow_run(thread_state& t, std::uint64_t run) {
  if (t.run == run) return;
  t.run = run;
  t.module = {};
  outer_modules().clear();
}

}  // namespace delta_torch
