// delta: the three roles of a policy as the runtime asks them, and the defaults of their optional
// functions (of constants: concepts.hpp). The reclaimer corrects impossible answers.
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

/// A policy, by value, and the filter that asks its heuristic.
template <Policy P>
class roles {
  using where = roles_of<P>;

 public:
  using heuristic_type = heuristic_of_type<P>;
  using decider_type = decider_of_type<P>;
  using prefetcher_type = prefetcher_of_type<P>;

  explicit roles(P p) : policy_(std::move(p)) {}

  [[nodiscard]] const P& policy() const noexcept { return policy_; }
  [[nodiscard]] const heuristic_type& heuristic() const noexcept {
    return where::heuristic_in(policy_);
  }
  [[nodiscard]] decider_type& decider() noexcept { return where::decider_in(policy_); }
  [[nodiscard]] const decider_type& decider() const noexcept { return where::decider_in(policy_); }
  [[nodiscard]] prefetcher_type& prefetcher() noexcept { return where::prefetcher_in(policy_); }

  /// True if everything may go to the host that can, by the decider's word.
  [[nodiscard]] bool lets_all_go() const {
    return value_of_offloads<decider_type>() && !may_answer_keep(decider());
  }
  /// True if what the program drops, and records read, is to stay for a recomputation. Where it is
  /// not, what that makes stays while there is room. `view()` is asked only if needed.
  template <class View>
  [[nodiscard]] bool keeps_dropped(const View& view, tensor_id t) const {
    if constexpr (has_keeps_dropped<decider_type>) return decider().keeps_dropped(view(), t);
    return false;
  }
  /// A tensor that came back early has left again unused.
  void wasted(const context& c, tensor_id t) {
    if constexpr (has_wasted<prefetcher_type>) prefetcher().wasted(c, t);
  }
  /// An operator has ended: told to the roles that want to know.
  void end_of_operator(const context& c) {
    for_each_role(policy_, [&](auto& role) {
      if constexpr (has_end_of_operator<std::remove_reference_t<decltype(role)>>)
        role.end_of_operator(c);
    });
  }
  /// The step has ended; in the next one, the policy may decide otherwise once more.
  void end_of_step(const context& c) {
    otherwise_ = false;
    for_each_role(policy_, [&](auto& role) {
      if constexpr (has_end_of_step<std::remove_reference_t<decltype(role)>>) role.end_of_step(c);
    });
  }
  /// Recomputation thrashes, or room runs out: true if the policy decides otherwise from now on.
  /// `view()` is asked only if needed.
  template <class View>
  bool decide_otherwise(const View& view) {
    if constexpr (has_on_thrash<decider_type>)
      return !otherwise_ && (otherwise_ = decider().on_thrash(view()));
    return false;
  }

  filter<heuristic_type> victims;  ///< who leaves next, by the heuristic

 private:
  [[no_unique_address]] P policy_;
  bool otherwise_ = false;  // it decides so in this step
};

}  // namespace delta::detail
