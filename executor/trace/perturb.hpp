// delta executor: traces of a machine that is not quite the one that was recorded.
#pragma once

#include <cstdint>

#include "traces/trace.hpp"

namespace delta::executor {

/// How operations' costs differ from the recorded ones.
struct perturbation {
  double operators_faster = 1;  ///< every cost is divided by it; positive
  /// Sigma of the lognormal factor, of mean 1, that each run of an operation gets for itself; 0:
  /// none.
  double noise = 0;
  std::uint64_t seed = 1;  ///< of the noise and the jitter
  /// Of the ranks that train together each is slower or faster in each step, by a lognormal factor
  /// of mean 1 and this sigma for all of its operations; all wait for the slowest, which the trace
  /// is of. 0: none.
  double jitter = 0;
  std::uint64_t ranks = 1;

  bool operator==(const perturbation&) const = default;
};

/// `t` with costs of cost / operators_faster x exp(noise z - noise^2 / 2) x the largest of `ranks`
/// factors exp(jitter y - jitter^2 / 2), rounded, and at least 1 ns where there was a cost;
/// collectives cost what they did. z and y are standard normal numbers. z depends on the seed and
/// the operation's number alone, y on the seed, the step and the rank: so a trace and a longer one
/// that begins with it get the same costs, and every iteration of a repeated one has its own.
/// Numbers come from a generator and a transformation of our own, not the standard library's, and
/// so are the same everywhere. `t` keeps the rules of `check`, and so does the result. Throws
/// std::length_error where costs leave 63 bits. O(operations).
[[nodiscard]] trace perturbed(trace t, const perturbation&);

}  // namespace delta::executor
