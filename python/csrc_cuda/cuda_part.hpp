// delta_torch: CUDA's part of an accelerator.
#pragma once

#include <algorithm>
#include <cstddef>

#include "device_part.hpp"

namespace delta_torch {

/// The share of a device's memory, of `total` bytes, that PyTorch's allocator may hold in a run of
/// `bytes`; `others`: what it holds beside these; `before`: its share without a run.
///
/// It holds more than what counts: blocks are cut from segments of 2 and 20 MiB, for each stream,
/// and whole ones stay; and what is not counted is allocated there as well, as cuBLAS's workspaces
/// are in some versions, 32 MiB for each thread and stream. Kernels that are loaded later, and
/// handles of libraries, have 1.5 GiB of the device: where there is none, launches fail.
[[nodiscard]] constexpr double share_in_a_run(std::size_t bytes, std::size_t others,
                                              std::size_t total, double before) noexcept {
  if (bytes >= no_limit) return before;
  const auto asked = static_cast<double>(bytes), of = static_cast<double>(total);
  const double wanted = asked + asked / 16 + (256 << 20) + static_cast<double>(others);
  return std::min({before, wanted / of, std::max(1 - 1.5 * (1 << 30) / of, 0.5)});
}

/// It lives for ever. Making it needs no GPU; its calls do.
[[nodiscard]] device_part& cuda_part();

}  // namespace delta_torch
