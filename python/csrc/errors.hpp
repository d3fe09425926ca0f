// delta_torch: delta's errors as PyTorch's: torch.OutOfMemoryError where memory is short, else
// RuntimeError.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "delta/error.hpp"
#include "session.hpp"

namespace delta_torch {

/// Calls `f` under the session's lock `state`; what delta throws becomes PyTorch's.
template <class F>
decltype(auto) translated(session& s, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const delta::budget_exceeded& e) {
    s.past().failed(e, e.report, dynamic_cast<const delta::thrash*>(&e) != nullptr);
    throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, std::string("delta: ") + e.what());
  } catch (const delta::error& e) {
    throw c10::Error({__func__, __FILE__, __LINE__}, std::string("delta: ") + e.what());
  }
}

}  // namespace delta_torch
