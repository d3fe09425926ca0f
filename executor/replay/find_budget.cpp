#include "replay/find_budget.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "replay/least_budget.hpp"
#include "replay/replay_jobs.hpp"

namespace delta::executor {
namespace {

constexpr std::uint64_t grid_points = 64;
constexpr std::uint64_t steps_of_peak = 200;  // 0.5 % each

/// `count` budgets strictly between the two, evenly spread.
std::vector<bytes> between(bytes low, bytes high, std::uint64_t count) {
  std::vector<bytes> budgets;
  const double step = static_cast<double>(high.count - low.count) / static_cast<double>(count + 1);
  for (std::uint64_t i = 1; i <= count; ++i) {
    const bytes b{low.count + static_cast<std::uint64_t>(step * static_cast<double>(i))};
    if (b > (budgets.empty() ? low : budgets.back()) && b < high) budgets.push_back(b);
  }
  return budgets;
}

/// The first grid.
std::vector<bytes> coarse(bytes low, bytes high) {
  if (high <= low) return {low};
  std::vector<bytes> budgets = between(low, high, grid_points - 2);
  budgets.insert(budgets.begin(), low);
  budgets.push_back(high);
  return budgets;
}

/// Between a budget that keeps and the next smaller one tried, which does not.
std::vector<bytes> fine(bytes low, bytes high, bytes peak) {
  const std::uint64_t step = std::max<std::uint64_t>(peak.count / steps_of_peak, 1);
  return between(low, high, (high.count - low.count - 1) / step);
}

bytes budget_of(const replay_row& r) {
  return bytes{r.budget_bytes};
}

/// Reads the answer off the curve.
void settle(budget_answer& a) {
  std::ranges::sort(a.curve, {}, &replay_row::budget_bytes);
  a.smallest.reset();
  a.safe.reset();
  a.holes = 0;
  for (std::size_t i = a.curve.size(); i-- > 0;) {
    if (!*a.curve[i].keeps) continue;
    a.smallest = i;
    if (i + 1 == a.curve.size() || a.safe == i + 1) a.safe = i;
  }
  for (std::size_t i = a.smallest.value_or(a.curve.size()); i < a.curve.size(); ++i)
    a.holes += !*a.curve[i].keeps;
}

/// One search for several policies of one trace.
class search {
 public:
  search(const trace& t, std::span<const std::string> policies, const budget_question& q)
      : trace_(t), question_(q), cost_(unmanaged(t)) {
    for (const std::string& policy : policies)
      answers_.push_back({.policy = policy, .max_overhead = q.max_overhead});
  }

  std::vector<budget_answer> run() && {
    for (std::size_t i = 0; i < answers_.size(); ++i)
      plan(i, coarse(least_budget(trace_), cost_.peak));
    replay();
    for (std::size_t i = 0; i < answers_.size(); ++i) plan(i, refinement(answers_[i]));
    replay();
    return std::move(answers_);
  }

 private:
  [[nodiscard]] std::vector<bytes> refinement(const budget_answer& a) const {
    if (a.smallest.value_or(0) == 0) return {};
    return fine(budget_of(a.curve[*a.smallest - 1]), budget_of(a.curve[*a.smallest]), cost_.peak);
  }
  void plan(std::size_t answer, const std::vector<bytes>& budgets) {
    for (const bytes budget : budgets) {
      jobs_.push_back({.subject = &trace_,
                       .name = question_.name,
                       .unmanaged = cost_,
                       .policy = answers_[answer].policy,
                       .machine = question_.machine,
                       .step = question_.step,
                       .perturbed_by = question_.perturbed_by});
      jobs_.back().machine.budget = budget;
      asked_by_.push_back(answer);
    }
  }
  /// Does what is planned.
  void replay() {
    std::vector<replay_row> rows = replay_jobs(jobs_);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      replay_row& r = rows[i];
      r.max_overhead = question_.max_overhead;
      r.keeps = r.result == "pass" && r.overhead.value_or(1) <= question_.max_overhead;
      answers_[asked_by_[i]].curve.push_back(std::move(r));
    }
    jobs_.clear();
    asked_by_.clear();
    for (budget_answer& a : answers_) settle(a);
  }

  const trace& trace_;
  const budget_question& question_;
  unmanaged_cost cost_;
  std::vector<budget_answer> answers_;
  std::vector<replay_job> jobs_;
  std::vector<std::size_t> asked_by_;  // by job: the answer that it is for
};

}  // namespace

std::vector<budget_answer> find_budgets(const trace& t, std::span<const std::string> policies,
                                        const budget_question& question) {
  return search(t, policies, question).run();
}

budget_answer find_budget(const trace& t, std::string_view policy,
                          const budget_question& question) {
  const std::string only(policy);
  return std::move(find_budgets(t, {&only, 1}, question).front());
}

}  // namespace delta::executor
