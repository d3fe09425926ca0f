#include "replay/replay_jobs.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>

#include "observe/watchers.hpp"
#include "replay/on_all_cores.hpp"
#include "replay/replay_named.hpp"
#include "replay/replay_plan.hpp"
#include "simrd/simrd.hpp"
#include "traces/bound.hpp"

namespace delta::executor {
namespace {

/// The lower bounds that the jobs' rows need. It is the same for every policy: it is about the
/// machine.
class bounds {
 public:
  explicit bounds(std::span<const replay_job> jobs) {
    for (const replay_job& j : jobs) {
      const auto [at, is_new] = index_.try_emplace(key_of(j), first_.size());
      if (is_new) first_.push_back(&j);
      by_job_.push_back(at->second);
    }
    values_.resize(first_.size());
  }

  /// How many there are.
  [[nodiscard]] std::size_t size() const noexcept { return first_.size(); }
  /// Computes one. Different ones may be computed at once.
  void compute(std::size_t i) {
    const replay_machine& m = first_[i]->machine;
    values_[i] = lower_bound(bounded(*first_[i]), {.budget = m.budget,
                                                   .rate_out = m.rate_out * m.real_rate,
                                                   .rate_in = m.rate_in * m.real_rate});
  }
  /// That of a job; infinite where an operator does not fit.
  [[nodiscard]] double of(std::size_t job) const noexcept { return values_[by_job_[job]]; }

 private:
  using key = std::tuple<const trace*, bytes, double, double, double>;
  static key key_of(const replay_job& j) {
    const replay_machine& m = j.machine;
    return {&bounded(j), m.budget, m.rate_out, m.rate_in, m.real_rate};
  }
  static const trace& bounded(const replay_job& j) {
    return j.step != nullptr ? *j.step : *j.subject;
  }

  std::map<key, std::size_t> index_;
  std::vector<const replay_job*> first_;  // by bound: a job that needs it
  std::vector<std::size_t> by_job_;
  std::vector<double> values_;
};

template <class Verdict>
std::string to_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "pass";
    case Verdict::oom:
      return "oom";
    case Verdict::thrash:
      break;
  }
  return "thrash";
}

replay_row head_of(const replay_job& j) {
  const replay_machine& m = j.machine;
  replay_row row;
  row.trace = j.name;
  row.policy = j.policy;
  row.budget_bytes = m.budget.count;
  row.ratio = j.ratio;
  if (!row.ratio && j.unmanaged.peak > bytes{})
    row.ratio = static_cast<double>(m.budget.count) / static_cast<double>(j.unmanaged.peak.count);
  row.host_budget_bytes = m.host_budget.count;
  row.bandwidth = static_cast<std::uint64_t>(m.rate_out);
  row.bandwidth_in = static_cast<std::uint64_t>(m.rate_in);
  row.latency_ns = m.latency.count();
  row.real_rate = m.real_rate;
  row.memory = has_places(*j.subject, m) ? "places" : "pages";
  row.operators_faster = j.perturbed_by.operators_faster;
  row.noise = j.perturbed_by.noise;
  row.seed = j.perturbed_by.seed;
  row.jitter = j.perturbed_by.jitter;
  row.ranks = m.group.ranks;
  if (row.ranks > 1) {
    row.parallel = m.group.sharded ? "fsdp" : "ddp";
    row.collectives = m.group.how == all_reduce::ring ? "ring" : "tree";
    row.network = static_cast<std::uint64_t>(m.group.rate);
    row.network_latency_ns = m.group.latency.count();
    row.one_link = m.one_link;
  }
  row.thrash_limit = m.thrash_limit;
  row.unmanaged_time_ns = j.unmanaged.time.count();
  row.unmanaged_peak_bytes = j.unmanaged.peak.count;
  return row;
}

/// What is the same for a whole replay and for a step of it.
void fill(replay_row& row, const auto& figures) {
  row.time_ns = figures.time.count();
  row.peak_bytes = figures.peak.count;
  row.host_peak_bytes = figures.host_peak.count;
  row.recompute_ns = figures.recompute.count();
  row.stall_ns = figures.stall.count();
  row.network_wait_ns = figures.network_wait.count();
  row.evictions = figures.counts.evictions;
  row.offloads = figures.counts.offloads;
  row.clean_drops = figures.counts.clean_drops;
  row.reloads = figures.counts.reloads;
  row.prefetches = figures.counts.prefetches;
  row.recomputes = figures.counts.recomputes;
  row.evaluations = figures.evaluations;
  row.walked = figures.walked;
  row.bytes_out = figures.counts.bytes_out;
  row.bytes_in = figures.counts.bytes_in;
}
void fill_after(replay_row& row, const step_figures& step) {
  row.live_tensors = step.live_tensors;
  row.live_records = step.live_records;
  row.device_bytes_after = step.device_after.count;
  row.host_bytes_after = step.host_after.count;
}
void fill_verdict(replay_row& row, const replay_result& r) {
  row.result = to_text(r.result);
  if (!r.error.empty()) row.error = r.error;
}

replay_row row_of(const replay_job& j, const simrd_result& r) {
  constexpr nanoseconds first_tick = simrd_result{}.clock;
  replay_row row = head_of(j);
  if (j.step != nullptr) row.unmanaged_time_ns = unmanaged_time(*j.step).count();
  row.result = to_text(r.result);
  row.time_ns = (r.clock - first_tick).count();
  row.peak_bytes = r.peak.count;
  row.recompute_ns = r.recompute.count();
  row.evictions = r.evictions;
  row.recomputes = r.recomputes;
  row.evaluations = r.evaluations;
  return row;
}

/// All steps together.
replay_row row_of(const replay_job& j, const replay_result& r) {
  replay_row row = head_of(j);
  fill(row, r);
  fill_after(row, r.steps.back());
  fill_verdict(row, r);
  return row;
}

/// One per step.
std::vector<replay_row> rows_of(const replay_job& j, const replay_result& r) {
  std::vector<replay_row> rows;
  for (const step_figures& step : r.steps) {
    replay_row& row = rows.emplace_back(head_of(j));
    row.iteration = rows.size();
    row.unmanaged_time_ns = step.unmanaged.count();
    row.result = to_text(replay_result::verdict::pass);
    fill(row, step);
    fill_after(row, step);
  }
  fill_verdict(rows.back(), r);
  return rows;
}

std::vector<replay_row> done(const replay_job& j, const replay_watch& watch) {
  std::vector<replay_row> rows;
  if (const auto simulator = simrd_policy_named(j.policy)) {
    const trace& t = j.step != nullptr ? *j.step : *j.subject;
    rows = {row_of(j, run_simrd(t, *simulator, j.machine.budget, j.machine.thrash_limit))};
  } else {
    watchers told(watch.timeline, watch.decisions);
    const replay_result result =
        j.plan != nullptr ? replay_plan(*j.plan, *j.subject, j.machine, told.if_any())
        : watch.plan != nullptr
            ? replay_saving_plan(*watch.plan, *j.subject, j.machine, told.if_any())
            : replay_named(j.policy, *j.subject, j.machine, {.observer = told.if_any()});
    rows = j.step != nullptr ? rows_of(j, result) : std::vector{row_of(j, result)};
  }
  for (replay_row& row : rows)
    if (row.result == "pass" && row.unmanaged_time_ns > 0)
      row.overhead = static_cast<double>(row.time_ns) / static_cast<double>(row.unmanaged_time_ns);
  return rows;
}

/// The jobs by their part of the peak. Small budgets take longest: begun first, none is left alone
/// at the end.
std::vector<std::size_t> tightest_first(std::span<const replay_job> jobs) {
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) {
    return static_cast<double>(jobs[i].machine.budget.count) /
           static_cast<double>(std::max<std::uint64_t>(jobs[i].unmanaged.peak.count, 1));
  });
  return order;
}

}  // namespace

std::vector<std::vector<replay_row>> replay_iterations(std::span<const replay_job> jobs,
                                                       const replay_watch& watch) {
  bounds least(jobs);
  const std::vector<std::size_t> order = tightest_first(jobs);
  std::vector<std::vector<replay_row>> rows(jobs.size());
  on_all_cores(jobs.size() + least.size(), [&](std::size_t i) {
    if (i < jobs.size())
      rows[order[i]] = done(jobs[order[i]], watch);
    else
      least.compute(i - jobs.size());
  });
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!std::isfinite(least.of(i))) continue;
    for (replay_row& row : rows[i])
      if (row.iteration == 1 ||
          (jobs[i].perturbed_by.noise == 0 && jobs[i].perturbed_by.jitter == 0))
        row.bound_overhead = least.of(i);
  }
  return rows;
}

std::vector<replay_row> replay_jobs(std::span<const replay_job> jobs, const replay_watch& watch) {
  std::vector<replay_row> last;
  for (std::vector<replay_row>& rows : replay_iterations(jobs, watch))
    last.push_back(std::move(rows.back()));
  return last;
}

}  // namespace delta::executor
