// A heuristic of one's own: what is not in use for longest, and big, leaves first; bigness counts
// twice. Used by own_heuristic.cpp and by
// delta-replay --policy-file examples/mostly_big.hpp:mostly_big.
#pragma once

#include <delta/context.hpp>

struct mostly_big {
  double weight(const delta::context& c, delta::tensor_id t) const noexcept {
    return c.bytes(t) * c.bytes(t);
  }
};
