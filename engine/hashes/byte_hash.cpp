#include "hashes/byte_hash.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

// The loop picks the processor's vector width at load time. Thread and address sanitizers can't
// follow the resolvers, which run before they have started.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define DELTA_WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DELTA_WIDE
#endif

namespace delta::hashes {
namespace {

using word = std::uint32_t;
using wide = word __attribute__((vector_size(64)));
constexpr std::size_t chains = 4;  // that do not wait for each other's multiplications
constexpr std::size_t stripe = chains * sizeof(wide);
constexpr word prime = 0x9e3779b1u;  // near 2^32 over the golden ratio
using state = std::array<wide, chains>;

DELTA_WIDE void add_stripes(state& to, const std::byte* at, std::size_t count) noexcept {
  wide a = to[0], b = to[1], c = to[2], d = to[3];
  const auto add = [&](wide & h, std::size_t chain) __attribute__((always_inline)) {
    wide w;
    std::memcpy(&w, at + chain * sizeof(wide), sizeof(wide));
    h ^= w;
    h = ((h << 13) | (h >> 19)) * prime;
  };
  for (; count > 0; --count, at += stripe) add(a, 0), add(b, 1), add(c, 2), add(d, 3);
  to = {a, b, c, d};
}

std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 32u)) * 0xd6e8feb86659fd93u;
  return x ^ (x >> 32u);
}

}  // namespace

std::uint64_t byte_hash(const std::byte* at, std::size_t n) noexcept {
  state s{};
  add_stripes(s, at, n / stripe);
  if (const std::size_t rest = n % stripe; rest > 0) {
    std::array<std::byte, stripe> last{};
    std::memcpy(last.data(), at + (n - rest), rest);
    add_stripes(s, last.data(), 1);
  }
  std::array<std::uint64_t, stripe / sizeof(std::uint64_t)> pairs;
  std::memcpy(pairs.data(), s.data(), stripe);
  std::uint64_t all = n;
  for (const std::uint64_t p : pairs) all = mix(all ^ p) + std::rotl(all, 23);
  return all;
}

}  // namespace delta::hashes
