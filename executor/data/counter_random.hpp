// delta executor: random numbers without state. The n-th number of a stream is a function of
// (stream, n), so any part of it can be had in any order.
#pragma once

#include <cstdint>

namespace delta::executor {

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection that spreads every input bit
/// over all output bits.
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The `counter`-th number of a stream; also how a stream is named by several numbers.
constexpr std::uint64_t mix(std::uint64_t stream, std::uint64_t counter) noexcept {
  return mix(mix(stream) + counter);
}

/// A number below `bound` (under 2^32) from a random one: the high half, scaled. Its bias is under
/// bound / 2^32.
constexpr std::uint64_t below(std::uint64_t random, std::uint64_t bound) noexcept {
  return ((random >> 32) * bound) >> 32;
}

}  // namespace delta::executor
