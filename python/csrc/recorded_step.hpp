// delta_torch: a recorded training step in memory, and its replay in virtual time by delta's own
// managers: what the step would take on a machine that need not be there.
#pragma once

#include <cstdint>
#include <string>

#include "delta/error.hpp"
#include "delta/observer.hpp"
#include "delta/step.hpp"
#include "delta/units.hpp"
#include "traces/trace.hpp"

namespace delta_torch {

/// A machine and a policy to replay on it.
struct rehearsal_machine {
  std::string policy = "adaptive";
  delta::bytes budget{}, host{};
  double rate_out = 0, rate_in = 0;  ///< bytes per second
  delta::nanoseconds latency{};      ///< of every copy
  double burden = 0;                 ///< what compute loses by a copy beside it: 1: all its time
  unsigned steps = 4;                ///< repetitions; the last one is reported
  double limit = 10;      ///< a step that takes more than that times its own ends it; the first of
                          ///< several: four times that
  bool one_link = false;  ///< of collectives and copies: delta::simulated_rank
};

/// What came of it; of the last step, but for the peaks, which are of all steps.
struct rehearsed {
  enum class verdict : std::uint8_t { fits, out_of_memory, too_slow };
  verdict what = verdict::fits;
  delta::nanoseconds time{}, unmanaged{}, recompute{};
  delta::nanoseconds stall{}, network{};  ///< waiting for copies, and for collectives
  delta::bytes peak{}, host_peak{};
  delta::counters counts;
  std::string error;               ///< where it does not fit: delta's sentence
  delta::bytes smallest_budget{};  ///< that it names; 0: none
};

/// Replays a step, which keeps the rules and ends. Every tensor has one reference; sources from
/// before the first operation that the step keeps come once, and all else in every step. Throws
/// delta::unknown_policy, and what the manager throws beside delta::budget_exceeded. Touches
/// nothing of Python or PyTorch.
[[nodiscard]] rehearsed rehearse(const delta::trace&, const rehearsal_machine&);

/// A step of a run as a program that can be repeated; operators have no names there. Throws
/// delta::bad_trace for a step that breaks the rules, as one in which the program wrote what an
/// operator had made.
[[nodiscard]] delta::trace trace_of(const delta::step_record&, std::uint64_t granularity);

}  // namespace delta_torch
