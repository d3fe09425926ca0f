// Near misses of Decider, and what is said about each: see check.cmake.
#include "delta/concepts.hpp"

using namespace delta;

struct right {
  static constexpr bool evicts = true, offloads = false;
  action decide(const context&, tensor_id) { return action::evict; }
  restoration restore(const context&, tensor_id) { return restoration::reload; }
  bool on_thrash(const context&) { return true; }
  void end_of_operator(const context&) {}
  void end_of_step(const context&) {}
};
static_assert(explain_decider<right>());

#ifdef WITH_MISSES
// says: a Decider needs 'delta::action decide(const delta::context&, delta::tensor_id)' (evict,
//   offload or keep)
struct judges_nothing {};
static_assert(explain_decider<judges_nothing>());

// says: a Decider needs 'delta::action decide(const delta::context&, delta::tensor_id)' (evict,
//   offload or keep)
struct judges_by_number : right {
  int decide(const context&, tensor_id) { return 0; }
};
static_assert(explain_decider<judges_by_number>());

// says: 'restore' is there, but not as 'delta::restoration restore(const delta::context&,
//   delta::tensor_id)'
struct restores_by_action : right {
  action restore(const context&, tensor_id) { return action::evict; }
};
static_assert(explain_decider<restores_by_action>());

// says: 'restore' is there, but not as 'delta::restoration restore(const delta::context&,
//   delta::tensor_id)'
struct restores_by_any_number : right {
  int restore(const auto&, tensor_id) { return 0; }
};
static_assert(explain_decider<restores_by_any_number>());

// says: 'may_keep' is there, but not as 'bool may_keep() const'
struct keeps_in_the_object : right {
  bool may_keep = false;
};
static_assert(explain_decider<keeps_in_the_object>());

// says: 'keeps_dropped' is there, but not as 'bool keeps_dropped(const delta::context&,
//   delta::tensor_id) const'
struct keeps_by_changing : right {
  bool keeps_dropped(const context&, tensor_id) { return false; }
};
static_assert(explain_decider<keeps_by_changing>());

// says in 2 places: 'on_thrash' is there, but not as 'bool on_thrash(const delta::context&)'
struct thrashes_by_sign : right {
  int on_thrash(const context&) { return 0; }
};
static_assert(explain_decider<thrashes_by_sign>());
struct thrashes_unseen : right {
  bool on_thrash() { return true; }
};
static_assert(explain_decider<thrashes_unseen>());

// says: 'evicts' is there, but not as 'static constexpr bool evicts'
struct evicts_by_number : right {
  static constexpr int evicts = 0;
};
static_assert(explain_decider<evicts_by_number>());

// says: 'offloads' is there, but not as 'static constexpr bool offloads'
struct offloads_in_the_object : right {
  bool offloads = false;
};
static_assert(explain_decider<offloads_in_the_object>());

// says: 'learns' is there, but not as 'static constexpr bool learns'
struct learns_when_asked : right {
  static bool learns() { return true; }
};
static_assert(explain_decider<learns_when_asked>());

// says: 'end_of_operator' is there, but not as 'void end_of_operator(const delta::context&)'
// says: 'end_of_step' is there, but not as 'void end_of_step(const delta::context&)'
struct ends_wrongly : right {
  void end_of_operator(operator_id) {}
  void end_of_step() {}
};
static_assert(explain_decider<ends_wrongly>());

// mentions: no_such_cost
struct judges_too_much {
  action decide(const auto& c, tensor_id t) {
    return c.no_such_cost(t) > 0 ? action::evict : action::keep;
  }
};
static_assert(Decider<judges_too_much> && explain_decider<judges_too_much>());
#endif
