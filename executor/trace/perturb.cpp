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

/// By how much the slowest rank is slower in that step. Draws are apart from those of the noise.
double slowest_of(const perturbation& p, std::uint64_t step) noexcept {
  if (p.jitter <= 0) return 1;
  const std::uint64_t seed = mix(~p.seed, step);
  double most = normal(seed, 0);
  for (std::uint64_t rank = 1; rank < p.ranks; ++rank) most = std::max(most, normal(seed, rank));
  return std::exp(p.jitter * most - p.jitter * p.jitter / 2);
}

double factor_of(const perturbation& p, std::uint64_t operation) noexcept {
  const double noise =
      p.noise > 0 ? std::exp(p.noise * normal(p.seed, operation) - p.noise * p.noise / 2) : 1;
  return noise / p.operators_faster;
}

}  // namespace

trace perturbed(trace t, const perturbation& p) {
  if (p.noise <= 0 && p.operators_faster == 1 && p.jitter <= 0) return t;
  nanoseconds left = nanoseconds::max();
  std::uint64_t step = 0;
  double slowest = slowest_of(p, step);
  for (const trace::event& e : t.events) {
    if (e.what == trace::kind::end_of_step) slowest = slowest_of(p, ++step);
    if (e.what != trace::kind::run || t.operations[e.index].cost.count() == 0) continue;
    trace::operation& o = t.operations[e.index];
    bool fits = true;
    if (!has(o.traits, trait::asynchronous)) {
      const double factor = factor_of(p, e.index) * slowest;
      const double changed = std::round(static_cast<double>(o.cost.count()) * factor);
      fits = changed < 0x1p63;
      if (fits) o.cost = nanoseconds{std::max<std::int64_t>(1, static_cast<std::int64_t>(changed))};
    }
    if (!fits || o.cost > left) throw std::length_error("the operations' costs leave 63 bits");
    left -= o.cost;
  }
  return t;
}

}  // namespace delta::executor
