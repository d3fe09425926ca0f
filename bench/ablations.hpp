// delta benchmarks: the learned policy with one piece taken out at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "delta/learned.hpp"
#include "delta/presets.hpp"
#include "delta/switching.hpp"

namespace delta::bench {

// What is no number of the shipped roles is left out at run time, too: all are policies of one
// type, whose manager is compiled once.

/// With the queue in the cost it is stall_per_byte; without, copies out are taken to begin at once.
struct score_with_or_without_queue : stall_per_byte {
  bool queue = true;
  double score(const context& c, tensor_id t) const noexcept {
    if (queue) return stall_per_byte::score(c, t);
    const forecast f = c.next_use(t);
    const double d = f.what == forecast::kind::known ? std::max(f.in, 1.0) : c.staleness(t);
    const double swap = c.can_offload(t) ? reload(c, t, f) : never;
    const double least =
        f.what == forecast::kind::never ? 0.0 : std::min(c.recompute_cost(t), swap);
    return least / (c.bytes(t) * std::pow(d, distance));
  }
};
/// least_stall; without the queue as above. `recompute_first`: what can be recomputed never comes
/// back from the host, as the paper has it.
struct decide_with_or_without_queue : least_stall {
  bool queue = true, recompute_first = false;
  action decide(const context& c, tensor_id t) const {
    if (queue) return least_stall::decide(c, t);
    const double swap = c.can_offload(t) ? reload(c, t, c.next_use(t)) : never;
    return c.recompute_cost(t) <= swap ? action::evict : action::offload;
  }
  restoration restore(const context& c, tensor_id t) const {
    if (recompute_first) return c.can_recompute(t) ? restoration::recompute : restoration::reload;
    least_stall by_default = *this;
    return detail::restoration_of(by_default, c, t);
  }
};

/// Calls `f(name, policy)` for the whole and for each of its parts left out. The first step is
/// decided as by `adaptive`, the others as said.
template <class F>
void for_each_ablation(F&& f) {
  const auto from_the_second_step = [](auto p) {
    return switching(always{1}, online(), std::move(p));
  };
  policy<score_with_or_without_queue, decide_with_or_without_queue, just_in_time> whole, no_queue,
      no_prefetch, no_copies_ahead, recompute_first, unhidden, by_distance, all_room, no_swaps;
  no_queue.heuristic.queue = no_queue.decider.queue = false;
  no_prefetch.prefetcher.prefetches = false;
  no_copies_ahead.prefetcher.cleans = false;
  recompute_first.decider.recompute_first = true;
  // As if every copy in were waited for.
  unhidden.heuristic.hidden = unhidden.decider.hidden = 0;
  by_distance.heuristic.distance = 1;
  all_room.prefetcher.reserve = 0;
  no_swaps.heuristic.swaps = no_swaps.decider.swaps = no_swaps.prefetcher.swaps = false;
  f("whole", from_the_second_step(whole));
  f("no queue in the cost", from_the_second_step(no_queue));
  f("no prefetch", from_the_second_step(no_prefetch));
  f("no copies ahead", from_the_second_step(no_copies_ahead));
  f("recompute first", from_the_second_step(recompute_first));
  f("nothing hidden", from_the_second_step(unhidden));
  f("next use, not its root", from_the_second_step(by_distance));
  f("no reserve for recomputing", from_the_second_step(all_room));
  f("no swaps", from_the_second_step(no_swaps));
}

}  // namespace delta::bench
