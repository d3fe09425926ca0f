// What the kernel tests share: reproducible inputs, poisoned outputs, comparison, and numerical
// gradients in double precision.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace kernel_testing {

using floats = std::vector<float>;
using doubles = std::vector<double>;

/// `n` values, uniform in [-1, 1) plus `offset`, from the seed alone (no distribution objects,
/// whose results differ between libraries).
inline floats random_floats(std::size_t n, std::uint32_t seed, float offset = 0.0f) {
  std::mt19937 bits(seed);
  floats values(n);
  for (auto& v : values) v = float(bits() >> 8) / float(1 << 23) - 1.0f + offset;
  return values;
}

/// An output that must be written in full to be right.
inline floats poisoned(std::size_t n) {
  return floats(n, std::numeric_limits<float>::quiet_NaN());
}

/// Workspace filled with NaN, with a guard behind it that must survive.
class poisoned_workspace {
 public:
  explicit poisoned_workspace(std::size_t bytes)
      : bytes_(bytes),
        memory_((bytes + guard) / sizeof(float) + 1, std::numeric_limits<float>::quiet_NaN()) {
    std::fill_n(data() + bytes_, guard, mark);
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(memory_.data()); }
  [[nodiscard]] bool guard_intact() {
    return std::all_of(data() + bytes_, data() + bytes_ + guard,
                       [](std::byte b) { return b == mark; });
  }

 private:
  static constexpr std::size_t guard = 64;
  static constexpr std::byte mark{0xA5};
  std::size_t bytes_;
  floats memory_;
};

inline doubles to_double(const floats& v) {
  return doubles(v.begin(), v.end());
}

/// The largest difference, relative to the largest expected magnitude; infinite on a size mismatch
/// or a NaN. Relative to the largest, because a sum's rounding error goes with its terms.
template <class Expected>
double relative_error(const floats& got, const Expected& expected) {
  if (got.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double worst = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(double(got[i]) - double(expected[i]));
    if (!(difference <= worst)) worst = difference;
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(double(expected[i])));
  }
  return largest == 0.0 ? worst : worst / largest;
}

inline bool same_bits(const floats& a, const floats& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return __builtin_bit_cast(std::uint32_t, x) == __builtin_bit_cast(std::uint32_t, y);
         });
}

/// d f / d at, by central differences. For a function that is smooth within `step`; error about
/// step^2 times the third derivative plus 1e-16 / step times the value.
template <class F>
doubles numerical_gradient(doubles at, F f, double step = 1e-4) {
  doubles gradient(at.size());
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double here = at[i];
    at[i] = here + step;
    const double above = f(at);
    at[i] = here - step;
    const double below = f(at);
    at[i] = here;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

inline double dot(const doubles& a, const doubles& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace kernel_testing
