// delta_torch: delta's errors as PyTorch's: torch.OutOfMemoryError where memory is short, else
// RuntimeError.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "delta/error.hpp"
#include "session.hpp"

namespace delta_torch {

/// The text of a torch.OutOfMemoryError: it begins so that programs which try smaller batches know
/// it (accelerate by " out of memory.", Lightning by PyTorch's words for a device).
[[nodiscard]] std::string out_of_memory(const std::string& sentence);

/// "rank 1: ", where several processes train together; else "".
[[nodiscard]] std::string rank_of(const session&);

/// Memory that was short outside of an operator of the program.
class no_room final : public delta::budget_exceeded {
 public:
  /// `what` needed it.
  no_room(const delta::memory_report&, const std::string& what) noexcept;
};

/// A share of the measured peak (bytes) that is less than what can't leave.
class share_too_small final : public delta::budget_exceeded {
 public:
  share_too_small(const delta::memory_report&, double share, std::size_t peak) noexcept;
};

/// What there is to be read of a failure from now on, by last_error(); gives the error's sentence.
/// `addition`: what is said behind it.
std::string record_failure(session&, const delta::budget_exceeded&, const char* addition);

/// Records the failure and throws c10::OutOfMemoryError, or the device's own error, where that is
/// why there was no memory. `addition`: what is said behind it.
[[noreturn]] void throw_out_of_memory(session&, const delta::budget_exceeded&,
                                      const char* addition);

/// Throws Python's delta_torch.TensorDiffers.
[[noreturn]] void throw_differs(const session&, const delta::hashes::tensor_differs&);

/// Calls `f` under the session's lock `state`; what delta throws becomes PyTorch's. `addition`:
/// what is to be said behind it where memory is short.
template <class F>
decltype(auto) translated(session& s, F&& f, const char* addition = "") {
  try {
    return std::forward<F>(f)();
  } catch (const delta::budget_exceeded& e) {
    throw_out_of_memory(s, e, addition);
  } catch (const delta::hashes::tensor_differs& e) {
    throw_differs(s, e);
  } catch (const delta::error& e) {
    throw c10::Error({__func__, __FILE__, __LINE__}, "delta: " + rank_of(s) + e.what());
  }
}

}  // namespace delta_torch
