#include "model/live_bytes.hpp"

#include <algorithm>
#include <cstddef>

namespace delta::executor {

std::vector<std::uint64_t> live_bytes(const graph& g, std::uint64_t granularity) {
  const auto size = [&](value_id v) {
    return (std::uint64_t(g[v].bytes) + granularity - 1) & ~(granularity - 1);
  };
  std::uint64_t alive = 0;
  for (value_id v = 0; v < value_id(g.values.size()); ++v)
    if (g[v].persistent() || g[v].what == value_class::input) alive += size(v);
  const auto dying = last_uses(g);
  std::vector<std::uint64_t> at;
  at.reserve(g.nodes.size());
  for (std::size_t n = 0; n < g.nodes.size(); ++n) {
    for (const value_id v : g.nodes[n].outputs) alive += size(v);
    at.push_back(alive);
    for (const value_id v : dying[n]) alive -= size(v);
  }
  return at;
}

std::uint64_t peak_of_values(const graph& g, std::uint64_t granularity) {
  const auto at = live_bytes(g, granularity);
  return at.empty() ? 0 : *std::max_element(at.begin(), at.end());
}

}  // namespace delta::executor
