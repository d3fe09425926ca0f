#include "train/feasibility.hpp"

#include <algorithm>
#include <memory>
#include <set>

#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "train/session.hpp"

namespace delta::executor {
namespace {

simulated_options options_of(const trial& t) {
  const double rate = t.copy_rate > 0 ? t.copy_rate : default_copy_rate;
  return {.capacity = t.budget,
          .host_capacity = t.host_budget,
          .rate_out = rate,
          .rate_in = rate,
          .granularity = t.granularity,
          .rate_move = default_copy_rate};
}

std::unique_ptr<session> open(const graph& g, const trial& t, simulated& storage) {
  std::unique_ptr<session> made;
  with_preset(
      t.policy, [&](auto p) { made = make_session(g, std::move(p), storage); }, t.strict);
  return made;
}

}  // namespace

std::optional<counters> rehearse(const graph& g, const trial& t) {
  simulated storage(options_of(t));
  try {
    const auto s = open(g, t, storage);
    s->create(0);
    for (int i = 0; i < t.steps; ++i) s->train(nullptr);
    return s->counts();
  } catch (const budget_exceeded&) {
    return std::nullopt;
  }
}

bytes_by_class unmanaged_peak(const graph& g, std::uint64_t granularity) {
  const trial t{.policy = "unmanaged",
                .budget = bytes{std::uint64_t{1} << 62},
                .steps = 1,
                .granularity = granularity};
  simulated storage(options_of(t));
  const auto s = open(g, t, storage);
  s->create(0);
  s->train(nullptr);
  return s->peak_by_class();
}

bytes largest_footprint(const graph& g, std::uint64_t granularity) {
  bytes largest{};
  for (const node& n : g.nodes) {
    std::set<value_id> touched(n.inputs.begin(), n.inputs.end());
    touched.insert(n.outputs.begin(), n.outputs.end());
    touched.insert(n.updates.begin(), n.updates.end());
    bytes sum = round_up(bytes{n.workspace}, granularity);
    for (const value_id v : touched) sum += round_up(bytes{g[v].bytes}, granularity);
    largest = std::max(largest, sum);
  }
  return largest;
}

std::optional<bytes> smallest_budget(const graph& g, trial t) {
  const bytes refused = t.budget;
  bytes low = std::max(largest_footprint(g, t.granularity), refused);
  bytes high{unmanaged_peak(g, t.granularity).total};
  const auto works = [&](bytes budget) {
    t.budget = budget;
    return rehearse(g, t).has_value();
  };
  if (low > refused && works(low)) return low;
  if (high <= low || !works(high)) return std::nullopt;
  const std::uint64_t precision = std::max<std::uint64_t>(high.count / 1000, t.granularity);
  while (high.count - low.count > precision) {
    const bytes middle = round_up(bytes{low.count + (high.count - low.count) / 2}, t.granularity);
    (works(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace delta::executor
