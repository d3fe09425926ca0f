// delta: what others have published, as compositions of the three roles, for comparison with the
// same manager on the same machine. Each keeps its paper's rule for what leaves, how and when; what
// it leaves aside is said with it. Where memory is short and a rule has nothing more to give, the
// manager takes the other way out, as for every policy.
//
//   vdnn            Rhu et al. 2016     inputs of convolutions go to the host at once
//   superneurons    Wang et al. 2018    by layer: convolutions go to the host, others do not
//   capuchin        Peng et al. 2020    one step is measured, the next ones are planned
//   chameleon       arXiv 2509.11076    the same by swaps alone
//   chen            Chen et al. 2016    every sqrt(n)-th operator's outputs stay
//   zero_offload    Ren et al. 2021     optimizer state and gradients are on the host
//   l2l             Pudipeddi 2020      layer by layer: parameters come for their layer
//   swapadvisor     Huang et al. 2020   a plan of swaps by a genetic search
//   swap_lru        -                   swapping alone, the least recently used first
//
// What others plan by solvers is a plan that `follow` carries out (offline_plan.hpp).
#pragma once

#include "delta/concepts.hpp"
#include "delta/peers/capuchin.hpp"
#include "delta/peers/chameleon.hpp"
#include "delta/peers/chen.hpp"
#include "delta/peers/l2l.hpp"
#include "delta/peers/offline_plan.hpp"
#include "delta/peers/superneurons.hpp"
#include "delta/peers/swap_lru.hpp"
#include "delta/peers/swapadvisor.hpp"
#include "delta/peers/vdnn.hpp"
#include "delta/peers/zero_offload.hpp"

namespace delta {

static_assert(Heuristic<convolution_inputs_first> && Heuristic<planned_first<detail::swap_plan>> &&
              Heuristic<sqrt_segments> && Heuristic<optimizer_operands_first> &&
              Heuristic<far_layers_first> && Heuristic<searched_first>);
static_assert(Decider<by_layer> && Decider<planned_way<detail::swap_plan>> && Decider<by_border>);
static_assert(Prefetcher<reverse_prefetch> && Prefetcher<convolution_inputs_out> &&
              Prefetcher<in_triggers<detail::swap_plan>> && Prefetcher<optimizer_operands_out> &&
              Prefetcher<layer_by_layer> && Prefetcher<searched_swaps>);

}  // namespace delta
