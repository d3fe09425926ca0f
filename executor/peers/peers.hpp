// delta executor: what others have published, as compositions of the three roles, for comparison
// with the same manager on the same machine. Each keeps its paper's rule for what leaves, how and
// when; what it leaves aside is said with it. Where memory is short and a rule has nothing more to
// give, the manager takes the other way out, as for every policy.
//
//   paper-strict    Tang et al. 2022    the paper, with nothing released in the backward pass
//   paper-lru, -greedy                  the paper with its other two Filters
//   vdnn            Rhu et al. 2016     inputs of convolutions go to the host at once
//   superneurons    Wang et al. 2018    by layer: convolutions go to the host, others do not
//   capuchin        Peng et al. 2020    one step is measured, the next ones are planned
//   chameleon       arXiv 2509.11076    the same by swaps alone
//   chen            Chen et al. 2016    every sqrt(n)-th operator's outputs stay
//   zero_offload    Ren et al. 2021     optimizer state and gradients are on the host
//   l2l             Pudipeddi 2020      layer by layer: parameters come for their layer
//   swapadvisor     Huang et al. 2020   a plan of swaps by a genetic search
//
// What others plan by solvers is a plan that `follow` carries out (offline_plan.hpp).
#pragma once

#include <string_view>

#include "delta/concepts.hpp"
#include "delta/presets.hpp"
#include "peers/capuchin.hpp"
#include "peers/chameleon.hpp"
#include "peers/chen.hpp"
#include "peers/l2l.hpp"
#include "peers/superneurons.hpp"
#include "peers/swapadvisor.hpp"
#include "peers/vdnn.hpp"
#include "peers/zero_offload.hpp"

namespace delta::executor {

static_assert(Policy<decltype(vdnn())> && Policy<decltype(superneurons())> &&
              Policy<decltype(chen())> && Policy<planned_swaps<swap_plan>> &&
              Policy<planned_swaps<swaps_only_plan>> && Policy<zero_offload_policy> &&
              Policy<l2l_policy> && Policy<swapadvisor_policy>);

/// The paper's policy with its Assumption 2 kept: nothing is released in the backward pass (repairs
/// P-7), so more runs end in budget_exceeded.
inline policy<base, paper_director, fifo_prefetch> paper_strict() {
  return {{}, {.strict = true}, {}};
}
/// The paper's policy with its equation (2) or (3) as the Filter: what its comparison of Filters
/// compares.
inline policy<lru, paper_director, fifo_prefetch> paper_lru() {
  return {};
}
inline policy<greedy, paper_director, fifo_prefetch> paper_greedy() {
  return {};
}

/// Calls `f` with the peer's policy of that name (peer_names.hpp) that leaves alone what outlives a
/// step; false when there is none. `f` is generic, as each policy is a type of its own. Throws what
/// `f` throws.
template <class F>
bool with_activations_peer(std::string_view name, F&& f) {
  if (name == "paper-strict") return f(paper_strict()), true;
  if (name == "paper-lru") return f(paper_lru()), true;
  if (name == "paper-greedy") return f(paper_greedy()), true;
  if (name == "vdnn") return f(vdnn()), true;
  if (name == "superneurons") return f(superneurons()), true;
  if (name == "capuchin") return f(capuchin()), true;
  if (name == "chameleon") return f(chameleon()), true;
  if (name == "chen") return f(chen()), true;
  return false;
}
/// The same of the peers whose rules move parameters or optimizer state, too: apart, as each half
/// is compiled in a unit of its own.
template <class F>
bool with_parameters_peer(std::string_view name, F&& f) {
  if (name == "zero_offload") return f(zero_offload()), true;
  if (name == "l2l") return f(l2l()), true;
  if (name == "swapadvisor") return f(swapadvisor()), true;
  return false;
}

}  // namespace delta::executor
