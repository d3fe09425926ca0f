// delta: who holds the memory, for an error that says what the smallest budget would be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "delta/context.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/error.hpp"
#include "delta/storage/storage.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Is there any way out? Dropped tensors leave whatever their pins say: nothing is lost. A clean
/// one is among those that can be offloaded.
[[nodiscard]] inline bool may_leave(const context& c, tensor_id t) {
  return c.is_released(t) || c.can_evict(t) || c.can_offload(t);
}

/// Why a tensor on the device stays there, in that reservation; nothing: it may leave.
[[nodiscard]] inline std::optional<obstacle> why_it_stays(const tensor& x, const conditions& now,
                                                          const context& c, tensor_id t,
                                                          std::uint64_t reservation) {
  if (x.pinned == pin::both) return obstacle::pinned;
  if (x.locks > 0) return obstacle::locked;
  if (may_leave(c, t))
    return x.passed_over == reservation ? std::optional(obstacle::decider_keeps) : std::nullopt;
  if (now.may_offload && !covers(x.pinned, pin::offload)) return obstacle::host_full;
  if (covers(x.pinned, pin::evict)) return obstacle::pinned;
  if (x.producer != operator_id::none) return obstacle::recompute_cap;
  return now.may_offload ? obstacle::pinned : obstacle::no_way_out;
}

/// The report of an error about `need` more bytes for `operation`. `floor`: the largest need seen
/// so far, which no smaller budget can meet. O(tensors), and no heap.
template <class Table>
[[nodiscard]] memory_report shortage_of(Table& table, const context& c, std::uint64_t reservation,
                                        bytes need, bytes floor, const char* operation) {
  memory_report r;
  r.requested = need;
  r.capacity = table.storage().capacity();
  r.used = table.storage().used();
  r.largest_hole = table.free_bytes();
  if constexpr (shows_its_holes<typename Table::storage_type>)
    r.largest_hole = table.storage().largest_hole();
  r.host_capacity = table.storage().host_capacity();
  r.host_used = table.storage().host_used();
  r.operation = operation;
  bytes tensors_here{};
  for (std::uint32_t i = 0; i < table.tensors.tensor_slots(); ++i) {
    const auto t = static_cast<tensor_id>(i);
    const tensor& x = table.tensors[t];
    if (!x.in_use || !on_device(x.where)) continue;
    tensors_here += x.footprint;
    const auto why = why_it_stays(x, table.now, c, t, reservation);
    if (!why) continue;
    r.immovable += x.footprint;
    // Insertion into a short sorted list: no heap while an error is made.
    const bool full = r.holders == r.biggest.size();
    if (full && x.size <= r.biggest.back().size) continue;
    r.biggest[full ? r.holders - 1 : r.holders++] = {t, x.size, *why, x.label};
    for (std::size_t k = r.holders; k-- > 1 && r.biggest[k].size > r.biggest[k - 1].size;)
      std::swap(r.biggest[k], r.biggest[k - 1]);
  }
  r.immovable += saturating_sub(r.used, tensors_here);  // workspace, scratch, outputs to come
  r.smallest_budget = std::max(floor, r.immovable + need);
  return r;
}

}  // namespace delta::detail
