// delta: who holds the memory, and which budget would do: what an error about memory says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "delta/context.hpp"
#include "delta/detail/runtime/budget_bounds.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/detail/tensors/tensor_record.hpp"
#include "delta/error.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// True if it has a way out. Dropped tensors leave whatever their pins say: nothing is lost. A
/// clean one is among those that can be offloaded.
[[nodiscard]] inline bool may_leave(const context& c, tensor_id t) {
  return c.is_released(t) || c.can_evict(t) || c.can_offload(t);
}

/// Why a tensor on the device stays there, in that reservation; nothing: it may leave.
[[nodiscard]] inline std::optional<obstacle> why_it_stays(const tensor_record& x,
                                                          const machine_state& now,
                                                          const context& c, tensor_id t,
                                                          std::uint64_t reservation, bool host) {
  if (x.pinned == pin::both) return obstacle::pinned;
  if (x.locks > 0) return obstacle::locked;
  if (may_leave(c, t))
    return x.skipped_in == reservation ? std::optional(obstacle::decider_keeps) : std::nullopt;
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
/// bytes lie in pieces the holders are what can't move, else what can't leave. O(tensors), and no
/// heap.
template <class Table>
[[nodiscard]] memory_report shortage_of(Table& table, const context& c, std::uint64_t reservation,
                                        bytes need, const char* operation, shortage what) {
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
    const auto why = why_it_stays(x, table.now, c, t, reservation, r.host_capacity.count > 0);
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
  r.held = known.holds();
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
    if (budget <= r.capacity || r.smallest_budget.count > 0) return;
    r.smallest_budget = budget;
    r.basis = basis;
  };
  if (lets_all_go && known.all_can_leave(r.host_capacity, may_fragment(storage)))
    name(known.least(), budget_basis::largest_need);
  name(known.all(where == placement::moving), budget_basis::everything);
}

}  // namespace delta::detail
