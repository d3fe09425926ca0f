#include "trace/perturb.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <stdexcept>

#include "data/counter_random.hpp"

namespace delta::executor {
namespace {

/// Over 0 and up to 1, from the upper 53 bits.
double part_of_one(std::uint64_t random) noexcept {
  return static_cast<double>((random >> 11) + 1) * 0x1p-53;
}

/// The `index`-th standard normal number of a seed, by Box and Muller's transformation.
double normal(std::uint64_t seed, std::uint64_t index) noexcept {
  const double radius = std::sqrt(-2 * std::log(part_of_one(mix(seed, 2 * index))));
  return radius * std::cos(2 * std::numbers::pi * part_of_one(mix(seed, 2 * index + 1)));
}

double factor_of(const perturbation& p, std::uint64_t operation) noexcept {
  const double noise =
      p.noise > 0 ? std::exp(p.noise * normal(p.seed, operation) - p.noise * p.noise / 2) : 1;
  return noise / p.operators_faster;
}

}  // namespace

trace perturbed(trace t, const perturbation& p) {
  if (p.noise <= 0 && p.operators_faster == 1) return t;
  nanoseconds left = nanoseconds::max();
  for (std::size_t i = 0; i < t.operations.size(); ++i) {
    nanoseconds& cost = t.operations[i].cost;
    if (cost.count() == 0) continue;
    const double changed = std::round(static_cast<double>(cost.count()) * factor_of(p, i));
    const bool fits = changed < 0x1p63;
    if (fits) cost = nanoseconds{std::max<std::int64_t>(1, static_cast<std::int64_t>(changed))};
    if (!fits || cost > left) throw std::length_error("the operations' costs leave 63 bits");
    left -= cost;
  }
  return t;
}

}  // namespace delta::executor
