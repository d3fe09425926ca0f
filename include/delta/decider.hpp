// delta: deciders, the Director's rule: how a tensor leaves, and how it comes back. The reclaimer
// (detail/runtime/reclaimer.hpp) asks once per tensor that the Filter has found, and corrects an
// impossible answer (pins, no producer, a full host).
#pragma once

#include "delta/concepts.hpp"
#include "delta/context.hpp"

namespace delta {

/// The paper's Algorithm 3: evict when F = h_r / h_o = c_r / c_s <= 1 (equation 4; m and s cancel,
/// repairs P-15), with c_s = m / (0.35 b) as equation (6) and the text have it (P-14). A tensor on
/// the host that can be recomputed is recomputed (Algorithm 1, lines 5 and 6; P-11).
struct paper_director {
  /// Assumption 2 to the letter: no release in the backward pass; a run that needs one fails (P-7).
  bool strict = false;

  /// Pinned one way: the other (lines 1 to 4). Else c_r / c_s, both in ns. O(closure).
  action decide(const context& c, tensor_id t) const {
    if (strict && c.backward() && !c.is_released(t)) return action::keep;
    if (!c.can_evict(t)) return action::offload;
    if (!c.can_offload(t)) return action::evict;
    const double swap = 1e9 * c.bytes(t) / (used_share * c.rate(direction::out));
    return c.recompute_cost(t, swap) / swap <= 1.0 ? action::evict : action::offload;
  }
  /// Algorithm 1, lines 5 to 8, to the letter: a plan as of now is not weighed.
  restoration restore(const context& c, tensor_id t) const noexcept {
    return c.can_recompute(t) ? restoration::recompute : restoration::reload;
  }
  [[nodiscard]] bool may_keep() const noexcept { return strict; }

 private:
  // What of the link's rate a copy reaches beside a kernel, by the paper's text (P-14).
  static constexpr double used_share = 0.35;
};

/// The cheaper of recomputing and swapping behind the queued copies; ties evict. Restores likewise.
struct cheaper {
  /// c_r against the exposed c_s, in ns; what can't be done is infinite. O(closure).
  action decide(const context& c, tensor_id t) const {
    const double swap = c.exposed_swap_cost(t);
    return c.recompute_cost(t, swap) <= swap ? action::evict : action::offload;
  }
  static constexpr bool may_keep() noexcept { return false; }
};

/// Recomputation only, as DTR does. Variables therefore stay: they have no producer.
struct evict_only {
  static constexpr bool offloads = false;
  action decide(const context&, tensor_id) const noexcept { return action::evict; }
  static constexpr bool may_keep() noexcept { return false; }
};

/// Swapping only, as vDNN and its kin. It never evicts: no operator or kernel is recorded.
struct offload_only {
  static constexpr bool evicts = false;
  action decide(const context&, tensor_id) const noexcept { return action::offload; }
  static constexpr bool may_keep() noexcept { return false; }
};

/// The null model: nothing leaves. Its peak is the program's own; what that drops goes at once.
struct never_release {
  static constexpr bool evicts = false;
  static constexpr bool offloads = false;
  action decide(const context&, tensor_id) const noexcept { return action::keep; }
};

static_assert(Decider<paper_director> && Decider<cheaper> && Decider<evict_only> &&
              Decider<offload_only> && Decider<never_release>);

}  // namespace delta
