// delta_torch: who reads addresses of tensors whose bytes may be away, and does not mean the bytes.
#pragma once

#include <atomic>

namespace delta_torch {

/// The error of all other readers.
inline constexpr const char* bytes_are_away =
    "delta: the bytes of this tensor are not on the device at the moment, and something reads them "
    "past PyTorch's dispatcher: call delta_torch.pin(tensor) before, or make the reader a "
    "torch.library.custom_op; a run with verify=True names it (docs/pytorch.md)";

/// Such a reader has to find a null address where otherwise an error is raised.
enum class away_reader : unsigned {
  /// Autograd, where the program computes on streams of its own: it tells PyTorch's allocator of
  /// gradients that go from one stream to another.
  streams = 1,
  /// The profiler, which tells tensors apart by their addresses.
  profiler = 2,
  /// DistributedDataParallel's reducer, which asks whether a gradient shares its bytes with a
  /// bucket, by their addresses.
  reducer = 4
};
/// Those that there are now, in the run that is on.
inline std::atomic<unsigned> away_readers{0};
inline void set_away_reader(away_reader r, bool on) noexcept {
  const auto bit = static_cast<unsigned>(r);
  on ? away_readers.fetch_or(bit) : away_readers.fetch_and(~bit);
}

}  // namespace delta_torch
