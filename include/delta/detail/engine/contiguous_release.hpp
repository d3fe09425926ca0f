// delta: releases neighbours where free bytes lie scattered and a request needs them in one piece:
// when moving blocks would cost more; and, in steps that are known, before anything has to move
// (Coop's contiguous release).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/engine/shortage_report.hpp"
#include "delta/detail/engine/window.hpp"
#include "delta/detail/victims/scores.hpp"
#include "delta/storage/storage.hpp"
#include "delta/tensor.hpp"
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
    if constexpr (shows_its_holes<storage_type>) {
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
      r.table().refresh_conditions();
      const context c = r.view();
      const auto leaving =
          cheapest(r, size, moving, [&](tensor_id t) { return cost_to_leave(r, c, t); });
      if (leaving.empty()) return;
      release_all(r, leaving);
      while (s.largest_hole() < size && r.table().leaving().count > 0) r.wait();
    }
  }

  /// In a step that was seen: lets those neighbours go that make a piece of that size and have the
  /// lowest scores for their bytes, in place of the lowest scores wherever they lie. These would
  /// leave bytes free all over the memory, and blocks would have to move. False: moving takes no
  /// time, a hole is large enough, copies under way will do, or there is no such window.
  /// O(blocks), as many answers of the heuristic.
  bool release(Reclaimer& r, bytes need, bytes piece) {
    if constexpr (Reclaimer::recorder::enabled && shows_its_holes<storage_type>) {
      auto& table = r.table();
      if (piece.count == 0 || !table.steps.past().follows()) return false;
      auto& s = table.storage();
      const bytes size = s.rounded(piece);
      if (s.largest_hole() >= size || table.free_bytes() + table.leaving() >= need) return false;
      // Moving takes no time; unless the storage moves nothing, so that no byte can be had by it.
      if (s.move_rate() <= 0 && (s.largest_hole() == bytes{} || s.bytes_to_move(bytes{1})))
        return false;
      table.refresh_conditions();
      const auto leaving = cheapest_by_score(r, size);
      release_all(r, leaving);
      return !leaving.empty();
    } else {
      return false;
    }
  }

  /// Answers asked of the heuristic so far.
  [[nodiscard]] std::uint64_t evaluations() const noexcept { return priced_; }

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
  // Those with the lowest scores for their bytes. Lower bounds of what closures cost part most
  // windows from the cheapest: those of its tensors are then told exactly, until it is the cheapest
  // by these, too.
  [[nodiscard]] std::span<const tensor_id> cheapest_by_score(Reclaimer& r, bytes size) {
    const context c = r.view();
    question rough;
    context roughly = c;
    if constexpr (Reclaimer::asks_for_bounds) roughly.set_question(&rough);
    std::span<const tensor_id> leaving;
    asked_.clear();
    for (int tries = 0; tries < 4; ++tries) {
      leaving = cheapest(r, size, never, [&](tensor_id t) { return price(r, roughly, t); });
      // Where a closure meets the host no exact price is kept: the same window is found again.
      if (std::ranges::equal(leaving, asked_)) break;
      asked_.assign(leaving.begin(), leaving.end());
      double bound = 0, exact = 0;
      for (const tensor_id t : leaving) bound += price(r, roughly, t), exact += price(r, c, t);
      if (exact <= bound) break;
    }
    return leaving;
  }
  // What it costs to get it back, in ns, where it may leave now.
  [[nodiscard]] static double cost_to_leave(Reclaimer& r, const context& c, tensor_id t) {
    if (is_cached(r, t)) return 0.0;
    return may_go(r, c, t) ? r.policy().release_cost(c, t) : never;
  }
  // Scores are taken as costs per byte: of neighbours the sum over their bytes is compared.
  [[nodiscard]] double price(Reclaimer& r, const context& c, tensor_id t) {
    if (is_cached(r, t)) return 0.0;
    if (!may_go(r, c, t)) return never;
    if (c.is_released(t)) return 0.0;
    ++priced_;
    return c.bytes(t) * score_of(r.heuristic(), c, t);
  }
  [[nodiscard]] static bool is_cached(Reclaimer& r, tensor_id t) {
    return r.table().tensors[t].cached && r.table().tensors[t].locks == 0;
  }
  [[nodiscard]] static bool may_go(Reclaimer& r, const context& c, tensor_id t) {
    const tensor& x = r.table().tensors[t];
    return x.listed && x.locks == 0 && x.wanted == 0 && !x.fresh && !r.passed_over(t) &&
           may_leave(c, t);
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
  std::vector<tensor_id> asked_;  // the window that was asked for its exact price
  std::uint64_t priced_ = 0;
};

}  // namespace delta::detail
