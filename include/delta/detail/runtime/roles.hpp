// delta: the three roles of a policy as the runtime asks them. Each optional member function is
// called here, and has its default here (defaults of constants are in concepts.hpp). An answer that
// is impossible is put right by the reclaimer.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/records.hpp"
#include "delta/detail/victims/victim_search.hpp"
#include "delta/policy.hpp"
#include "delta/units.hpp"

namespace delta::detail {

// --- optional members, or their defaults ---------------------------------------------------------

/// How a tensor on the host comes back. Default: the cheaper way, the queue included.
template <class D>
[[nodiscard]] restoration restoration_of(D& decider, const context& c, tensor_id t) {
  if constexpr (has_restore<D>) {
    return decider.restore(c, t);
  } else {
    const double reload = c.reload_cost(t);
    return reload <= c.recompute_cost(t, reload) ? restoration::reload : restoration::recompute;
  }
}
/// True if what the program drops, and records read, is to stay for a recomputation. Default: what
/// a recomputation has made stays while there is room, nothing else.
template <class D>
[[nodiscard]] bool keeps_dropped(const D& decider, const context& c, tensor_id t) {
  if constexpr (has_keeps_dropped<D>)
    return decider.keeps_dropped(c, t);
  else
    return false;
}
/// Bytes to release before they are needed. Default: none.
template <class P>
[[nodiscard]] double early_release_of(P& prefetcher, const context& c) {
  if constexpr (has_early_release_bytes<P>)
    return prefetcher.early_release_bytes(c);
  else
    return 0.0;
}
/// What to copy out without freeing it. Default: nothing.
template <class P>
[[nodiscard]] tensor_id copy_ahead_of(P& prefetcher, const context& c) {
  if constexpr (has_copy_ahead<P>)
    return prefetcher.copy_ahead(c);
  else
    return tensor_id::none;
}
/// A tensor that came back early has left again unused.
template <class P>
void tell_of_waste(P& prefetcher, const context& c, tensor_id t) {
  if constexpr (has_wasted<P>) prefetcher.wasted(c, t);
}
/// The ends of operators and steps, to the roles that want to know.
template <class P>
void tell_end_of_operator(P& policy, const context& c) {
  for_each_role(policy, [&](auto& role) {
    if constexpr (has_end_of_operator<std::remove_reference_t<decltype(role)>>)
      role.end_of_operator(c);
  });
}
template <class P>
void tell_end_of_step(P& policy, const context& c) {
  for_each_role(policy, [&](auto& role) {
    if constexpr (has_end_of_step<std::remove_reference_t<decltype(role)>>) role.end_of_step(c);
  });
}

// --- a policy at work ----------------------------------------------------------------------------

/// A policy, by value, and the filter that asks its heuristic.
template <Policy P>
class roles {
 public:
  using heuristic_type = heuristic_of_type<P>;
  using decider_type = decider_of_type<P>;
  using prefetcher_type = prefetcher_of_type<P>;

  explicit roles(P p) : policy_(std::move(p)) {}

  static constexpr bool learn = policy_learns<P>();
  static constexpr bool may_release_early = has_early_release_bytes<prefetcher_type>;
  static constexpr bool may_release_with_room = value_of_releases_with_room<prefetcher_type>();
  static constexpr bool may_keep_dropped = has_keeps_dropped<decider_type>;
  static constexpr bool may_copy_ahead = has_copy_ahead<prefetcher_type>;
  /// Which closure costs the graph should keep for it.
  static constexpr closure keeps_costs = filter<heuristic_type>::keeps_costs;

  [[nodiscard]] const P& policy() const noexcept { return policy_; }
  [[nodiscard]] const heuristic_type& heuristic() const noexcept { return heuristic_of(policy_); }
  [[nodiscard]] decider_type& decider() noexcept { return decider_of(policy_); }
  [[nodiscard]] const decider_type& decider() const noexcept { return decider_of(policy_); }
  [[nodiscard]] prefetcher_type& prefetcher() noexcept { return prefetcher_of(policy_); }
  /// The Filter's choice of those that `may_leave` (victim_search.hpp).
  template <class MayLeave>
  [[nodiscard]] tensor_id select_victim(const context& c, graph& g, const machine_state& now,
                                        candidate_list& list, const MayLeave& may_leave) {
    return filter_.select(heuristic(), c, g, now, list, may_leave);
  }
  /// Answers that the Filter has asked for.
  [[nodiscard]] std::uint64_t evaluations() const noexcept { return filter_.evaluations(); }

  /// True if everything may go to the host that can, by the decider's word.
  [[nodiscard]] bool lets_all_go() const {
    return value_of_offloads<decider_type>() && !may_answer_keep(decider_of(policy_));
  }
  void end_of_operator(const context& c) { tell_end_of_operator(policy_, c); }
  /// The step has ended; in the next one, the policy may decide otherwise once more.
  void end_of_step(const context& c) {
    asked_ = false;
    tell_end_of_step(policy_, c);
  }
  /// True if it was not asked yet in this step to decide otherwise.
  [[nodiscard]] bool may_decide_otherwise() const noexcept {
    return has_on_thrash<decider_type> && !asked_;
  }
  /// Recomputation thrashes, or room runs out: true if the policy decides otherwise from now on.
  bool decide_otherwise(const context& c) {
    if constexpr (has_on_thrash<decider_type>)
      return !std::exchange(asked_, true) && decider().on_thrash(c);
    else
      return false;
  }

 private:
  [[no_unique_address]] P policy_;
  filter<heuristic_type> filter_;
  bool asked_ = false;  // in this step, to decide otherwise
};

}  // namespace delta::detail
