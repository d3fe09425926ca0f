// delta: what is given up for good: host copies beside bytes on the device, and what the program
// has dropped but records read. When no policy can let anything go any more; and the latter as long
// as the program needs no policy at all (reclaimer.hpp).
#pragma once

#include <cstdint>
#include <vector>

#include "delta/detail/tensors/candidates.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/tensor.hpp"
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

/// Has all that is computed from it its bytes, and does no restore under way wait for any of it?
/// `walk`: a buffer. O(what is computed from it).
[[nodiscard]] inline bool nothing_hangs_on(const graph& g, tensor_id t,
                                           std::vector<operator_id>& walk) {
  bool nothing = true;
  g.for_each_dependent(t, walk,
                       [&](tensor_id d) { nothing = nothing && g[d].where != residency::evicted; });
  // A consumer's output that is dropped but locked belongs to a restore under way.
  for (const operator_id o : g.readers(t))
    for (const tensor_id out : g.outputs(o))
      nothing = nothing && (g[out].references > 0 || g[out].locks == 0);
  return nothing;
}

/// A tensor that the program has dropped, kept because something can only be recomputed from it,
/// goes when all that hangs on it has its bytes: then nothing is lost but the chance to evict
/// those. The lowest id of those on the device; false: there is none. O(retained and what hangs on
/// them).
template <class Table>
bool give_up_a_source(Table& table, std::vector<operator_id>& walk, bool constants) {
  const graph& g = table.tensors;
  for (const tensor_id t : table.candidates().retained()) {
    const tensor& r = g[t];
    const bool needed = r.locks > 0 || r.wanted > 0 || (r.pinned == pin::both && !constants);
    if (needed || r.where != residency::resident || !nothing_hangs_on(g, t, walk)) continue;
    table.forget_records_around(t);
    return true;
  }
  return false;
}

}  // namespace delta::detail
