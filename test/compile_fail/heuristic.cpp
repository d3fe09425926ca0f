// Near misses of Heuristic, and what is said about each: see check.cmake.
#include "delta/concepts.hpp"

using namespace delta;

struct right {
  static constexpr quantity depends_on = quantity::bytes;
  double score(const context& c, tensor_id t) const { return c.bytes(t); }
  void end_of_operator(const context&) {}
  void end_of_step(const context&) {}
};
static_assert(explain_heuristic<right>());
struct names : right {
  static constexpr bool later_if_dearer = true;
  tensor_id victim(const context&, const auto&) const { return tensor_id::none; }
};
static_assert(explain_heuristic<names>() && detail::has_victim<names>);

#ifdef WITH_MISSES
// says: a Heuristic needs 'double score(const delta::context&, delta::tensor_id) const' (lower
//   leaves first) or 'double weight(const delta::context&, delta::tensor_id) const' (it
//   stands for the score 1 / (weight x staleness))
struct asks_nothing {};
static_assert(explain_heuristic<asks_nothing>());

// says: a Heuristic needs 'double score(const delta::context&, delta::tensor_id) const' (lower
//   leaves first) or 'double weight(const delta::context&, delta::tensor_id) const' (it
//   stands for the score 1 / (weight x staleness))
// says: 'score' is there, but not as 'double score(const delta::context&, delta::tensor_id) const'
struct forgets_const {
  double score(const context&, tensor_id) { return 0; }
};
static_assert(explain_heuristic<forgets_const>());

// says: 'score' is there, but not as 'double score(const delta::context&, delta::tensor_id) const'
struct scores_in_words : right {
  const char* score(const context&, tensor_id) const { return ""; }
  double weight(const context&, tensor_id) const { return 1; }
};
static_assert(explain_heuristic<scores_in_words>());

// says: 'weight' is there, but not as 'double weight(const delta::context&, delta::tensor_id)
//   const'
struct weighs_operators : right {
  double weight(const context&, operator_id) const { return 1; }
};
static_assert(explain_heuristic<weighs_operators>());

// says: a Heuristic has 'score' or 'weight', not both: only one can say who leaves first
struct answers_twice : right {
  double weight(const context&, tensor_id) const { return 1; }
};
static_assert(explain_heuristic<answers_twice>());

// says: 'depends_on' is there, but not as 'static constexpr delta::quantity depends_on'
struct depends_on_a_number : right {
  static constexpr int depends_on = 3;
};
static_assert(explain_heuristic<depends_on_a_number>());

// says: 'later_if_dearer' is there, but not as 'static constexpr bool later_if_dearer'
struct later_by_question : right {
  static constexpr bool later_if_dearer() { return true; }
};
static_assert(explain_heuristic<later_by_question>());

// says: 'victim' is there, but not as 'delta::tensor_id victim(const delta::context&, const auto&
//   may_leave) const'
struct names_nobody : right {
  tensor_id victim(const context&) const { return tensor_id::none; }
};
static_assert(explain_heuristic<names_nobody>());

// says: 'learns' is there, but not as 'static constexpr bool learns'
struct learns_by_number : right {
  static constexpr int learns = 1;
};
static_assert(explain_heuristic<learns_by_number>());

// says: 'end_of_operator' is there, but not as 'void end_of_operator(const delta::context&)'
struct ends_operators_by_name : right {
  void end_of_operator(operator_id) {}
};
static_assert(explain_heuristic<ends_operators_by_name>());

// says: 'end_of_step' is there, but not as 'void end_of_step(const delta::context&)'
struct ends_steps_alone : right {
  void end_of_step() {}
};
static_assert(explain_heuristic<ends_steps_alone>());

// Two at once.
// says: 'depends_on' is there, but not as 'static constexpr delta::quantity depends_on'
// says: 'end_of_step' is there, but not as 'void end_of_step(const delta::context&)'
struct wrong_twice : right {
  bool depends_on = true;
  void end_of_step(int) {}
};
static_assert(explain_heuristic<wrong_twice>());

// A concept sees signatures; the error is in the body.
// mentions: no_such_cost
struct asks_too_much {
  double score(const auto& c, tensor_id t) const { return c.no_such_cost(t); }
};
static_assert(Heuristic<asks_too_much> && explain_heuristic<asks_too_much>());
#endif
