#include "train/feasibility.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "delta/engine/engine.hpp"
#include "delta/storage/simulated.hpp"
#include "replay/replay_named.hpp"
#include "trace/recorder.hpp"
#include "traces/trace.hpp"
#include "train/session.hpp"

namespace delta::executor {
namespace {

constexpr bytes without_limit{std::uint64_t{1} << 62};

/// Steps of a graph in a memory without limits: what they hold, and where `recorder` is not null,
/// what they ask for.
bytes_by_class run_unmanaged(const graph& g, int steps, std::uint64_t granularity,
                             trace_recorder* recorder) {
  simulated storage({.capacity = without_limit, .granularity = granularity});
  session s(g, make_manager("unmanaged", over(storage)), {.recorder = recorder});
  s.create(0);
  for (int i = 0; i < steps; ++i) s.train(nullptr);
  return s.peak_by_class();
}

/// What the trial's steps ask of a memory, as a program to replay.
trace program_of(const graph& g, const trial& t) {
  trace_recorder recorder(trace_recorder::costs::stated);
  run_unmanaged(g, t.steps, t.granularity, &recorder);
  return recorder.take({.device = "virtual clock",
                        .rate_move = static_cast<std::uint64_t>(default_copy_rate),
                        .granularity = t.granularity});
}

std::optional<counters> try_program(const trace& program, const trial& t) {
  const double rate = t.copy_rate > 0 ? t.copy_rate : default_copy_rate;
  const replay_machine on{.budget = t.budget,
                          .host_budget = t.host_budget,
                          .rate_out = rate,
                          .rate_in = rate,
                          .thrash_limit = std::numeric_limits<double>::infinity(),
                          .places = true};
  const replay_result r = replay_named(t.policy, program, on);
  if (r.result != replay_result::verdict::pass) return std::nullopt;
  return r.counts;
}

}  // namespace

std::optional<counters> rehearse(const graph& g, const trial& t) {
  return try_program(program_of(g, t), t);
}

bytes_by_class unmanaged_peak(const graph& g, std::uint64_t granularity) {
  return run_unmanaged(g, 1, granularity, nullptr);
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
  const trace program = program_of(g, t);
  const auto works = [&](bytes budget) {
    t.budget = budget;
    return try_program(program, t).has_value();
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
