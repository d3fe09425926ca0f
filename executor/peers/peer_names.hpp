// delta executor: the names of the published policies that delta is compared with, and of all
// policies that the tools take: these and delta's own (delta/policy_names.hpp).
#pragma once

#include <algorithm>
#include <array>

#include "delta/policy_names.hpp"

namespace delta::executor {

/// What others published, and the paper as published and with its other two Filters (peers.hpp).
inline constexpr std::array<preset, 11> peer_policies{{
    {"paper-strict", "the paper, with nothing released in the backward pass"},
    {"paper-lru", "the paper with the Filter LRU: the least recently used leaves first"},
    {"paper-greedy", "the paper with the Filter Greedy: the largest leaves first"},
    {"vdnn", "vDNN: inputs of convolutions are offloaded at once, and back in reverse order"},
    {"superneurons", "SuperNeurons: offloads convolutions and products, recomputes the rest; LRU"},
    {"capuchin", "Capuchin: plans from one measured step: hidden swaps, then recomputation"},
    {"chameleon", "Chameleon: swaps alone, planned from each sequence of operators that is seen"},
    {"chen", "recomputation from every sqrt(n)-th operator's outputs, as Chen et al."},
    {"zero_offload",
     "ZeRO-Offload: optimizer state and gradients are on the host until their update"},
    {"l2l",
     "L2L: layer by layer: parameters come for their layer; borders offloaded, the rest anew"},
    {"swapadvisor", "SwapAdvisor: a plan of swaps by a genetic search over one recorded step"},
}};

/// delta's own, then these: what `make_any_manager` makes.
inline constexpr auto all_policies = [] {
  std::array<preset, named_policies.size() + peer_policies.size()> all{};
  std::ranges::copy(peer_policies, std::ranges::copy(named_policies, all.begin()).out);
  return all;
}();

}  // namespace delta::executor
