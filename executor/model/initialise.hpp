// delta executor: initial contents of persistent values, by our own arithmetic. The standard
// library's distributions differ between vendors; these bits do not.
#pragma once

#include <cstdint>

#include "model/graph.hpp"

namespace delta::executor {

/// Writes the initial contents of persistent value `v` (bytes / 4 floats) to `data`. They depend on
/// the seed, the value's name, shape and initial_contents only: not on the order of values.
///
/// Number i is drawn from hash(key + i), where key = hash(seed ^ fnv1a(name)) and hash is
/// SplitMix64's step (Steele, Lea, Flood, OOPSLA 2014). Uniform: its upper 53 bits. Normal: the sum
/// of twelve 16-bit parts of hash(key + 3i .. 3i + 2), centred, over 2^16: unit variance, exact in
/// double, no logarithm whose last bit depends on the library; nothing lies beyond six sigma.
void initialise(const graph&, value_id v, std::uint64_t seed, float* data);

}  // namespace delta::executor
