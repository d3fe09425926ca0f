// delta_torch: CUDA's part of an accelerator.
#pragma once

#include "device_part.hpp"

namespace delta_torch {

/// It lives for ever. Making it needs no GPU; its calls do.
[[nodiscard]] device_part& cuda_part();

}  // namespace delta_torch
