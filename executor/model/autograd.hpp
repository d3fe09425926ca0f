// delta executor: reverse-mode differentiation of a graph. The forward nodes say what they computed
// from what, so the graph itself is the tape.
#pragma once

#include "model/graph.hpp"

namespace delta::executor {

/// Appends, in reverse order, the backward operators from `loss` (the output of a softmax
/// cross-entropy) to every parameter, what the optimizer of graph::hyper keeps of each parameter,
/// and the updates.
///
/// - Only gradients that lead to a parameter are computed: none for the images.
/// - A value read several times gets its gradients joined by add nodes as they arrive, so the order
///   of the sum is the reverse order of the readers.
/// - The update follows at once when its parameter's gradient is complete, so the gradient dies
///   there; or, where graph::hyper has an update_group, once so many bytes of gradients are, which
///   wait for each other: one operator for all of them. Within a layer the data gradient comes
///   first: it reads the weight that is changed.
///
/// Throws std::invalid_argument if `loss` is not a softmax cross-entropy's.
void differentiate(graph&, value_id loss);

}  // namespace delta::executor
