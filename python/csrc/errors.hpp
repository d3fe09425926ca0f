// delta_torch: delta's errors as PyTorch's: torch.OutOfMemoryError where memory is short, else
// RuntimeError.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "delta/error.hpp"
#include "session.hpp"

namespace delta_torch {

/// Calls `f` under the session's lock `state`; what delta throws becomes PyTorch's. `addition`:
/// what is to be said behind it where memory is short.
template <class F>
decltype(auto) translated(session& s, F&& f, const char* addition = "") {
  try {
    return std::forward<F>(f)();
  } catch (const delta::budget_exceeded& e) {
    const std::string message = std::string(e.what()) + addition;
    s.past().failed(message, e.report, dynamic_cast<const delta::thrash*>(&e) != nullptr);
    throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "delta: " + message);
  } catch (const delta::error& e) {
    throw c10::Error({__func__, __FILE__, __LINE__}, std::string("delta: ") + e.what());
  }
}

}  // namespace delta_torch
