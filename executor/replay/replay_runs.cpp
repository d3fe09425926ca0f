#include "replay/replay_runs.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <ostream>
#include <thread>
#include <utility>

#include "delta/presets.hpp"
#include "delta/timeline.hpp"
#include "replay/bound.hpp"
#include "replay/replay.hpp"
#include "replay/simrd.hpp"
#include "replay/trace_file.hpp"

namespace delta::executor {
namespace {

constexpr std::uint64_t host_budget_peaks = 4;

/// One replay to be done.
struct job {
  const named_trace* subject;
  unmanaged_cost cost;
  const std::string* policy;
  replay_budget budget;
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

replay_row head_of(const job& j, const replay_options& o) {
  replay_row row;
  row.trace = j.subject->name;
  row.policy = *j.policy;
  row.budget_bytes = j.budget.resolve(j.cost.peak).count;
  row.ratio = j.budget.ratio;
  if (!row.ratio && j.cost.peak > bytes{})
    row.ratio = static_cast<double>(row.budget_bytes) / static_cast<double>(j.cost.peak.count);
  row.host_budget_bytes = o.host_budget.value_or(j.cost.peak * host_budget_peaks).count;
  row.bandwidth = static_cast<std::uint64_t>(o.rate_out);
  row.bandwidth_in = static_cast<std::uint64_t>(o.rate_in);
  row.latency_ns = o.latency.count();
  row.thrash_limit = o.thrash_limit;
  row.unmanaged_time_ns = j.cost.time.count();
  row.unmanaged_peak_bytes = j.cost.peak.count;
  return row;
}

replay_result replay_preset(const job& j, const replay_row& row, const replay_options& o,
                            std::ostream* watched) {
  const replay_machine machine{.budget = bytes{row.budget_bytes},
                               .host_budget = bytes{row.host_budget_bytes},
                               .rate_out = o.rate_out,
                               .rate_in = o.rate_in,
                               .latency = o.latency,
                               .thrash_limit = o.thrash_limit};
  replay_result result;
  with_preset(*j.policy, [&](auto policy) {
    if (watched == nullptr) {
      result = replay(j.subject->content, std::move(policy), machine);
    } else {
      timeline lanes{*watched};
      result = replay(j.subject->content, std::move(policy), machine, observed_by{&lanes});
    }
  });
  return result;
}

void fill(replay_row& row, const replay_result& r) {
  row.result = to_text(r.result);
  if (!r.error.empty()) row.error = r.error;
  row.time_ns = r.time.count();
  row.peak_bytes = r.peak.count;
  row.host_peak_bytes = r.host_peak.count;
  row.recompute_ns = r.recompute.count();
  row.stall_ns = r.stall.count();
  row.evictions = r.counts.evictions;
  row.offloads = r.counts.offloads;
  row.clean_drops = r.counts.clean_drops;
  row.reloads = r.counts.reloads;
  row.prefetches = r.counts.prefetches;
  row.recomputes = r.counts.recomputes;
  row.evaluations = r.evaluations;
  row.bytes_out = r.counts.bytes_out;
  row.bytes_in = r.counts.bytes_in;
}

void fill(replay_row& row, const simrd_result& r) {
  constexpr nanoseconds first_tick = simrd_result{}.clock;
  row.result = to_text(r.result);
  row.time_ns = (r.clock - first_tick).count();
  row.peak_bytes = r.peak.count;
  row.recompute_ns = r.recompute.count();
  row.evictions = r.evictions;
  row.recomputes = r.recomputes;
  row.evaluations = r.evaluations;
}

replay_row done(const job& j, const replay_options& o, std::ostream* watched) {
  replay_row row = head_of(j, o);
  if (const auto simulator = simrd_policy_named(*j.policy)) {
    fill(row, run_simrd(j.subject->content, *simulator, bytes{row.budget_bytes}, o.thrash_limit));
  } else {
    fill(row, replay_preset(j, row, o, watched));
  }
  if (row.result == "pass" && row.unmanaged_time_ns > 0)
    row.overhead = static_cast<double>(row.time_ns) / static_cast<double>(row.unmanaged_time_ns);
  // The same for every policy: it is about the machine.
  const double bound = lower_bound(
      j.subject->content,
      {.budget = bytes{row.budget_bytes}, .rate_out = o.rate_out, .rate_in = o.rate_in});
  if (std::isfinite(bound)) row.bound_overhead = bound;
  return row;
}

std::string short_name(const std::filesystem::path& file) {
  auto name = file.filename();
  if (name.extension() == ".gz") name = name.stem();
  return name.stem().string();
}

}  // namespace

std::vector<named_trace> read_traces(std::span<const std::filesystem::path> files) {
  std::vector<named_trace> traces;
  for (const auto& file : files) {
    const std::string name = short_name(file);
    const bool alone = std::ranges::count(files, name, short_name) == 1;
    traces.push_back({alone ? name : file.string(), read_trace(file)});
  }
  return traces;
}

std::vector<replay_row> replay_all(std::span<const named_trace> traces, const replay_options& o,
                                   std::ostream* watched) {
  std::vector<job> jobs;
  for (const named_trace& t : traces) {
    const unmanaged_cost cost = unmanaged(t.content);
    for (const std::string& policy : o.policies)
      for (const replay_budget& budget : o.budgets) jobs.push_back({&t, cost, &policy, budget});
  }
  std::vector<replay_row> rows(jobs.size());
  std::vector<std::exception_ptr> errors(jobs.size());
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs.size() && !failed; i = next++) {
      try {
        rows[i] = done(jobs[i], o, watched);
      } catch (...) {
        errors[i] = std::current_exception();
        failed = true;
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    while (workers.size() < std::min(cores, jobs.size())) workers.emplace_back(work);
  }
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
  return rows;
}

}  // namespace delta::executor
