// delta tests: heuristics that no preset has: a published one, and one with the staleness as it is.
#pragma once

#include <algorithm>

#include "delta/concepts.hpp"
#include "delta/context.hpp"

namespace delta {

/// Capuchin's memory saving per second (Peng et al. 2020), turned round so that lower leaves first:
/// c_r / m, in ns per byte. Staleness plays no part. O(closure).
struct msps {
  static constexpr bool later_if_dearer = true;
  static constexpr quantity depends_on = quantity::bytes | quantity::recompute_cost;
  double score(const context& c, tensor_id t) const noexcept {
    return c.recompute_cost(t) / c.bytes(t);
  }
};

/// Both ways out weighed (repairs, "Filter choice on real traces"): min(c_r, exposed c_s) / (m s),
/// where the exposed swap waits for the copies queued before it. O(closure).
struct joint {
  static constexpr bool later_if_dearer = true;
  static constexpr quantity depends_on =
      quantity::bytes | quantity::recompute_cost | quantity::exposed_swap_cost;
  double weight(const context& c, tensor_id t) const noexcept {
    return c.bytes(t) / std::max(c.release_cost(t), 1.0);
  }
};

static_assert(Heuristic<msps> && Heuristic<joint>);

}  // namespace delta
