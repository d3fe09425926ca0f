// delta_torch: operators over lists of tensors, as an optimizer with foreach or fused runs them,
// cut into pieces: the same range of every list, each an operator of its own. The tensors do not
// depend on each other, so the results are the same bits, in the memory of one piece at a time.
#pragma once

#include <ATen/core/stack.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "operators.hpp"
#include "session.hpp"

namespace delta_torch {

/// How many tensors the operator on the stack goes through one by one; 0: it can't be cut, as its
/// lists are not all of that length, or empty.
[[nodiscard]] std::size_t tensors_one_by_one(const operator_info&, const torch::jit::Stack&);

/// Where each piece ends. Each takes a quarter at most of the room, which is what does not stay on
/// the device anyway, so that there is some for what its tensors are computed from. It is one, the
/// whole, where nothing has to leave for it, and it won't run again, or would fit into the rest of
/// the room then. `mark`: a number that no entry was `seen` by. Under `operators` and `state`.
/// O(tensors of the operator); where something may have to leave, O(tensors of the run).
[[nodiscard]] std::vector<std::size_t> piece_ends(session&, const operator_info&,
                                                  const torch::jit::Stack&, std::uint64_t mark);

/// The arguments of each piece. Throws what PyTorch does.
[[nodiscard]] std::vector<torch::jit::Stack> pieces_of(const operator_info&,
                                                       const torch::jit::Stack&,
                                                       const std::vector<std::size_t>& ends);

/// Appends the lists that a piece has returned to those of the pieces before it.
void join(torch::jit::Stack& results, torch::jit::Stack&& piece);

}  // namespace delta_torch
