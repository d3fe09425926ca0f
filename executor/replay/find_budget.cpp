#include "replay/find_budget.hpp"

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <utility>

#include "format.hpp"
#include "replay/replay_jobs.hpp"
#include "text_table.hpp"

namespace delta::executor {
namespace {

constexpr std::uint64_t grid_points = 64;
constexpr std::uint64_t steps_of_peak = 200;  // 0.5 % each
constexpr std::size_t printed_points = 16;

/// What is alive, storage by storage, as the events go by.
class needs {
 public:
  explicit needs(const trace& t)
      : trace_(&t),
        owner_(t.tensors.size()),
        references_(t.tensors.size()),
        pinned_(t.tensors.size()),
        seen_(t.tensors.size(), trace::none) {}

  bytes most() {
    for (const trace::event& e : trace_->events) {
      switch (e.what) {
        case trace::kind::constant:
          pinned_[e.index] = true;
          constants_ += size(e.index);
          [[fallthrough]];
        case trace::kind::variable:
          made(e.index);
          break;
        case trace::kind::run:
          run(e.index);
          break;
        case trace::kind::share:
          ++references_[owner_[e.index]];
          break;
        case trace::kind::drop:
          drop(owner_[e.index]);
          break;
        case trace::kind::read:
        case trace::kind::write:
          alone(owner_[e.index]);
          break;
        case trace::kind::backward:
        case trace::kind::end_of_step:
          break;
      }
      most_ = std::max(most_, constants_);
    }
    return std::max(most_, results());
  }

 private:
  void made(std::uint32_t tensor) {
    const std::uint32_t base = trace_->tensors[tensor].view_of;
    owner_[tensor] = base == trace::none ? tensor : owner_[base];
    ++references_[owner_[tensor]];
  }
  void drop(std::uint32_t storage) {
    if (--references_[storage] == 0 && pinned_[storage]) constants_ -= size(storage);
  }
  /// The program looks at it.
  void alone(std::uint32_t storage) {
    if (!pinned_[storage]) most_ = std::max(most_, constants_ + size(storage));
  }
  void run(std::uint32_t operation) {
    const auto& o = trace_->operations[operation];
    for (const std::uint32_t tensor : trace_->outputs(o)) made(tensor);
    bytes sum = constants_ + trace_->rounded(o.workspace);
    for (const auto list : {trace_->inputs(o), trace_->outputs(o), trace_->updates(o)}) {
      for (const std::uint32_t tensor : list) {
        const std::uint32_t storage = owner_[tensor];
        const bool counted = std::exchange(seen_[storage], operation) == operation;
        if (!counted && !pinned_[storage]) sum += size(storage);
      }
    }
    most_ = std::max(most_, sum);
  }
  [[nodiscard]] bytes results() const {
    bytes sum{};
    if (!trace_->has_results()) return sum;
    for (std::uint32_t s = 0; s < references_.size(); ++s)
      if (references_[s] > 0) sum += size(s);
    return sum;
  }
  [[nodiscard]] bytes size(std::uint32_t storage) const {
    return trace_->rounded(trace_->tensors[storage].size);
  }

  const trace* trace_;
  std::vector<std::uint32_t> owner_;       // of each tensor's bytes
  std::vector<std::uint64_t> references_;  // to an owner and its views
  std::vector<bool> pinned_;               // constants
  std::vector<std::uint32_t> seen_;        // by storage: the last operation that touched it
  bytes constants_{};
  bytes most_{};
};

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
                       .machine = question_.machine});
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

std::string ratio_text(const replay_row& r) {
  return r.ratio ? format_fixed(100 * *r.ratio, 1) + " %" : "-";
}
std::string overhead_text(const std::optional<double>& overhead) {
  return overhead ? format_fixed(*overhead, 3) + "x" : "-";
}

/// The one with the smallest budget, the faster of equal ones; null: no policy keeps to it.
const budget_answer* best_of(std::span<const budget_answer> answers) {
  const budget_answer* best = nullptr;
  const auto worth = [](const budget_answer& a) {
    const replay_row& r = a.curve[*a.smallest];
    return std::pair(r.budget_bytes, r.time_ns);
  };
  for (const budget_answer& a : answers)
    if (a.smallest && (best == nullptr || worth(a) < worth(*best))) best = &a;
  return best;
}

text_row summary_of(const budget_answer& a, bool best) {
  if (!a.smallest) return {a.policy, "none", "-", "-", "-", "-", "-", "-"};
  const replay_row& r = a.curve[*a.smallest];
  const replay_row* const safe = a.safe ? &a.curve[*a.safe] : nullptr;
  return {a.policy + (best ? " (best)" : ""),
          format_bytes(budget_of(r)),
          ratio_text(r),
          overhead_text(r.overhead),
          overhead_text(r.bound_overhead),
          std::to_string(a.holes),
          safe != nullptr ? format_bytes(budget_of(*safe)) : "-",
          safe != nullptr ? ratio_text(*safe) : "-"};
}

/// That of a budget; null: it was not tried.
const replay_row* row_at(const budget_answer& a, std::uint64_t budget) {
  const auto at = std::ranges::lower_bound(a.curve, budget, {}, &replay_row::budget_bytes);
  return at != a.curve.end() && at->budget_bytes == budget ? &*at : nullptr;
}

/// The budgets that all policies were tried with, thinned out.
std::vector<std::uint64_t> printed_budgets(std::span<const budget_answer> answers) {
  std::vector<std::uint64_t> common;
  for (const replay_row& r : answers.front().curve) {
    const auto tried = [&](const budget_answer& a) { return row_at(a, r.budget_bytes) != nullptr; };
    if (std::ranges::all_of(answers, tried)) common.push_back(r.budget_bytes);
  }
  if (common.size() <= printed_points) return common;
  std::vector<std::uint64_t> some;
  for (std::size_t i = 0; i < printed_points; ++i)
    some.push_back(common[i * (common.size() - 1) / (printed_points - 1)]);
  return some;
}

void print_curves(std::ostream& out, std::span<const budget_answer> answers) {
  std::vector<text_row> lines{{"budget", "of peak", "bound"}};
  for (const budget_answer& a : answers) lines.front().push_back(a.policy);
  for (const std::uint64_t budget : printed_budgets(answers)) {
    const replay_row& any = *row_at(answers.front(), budget);
    lines.push_back(
        {format_bytes(bytes{budget}), ratio_text(any), overhead_text(any.bound_overhead)});
    for (const budget_answer& a : answers) {
      const replay_row& r = *row_at(a, budget);
      lines.back().push_back(r.result == "pass" ? overhead_text(r.overhead) : r.result);
    }
  }
  print_aligned(out, lines, 0);
}

}  // namespace

bytes least_budget(const trace& t) {
  return needs(t).most();
}

std::vector<budget_answer> find_budgets(const trace& t, std::span<const std::string> policies,
                                        const budget_question& question) {
  return search(t, policies, question).run();
}

budget_answer find_budget(const trace& t, std::string_view policy,
                          const budget_question& question) {
  const std::string only(policy);
  return std::move(find_budgets(t, {&only, 1}, question).front());
}

void print_answers(std::ostream& out, std::span<const budget_answer> answers) {
  const budget_answer& first = answers.front();
  print_trace_line(out, first.curve.front());
  out << "smallest budgets with an overhead of at most " << format_fixed(first.max_overhead, 3)
      << "x\n";
  std::vector<text_row> lines{
      {"policy", "smallest", "of peak", "overhead", "bound", "holes", "safe from", "of peak"}};
  const budget_answer* const best = best_of(answers);
  for (const budget_answer& a : answers) lines.push_back(summary_of(a, &a == best));
  print_aligned(out, lines, 1);
  if (best == nullptr) out << "no budget that was tried keeps to it\n";
  if (std::ranges::any_of(answers, [](const budget_answer& a) { return a.holes > 0; }))
    out << "holes: larger budgets that do not keep to it\n";
  out << '\n';
  print_curves(out, answers);
}

}  // namespace delta::executor
