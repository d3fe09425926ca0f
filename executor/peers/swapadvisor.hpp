// delta executor: SwapAdvisor (Huang et al. 2020): swaps by a plan that a genetic algorithm has
// searched.
#pragma once

#include <algorithm>
#include <cstdint>

#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/manager.hpp"
#include "peers/parts.hpp"
#include "peers/swap_search.hpp"

namespace delta::executor {

/// SwapAdvisor (Huang et al. 2020, "SwapAdvisor: Pushing Deep Learning Beyond the GPU Memory Limit
/// via Smart Swapping"): one step is watched, swapping on demand; then a genetic algorithm searches
/// which tensors are swapped, and when, judged by a simulator of compute and two lanes of copies.
/// There the search goes over the order of operators and the allocation of memory, each with a plan
/// of swaps made for it, and takes up to an hour before training begins. Here order and memory are
/// the program's and the manager's: it goes over the swaps alone, between two steps, by at most 353
/// simulated plans (swap_search). What the plan does not cover is swapped on demand. It keeps a
/// plan for one kind of step at a time.
struct swapadvisor_policy : offload_only {
  static constexpr bool learns = true;

  /// Leaves first what the plan wants away by now; then what is used last (Belady's rule, which
  /// SwapAdvisor's own planner has), and of what is not known the least recently used. O(log plan).
  double score(const context& c, tensor_id t) const noexcept {
    if (plan_.leaves(c, t)) return -1;
    const forecast f = c.next_use(t);
    if (f.what == forecast::kind::never) return 0;
    return 1.0 / (f.what == forecast::kind::known ? std::max(f.in, 1.0) : c.staleness(t));
  }
  /// Out right after the operator that the plan names, and what the step before has left here
  /// after the first one. O(touched x log plan).
  double early_release_bytes(const context& c) const {
    return bytes_to_leave(c, [&](tensor_id t) { return plan_.leaves(c, t); });
  }
  /// Of what the plan wants back by now, what is due first, if it fits. O(offloaded x log plan).
  tensor_id next(const context& c) const noexcept {
    tensor_id first = tensor_id::none;
    std::uint32_t at = 0;
    for (const tensor_id t : c.offloaded()) {
      const std::uint32_t back = plan_.back_at(c, t);
      if (back == swap_search::none || c.past().position() < back) continue;
      const std::uint32_t due = c.next_use(t).position;
      if (first == tensor_id::none || due < at) first = t, at = due;
    }
    return first != tensor_id::none && fits_early(c, first) ? first : tensor_id::none;
  }
  void end_of_step(const context& c) { plan_.make(c); }

 private:
  swap_search plan_;
};
inline swapadvisor_policy swapadvisor() {
  return {};
}

}  // namespace delta::executor
