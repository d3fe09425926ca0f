#include "replay/replay_runs.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "trace/file.hpp"
#include "trace/perturb.hpp"
#include "trace/plan_file.hpp"
#include "trace/repeat.hpp"

namespace delta::executor {
namespace {

constexpr std::uint64_t host_budget_peaks = 4;

std::string short_name(const std::filesystem::path& file) {
  auto name = file.filename();
  if (name.extension() == ".gz") name = name.stem();
  return name.stem().string();
}

/// What is replayed for a trace.
class program {
 public:
  program(const named_trace& t, const replay_options& o) : name_(&t.name), asked_(&o) {
    std::optional<trace> ranked;
    const trace& recorded = o.group.ranks > 1 ? ranked.emplace(one_of_ranks(t.content)) : t.content;
    if (o.iterations == 1) {
      one_ = changed(recorded);
    } else {
      one_ = changed(repeated(recorded, 1));
      all_ = changed(repeated(recorded, o.iterations));
    }
  }

  /// All iterations.
  [[nodiscard]] const trace& whole() const { return all_ ? *all_ : one_; }
  /// One of them; null where there is only one.
  [[nodiscard]] const trace* step() const { return all_ ? &one_ : nullptr; }

 private:
  [[nodiscard]] trace one_of_ranks(const trace& t) const {
    rank_group group = asked_->group;
    if (t.recorded_on) group.copy_rate = static_cast<double>(t.recorded_on->rate_move);
    try {
      return with_collectives(asked_->iterations == 1 ? t : repeated(t, 1), group);
    } catch (const std::invalid_argument& fault) {
      reject("--ranks", *name_ + ": " + fault.what(),
             "a step that delta_torch.record has written, with its optimizer");
    }
  }
  [[nodiscard]] trace repeated(const trace& t, std::size_t times) const {
    try {
      return repeat_trace(t, times);
    } catch (const std::logic_error& fault) {
      reject("--iterations", *name_ + ": " + fault.what(), "1 for this trace");
    }
  }
  [[nodiscard]] trace changed(trace t) const {
    const perturbation& p = asked_->perturbed_by;
    try {
      return perturbed(std::move(t), p);
    } catch (const std::length_error& fault) {
      const bool slower = p.operators_faster < 1;
      reject(slower ? "--operators-faster" : "--noise", *name_ + ": " + fault.what(),
             slower ? "a larger one" : "a smaller one");
    }
  }

  const std::string* name_;
  const replay_options* asked_;
  trace one_;
  std::optional<trace> all_;
};

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
  machine.limit_steps = o.iterations > 1;
  machine.real_rate = o.real_rate;
  machine.places = o.places;
  machine.group = o.group;
  machine.one_link = o.one_link;
  return machine;
}

namespace {

/// The plan for steps of the trace as they are replayed. What a trace leaves as its results is read
/// by one more operator, which plans of the trace alone don't know.
offline_plan plan_for(offline_plan plan, const named_trace& t, const program& p,
                      const replay_options& o) {
  const std::size_t alone = (p.step() != nullptr ? *p.step() : p.whole()).operations.size();
  const std::size_t replayed =
      p.step() != nullptr ? p.whole().operations.size() / o.iterations : alone;
  if (plan.operators != alone && plan.operators != replayed)
    reject("--plan",
           o.plan.string() + " is for a step of " + std::to_string(plan.operators) +
               " operators, and " + t.name + " has " + std::to_string(alone),
           "a plan that was made for this trace");
  plan.operators = static_cast<std::uint32_t>(replayed);
  return plan;
}

}  // namespace

std::vector<std::vector<replay_row>> replay_all(std::span<const named_trace> traces,
                                                const replay_options& o,
                                                const replay_watch& watch) {
  std::vector<program> programs;
  programs.reserve(traces.size());
  std::vector<replay_job> jobs;
  std::optional<offline_plan> given;
  if (!o.plan.empty()) given = read_plan(o.plan);
  std::vector<std::optional<offline_plan>> plans(traces.size());
  for (const named_trace& t : traces) {
    const program& p = programs.emplace_back(t, o);
    const unmanaged_cost cost = unmanaged(p.whole());
    replay_machine machine = machine_for(t.content, cost.peak, o);
    std::optional<offline_plan>& plan = plans[programs.size() - 1];
    if (given) plan = plan_for(*given, t, p, o);
    for (const std::string& policy : o.policies) {
      for (const replay_budget& budget : o.budgets) {
        machine.budget = budget.resolve(cost.peak);
        jobs.push_back({&p.whole(), t.name, cost, policy, machine, budget.ratio, p.step(),
                        o.perturbed_by, policy == plan_policy ? &*plan : nullptr});
      }
    }
  }
  std::vector<std::vector<replay_row>> by_trace(traces.size());
  const std::size_t per_trace = o.policies.size() * o.budgets.size();
  std::size_t job = 0;
  for (const std::vector<replay_row>& rows : replay_iterations(jobs, watch)) {
    auto& of_trace = by_trace[job++ / per_trace];
    of_trace.insert(of_trace.end(), rows.begin(), rows.end());
  }
  return by_trace;
}

std::vector<budget_answer> find_budgets(const named_trace& t, const replay_options& o) {
  const program p(t, o);
  return find_budgets(p.whole(), o.policies,
                      {.machine = machine_for(t.content, unmanaged_peak(p.whole()), o),
                       .max_overhead = o.max_overhead,
                       .name = t.name,
                       .step = p.step(),
                       .perturbed_by = o.perturbed_by});
}

}  // namespace delta::executor
