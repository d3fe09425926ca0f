// delta: what the rules of several peers have in common.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/units.hpp"

namespace delta {

namespace detail {

/// Calls `visit(t)` once for each tensor of the operator that has ended, outputs included, that may
/// be asked to leave. Quadratic, as lists are short.
template <class Visit>
void for_each_of_ended(const context& c, const Visit& visit) {
  const ended_operator& o = c.ended();
  const std::array lists{o.inputs, o.updates, o.outputs};
  for (std::size_t l = 0; l < lists.size(); ++l)
    for (std::size_t i = 0; i < lists[l].size(); ++i) {
      const tensor_id t = lists[l][i];
      bool again = std::ranges::find(lists[l].first(i), t) != lists[l].begin() + std::ptrdiff_t(i);
      for (std::size_t k = 0; k < l; ++k)
        again = again || std::ranges::find(lists[k], t) != lists[k].end();
      if (!again && c.candidates().contains(t)) visit(t);
    }
}

/// The least recently used first, but before all others what the rule wants gone.
inline double first_or_stale(const context& c, tensor_id t, bool first) noexcept {
  return first ? -1.0 : 1.0 / c.staleness(t);
}

}  // namespace detail

/// In the backward pass what was used last in the forward pass, in reverse order: what was
/// offloaded last comes back first, one copy at a time, if it fits beside what the last operator
/// needed. What left in the backward pass comes back on demand. O(offloaded).
struct reverse_prefetch {
  tensor_id next(const context& c) const noexcept {
    if (!c.backward() || c.backlog(direction::in) > 0) return tensor_id::none;
    for (std::size_t i = c.offloaded().size(); i-- > 0;) {
      const tensor_id t = c.offloaded()[i];
      if (c.clock() - c.staleness(t) > forward_until_) continue;
      const double taken = c.used() + c.bytes(t) + c.coming_need();
      return taken <= c.budget() ? t : tensor_id::none;
    }
    return tensor_id::none;
  }
  void end_of_operator(const context& c) noexcept {
    if (!c.backward()) forward_until_ = c.clock();
  }

 private:
  double forward_until_ = 0;  // by the clock
};

/// Back from the host by a copy, even where computing it again would take less. A base of deciders.
struct always_reload {
  restoration restore(const context&, tensor_id) const noexcept { return restoration::reload; }
};

}  // namespace delta
