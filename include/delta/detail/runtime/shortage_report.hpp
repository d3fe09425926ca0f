// delta: what an error about memory says: who holds it, and which budget would do: one with which
// the program, run anew, passes the operator that failed. Bounds are kept operator by operator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "delta/context.hpp"
#include "delta/detail/tensors/records.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/error.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// What one call asks of the memory, rounded.
struct demand {
  bytes touched{};        ///< inputs and updates, each once, without constants
  bytes made{};           ///< blocks that it has already, and no tensor has yet
  bytes need{};           ///< what it is about to allocate
  bytes largest{};        ///< the largest block among that; 0: not in one piece
  bytes again{};          ///< what only a run of it again allocates, or has beside the rest
  bytes largest_again{};  ///< the largest block among that, or among what it has already
  bool restores = false;  ///< what is missing comes back first
  bool replayed = false;  ///< it is an operator, which may have to run again
};

/// Two budgets, each the largest of what every call so far asked for. Neither depends on what a
/// policy decided, as it decides otherwise under another budget.
/// `least`: constants, what views hold, bytes that no tensor has, and the largest operator: enough
/// where all else can always go to the host.
/// `all`: what the program has at once, and what is allocated beside it: nothing has to leave. What
/// is kept for replays alone goes first (`reclaimer::stay_within_own_peak`), so it counts, as a
/// replay does, only where tensors may leave though there is room: early, or as neighbours, where
/// that is cheaper than to move blocks.
/// Bytes alone do where blocks move. With `k` blocks held where they are, free bytes lie in k + 1
/// pieces at worst, so that a piece of `n` bytes is free for certain when (k + 1) n bytes are: each
/// bound has k n more.
class budget_bounds {
 public:
  /// `replays`: operators may run again. `early`: tensors may leave though there is room.
  budget_bounds(bool replays, bool early) noexcept : replays_(replays), early_(early) {}

  /// A call begins: what it asks for, before anything is done for it. O(1).
  template <class Table>
  void note(const demand& d, Table& table) {
    const bytes call = d.made + d.need;
    foreign_ = saturating_sub(table.storage().used(), table.here() + d.made);
    unfinished_ = !d.replayed && table.counts.operators == 0;
    // What asks for more than there is fails, and says nothing about the program.
    bytes& unmanaged = table.now.unmanaged_peak;
    if (call <= table.storage().capacity())
      unmanaged = std::max(unmanaged, table.in_use() + foreign_ + call);
    // Those wait for the first step's end (`reclaimer::stay_within_own_peak`).
    const bytes waiting = table.now.step_over ? bytes{} : table.dropped_constants();
    largest_ = std::max({largest_, d.largest, d.largest_again});
    const bytes own = d.touched + call;
    if (replays_ && d.replayed) {
      widest_ = std::max(widest_, own + d.again);
      most_made_ = std::max(most_made_, call + d.again);
    }
    const bytes pieces = times(d.restores ? largest_ : d.largest, holds_);
    // Any operator of the step may have to run again for what is missing.
    const bytes operation = d.restores ? std::max(own, widest_) : own;
    const bytes pinned = table.constants() + constants_gone_;
    least_ = std::max(least_, pinned + foreign_ + viewed_ + operation + pieces);
    const bytes beside = d.restores ? std::max(d.need, most_made_) : d.need;
    const bytes kept = table.existing() + given_up_;
    all_ = std::max(all_, kept + foreign_ + d.made + beside + pieces);
    own_ = std::max(own_, table.in_use() + waiting + foreign_ + call + times(d.largest, holds_));
    kept_ = std::max(kept_, kept);
    tensors_ = std::max(tensors_, table.tensors.live_tensors() + gone_);
  }
  /// All records go: none of these operators runs again.
  void end_of_step() noexcept {
    widest_ = most_made_ = given_up_ = constants_gone_ = {}, gone_ = 0;
  }
  /// Gives up `t` and all that only it is kept for, as room is short: with more room they exist,
  /// the constants among them on the device.
  template <class Table>
  void give_up(Table& table, tensor_id t) {
    const bytes kept = table.existing(), constants = table.constants();
    const std::size_t tensors = table.tensors.live_tensors();
    table.forget_records_around(t);
    gone_ += tensors - table.tensors.live_tensors(), given_up_ += kept - table.existing();
    constants_gone_ += constants - table.constants();
  }

  /// A block may not move from now on; and may again. O(1).
  void hold() noexcept { ++holds_; }
  void unhold() noexcept { --holds_; }
  /// A view holds a tensor of so many bytes; and does no longer.
  void view(bytes n) noexcept { viewed_ += n; }
  void unview(bytes n) noexcept { viewed_ -= n; }
  /// A tensor may not go to the host: `least` is not enough.
  void note_stay() noexcept { stays_ = true; }

  /// Bytes that are taken, and neither a tensor's nor the call's at hand; true if only variables
  /// and constants were made so far.
  [[nodiscard]] bytes foreign() const noexcept { return foreign_; }
  [[nodiscard]] bool unfinished() const noexcept { return unfinished_; }
  [[nodiscard]] bytes least() const noexcept { return least_; }
  /// `moves`: neighbours may leave.
  [[nodiscard]] bytes all(bool moves) const noexcept { return early_ || moves ? all_ : own_; }
  [[nodiscard]] std::uint64_t holds() const noexcept { return holds_; }
  [[nodiscard]] bool replays() const noexcept { return replays_; }
  /// The least host that always has a slab for everything; none: not everything may go there. n
  /// slabs leave n + 1 holes at most, each too small only if it is smaller than what leaves.
  [[nodiscard]] std::optional<bytes> enough_host(bool may_fragment) const noexcept {
    if (stays_) return std::nullopt;
    return kept_ + (may_fragment ? times(largest_, tensors_ + 1) : bytes{});
  }

 private:
  // No more than `largest_request`: what needs that much is beyond any memory.
  [[nodiscard]] static bytes times(bytes n, std::uint64_t count) noexcept {
    if (count > 0 && n.count > largest_request.count / count) return largest_request;
    return n * count;
  }

  bytes least_{}, all_{}, own_{};  // the two budgets, the second in both ways
  bytes kept_{};                   // the most that existed at once
  std::size_t tensors_ = 0, gone_ = 0;
  bytes largest_{};               // block
  bytes widest_{}, most_made_{};  // of the step's operators: all that one uses, what one allocates
  bytes given_up_{}, constants_gone_{}, viewed_{};
  std::uint64_t holds_ = 0;
  bytes foreign_{};
  bool replays_, early_, stays_ = false, unfinished_ = true;
};

/// True if it has a way out. Dropped tensors leave whatever their pins say: nothing is lost. A
/// clean one is among those that can be offloaded.
[[nodiscard]] inline bool may_leave(const context& c, tensor_id t) {
  return c.is_released(t) || c.can_evict(t) || c.can_offload(t);
}

/// Why a tensor on the device stays there, in that reservation; nothing: it may leave. `all_go`:
/// the policy never says keep, so who was passed over found no room on the host in one piece.
[[nodiscard]] inline std::optional<obstacle> why_it_stays(const tensor_record& x,
                                                          const machine_state& now,
                                                          const context& c, tensor_id t,
                                                          std::uint64_t reservation, bool host,
                                                          bool all_go) {
  if (x.pinned == pin::both) return obstacle::pinned;
  if (x.locks > 0) return obstacle::locked;
  if (may_leave(c, t)) {
    if (x.skipped_in != reservation) return std::nullopt;
    return all_go ? obstacle::host_full : obstacle::decider_keeps;
  }
  if (now.may_offload && !covers(x.pinned, pin::offload))
    return host ? obstacle::host_full : obstacle::no_host;
  if (covers(x.pinned, pin::evict)) return obstacle::pinned;
  if (x.producer != operator_id::none) return obstacle::recompute_cap;
  return now.may_offload ? obstacle::pinned : obstacle::no_way_out;
}

/// Among the biggest, if it is one: insertion into a short sorted list. O(1), no heap.
inline void add_holder(memory_report& r, const holder& h) noexcept {
  const bool full = r.holders == r.biggest.size();
  if (full && h.size <= r.biggest.back().size) return;
  r.biggest[full ? r.holders - 1 : r.holders++] = h;
  for (std::size_t k = r.holders; k-- > 1 && r.biggest[k].size > r.biggest[k - 1].size;)
    std::swap(r.biggest[k], r.biggest[k - 1]);
}

/// The report of an error about `need` more bytes for `operation`, without a budget. Where free
/// bytes lie in pieces the holders can't move, else they can't leave. O(tensors), no heap.
template <class Table>
[[nodiscard]] memory_report shortage_of(Table& table, const context& c, std::uint64_t reservation,
                                        bytes need, const char* operation, shortage what,
                                        bool all_go) {
  memory_report r;
  r.what = what;
  r.requested = need;
  r.capacity = table.storage().capacity();
  r.used = table.storage().used();
  r.largest_hole = table.free_bytes();
  if constexpr (has_holes<typename Table::storage_type>)
    r.largest_hole = table.storage().largest_hole();
  r.host_capacity = table.storage().host_capacity();
  r.host_used = table.storage().host_used();
  r.operation = operation;
  bytes tensors_here{};
  for (std::uint32_t i = 0; i < table.tensors.tensor_slots(); ++i) {
    const auto t = static_cast<tensor_id>(i);
    const tensor_record& x = table.tensors[t];
    if (!x.in_use || !on_device(x.where)) continue;
    tensors_here += x.footprint;
    const auto why =
        why_it_stays(x, table.now, c, t, reservation, r.host_capacity.count > 0, all_go);
    if (why) r.immovable += x.footprint;
    if (what == shortage::one_piece && x.holds > 0)
      add_holder(r, {t, x.size, obstacle::in_place, x.label});
    else if (what != shortage::one_piece && why)
      add_holder(r, {t, x.size, *why, x.label});
  }
  r.immovable += saturating_sub(r.used, tensors_here);  // workspace, scratch, outputs to come
  return r;
}

/// What is known of where a storage places blocks.
enum class placement : std::uint8_t {
  unknown,  ///< it does not show it, or has no places: taken at its word that bytes are what counts
  moving,   ///< what lies between holes moves, unless it is held
  fixed,    ///< blocks never move
  whole     ///< what is free is one piece
};
template <class S>
[[nodiscard]] placement placement_of(S& storage) {
  if (!may_fragment(storage)) return placement::whole;
  if constexpr (has_holes<S>) {
    bool any = false;
    storage.walk_blocks([&](std::uint32_t, bytes, bool) { any = true; });
    // A memory of no bytes has nothing to show.
    if (any || storage.capacity() == bytes{})
      return storage.bytes_to_move(bytes{}) ? placement::moving : placement::fixed;
  }
  return placement::unknown;
}

/// Names the smallest budget that is known to do, if there is one, and by what (`budget_bounds`).
/// `lets_all_go`: the policy keeps nothing that can go to the host. O(blocks).
template <class S>
void name_budget(memory_report& r, S& storage, const budget_bounds& known, bool lets_all_go) {
  r.held = known.holds(), r.foreign = known.foreign(), r.unfinished = known.unfinished();
  const placement where = placement_of(storage);
  // Where holes come to lie depends on all that was placed before, and that on the budget.
  if (where == placement::fixed || (where == placement::unknown && r.what == shortage::one_piece)) {
    r.basis = budget_basis::no_moving;
    return;
  }
  const auto name = [&](bytes least, budget_basis basis) {
    // `make_room` may have asked for part of a granule.
    const bytes budget = storage.rounded(least);
    // A budget that has just failed is none: the storage, or who else uses it, broke a rule.
    const bool named = r.smallest_budget.count > 0;
    if (budget <= r.capacity || (named && budget >= r.smallest_budget)) return;
    r.smallest_budget = budget;
    r.basis = basis;
  };
  const auto host = known.enough_host(may_fragment(storage));
  if (lets_all_go && host && r.host_capacity >= *host)
    name(known.least(), budget_basis::largest_need);
  name(known.all(where == placement::moving), budget_basis::everything);
  const bytes least = storage.rounded(known.least());
  if (host && (r.copies ? lets_all_go : known.replays()) && least < r.smallest_budget)
    r.budget_with_host = least, r.enough_host = *host;
}

}  // namespace delta::detail
