// delta executor: gives every operator of a graph its CPU kernel.
#pragma once

#include "graph.hpp"

namespace delta::executor {

/// Sets node::run and node::workspace of every node, and graph::threads. The graph may be bound
/// again for another number of threads: results are the same bits, workspaces are not.
void bind_cpu(graph&, int threads);

}  // namespace delta::executor
