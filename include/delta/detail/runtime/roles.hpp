// delta: the three roles of a policy as the runtime asks them. Each optional member function is
// called here, and has its default here (defaults of constants are in concepts.hpp). An answer that
// is impossible is put right by the reclaimer.
#pragma once

#include <cstdint>
#include <utility>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/victims/victim_search.hpp"
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
/// Copies under way will free enough after `wait` ns: wait, rather than release t? Default: when
/// that is cheaper.
template <class D>
[[nodiscard]] bool rather_waits(D& decider, const context& c, tensor_id t, double wait) {
  if constexpr (has_rather_wait<D>)
    return decider.rather_wait(c, t, wait);
  else
    return wait <= c.release_cost(t);
}
/// What it costs to get t back, in ns. Default: the cheaper way's.
template <class D>
[[nodiscard]] double release_cost_of(const D& decider, const context& c, tensor_id t) {
  if constexpr (has_release_cost<D>)
    return decider.release_cost(c, t);
  else
    return c.release_cost(t);
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
/// The ends of operators and steps, to any role that wants to know.
template <class Role>
void tell_end_of_operator(Role& role, const context& c) {
  if constexpr (has_end_of_operator<Role>) role.end_of_operator(c);
}
template <class Role>
void tell_end_of_step(Role& role, const context& c) {
  if constexpr (has_end_of_step<Role>) role.end_of_step(c);
}

// --- a policy at work ----------------------------------------------------------------------------

/// Heuristic (in its filter), Decider and Prefetcher, by value: empty ones take no room.
template <Heuristic H, Decider D, Prefetcher P>
class roles {
 public:
  roles(H h, D d, P p) : filter_(std::move(h)), decider_(std::move(d)), prefetcher_(std::move(p)) {}

  /// True if any of them asks what the steps before showed.
  static constexpr bool learn =
      value_of_learns<H>() || value_of_learns<D>() || value_of_learns<P>();
  /// True if a selector can change the policy between steps.
  static constexpr bool switch_variants = has_select<H>;
  /// True if it can do so within a step.
  static constexpr bool replace_variants = has_replacement<H>;
  static constexpr bool may_release_early = releases_early_at_all<P>();
  static constexpr bool may_copy_ahead = has_copy_ahead<P>;

  [[nodiscard]] filter<H>& victims() noexcept { return filter_; }
  [[nodiscard]] const filter<H>& victims() const noexcept { return filter_; }
  [[nodiscard]] const H& heuristic() const noexcept { return filter_.heuristic(); }

  [[nodiscard]] action decide(const context& c, tensor_id t) { return decider_.decide(c, t); }
  [[nodiscard]] restoration restore(const context& c, tensor_id t) {
    return restoration_of(decider_, c, t);
  }
  /// What the decider may do, where that policy of several decides.
  [[nodiscard]] static constexpr bool may(action a, std::uint32_t variant) noexcept {
    if constexpr (requires { D::may(a, variant); })
      return D::may(a, variant);
    else
      return a == action::evict ? value_of_evicts<D>() : value_of_offloads<D>();
  }
  /// True if everything may go to the host that can, by the decider's word.
  [[nodiscard]] bool lets_all_go() const {
    return value_of_offloads<D>() && !may_answer_keep(decider_);
  }
  [[nodiscard]] bool rather_wait(const context& c, tensor_id t, double wait) {
    return rather_waits(decider_, c, t, wait);
  }
  [[nodiscard]] double release_cost(const context& c, tensor_id t) const {
    return release_cost_of(decider_, c, t);
  }

  [[nodiscard]] tensor_id next_reload(const context& c) { return prefetcher_.next(c); }
  [[nodiscard]] double early_release_bytes(const context& c) {
    return early_release_of(prefetcher_, c);
  }
  [[nodiscard]] tensor_id next_copy_ahead(const context& c) {
    return copy_ahead_of(prefetcher_, c);
  }
  void wasted(const context& c, tensor_id t) { tell_of_waste(prefetcher_, c, t); }

  void end_of_operator(const context& c) {
    tell_end_of_operator(prefetcher_, c);
    tell_end_of_operator(filter_.heuristic(), c);
    tell_end_of_operator(decider_, c);
  }
  void end_of_step(const context& c) {
    tell_end_of_step(prefetcher_, c);
    tell_end_of_step(filter_.heuristic(), c);
    tell_end_of_step(decider_, c);
  }

  /// Which closure costs the graph should keep while that policy of several decides.
  [[nodiscard]] closure costs_to_keep(std::uint32_t variant) const {
    if constexpr (switch_variants)
      return heuristic().cached_closure(variant);
    else
      return filter<H>::keeps_costs;
  }
  /// Who decides in the step that begins. Default: who did.
  [[nodiscard]] std::uint32_t select(const context& c) {
    if constexpr (switch_variants)
      return filter_.heuristic().select(c);
    else
      return c.variant();
  }
  /// Who decides the rest of the step; where recomputation thrashes, in place of the one that does.
  /// Default: who does.
  [[nodiscard]] std::uint32_t replacement(const context& c, bool thrashes) {
    if constexpr (replace_variants)
      return filter_.heuristic().replacement(c, thrashes);
    else
      return c.variant();
  }

 private:
  filter<H> filter_;
  [[no_unique_address]] D decider_;
  [[no_unique_address]] P prefetcher_;
};

}  // namespace delta::detail
