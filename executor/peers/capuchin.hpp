// delta executor: Capuchin (Peng et al. 2020): one step is measured, the next ones are planned.
#pragma once

#include "delta/manager.hpp"
#include "peers/plan_roles.hpp"
#include "peers/swap_plan.hpp"

namespace delta::executor {

/// Capuchin: the first step swaps on demand and is measured; then it is planned once, from the
/// measured times between uses: swaps that they hide, then recomputing by bytes per second. Each
/// role has a plan of its own, and all are the same. What the plan does not cover is swapped on
/// demand, the least recently used first (its passive mode). It keeps a plan for one kind of step
/// at a time.
inline policy<planned_first<swap_plan>, planned_way<swap_plan>, in_triggers<swap_plan>> capuchin() {
  return {};
}

}  // namespace delta::executor
