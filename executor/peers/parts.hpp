// delta executor: what the rules of several peers have in common.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/step.hpp"
#include "delta/units.hpp"

namespace delta::executor {

/// When a planned tensor is away: after the operator `from`, back for the operator `to`, both
/// positions in the step; and which way it leaves.
struct trip {
  std::uint32_t from = step_record::none, to = step_record::none;
  bool swaps = false;  ///< else it is recomputed
};

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

/// The same for whoever wants away what is not about to be used: after a step's first operator all
/// candidates, as the step before may have left some here. O(candidates) once in a step.
template <class Visit>
void for_each_to_ask(const context& c, const Visit& visit) {
  if (c.past().position() != 1) return for_each_of_ended(c, visit);
  for (const tensor_id t : c.candidates()) visit(t);
}

/// Bytes that may leave of those that `leaves(t)` wants gone after the operator that has ended.
template <class Leaves>
double bytes_to_leave(const context& c, const Leaves& leaves) {
  double sum = 0;
  for_each_to_ask(c, [&](tensor_id t) {
    if (leaves(t) && (c.can_offload(t) || c.can_evict(t))) sum += c.bytes(t);
  });
  return sum;
}

/// Does it fit beside all that is here and what the last operator needed?
inline bool fits_early(const context& c, tensor_id t) noexcept {
  return c.used() + c.bytes(t) + c.coming_need() <= c.budget();
}

/// The least recently used first, but before all others what the rule wants gone.
inline double first_or_stale(const context& c, tensor_id t, bool first) noexcept {
  return first ? -1.0 : 1.0 / c.staleness(t);
}

/// In the backward pass what was used last in the forward pass, in reverse order: what was
/// offloaded last comes back first, one copy at a time, if it fits beside what the last operator
/// needed. What left in the backward pass comes back on demand. O(offloaded).
struct reverse_prefetch {
  tensor_id next(const context& c) const noexcept {
    if (!c.backward() || c.backlog(direction::in) > 0) return tensor_id::none;
    for (std::size_t i = c.offloaded().size(); i-- > 0;) {
      const tensor_id t = c.offloaded()[i];
      if (c.clock() - c.staleness(t) > forward_until_) continue;
      return fits_early(c, t) ? t : tensor_id::none;
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

}  // namespace delta::executor
