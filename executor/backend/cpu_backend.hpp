// delta executor: gives every operator of a graph its CPU kernel. backend.hpp has the whole
// backend.
#pragma once

#include <cstdint>

#include "model/graph.hpp"

namespace delta::executor {

/// What sizes and addresses are rounded to: a cache line.
inline constexpr std::uint64_t cpu_granularity = 64;

/// Sets node::run and node::workspace of every node, and graph::threads. The graph may be bound
/// again for another number of threads: results are the same bits, workspaces are not.
void bind_cpu(graph&, int threads);

/// The same graph, bound.
[[nodiscard]] graph bound_to_cpu(graph&&, int threads = 1);

}  // namespace delta::executor
