// delta: what others have published, as compositions of the three roles, for comparison with the
// same manager on the same machine. Each keeps its paper's rule for what leaves, how and when; what
// it leaves aside is said with it. Where memory is short and a rule has nothing more to give, the
// manager takes the other way out, as for every policy.
//
//   vdnn            Rhu et al. 2016     inputs of convolutions go to the host at once
//   superneurons    Wang et al. 2018    by layer: convolutions go to the host, others do not
//   capuchin        Peng et al. 2020    one step is measured, the next ones are planned
//   chen            Chen et al. 2016    every sqrt(n)-th operator's outputs stay
//   swap_lru        -                   swapping alone, the least recently used first
#pragma once

#include "delta/concepts.hpp"
#include "delta/peers/capuchin.hpp"
#include "delta/peers/chen.hpp"
#include "delta/peers/superneurons.hpp"
#include "delta/peers/swap_lru.hpp"
#include "delta/peers/vdnn.hpp"

namespace delta {

static_assert(Heuristic<convolution_inputs_first> && Heuristic<planned_first> &&
              Heuristic<sqrt_segments>);
static_assert(Decider<by_layer> && Decider<planned_way>);
static_assert(Prefetcher<reverse_prefetch> && Prefetcher<convolution_inputs_out> &&
              Prefetcher<in_triggers>);

}  // namespace delta
