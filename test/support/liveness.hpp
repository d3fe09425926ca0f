// The peak of a graph's memory from the graph alone: what a run with no policy and no fragmentation
// must reach.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "model/graph.hpp"

namespace delta::test {

/// Bytes at the worst moment of one step, each block rounded up to `granularity` (a power of two):
/// persistent values always count, inputs from the start, others from their producer, each to its
/// last use inclusive (the loss and the probabilities to the end); a node's workspace counts while
/// it runs.
inline std::size_t liveness_peak(const executor::graph& g, std::size_t granularity) {
  const auto rounded = [granularity](std::size_t bytes) {
    return (bytes + granularity - 1) & ~(granularity - 1);
  };
  std::size_t alive = 0;
  for (const auto& v : g.values) {
    if (v.persistent() || v.what == executor::value_class::input) alive += rounded(v.bytes);
  }
  const auto dying = executor::last_uses(g);
  std::size_t peak = alive;
  for (std::size_t n = 0; n < g.nodes.size(); ++n) {
    for (const auto v : g.nodes[n].outputs) alive += rounded(g[v].bytes);
    peak = std::max(peak, alive + rounded(g.nodes[n].workspace));
    for (const auto v : dying[n]) alive -= rounded(g[v].bytes);
  }
  return peak;
}

}  // namespace delta::test
