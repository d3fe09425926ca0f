// delta: what a policy answers with, how a tensor leaves and comes back, and what it says that its
// answers are made from.
#pragma once

#include <cstdint>

namespace delta {

/// How a tensor leaves the device (Algorithm 3); `keep`: not asked again in this reservation.
enum class action : std::uint8_t { evict, offload, keep };
/// How a tensor on the host comes back (Algorithm 1, lines 4 to 8).
enum class restoration : std::uint8_t { recompute, reload };

/// What an answer may be made from, by the members of context that tell it. The costs are those of
/// the tensor asked about.
enum class quantity : std::uint16_t {
  none = 0,
  bytes = 1,               ///< bytes
  recompute_cost = 2,      ///< recompute_cost, can_recompute
  neighbourhood_cost = 4,  ///< neighbourhood_cost
  copy_cost = 8,           ///< copy_cost, rate
  swap_cost = 16,          ///< swap_cost, is_clean, can_offload
  exposed_swap_cost = 32,  ///< exposed_swap_cost, reload_cost, backlog
  staleness = 64,          ///< staleness; of scores alone, as no weight may read it
  everything = 0xffff      ///< these, and whatever else a context tells
};
/// Either's.
constexpr quantity operator|(quantity a, quantity b) noexcept {
  return static_cast<quantity>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
/// True if all of `what` is among `q`.
constexpr bool covers(quantity q, quantity what) noexcept {
  return (static_cast<unsigned>(q) & static_cast<unsigned>(what)) == static_cast<unsigned>(what);
}
namespace detail {
/// True if anything of `what` is among `q`.
constexpr bool touches(quantity q, quantity what) noexcept {
  return (static_cast<unsigned>(q) & static_cast<unsigned>(what)) != 0;
}
}  // namespace detail

}  // namespace delta
