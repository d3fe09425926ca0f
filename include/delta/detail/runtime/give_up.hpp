// delta: the last resorts, when no policy can let a tensor go any more: gives up host copies beside
// bytes on the device, recomputable tensors on the host alone, and dropped tensors that records
// still read. The last also go while the program fits without a policy (reclaimer.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "delta/context.hpp"
#include "delta/detail/tensors/candidates.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/records.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// The host is full and something could leave if it were not: gives up every host copy of a tensor
/// that is not on the host alone. False: there is none. O(tensors).
template <class Table>
bool reclaim_host(Table& table) {
  bool any = false;
  if (!table.now.may_offload) return false;
  for (std::uint32_t i = 0; i < table.tensors.tensor_slots(); ++i)
    if (const auto t = static_cast<tensor_id>(i);
        table.tensors[t].host && table.tensors[t].where != residency::host) {
      table.forget_host_copy(t);
      any = true;
    }
  return any;
}

/// The host is full, and a tensor that can't be computed again waits to be offloaded: evicts the
/// tensor on the host alone that costs least per byte to compute again. `reservation`: a tensor
/// that was skipped in it found no hole on the host. False: there is no need, or nothing of the
/// kind. O(candidates + closures of what is on the host).
template <class Table>
bool give_up_on_host(Table& table, const context& c, std::uint64_t reservation) {
  const auto is_stuck = [&](tensor_id t) {
    const tensor_record& r = table.tensors[t];
    return r.locks == 0 && !covers(r.pinned, pin::offload) &&
           (r.restore_references > 0 || !c.can_evict(t)) && !r.host &&
           (r.footprint > table.now.host_free || r.skipped_in == reservation);
  };
  if (!table.now.may_offload || !std::ranges::any_of(table.candidates().all(), is_stuck))
    return false;
  tensor_id cheapest = tensor_id::none;
  double least = never;
  for (const tensor_id t : table.offloaded()) {
    const tensor_record& r = table.tensors[t];
    // Not what a restore under way counts on.
    const bool counted_on =
        r.locks > 0 || r.restore_references > 0 || r.planned != tensor_record::nowhere;
    if (counted_on || !c.can_evict(t)) continue;
    if (const double cost = c.recompute_cost(t) / c.bytes(t); cost < least)
      cheapest = t, least = cost;
  }
  if (cheapest == tensor_id::none) return false;
  return table.evict_from_host(cheapest), true;
}

/// Bytes of all that is computed from it, where that has them and no restore under way waits for
/// any; else nullopt: something hangs on it. `walk`: a buffer. O(what is computed from it).
[[nodiscard]] inline std::optional<bytes> computed_and_here(const graph& g, tensor_id t,
                                                            std::vector<operator_id>& walk) {
  bool here = true;
  bytes computed{};
  g.for_each_dependent(t, walk, [&](tensor_id d) {
    here = here && g[d].where != residency::evicted;
    computed += g[d].footprint;
  });
  // A consumer's output that is dropped but locked belongs to a restore under way.
  for (const operator_id o : g.readers(t))
    for (const tensor_id out : g.outputs(o))
      here = here && (g[out].references > 0 || g[out].locks == 0);
  return here ? std::optional(computed) : std::nullopt;
}

/// A tensor that the program has dropped, kept because something can only be recomputed from it,
/// and that may go, as all that hangs on it has its bytes: then nothing is lost but the chance to
/// evict those. The lowest id of those on the device; none. O(retained and what hangs on them).
template <class Table>
[[nodiscard]] tensor_id source_to_give_up(const Table& table, std::vector<operator_id>& walk,
                                          bool constants) {
  const graph& g = table.tensors;
  for (const tensor_id t : table.candidates().retained()) {
    const tensor_record& r = g[t];
    const bool needed =
        r.locks > 0 || r.restore_references > 0 || (r.pinned == pin::both && !constants);
    if (!needed && r.where == residency::resident && computed_and_here(g, t, walk)) return t;
  }
  return tensor_id::none;
}

/// True if such a tensor had better go than be copied to the host: all that hangs on it is here,
/// and can be copied out in the time of this one's way out and back. O(what hangs on it).
template <class Table>
[[nodiscard]] bool is_not_worth_a_copy(const Table& table, tensor_id t,
                                       std::vector<operator_id>& walk) {
  const graph& g = table.tensors;
  if (!table.candidates().retained().contains(t) || g[t].restore_references > 0) return false;
  const auto computed = computed_and_here(g, t, walk);
  return computed && *computed <= g[t].footprint + g[t].footprint;
}

}  // namespace delta::detail
