// delta executor: which budgets keep to an overhead, as a table for people.
#pragma once

#include <iosfwd>
#include <span>

#include "replay/find_budget.hpp"

namespace delta::executor {

/// The answers for one trace: a line about it, a line per policy with the best one marked, and 16
/// budgets of the curves side by side. At least one answer.
void print_answers(std::ostream&, std::span<const budget_answer>);

}  // namespace delta::executor
