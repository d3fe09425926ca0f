// delta: how a manager of any_manager.hpp is made. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "delta/engine/c_interface.h"

namespace delta {
#if defined(__cpp_exceptions)
inline namespace with_exceptions {
#else
inline namespace without_exceptions {
#endif

/// How a manager is made (delta_options has the same, as C).
struct any_options {
  std::uint64_t budget =
      0;  ///< bytes of device memory, asked for at once; all tensors and scratch count
  std::uint64_t host_budget =
      0;  ///< bytes of host memory, asked for at once; 0: nothing is offloaded
  std::string policy = "adaptive";  ///< a name of policy_names.hpp
  std::string observer;             ///< "": nobody; "timeline:FILE": a timeline for ui.perfetto.dev
  std::uint64_t granularity = 64;   ///< sizes and addresses are multiples of it; a power of two
  bool keep_addresses =
      false;  ///< blocks never slide together; what leaves may still come back elsewhere
  bool check_replays = false;  ///< a test of the kernels: replay_check.hpp
  /// The machine; null: the host's own memory. Copied; what its `self` points to outlives the
  /// manager, and all its tensors and views.
  const delta_device* device = nullptr;
  /// Gets a line of text when the manager has something to warn of, each warning once; null: it is
  /// written to stderr. It must not call the manager. `warn_self` is handed to it.
  void (*warn)(void* warn_self, const char* line) = nullptr;
  void* warn_self = nullptr;
  /// Is told where a tensor's bytes are from now on, or on their way to, and by null that they go;
  /// also while the manager is destroyed. For who shows tensors by address, with `keep_addresses`:
  /// else an address holds until something is allocated. It may copy and destroy tensors, and must
  /// not throw. Nothing: nobody is told.
  std::function<void(delta_tensor, std::byte*)> on_owner_changed;
};

}  // inline namespace
}  // namespace delta
