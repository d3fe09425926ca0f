// delta executor: Capuchin (Peng et al. 2020): one step is measured, the next ones are planned.
#pragma once

#include "delta/manager.hpp"
#include "peers/planned_swaps.hpp"
#include "peers/swap_plan.hpp"

namespace delta::executor {

/// Capuchin: the first step swaps on demand and is measured; then it is planned once, from the
/// measured times between uses: swaps that they hide, then recomputing by bytes per second. What
/// the plan does not cover is swapped on demand, the least recently used first (its passive mode).
/// It keeps a plan for one kind of step at a time.
inline planned_swaps<swap_plan> capuchin() {
  return {};
}

}  // namespace delta::executor
