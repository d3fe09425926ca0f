// delta: what others published, and the paper's other Filters, by name: to compare presets with.
// The names are in policy_names.hpp.
#pragma once

#include <string_view>
#include <utility>

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

/// Calls `f` with the peer's policy of that name; false when there is none. Throws what `f` throws.
/// Apart from with_preset, as each instantiates a manager.
template <class F>
bool with_peer(std::string_view name, F&& f) {
  if (name == "paper-lru") return std::forward<F>(f)(paper_lru()), true;
  if (name == "paper-greedy") return std::forward<F>(f)(paper_greedy()), true;
  if (name == "vdnn") return std::forward<F>(f)(vdnn()), true;
  if (name == "superneurons") return std::forward<F>(f)(superneurons()), true;
  if (name == "capuchin") return std::forward<F>(f)(capuchin()), true;
  if (name == "chen") return std::forward<F>(f)(chen()), true;
  if (name == "swap_lru") return std::forward<F>(f)(swap_lru()), true;
  return false;
}

}  // namespace delta
