// delta: the Filter, Algorithm 2: which tensor leaves. Exact: the lowest score, ties to the lower
// id.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "delta/concepts.hpp"
#include "delta/context.hpp"

namespace delta {

/// Score of a tensor under either form of heuristic.
template <Heuristic H>
double score_of(const H& heuristic, const context& c, tensor_id t) {
  if (c.is_released(t)) return -1.0;  // nobody wants it back: before all others
  if constexpr (weighs_tensor<H>)
    return 1.0 / (static_cast<double>(heuristic.weight(c, t)) * c.staleness(t));
  else
    return static_cast<double>(heuristic.score(c, t));
}

/// Finds the victim among candidates by scoring each (Algorithm 2, lines 2 to 6).
template <Heuristic H>
class filter {
 public:
  explicit filter(H heuristic) : heuristic_(std::move(heuristic)) {}

  /// The candidate with the lowest score of those that `may_leave`; none if there is none. A score
  /// that is not a number counts as infinite. O(candidates) evaluations.
  template <class MayLeave>
  tensor_id select(const context& c, std::span<const tensor_id> candidates,
                   const MayLeave& may_leave) {
    tensor_id best = tensor_id::none;
    double lowest = never;
    for (const tensor_id t : candidates) {
      if (!may_leave(t)) continue;
      ++evaluations_;
      double s = score_of(heuristic_, c, t);
      if (!(s <= never)) s = never;
      if (best == tensor_id::none || s < lowest || (s == lowest && t < best)) best = t, lowest = s;
    }
    return best;
  }

  /// Scores computed since the beginning.
  [[nodiscard]] std::uint64_t evaluations() const noexcept { return evaluations_; }
  [[nodiscard]] H& heuristic() noexcept { return heuristic_; }

 private:
  H heuristic_;
  std::uint64_t evaluations_ = 0;
};

}  // namespace delta
