// delta executor: Chameleon (2025): swapping alone, planned anew for each sequence of operators
// that is seen.
#pragma once

#include "delta/manager.hpp"
#include "peers/planned_swaps.hpp"
#include "peers/swap_plan.hpp"

namespace delta::executor {

/// Chameleon (arXiv 2509.11076): a step of eager execution is profiled as it runs, swaps are
/// planned from it, and are planned anew when the sequence of operators has changed; nothing is
/// recomputed. Here the plan is Capuchin's with its swaps alone: what hides its copies first, then
/// what exposes least of them. What the plan does not cover is swapped on demand.
inline planned_swaps<swaps_only_plan> chameleon() {
  return {};
}

}  // namespace delta::executor
