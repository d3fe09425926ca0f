#include "replay/budget_report.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cli/format.hpp"
#include "cli/text_table.hpp"
#include "replay/replay_report.hpp"

namespace delta::executor {
namespace {

constexpr std::size_t printed_points = 16;

bytes budget_of(const replay_row& r) {
  return bytes{r.budget_bytes};
}
std::string ratio_text(const replay_row& r) {
  return r.ratio ? format_fixed(100 * *r.ratio, 1) + " %" : "-";
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
