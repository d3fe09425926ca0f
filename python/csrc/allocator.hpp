// delta_torch: the allocator that kernels and tensors of the managed device get their memory from
// while a run is on. What they take counts in the budget at once.
#pragma once

namespace delta_torch {

/// From now on PyTorch allocates through delta_torch, or as before. What was allocated either way
/// can be freed at any time.
void install_allocator();
void remove_allocator();

}  // namespace delta_torch
