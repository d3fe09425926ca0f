#include "model/initialise.hpp"

#include <stdexcept>
#include <string_view>

namespace delta::executor {
namespace {

constexpr std::uint64_t fnv1a(std::string_view text) noexcept {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

// SplitMix64 as a function of its state: the golden-ratio step, then the finalizer.
constexpr std::uint64_t hash(std::uint64_t z) noexcept {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// In [-1, 1).
constexpr double symmetric(std::uint64_t bits) noexcept {
  return double(bits >> 11) * 0x1p-52 - 1;
}

constexpr std::int64_t sum_of_four(std::uint64_t bits) noexcept {
  return std::int64_t((bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) +
                      (bits >> 48));
}

// Twelve uniform integers in [0, 2^16) have mean 12 * 65535 / 2 and variance 2^32 - 1.
constexpr double normal(std::uint64_t key, std::uint64_t i) noexcept {
  const std::int64_t sum = sum_of_four(hash(key + 3 * i)) + sum_of_four(hash(key + 3 * i + 1)) +
                           sum_of_four(hash(key + 3 * i + 2));
  return double(sum - 6 * 65535) * 0x1p-16;
}

}  // namespace

void initialise(const graph& g, value_id v, std::uint64_t seed, float* data) {
  const value& x = g[v];
  if (!x.persistent()) throw std::invalid_argument(x.name + " is made anew in each step");
  const std::uint64_t key = hash(seed ^ fnv1a(x.name));
  const std::size_t count = x.bytes / sizeof(float);
  for (std::size_t i = 0; i < count; ++i) {
    switch (x.initial.what) {
      case initial_contents::distribution::zero:
        data[i] = 0;
        break;
      case initial_contents::distribution::one:
        data[i] = 1;
        break;
      case initial_contents::distribution::uniform:
        data[i] = float(symmetric(hash(key + i)) * x.initial.scale);
        break;
      case initial_contents::distribution::normal:
        data[i] = float(normal(key, i) * x.initial.scale);
        break;
    }
  }
}

}  // namespace delta::executor
