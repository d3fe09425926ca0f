// delta: the three roles of a policy as the runtime asks them. Each optional member function is
// called here, and has its default here (defaults of constants are in concepts.hpp). An answer that
// is impossible is put right by the reclaimer. And which of several policies (switching.hpp)
// decides, from step to step and within one.
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

// --- optional members, or their defaults; also called by switching.hpp ---------------------------

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
/// True if it ever does. One of several has the member, though none of them may.
template <class P>
[[nodiscard]] constexpr bool releases_early_at_all() {
  if constexpr (requires { P::any_releases_early; })
    return P::any_releases_early;
  else
    return has_early_release_bytes<P>;
}
/// True if it may do so where all fits, too: what hangs on those tensors is kept then, and errors
/// name larger budgets. A plan lets nothing leave that fits.
template <class P>
[[nodiscard]] constexpr bool releases_early_with_room() {
  if constexpr (requires { P::releases_with_room; })
    return P::releases_with_room;
  else
    return has_early_release_bytes<P>;
}
/// Who leaves without a search. Default: nobody.
template <class H>
[[nodiscard]] tensor_id victim_of(const H& heuristic, const context& c) {
  if constexpr (has_victim<H>)
    return heuristic.victim(c);
  else
    return tensor_id::none;
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
  /// True if a selector can change the policy between steps.
  static constexpr bool switch_variants = has_select<heuristic_type>;
  /// True if it can do so within a step.
  static constexpr bool replace_variants = has_replacement<heuristic_type>;
  static constexpr bool may_release_early = releases_early_at_all<prefetcher_type>();
  static constexpr bool may_release_with_room = releases_early_with_room<prefetcher_type>();
  static constexpr bool may_keep_dropped = has_keeps_dropped<decider_type>;
  static constexpr bool may_copy_ahead = has_copy_ahead<prefetcher_type>;

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

  /// What the decider may do, where that policy of several decides.
  [[nodiscard]] static constexpr bool may(action a, std::uint32_t variant) noexcept {
    if constexpr (requires { decider_type::may(a, variant); })
      return decider_type::may(a, variant);
    else
      return a == action::evict ? value_of_evicts<decider_type>()
                                : value_of_offloads<decider_type>();
  }
  /// True if everything may go to the host that can, by the decider's word.
  [[nodiscard]] bool lets_all_go() const {
    return value_of_offloads<decider_type>() && !may_answer_keep(decider_of(policy_));
  }
  void end_of_operator(const context& c) { tell_end_of_operator(policy_, c); }
  void end_of_step(const context& c) { tell_end_of_step(policy_, c); }

  /// Which closure costs the graph should keep while that policy of several decides.
  [[nodiscard]] closure costs_to_keep(std::uint32_t variant) const {
    if constexpr (switch_variants)
      return heuristic().cached_closure(variant);
    else
      return filter<heuristic_type>::keeps_costs;
  }
  /// Who decides in the step that begins. Default: who did.
  [[nodiscard]] std::uint32_t select(const context& c) {
    if constexpr (switch_variants)
      return heuristic_of(policy_).select(c);
    else
      return c.variant();
  }
  /// Who decides the rest of the step; where recomputation thrashes, in place of the one that does.
  /// Default: who does.
  [[nodiscard]] std::uint32_t replacement(const context& c, bool thrashes) {
    if constexpr (replace_variants)
      return heuristic_of(policy_).replacement(c, thrashes);
    else
      return c.variant();
  }

 private:
  [[no_unique_address]] P policy_;
  filter<heuristic_type> filter_;
};

/// A policy's roles, and who of several decides; of a single policy always that.
template <Policy P, class Table>
class policy_seat : public roles<P> {
 public:
  using roles<P>::switch_variants;
  using roles<P>::replace_variants;

  policy_seat(Table& table, P p) : roles<P>(std::move(p)), table_(&table) {
    let_decide(0);
    table.tensors.cached_closure = this->costs_to_keep(0);
  }

  /// The next step begins: each policy may take over in it again.
  void begin_step() noexcept { replaced_ = 0; }
  /// The step has ended: the policies are told, and the selector says who decides in the next.
  void end_of_step(const context& c) {
    roles<P>::end_of_step(c);
    if constexpr (switch_variants) decide_by(this->select(c));
  }
  /// An operator has ended: policies are told, and another one may decide from now on.
  void end_of_operator(const context& c) {
    roles<P>::end_of_operator(c);
    if constexpr (replace_variants) (void)ask_for_another(c, false);
  }
  /// This one decides from now on. O(1), O(tensors) where it keeps the costs of other closures.
  void decide_by(std::uint32_t variant) {
    let_decide(variant);
    if constexpr (switch_variants) {
      graph& g = table_->tensors;
      const closure wanted = this->costs_to_keep(variant);
      if (std::exchange(g.cached_closure, wanted) == wanted) return;
      for (std::uint32_t i = 0; i < g.tensor_slots(); ++i)
        g[static_cast<tensor_id>(i)].cost = tensor_record::unknown;
    }
  }

  /// False: nobody may take over any more in this step.
  [[nodiscard]] bool may_be_replaced() const noexcept {
    return replace_variants && replaced_ < most_replaced;
  }
  /// Recomputation thrashes: true if another policy decides from now on.
  bool replace(const context& c) {
    ++replaced_;
    if (ask_for_another(c, true)) return true;
    replaced_ = most_replaced;  // there is nobody
    return false;
  }
  /// True if a policy has not decided in this step, and is safer than the one that does.
  [[nodiscard]] bool has_another() const noexcept {
    return replace_variants && table_->now.variant != 0 && replaced_ == 0;
  }
  /// True if one was replaced in this step. Then room may be short by what was done before, too.
  [[nodiscard]] bool was_replaced() const noexcept { return replaced_ > 0; }

 private:
  static constexpr std::uint32_t most_replaced = 16;

  void let_decide(std::uint32_t variant) {
    // Who takes over in the midst of a step may do whatever any of them may: what it finds is not
    // of its making.
    using decider = decider_of_type<P>;
    table_->now.variant = variant;
    table_->now.may_evict =
        replaced_ > 0 ? value_of_evicts<decider>() : this->may(action::evict, variant);
    table_->now.may_offload =
        replaced_ > 0 ? value_of_offloads<decider>() : this->may(action::offload, variant);
  }
  // True if another policy decides from now on.
  bool ask_for_another(const context& c, bool thrashes) {
    const std::uint32_t next = this->replacement(c, thrashes);
    if (next == table_->now.variant) return false;
    decide_by(next);
    table_->candidates().unpark(table_->tensors);
    return true;
  }

  Table* table_;
  std::uint32_t replaced_ = 0;  // policies, in this step
};

}  // namespace delta::detail
