// delta: where a tensor's bytes are, and what may be done with them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "delta/units.hpp"

namespace delta {

/// Where a tensor's bytes are: one state instead of the paper's flags evicted, onGPU and swapout
/// (repairs P-21). "Clean" (a valid host copy beside the device's) is resident with a slab.
enum class residency : std::uint8_t {
  resident,    ///< on the device
  offloading,  ///< on the device, a copy out under way, after which the device bytes go
  host,        ///< on the host only
  reloading,   ///< on the host, a copy in under way
  evicted,     ///< nowhere; its producer can make it again
  dead         ///< nowhere and not wanted; its record stays while something is recomputed from it
};
namespace detail {
inline constexpr std::size_t residency_count = 6;
}

/// The state as a word, for messages and tests: "resident", "offloading" and so on.
constexpr std::string_view name(residency r) noexcept {
  constexpr std::array<std::string_view, detail::residency_count> names{
      "resident", "offloading", "host", "reloading", "evicted", "dead"};
  return names[static_cast<std::size_t>(r)];
}

/// What the host does with the bytes of a tensor that it acquires: look, or make a new version.
enum class access : std::uint8_t { read, write };

/// What may not happen to a tensor, by the user's word (the paper's evict_pinned, offload_pinned;
/// both: it stays, repairs P-2; manager::forbid). Without a producer none is evicted (P-3).
enum class pin : std::uint8_t { none = 0, evict = 1, offload = 2, both = 3 };

/// All that either forbids.
constexpr pin operator|(pin a, pin b) noexcept {
  return static_cast<pin>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
/// What both forbid.
constexpr pin operator&(pin a, pin b) noexcept {
  return static_cast<pin>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
/// True if `p` forbids all that `what` forbids.
constexpr bool covers(pin p, pin what) noexcept {
  return (static_cast<unsigned>(p) & static_cast<unsigned>(what)) == static_cast<unsigned>(what);
}

}  // namespace delta
