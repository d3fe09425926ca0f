// delta executor: Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
//
// A word of the sequence is a function of its position and the key: there is no state to carry, so
// any thread can draw any part, and draw it again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gpu_function.hpp"

namespace delta::executor {

/// Plain structures: a GPU has no std::array.
struct philox_counter {
  std::uint32_t word[4];
  DELTA_GPU constexpr std::uint32_t operator[](std::size_t i) const noexcept { return word[i]; }
  friend constexpr bool operator==(const philox_counter&, const philox_counter&) = default;
};
struct philox_key {
  std::uint32_t word[2];
  DELTA_GPU constexpr std::uint32_t operator[](std::size_t i) const noexcept { return word[i]; }
};

/// Two 32 by 32 bit products; their high halves are mixed with the other words and the key.
DELTA_GPU constexpr philox_counter philox_round(const philox_counter& c,
                                                const philox_key& k) noexcept {
  const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0];
  const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c[2];
  return {std::uint32_t(b >> 32) ^ c[1] ^ k[0], std::uint32_t(b),
          std::uint32_t(a >> 32) ^ c[3] ^ k[1], std::uint32_t(a)};
}

/// The key of round `round`: two Weyl sequences, stepped by the golden ratio and the square root
/// of three, both less one and times 2^32.
DELTA_GPU constexpr philox_key philox_round_key(const philox_key& k, std::uint32_t round) noexcept {
  return {k[0] + round * 0x9E3779B9u, k[1] + round * 0xBB67AE85u};
}

/// Four uniform words for a counter. The rounds are written out, so that a loop over counters has
/// no loop inside it and can be vectorised.
DELTA_GPU constexpr philox_counter philox(philox_counter c, const philox_key& key) noexcept {
  c = philox_round(c, key);
  c = philox_round(c, philox_round_key(key, 1));
  c = philox_round(c, philox_round_key(key, 2));
  c = philox_round(c, philox_round_key(key, 3));
  c = philox_round(c, philox_round_key(key, 4));
  c = philox_round(c, philox_round_key(key, 5));
  c = philox_round(c, philox_round_key(key, 6));
  c = philox_round(c, philox_round_key(key, 7));
  c = philox_round(c, philox_round_key(key, 8));
  return philox_round(c, philox_round_key(key, 9));
}

}  // namespace delta::executor
