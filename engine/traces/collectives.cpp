#include "traces/collectives.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "traces/network.hpp"
#include "traces/trace_builder.hpp"

namespace delta {
namespace {

using detail::ids, detail::in_time;

/// Gradients that are reduced together, as tensors of the old trace.
struct bucket {
  ids gradients{};
  bytes size{};
  std::uint32_t full_after = 0;  // the operation
  std::uint32_t tensor = trace::none;
};

std::vector<bucket> buckets_of(const trace& t, const rank_group& on) {
  std::vector<bucket> all;
  bool open = false;
  for (const trace::gradient& g : t.gradients) {
    if (!std::exchange(open, true)) all.emplace_back();
    bucket& b = all.back();
    b.gradients.push_back(g.tensor);
    b.size += t.tensors[g.tensor].size;
    b.full_after = g.after;
    open = b.size < (all.size() == 1 ? on.first_bucket : on.bucket);
  }
  return all;
}

void check_gradients(const trace& t) {
  if (t.gradients.empty())
    throw std::invalid_argument("the trace does not say which tensors are gradients");
  const auto ends = [](const trace::event& e) { return e.what == trace::kind::end_of_step; };
  if (std::ranges::count_if(t.events, ends) > 1)
    throw std::invalid_argument("the trace has several steps");
  ids seen;
  for (const trace::gradient& g : t.gradients) seen.push_back(g.tensor);
  std::ranges::sort(seen);
  if (std::ranges::adjacent_find(seen) != seen.end())
    throw std::invalid_argument("a gradient of the trace is complete twice");
}

}  // namespace

nanoseconds all_reduce_time(bytes n, const rank_group& on) noexcept {
  if (on.ranks <= 1) return {};
  const auto ranks = static_cast<double>(on.ranks);
  const bool ring = on.how == all_reduce::ring;
  const std::uint64_t hops = ring ? on.ranks - 1 : std::uint64_t(std::bit_width(on.ranks - 1));
  const double share = ring ? (ranks - 1) / ranks : 1;
  return in_time(n, on.rate / (2 * share)) + on.latency * static_cast<std::int64_t>(2 * hops);
}

nanoseconds shard_time(bytes n, const rank_group& on) noexcept {
  if (on.ranks <= 1) return {};
  const auto ranks = static_cast<double>(on.ranks);
  return in_time(n, on.rate * ranks / (ranks - 1)) +
         on.latency * static_cast<std::int64_t>(on.ranks - 1);
}

trace with_collectives(const trace& t, const rank_group& on) {
  if (on.ranks <= 1) return t;
  check_gradients(t);
  const std::uint32_t last = t.gradients.back().after;
  const std::vector<bool> held = detail::held_after(t, last);
  for (const trace::gradient& g : t.gradients)
    if (!held[g.tensor])
      throw std::invalid_argument("a gradient is dropped before the last one is complete");
  if (on.sharded) return detail::with_shards(t, on);
  std::vector<bucket> buckets = buckets_of(t, on);
  detail::trace_builder made(t);
  bool begun = false;
  auto next = buckets.begin();
  for (const trace::event& e : t.events) {
    if (e.what == trace::kind::run && !std::exchange(begun, true)) {
      const std::uint32_t name = made.name("buckets");
      for (bucket& b : buckets)
        b.tensor = made.source(trace::kind::variable, {.size = b.size, .name = name});
    }
    made.copy(e);
    if (e.what != trace::kind::run) continue;
    for (; next != buckets.end() && next->full_after == e.index; ++next) {
      made.run("to_bucket", in_time(next->size, on.copy_rate), made.numbers(next->gradients),
               {next->tensor});
      made.run("all_reduce", all_reduce_time(next->size, on), {}, {next->tensor},
               trait::asynchronous);
    }
    if (e.index != last) continue;
    for (const bucket& b : buckets)
      made.renew("from_bucket", in_time(b.size, on.copy_rate), b.gradients, b.tensor);
  }
  return made.take();
}

double expected_slowest(std::uint64_t ranks, double sigma) noexcept {
  if (ranks <= 1 || sigma <= 0) return 1;
  // Each of them is the largest with the same right: `ranks` times the integral of one's factor,
  // exp(sigma z - sigma^2 / 2), times its density, times the probability that all others are below.
  constexpr double from = -12, step = 1.0 / 512;
  constexpr int steps = 26 * 512;  // up to 14, for a sigma of up to 3
  const auto others = static_cast<double>(ranks - 1);
  double sum = 0;
  for (int i = 0; i <= steps; ++i) {
    const double z = from + i * step;
    const double below = 0.5 * std::erfc(-z / std::sqrt(2.0));
    const double density = std::exp(sigma * z - sigma * sigma / 2 - z * z / 2);
    sum += density * std::pow(below, others);
  }
  constexpr double root_of_two_pi = 2.5066282746310002;
  return static_cast<double>(ranks) * sum * step / root_of_two_pi;
}

trace slowed(trace t, double factor) {
  if (factor == 1) return t;
  nanoseconds left = nanoseconds::max();
  for (trace::operation& o : t.operations) {
    if (!detail::is_collective(o)) {
      const double changed = std::round(static_cast<double>(o.cost.count()) * factor);
      if (!(changed < 0x1p63)) throw std::length_error("the operations' costs leave 63 bits");
      o.cost = nanoseconds{static_cast<std::int64_t>(changed)};
    }
    if (o.cost > left) throw std::length_error("the operations' costs leave 63 bits");
    left -= o.cost;
  }
  return t;
}

}  // namespace delta
