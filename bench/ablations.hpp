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

/// Copies out are taken to begin at once.
struct score_without_queue : exposed_cost {
  double score(const context& c, tensor_id t) const noexcept {
    const forecast f = c.next_use(t);
    const double d = f.what == forecast::kind::known ? std::max(f.in, 1.0) : c.staleness(t);
    const double swap = c.can_offload(t) ? reload(c, t, f) : never;
    const double least =
        f.what == forecast::kind::never ? 0.0 : std::min(c.recompute_cost(t), swap);
    return least / (c.bytes(t) * std::pow(d, distance));
  }
};
struct decide_without_queue : least_exposed {
  action decide(const context& c, tensor_id t) const {
    const double swap = c.can_offload(t) ? reload(c, t, c.next_use(t)) : never;
    return c.recompute_cost(t) <= swap ? action::evict : action::offload;
  }
};
/// What can be recomputed never comes back from the host, as the paper has it.
struct recompute_first : least_exposed {
  restoration restore(const context& c, tensor_id t) const noexcept {
    return c.can_recompute(t) ? restoration::recompute : restoration::reload;
  }
};
/// As if every copy in were waited for.
struct score_unhidden : exposed_cost {
  score_unhidden() noexcept { hidden = 0; }
};
struct decide_unhidden : least_exposed {
  decide_unhidden() noexcept { hidden = 0; }
};

/// Calls `f(name, policy)` for the whole and for each of its parts left out. The first step is
/// decided as by `adaptive`, the others as said.
template <class F>
void for_each_ablation(F&& f) {
  const auto from_the_second_step = [](auto p) {
    return switching(always{1}, online(), std::move(p));
  };
  policy<exposed_cost, least_exposed, timely> whole, no_prefetch, no_copies_ahead, by_distance,
      all_room, no_swaps;
  no_prefetch.prefetcher.prefetches = false;
  no_copies_ahead.prefetcher.cleans = false;
  by_distance.heuristic.distance = 1;
  all_room.prefetcher.reserve = 0;
  no_swaps.heuristic.swaps = no_swaps.decider.swaps = no_swaps.prefetcher.swaps = false;
  f("whole", from_the_second_step(whole));
  f("no queue in the cost",
    from_the_second_step(policy<score_without_queue, decide_without_queue, timely>{}));
  f("no prefetch", from_the_second_step(no_prefetch));
  f("no copies ahead", from_the_second_step(no_copies_ahead));
  f("recompute first", from_the_second_step(policy<exposed_cost, recompute_first, timely>{}));
  f("nothing hidden", from_the_second_step(policy<score_unhidden, decide_unhidden, timely>{}));
  f("next use, not its root", from_the_second_step(by_distance));
  f("no reserve for recomputing", from_the_second_step(all_room));
  f("no swaps", from_the_second_step(no_swaps));
}

}  // namespace delta::bench
