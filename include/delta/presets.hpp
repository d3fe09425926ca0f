// delta: named compositions of the three roles of a policy, as values for a manager:
// `delta::manager manager{delta::online(), storage};`. The preset `adaptive` plans, which takes a
// compiler as long as all else: adaptive.hpp has it. policy_names.hpp lists the names, and
// docs/paper.md what leaves under each, and how it comes back.
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
/// The paper's composition, with releases in backward, too (P-7). It needs manager::backward.
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
