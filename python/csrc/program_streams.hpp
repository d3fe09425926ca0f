// delta_torch: whether the program computes on streams of its own.
#pragma once

#include <atomic>

namespace delta_torch {

/// It does, in the run that is on. Autograd then asks for the addresses of gradients that go from
/// one stream to another, to tell PyTorch's allocator of them, whether their bytes are there or
/// not: for bytes that are away it has to find a null address, not an error.
inline std::atomic<bool> has_program_streams{false};

}  // namespace delta_torch
