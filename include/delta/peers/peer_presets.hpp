// delta: what others published, and the paper's other Filters, by name: to compare presets with.
// The names are in policy_names.hpp.
#pragma once

#include <string_view>

#include "delta/peers/peers.hpp"
#include "delta/policy_names.hpp"
#include "delta/presets.hpp"

namespace delta {

/// The paper's policy with its equation (2) or (3) as the Filter: what its comparison of Filters
/// compares.
inline policy<lru, paper_ratio, fifo_prefetch> paper_lru() {
  return {};
}
inline policy<greedy, paper_ratio, fifo_prefetch> paper_greedy() {
  return {};
}

namespace detail {

/// The peers that leave alone what outlives a step, as published; as with_peer. Apart from the
/// others, so that delta::engine compiles each half in a unit of its own.
template <class F>
bool with_activations_peer(std::string_view name, F& f) {
  if (name == "paper-lru") return f(paper_lru()), true;
  if (name == "paper-greedy") return f(paper_greedy()), true;
  if (name == "vdnn") return f(vdnn()), true;
  if (name == "superneurons") return f(superneurons()), true;
  if (name == "capuchin") return f(capuchin()), true;
  if (name == "chameleon") return f(chameleon()), true;
  if (name == "chen") return f(chen()), true;
  if (name == "swap_lru") return f(swap_lru()), true;
  return false;
}
/// The peers whose rules move parameters or optimizer state, too.
template <class F>
bool with_parameters_peer(std::string_view name, F& f) {
  if (name == "zero_offload") return f(zero_offload()), true;
  if (name == "l2l") return f(l2l()), true;
  if (name == "swapadvisor") return f(swapadvisor()), true;
  return false;
}

}  // namespace detail

/// Calls `f` with the peer's policy of that name; false when there is none. Throws what `f` throws.
/// Apart from with_preset, as each instantiates a manager.
template <class F>
bool with_peer(std::string_view name, F&& f) {
  return detail::with_activations_peer(name, f) || detail::with_parameters_peer(name, f);
}

}  // namespace delta
