// delta: named compositions of the three roles of a policy. Values, to be handed to a manager:
//
//   delta::manager manager{delta::online(), storage};
//
//   delta::manager other{my_heuristic{}, delta::cheaper{}, delta::no_prefetch{}, storage};
//
// The second is a composition of one's own, without a name. The preset `adaptive` is a policy of
// its own, in adaptive.hpp: it plans, which takes a compiler as long as all else. policy_names.hpp
// lists the names, and docs/paper.md what leaves under each, and how it comes back.
#pragma once

#include "delta/decider.hpp"
#include "delta/heuristic.hpp"
#include "delta/manager.hpp"
#include "delta/policy.hpp"
#include "delta/prefetcher.hpp"

namespace delta {

/// Nothing leaves. The program runs as without a manager, within the budget or not at all.
inline policy<base, never_release, no_prefetch> unmanaged() {
  return {};
}
/// The paper's composition, for comparison; it needs manager::backward. Against its Assumption 2 it
/// releases in backward, too (repairs P-7). What it keeps and what not: docs/paper.md.
inline policy<base, paper_director, fifo_prefetch> paper() {
  return {};
}
/// DTR's composition: its h, evictions only. Named for what it does; "dtr" for with_preset.
inline policy<dtr, evict_only, no_prefetch> recompute_only() {
  return {};
}
/// The default until something has been learned: the cheaper way out and back.
inline policy<cheapest_way_root, cheaper, no_prefetch> online() {
  return {};
}
/// Swapping alone: the least recently used leaves when memory is short, and comes back on demand.
inline policy<lru, offload_only, no_prefetch> swap_lru() {
  return {};
}

}  // namespace delta
