// delta benchmark: what the densely connected network (test/support/dense_program.hpp) is run on
// for docs/results/replay_scale.md.
#pragma once

#include <cstdint>

#include "delta/storage/simulated.hpp"
#include "delta/units.hpp"

namespace delta::bench {

/// Steps in which policies are learned and rehearsed; as many behind them are measured.
inline constexpr int dense_first_steps = 6, dense_steps = 6;
/// So fast a device that copies seldom pay: closures get long.
inline constexpr double dense_slowness = 1;

/// `part`: percent of the peak.
inline simulated_options dense_machine(bytes peak, int part) {
  return {.capacity = bytes{peak.count * static_cast<std::uint64_t>(part) / 100},
          .host_capacity = peak * 4};
}

}  // namespace delta::bench
