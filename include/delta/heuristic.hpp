// delta: heuristics, the Filter's scores: empty structs that read a context and nothing else, asked
// about every candidate when room is lacking. Lower leaves first. Most give a weight w, which
// stands for the score 1 / (w s). To write one: docs/writing_a_policy.md,
// testing/verify_heuristic.hpp.
#pragma once

#include <algorithm>

#include "delta/concepts.hpp"
#include "delta/context.hpp"

namespace delta {

/// The paper's equation (1): 1 / (m s). Big and stale leaves first. O(1).
struct base {
  static constexpr quantity depends_on = quantity::bytes;
  /// m, in bytes.
  double weight(const context& c, tensor_id t) const noexcept { return c.bytes(t); }
};

/// The paper's equation (2): 1 / s. Least recently used, whatever its size: the null model. O(1).
struct lru {
  static constexpr quantity depends_on = quantity::none;
  double weight(const context&, tensor_id) const noexcept { return 1.0; }
};

/// The paper's equation (3): 1 / m. The biggest leaves first, used or not. O(1).
struct greedy {
  static constexpr quantity depends_on = quantity::bytes;
  double score(const context& c, tensor_id t) const noexcept { return 1.0 / c.bytes(t); }
};

/// DTR's h (Kirisame et al. 2020): c / (m s), c the cost of the evicted neighbourhood, ancestors
/// and descendants, in ns, at least 1. Weight 0 where it can't be recomputed. O(closure).
struct dtr {
  static constexpr bool later_if_dearer = true;
  static constexpr quantity depends_on = quantity::bytes | quantity::neighbourhood_cost;
  double weight(const context& c, tensor_id t) const noexcept {
    return c.bytes(t) / std::max(c.neighbourhood_cost(t), 1.0);
  }
};

/// Both ways out weighed, and the root of the staleness, as staleness itself fails at small
/// budgets: min(c_r, exposed c_s) / (m sqrt(s)); the exposed swap waits for queued copies. It ranks
/// as its square does, so it has a weight. The heuristic of the preset `online`. O(closure).
struct cheapest_way_root {
  static constexpr bool later_if_dearer = true;
  static constexpr quantity depends_on =
      quantity::bytes | quantity::recompute_cost | quantity::exposed_swap_cost;
  double weight(const context& c, tensor_id t) const noexcept {
    const double w = c.bytes(t) / std::max(c.release_cost(t), 1.0);
    return w * w;
  }
};

static_assert(Heuristic<base> && Heuristic<lru> && Heuristic<greedy> && Heuristic<dtr> &&
              Heuristic<cheapest_way_root>);

}  // namespace delta
