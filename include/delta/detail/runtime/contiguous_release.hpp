// delta: Coop's contiguous release: releases neighbours where a request needs scattered free bytes
// in one piece and moving blocks would cost more. Releasing by score alone makes no large hole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "delta/context.hpp"
#include "delta/detail/runtime/shortage_report.hpp"
#include "delta/detail/tensors/records.hpp"
#include "delta/policy_answers.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Finds the cheapest window of neighbours; keeps its buffers. Knows neither storage nor policy:
/// the reclaimer hands both in as callables. For 3 bytes in one piece, costs in ns:
///   | hole 1 | x 2, 50 | w 1, stays | y 1, 10 | hole 1 | z 1, 20 |
///   y, the hole and z: 30 ns. x and the hole before it: 50 ns. Nothing across w.
class window_search {
 public:
  /// The tensors to release so that `size` bytes are free in one piece, for less than `limit` ns in
  /// all; empty: there is no such window. `walk(visit)` calls `visit(row, size, used)` by address;
  /// `owner(row)`: the tensor of a used row or none; `cost(tensor)`: ns to get it back (infinite:
  /// it stays). Valid until the next call. O(blocks), and as many calls of `cost`.
  template <class Walk, class Owner, class Cost>
  [[nodiscard]] std::span<const tensor_id> cheapest(bytes size, double limit, const Walk& walk,
                                                    const Owner& owner, const Cost& cost) {
    strip_.clear();
    chosen_.clear();
    // Scratch and outputs to come have no tensor: they stay, like what costs infinitely much.
    walk([&](std::uint32_t row, bytes stretch, bool used) {
      const tensor_id t = used ? owner(row) : tensor_id::none;
      const double price = !used ? 0.0 : t == tensor_id::none ? never : cost(t);
      strip_.push_back({t, stretch, price});
    });
    // Two ends run over the strip. What stays splits it; the left end follows as long as the rest
    // is still large enough, so every window looked at is as narrow as it can be.
    std::size_t best_first = 0, best_end = 0, first = 0;
    double sum_cost = 0;
    bytes sum{};
    for (std::size_t i = 0; i < strip_.size(); ++i) {
      if (strip_[i].cost == never) {
        first = i + 1, sum_cost = 0, sum = {};
        continue;
      }
      sum_cost += strip_[i].cost, sum += strip_[i].size;
      for (; sum - strip_[first].size >= size; ++first)
        sum_cost -= strip_[first].cost, sum -= strip_[first].size;
      if (sum >= size && sum_cost < limit) limit = sum_cost, best_first = first, best_end = i + 1;
    }
    for (std::size_t i = best_first; i < best_end; ++i)
      if (strip_[i].tensor != tensor_id::none) chosen_.push_back(strip_[i].tensor);
    return chosen_;
  }

 private:
  /// One stretch of the device's memory: a hole, a tensor that may leave, or something that stays.
  struct neighbour {
    tensor_id tensor;  // none: a hole, or nobody's
    bytes size;
    double cost;  // ns to get it back; infinite: it stays
  };
  std::vector<neighbour> strip_;
  std::vector<tensor_id> chosen_;
};

/// True if it is set aside, and nobody uses it: it goes for nothing.
template <class Reclaimer>
[[nodiscard]] bool is_cached(Reclaimer& r, tensor_id t) {
  return r.table().tensors[t].cached && r.table().tensors[t].locks == 0;
}
/// What it costs to get it back, in ns, where it may leave now; infinite: it stays.
template <class Reclaimer>
[[nodiscard]] double cost_to_leave(Reclaimer& r, const context& c, tensor_id t) {
  if (is_cached(r, t)) return 0.0;
  const tensor_record& x = r.table().tensors[t];
  const bool may_go = x.is_candidate && x.locks == 0 && x.restore_references == 0 &&
                      !x.prefetched_unused && !r.skipped_in(t) && may_leave(c, t);
  return may_go ? c.release_cost(t) : never;
}
/// All of a window, each the way that the Decider says.
template <class Reclaimer>
void release_all(Reclaimer& r, std::span<const tensor_id> leaving) {
  for (const tensor_id t : leaving) {
    if (is_cached(r, t)) {
      r.table().evict(t);
      continue;
    }
    if (!r.table().tensors[t].is_candidate) continue;  // gone with another one
    const context now = r.view();
    const bool asked = !now.is_released(t);
    r.table().counts.decisions += asked;
    r.release(now, t, asked ? r.policy().decider().decide(now, t) : action::evict);
  }
}

/// Releases the cheapest window of neighbours, if that costs less than moving what lies between the
/// holes. Nothing where a hole is large enough, or in a memory without places. O(blocks).
template <class Reclaimer>
void clear_window(Reclaimer& r, window_search& windows, bytes n) {
  if constexpr (has_holes<typename Reclaimer::storage_type>) {
    constexpr double worth_asking_ns = 20'000;  // what weighing itself may cost
    auto& s = r.table().storage();
    const bytes size = s.rounded(n);
    if (s.largest_hole() >= size) return;
    // Copies that are in the way can be waited for.
    const auto copies = [&] { return s.backlog(direction::out) + s.backlog(direction::in); };
    const auto moves = time_to_move(s, n);
    const double moving = moves ? *moves : double(copies().count());
    if (moving <= worth_asking_ns) return;
    r.table().refresh_machine_state();
    const context c = r.view();
    const auto leaving = windows.cheapest(
        size, moving, [&](const auto& visit) { s.walk_blocks(visit); },
        [&](std::uint32_t row) { return r.table().owner(row); },
        [&](tensor_id t) { return cost_to_leave(r, c, t); });
    if (leaving.empty()) return;
    release_all(r, leaving);
    while (s.largest_hole() < size && r.table().leaving().count > 0) r.wait();
  }
}

}  // namespace delta::detail
