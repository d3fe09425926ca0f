// delta: swapping alone, the least recently used first.
#pragma once

#include "delta/decider.hpp"
#include "delta/heuristic.hpp"
#include "delta/manager.hpp"
#include "delta/prefetcher.hpp"

namespace delta {

/// Swapping alone: the least recently used leaves when memory is short, and comes back on demand.
inline policy<lru, offload_only, no_prefetch> swap_lru() {
  return {};
}

}  // namespace delta
