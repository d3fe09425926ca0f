// delta: the names of the policies that there are, and what each is in one line: for help texts and
// for whoever chooses one at run time. Which types they stand for: presets.hpp and
// peers/peer_presets.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace delta {

/// A preset's name and what it is.
struct preset {
  std::string_view name;
  std::string_view explanation;
};

/// delta's own and the paper's, the baseline first. The names are with_preset's.
inline constexpr std::array<preset, 6> presets{{
    {"unmanaged", "nothing leaves the device; tensors go at their last use (the baseline)"},
    {"paper",
     "1/(m s), c_r <= c_s, FIFO as published, but may release in backward and replays by a plan"},
    {"dtr", "recomputation only, as DTR: cost of the evicted neighbourhood / (m s)"},
    {"online", "per tensor the cheaper of recomputing and swapping, by measured costs and queues"},
    {"learned",
     "by what the step before showed: next uses, what copies hide; copies ahead of time"},
    {"adaptive",
     "the fastest of online, learned and dtr: rehearsed on the last step, then measured"},
}};

/// What others published, and the paper with its other two Filters: to compare with. The names are
/// with_peer's.
inline constexpr std::array<preset, 11> peer_presets{{
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
    {"swap_lru", "swapping only, the least recently used first, reloaded on demand"},
}};

/// All of them, in that order: what make_manager of delta::engine makes.
inline constexpr auto named_policies = [] {
  std::array<preset, presets.size() + peer_presets.size()> all{};
  std::size_t next = 0;
  for (const preset& p : presets) all[next++] = p;
  for (const preset& p : peer_presets) all[next++] = p;
  return all;
}();

}  // namespace delta
