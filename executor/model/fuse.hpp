// delta executor: fuses a training graph's batch norms with the element-wise operators behind them.
#pragma once

#include "model/graph.hpp"

namespace delta::executor {

/// The forward graph `g` with one operator in place of each chain
///   bn_forward, relu_forward          as bn_relu_forward, named after both ("bn1+relu.forward");
///   bn_forward, add, relu_forward     as bn_add_relu_forward, where the batch norm is either term,
///                                     the first where both are
/// whose values between have no other reader and are not the graph's logits, loss or probabilities.
/// These values are gone: nobody writes or reads them. The other term of a sum must not be what the
/// batch norm reads.
///
/// What it saves is traffic: a fifth of all bytes that a residual network's step moves. It saves
/// hardly any memory, as the values between died before the backward pass; the operator backward
/// of a sum holds five tensors of its size at once where those apart hold four.
///
/// A fused operator stands where the ReLU stood, and computes the same bits, so losses and
/// gradients are those of `g`, but where it has dropout: its draws follow the numbers of operators.
/// Linear time. To be called before differentiate(); a graph that has
/// backward operators already throws std::invalid_argument.
[[nodiscard]] graph fused(const graph& g);

}  // namespace delta::executor
