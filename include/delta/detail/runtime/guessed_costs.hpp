// delta: a guess at the cost of an operator that has neither a cost by the program nor a measured
// one: by the bytes that it touches. A cost of 0 would make the operator free to recompute.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "delta/detail/tensors/records.hpp"
#include "delta/observer.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// What every operator takes besides, however small it is: about a launch.
inline constexpr nanoseconds assumed_launch{1000};

/// A guess at what an operator takes: a launch, and the bytes that it touches, each tensor once, at
/// the storage's `move_rate` (none, or 0: `assumed_move_rate`). At least 1 us; too low for what
/// computes much per byte. O(tensors in the lists).
template <class Table>
[[nodiscard]] nanoseconds guess_cost(Table& table, std::span<const tensor_id> inputs,
                                     std::span<const tensor_id> updates,
                                     std::span<const tensor_id> made, bytes workspace) {
  const auto all = [](const tensor_record&) { return true; };
  const bytes touched =
      table.storage().rounded(workspace) + table.tensors.footprint({inputs, updates, made}, all);
  double rate = assumed_move_rate;
  if constexpr (has_holes<typename Table::storage_type>)
    if (const double told = table.storage().move_rate(); told > 0) rate = told;
  constexpr double most = 1e15;  // ten days; a sum of them is still a number of ns
  const double ns = std::min(static_cast<double>(touched.count) * 1e9 / rate, most);
  return assumed_launch + nanoseconds{static_cast<std::int64_t>(ns)};
}

/// Finds out whether a storage measures operators at all, so that a guess stays. One that measures
/// late is not told from one that never does until enough operators are over and unmeasured, or a
/// step is: `counters::guessed_costs` counts from then on, what was guessed before included.
class guess_watch {
 public:
  /// An operator whose cost is a guess was queued; `done` is its first stamp.
  void guessed(counters& c, stamp done) noexcept {
    if (certain_) return void(++c.guessed_costs);
    if (!measures_ && undecided_++ == 0) oldest_ = done;
  }
  /// The storage has measured an operator; `guess`: the time takes the place of a guess.
  void measured(counters& c, bool guess) noexcept {
    measures_ = true;
    if (guess && c.guessed_costs > 0) --c.guessed_costs;
  }
  /// Asked between operators, and when a step ends. True once: when it is certain that the storage
  /// measures nothing, and the policy decides by guesses. O(1): at most two calls of the storage.
  template <Storage S, class CostOf>
  [[nodiscard]] bool warns(S& storage, counters& c, const CostOf& cost_of, bool step_ends) {
    if (measures_ || warned_) return false;
    const bool enough = undecided_ >= patience || (step_ends && undecided_ > 0);
    // In this order: the time of what is over now may not have been known just before.
    if (!certain_ && enough && storage.reached(oldest_) && !cost_of(oldest_)) {
      certain_ = true;
      c.guessed_costs = undecided_;
    }
    return warned_ = certain_ && c.decisions > 0;
  }

 private:
  // Unmeasured operators after the first of them is over: times may be read in batches.
  static constexpr std::uint64_t patience = 32;
  bool measures_ = false, certain_ = false, warned_ = false;
  std::uint64_t undecided_ = 0;  // guesses, until it is certain
  stamp oldest_;                 // of the first of them
};

}  // namespace delta::detail
