// delta: what a shared library with a policy of one's own shows to the program that loads it: a
// factory of managers, and what it was compiled for. Both include this file.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <version>  // the C++ library's macros

#include "delta/engine/engine.hpp"
#include "delta/error.hpp"
#include "delta/kernel.hpp"
#include "delta/observer.hpp"
#include "delta/version.hpp"

namespace delta::own {

/// What must be the same on both sides, as objects and exceptions cross between them: delta's
/// version, the C++ library, and the sizes of what is handed over.
using abi_numbers = std::array<std::size_t, 10>;
inline constexpr abi_numbers this_abi {
  DELTA_VERSION,
#if defined(_GLIBCXX_USE_CXX11_ABI)
      1 + _GLIBCXX_USE_CXX11_ABI,
#else
      0,  // another C++ library than g++'s
#endif
      sizeof(void*), sizeof(delta::manager_options), sizeof(delta::kernel),
      sizeof(delta::operation_span), sizeof(delta::event), sizeof(delta::counters),
      sizeof(delta::memory_report), sizeof(delta::error)
};

/// What the library's one visible function returns.
struct policy_library {
  abi_numbers abi;
  /// As delta::make_manager. What it throws are delta's errors and the standard library's, and they
  /// are caught by type on the other side: g++'s C++ library compares types by name, so that it
  /// does not matter that each side hides its own.
  std::unique_ptr<delta::manager_interface> (*make)(std::unique_ptr<delta::any_storage>,
                                                    const delta::manager_options&);
};

/// The function's name and type.
inline constexpr const char* policy_library_symbol = "delta_own_policy";
using policy_library_function = const policy_library*();

}  // namespace delta::own
