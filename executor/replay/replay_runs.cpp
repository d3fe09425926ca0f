#include "replay/replay_runs.hpp"

#include <algorithm>
#include <cstdint>

#include "replay/trace_file.hpp"

namespace delta::executor {
namespace {

constexpr std::uint64_t host_budget_peaks = 4;

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

replay_machine machine_for(const trace& t, bytes unmanaged_peak, const replay_options& o) {
  replay_machine machine = machine_of(
      t, {.rate_out = default_rate, .rate_in = default_rate, .latency = default_latency});
  machine.host_budget = o.host_budget.value_or(unmanaged_peak * host_budget_peaks);
  machine.rate_out = o.rate_out.value_or(machine.rate_out);
  machine.rate_in = o.rate_in.value_or(machine.rate_in);
  machine.latency = o.latency.value_or(machine.latency);
  machine.thrash_limit = o.thrash_limit;
  return machine;
}

std::vector<replay_row> replay_all(std::span<const named_trace> traces, const replay_options& o,
                                   const replay_watch& watch) {
  std::vector<replay_job> jobs;
  for (const named_trace& t : traces) {
    const unmanaged_cost cost = unmanaged(t.content);
    replay_machine machine = machine_for(t.content, cost.peak, o);
    for (const std::string& policy : o.policies) {
      for (const replay_budget& budget : o.budgets) {
        machine.budget = budget.resolve(cost.peak);
        jobs.push_back({&t.content, t.name, cost, policy, machine, budget.ratio});
      }
    }
  }
  return replay_jobs(jobs, watch);
}

std::vector<budget_answer> find_budgets(const named_trace& t, const replay_options& o) {
  return find_budgets(t.content, o.policies,
                      {.machine = machine_for(t.content, unmanaged_peak(t.content), o),
                       .max_overhead = o.max_overhead,
                       .name = t.name});
}

}  // namespace delta::executor
