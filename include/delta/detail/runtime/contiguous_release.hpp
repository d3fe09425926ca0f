// delta: releases neighbours where free bytes lie scattered, a request needs them in one piece, and
// moving blocks together would cost more (Coop's contiguous release).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/runtime/shortage_report.hpp"
#include "delta/detail/runtime/window_search.hpp"
#include "delta/detail/tensors/tensor_record.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Chooses windows of neighbours, and lets the reclaimer that it is given release them. Nothing in
/// a memory without places.
template <class Reclaimer>
class contiguous_release {
  using storage_type = typename Reclaimer::storage_type;

 public:
  /// Releases the window of neighbours that is cheapest to get back, if that is cheaper than moving
  /// what lies between the holes. Nothing where a hole is large enough, which is the usual case.
  /// O(blocks).
  void clear_window(Reclaimer& r, bytes n) {
    if constexpr (has_holes<storage_type>) {
      auto& s = r.table().storage();
      const bytes size = s.rounded(n);
      if (s.largest_hole() >= size) return;
      const auto in_the_way = s.bytes_to_move(n);
      // Copies that are in the way can be waited for.
      const auto copies = [&] { return s.backlog(direction::out) + s.backlog(direction::in); };
      const double moving = !in_the_way         ? double(copies().count())
                            : s.move_rate() > 0 ? 1e9 * double(in_the_way->count) / s.move_rate()
                                                : 0.0;
      if (moving <= worth_asking_ns) return;
      r.table().refresh_machine_state();
      const context c = r.view();
      const auto leaving =
          cheapest(r, size, moving, [&](tensor_id t) { return cost_to_leave(r, c, t); });
      if (leaving.empty()) return;
      release_all(r, leaving);
      while (s.largest_hole() < size && r.table().leaving().count > 0) r.wait();
    }
  }

 private:
  static constexpr double worth_asking_ns = 20'000;  ///< what weighing itself may cost

  // Neighbours that make a piece of that size, by `cost(tensor)`, under `limit`.
  template <class Cost>
  [[nodiscard]] std::span<const tensor_id> cheapest(Reclaimer& r, bytes size, double limit,
                                                    const Cost& cost) {
    return windows_.cheapest(
        size, limit, [&](const auto& visit) { r.table().storage().walk_blocks(visit); },
        [&](std::uint32_t row) { return r.table().owner(row); }, cost);
  }
  // What it costs to get it back, in ns, where it may leave now.
  [[nodiscard]] static double cost_to_leave(Reclaimer& r, const context& c, tensor_id t) {
    if (is_cached(r, t)) return 0.0;
    return may_go(r, c, t) ? r.policy().release_cost(c, t) : never;
  }
  [[nodiscard]] static bool is_cached(Reclaimer& r, tensor_id t) {
    return r.table().tensors[t].cached && r.table().tensors[t].locks == 0;
  }
  [[nodiscard]] static bool may_go(Reclaimer& r, const context& c, tensor_id t) {
    const tensor_record& x = r.table().tensors[t];
    return x.is_candidate && x.locks == 0 && x.restore_references == 0 && !x.prefetched_unused &&
           !r.skipped_in(t) && may_leave(c, t);
  }
  // All of a window, each the way that the Decider says.
  static void release_all(Reclaimer& r, std::span<const tensor_id> leaving) {
    for (const tensor_id t : leaving) {
      if (is_cached(r, t)) {
        r.table().evict(t);
        continue;
      }
      const context now = r.view();
      const bool asked = !now.is_released(t);
      r.table().counts.decisions += asked;
      r.release(now, t, asked ? r.policy().decide(now, t) : action::evict);
    }
  }

  window_search windows_;
};

}  // namespace delta::detail
