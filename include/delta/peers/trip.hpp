// delta: when a planned tensor is away, and which way it left.
#pragma once

#include <cstdint>

#include "delta/step.hpp"

namespace delta::detail {

/// The way of one storage: away after the operator `from`, back for the operator `to`, both
/// positions in the step.
struct trip {
  std::uint32_t from = step_record::none, to = step_record::none;
  bool swaps = false;  ///< else it is recomputed
};

}  // namespace delta::detail
