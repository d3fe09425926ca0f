// delta: what a heuristic's answer is worth: one score for either form of heuristic, and the lowest
// of several.
#pragma once

#include <algorithm>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/units.hpp"

namespace delta::detail {

// What is no weight, or no number, leaves last: a heuristic that breaks its word loses no more than
// its say. None is so heavy that its product with a staleness overflows: what the program has
// dropped leaves before it.
constexpr double valid_weight(double w) noexcept {
  return w > 0 ? std::min(w, 0x1p960) : 0.0;
}
constexpr double valid_score(double s) noexcept {
  return s <= never ? s : never;
}

/// Score of a tensor under either form of heuristic; lower leaves first. A weight w stands for 1 /
/// (w s), equation (1) with any weight; weight 0 gives infinity, which leaves last. What the
/// program has dropped scores minus infinity. As dear as the heuristic's answer.
template <Heuristic H>
double score_of(const H& heuristic, const context& c, tensor_id t) {
  if (c.is_released(t)) return -never;  // nobody wants it back: before all others
  if constexpr (has_weight<H>)
    return 1.0 / (valid_weight(heuristic.weight(c, t)) * c.staleness(t));
  else
    return valid_score(heuristic.score(c, t));
}

/// Which closure costs the graph should keep for this heuristic (`graph::cached_closure`).
template <Heuristic H>
consteval closure costs_to_keep() {
  constexpr quantity q = value_of_depends_on<H>();
  if (q == quantity::everything) return closure::none;
  if (covers(q, quantity::later_recompute_cost)) return closure::later;
  if (covers(q, quantity::neighbourhood_cost)) return closure::neighbourhood;
  return covers(q, quantity::recompute_cost) ? closure::ancestors : closure::none;
}

/// The lowest score offered so far, of equal ones that with the lower id. A score that is not a
/// number counts as infinite. In whatever order tensors are offered, the same one wins: the order
/// of the candidates changes with every lock, and decisions must not depend on it.
class lowest_score {
 public:
  /// Takes `t` into account. O(1).
  void offer(tensor_id t, double score) noexcept {
    if (!(score <= never)) score = never;
    if (tensor_ == tensor_id::none || score < score_ || (score == score_ && t < tensor_))
      tensor_ = t, score_ = score;
  }
  /// None if nothing was offered.
  [[nodiscard]] tensor_id tensor() const noexcept { return tensor_; }

 private:
  tensor_id tensor_ = tensor_id::none;
  double score_ = never;
};

}  // namespace delta::detail
