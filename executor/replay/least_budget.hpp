// delta executor: how little memory a trace can be tried with.
#pragma once

#include "delta/units.hpp"
#include "traces/trace.hpp"

namespace delta::executor {

/// What an operator touches, the constants that are alive and its workspace, where that is most;
/// what the program reads or writes, and the results at the end, likewise. No policy can do with
/// less; with as much it may still fail. O(trace), which keeps the rules of `check`.
[[nodiscard]] bytes least_budget(const trace&);

}  // namespace delta::executor
