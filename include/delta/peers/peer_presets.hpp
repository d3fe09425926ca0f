// delta: the peers' published rules by name, to compare presets with.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "delta/peers/peers.hpp"
#include "delta/presets.hpp"

namespace delta {

/// Peers' published rules (peers.hpp). The names are with_peer's.
inline constexpr std::array<preset, 5> peer_presets{{
    {"vdnn", "vDNN: inputs of convolutions are offloaded at once, and back in reverse order"},
    {"superneurons", "SuperNeurons: offloads convolutions and products, recomputes the rest; LRU"},
    {"capuchin", "Capuchin: plans from one measured step: hidden swaps, then recomputation"},
    {"chen", "recomputation from every sqrt(n)-th operator's outputs, as Chen et al."},
    {"swap_lru", "swapping only, the least recently used first, reloaded on demand"},
}};

/// Calls `f` with the peer's policy of that name; false when there is none. Throws what `f` throws.
/// Apart from with_preset, as each instantiates a manager.
template <class F>
bool with_peer(std::string_view name, F&& f) {
  if (name == "vdnn") return std::forward<F>(f)(vdnn()), true;
  if (name == "superneurons") return std::forward<F>(f)(superneurons()), true;
  if (name == "capuchin") return std::forward<F>(f)(capuchin()), true;
  if (name == "chen") return std::forward<F>(f)(chen()), true;
  if (name == "swap_lru") return std::forward<F>(f)(swap_lru()), true;
  return false;
}

}  // namespace delta
