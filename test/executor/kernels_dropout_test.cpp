// Dropout: the generator against its published answers, the mask's statistics and what it depends
// on, and both passes against their definition.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernel_testing.hpp"
#include "kernels/kernels.hpp"
#include "kernels/philox.hpp"

using namespace delta::executor;
using namespace kernel_testing;

namespace {

using bytes = std::vector<std::uint8_t>;

// The known answers that Random123, the authors' implementation, publishes for philox4x32-10.
static_assert(philox({0, 0, 0, 0}, {0, 0}) ==
              philox_counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
              philox_counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              philox_counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

thread_pool& pool() {
  static thread_pool instance(2);
  return instance;
}

bytes mask_of(std::size_t n, float probability, std::uint64_t seed, std::uint64_t sequence) {
  const floats x(n, 1.0f);
  auto y = poisoned(n);
  bytes mask(n, 255);
  dropout_forward(pool(), n, probability, seed, sequence, x.data(), y.data(), mask.data());
  return mask;
}

/// Whether `got` successes of `n` trials are within five standard deviations of the binomial's
/// mean. Less than one draw in a million is not; these are the same in every run.
bool plausible(double got, double n, double p) {
  return std::abs(got - n * p) <= 5.0 * std::sqrt(n * p * (1.0 - p));
}

double kept(const bytes& mask) {
  double count = 0;
  for (const auto m : mask) count += m;
  return count;
}

}  // namespace

TEST_CASE("every element takes the word its position, seed and sequence give") {
  const std::uint64_t seed = 0x0123456789abcdef, sequence = 0xfedcba9876543210;
  const std::size_t n = 100003;
  const auto mask = mask_of(n, 0.25f, seed, sequence);
  bool right = true;
  for (std::size_t i = 0; i < n; ++i) {
    const auto words =
        philox({std::uint32_t(i / 4), 0, 0x76543210, 0xfedcba98}, {0x89abcdef, 0x01234567});
    right = right && mask[i] == (words[i % 4] >= 0x40000000u ? 1 : 0);
  }
  CHECK(right);
}

TEST_CASE("both passes scale what is kept and zero the rest") {
  for (const std::size_t n :
       {std::size_t(1), std::size_t(3), std::size_t(77), std::size_t(70001)}) {
    const auto x = random_floats(n, 1), dy = random_floats(n, 2);
    auto y = poisoned(n), dx = poisoned(n);
    bytes mask(n, 255);
    dropout_forward(pool(), n, 0.2f, 3, 4, x.data(), y.data(), mask.data());
    dropout_backward(pool(), n, 0.2f, dy.data(), mask.data(), dx.data());
    doubles expected_y(n), expected_dx(n);
    bool one_or_zero = true;
    for (std::size_t i = 0; i < n; ++i) {
      one_or_zero = one_or_zero && mask[i] <= 1;
      expected_y[i] = double(x[i]) * mask[i] / (1.0 - double(0.2f));
      expected_dx[i] = double(dy[i]) * mask[i] / (1.0 - double(0.2f));
    }
    CHECK(one_or_zero);
    CHECK(relative_error(y, expected_y) < 2e-7);
    CHECK(relative_error(dx, expected_dx) < 2e-7);
  }
}

TEST_CASE("the mask keeps as many as it should, everywhere and in pairs") {
  const std::size_t n = 1 << 20;
  for (const float probability : {0.1f, 0.5f, 0.9f}) {
    CAPTURE(probability);
    const double keep = 1.0 - double(probability);
    const auto mask = mask_of(n, probability, 11, 12);
    CHECK(plausible(kept(mask), double(n), keep));
    // By word of the generator, and against neighbours and one counter further.
    double by_word[4] = {}, next = 0, further = 0;
    for (std::size_t i = 0; i < n; ++i) {
      by_word[i % 4] += mask[i];
      if (i % 2 == 0) next += mask[i] & mask[i + 1];
      if (i % 8 < 4) further += mask[i] & mask[i + 4];
    }
    for (const double count : by_word) CHECK(plausible(count, double(n) / 4, keep));
    CHECK(plausible(next, double(n) / 2, keep * keep));
    CHECK(plausible(further, double(n) / 2, keep * keep));
  }
}

TEST_CASE("the same seed and sequence give the same mask, others give independent ones") {
  const std::size_t n = 1 << 16;
  const auto mask = mask_of(n, 0.5f, 1, 2);
  CHECK(mask == mask_of(n, 0.5f, 1, 2));
  const std::uint64_t high = std::uint64_t{1} << 32;
  for (const auto& [seed, sequence] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {1, 3}, {2, 2}, {2, 1}, {1 + high, 2}, {1, 2 + high}}) {
    CAPTURE(seed);
    CAPTURE(sequence);
    const auto other = mask_of(n, 0.5f, seed, sequence);
    double equal = 0;
    for (std::size_t i = 0; i < n; ++i) equal += mask[i] == other[i];
    CHECK(plausible(equal, double(n), 0.5));
  }
}

TEST_CASE("a mask does not depend on how many elements follow") {
  const auto longer = mask_of(70001, 0.5f, 1, 2);
  for (const std::size_t n : {std::size_t(1), std::size_t(1025), std::size_t(40000)}) {
    CHECK(mask_of(n, 0.5f, 1, 2) == bytes(longer.begin(), longer.begin() + std::ptrdiff_t(n)));
  }
}

TEST_CASE("probabilities at and beyond the ends") {
  const auto x = random_floats(5000, 1);
  auto y = poisoned(5000), dx = poisoned(5000);
  bytes mask(5000, 255);
  dropout_forward(pool(), 5000, 0.0f, 1, 2, x.data(), y.data(), mask.data());
  dropout_backward(pool(), 5000, 0.0f, x.data(), mask.data(), dx.data());
  CHECK(same_bits(y, x));
  CHECK(same_bits(dx, x));
  CHECK(kept(mask) == 5000);
  dropout_forward(pool(), 5000, 1.0f, 1, 2, x.data(), y.data(), mask.data());
  dropout_backward(pool(), 5000, 1.0f, x.data(), mask.data(), dx.data());
  CHECK(relative_error(y, floats(5000, 0.0f)) == 0.0);
  CHECK(relative_error(dx, floats(5000, 0.0f)) == 0.0);
  CHECK(kept(mask) == 0);
  for (const float wrong : {-0.1f, 1.1f, std::numeric_limits<float>::quiet_NaN()}) {
    CHECK_THROWS_AS(dropout_forward(pool(), 1, wrong, 1, 2, x.data(), y.data(), mask.data()),
                    std::invalid_argument);
    CHECK_THROWS_AS(dropout_backward(pool(), 1, wrong, x.data(), mask.data(), dx.data()),
                    std::invalid_argument);
  }
}
