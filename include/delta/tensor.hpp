// delta: the tensor record and the one state that says where its bytes are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "delta/units.hpp"

namespace delta {

/// Where a tensor's bytes are. One state instead of the paper's flags evicted, onGPU and swapout,
/// which can contradict each other (repairs P-21). "Clean" (a valid host copy exists beside the
/// device's) is resident with a slab.
enum class residency : std::uint8_t {
  resident,    ///< on the device
  offloading,  ///< on the device, a copy out under way, after which the device bytes go
  host,        ///< on the host only
  reloading,   ///< on the host, a copy in under way
  evicted,     ///< nowhere; its producer can make it again
  dead         ///< nowhere and not wanted; its record stays while something is recomputed from it
};
inline constexpr std::size_t residency_count = 6;

/// The state as a word, for messages and tests: "resident", "offloading" and so on.
constexpr std::string_view name(residency r) noexcept {
  constexpr std::array<std::string_view, residency_count> names{"resident",  "offloading", "host",
                                                                "reloading", "evicted",    "dead"};
  return names[static_cast<std::size_t>(r)];
}

/// The legal transitions; everything else is a bug in the manager. `residency_table::become`, the
/// only place that changes a state, asserts them; a test goes through all pairs.
///
///   from \ to     resident   offloading host       reloading  evicted    dead
inline constexpr std::array<std::array<bool, residency_count>, residency_count> legal_transitions{{
    /* resident   */ {false, true, true, false, true, true},  // offload, drop of a clean one, evict
    /* offloading */ {true, false, true, false, false, true},   // used meanwhile, done, dropped
    /* host       */ {true, false, false, true, true, true},    // reload on demand or recompute
    /* reloading  */ {true, false, false, false, false, true},  // arrived
    /* evicted    */ {true, false, false, false, false, true},  // recomputed
    /* dead       */ {true, false, false, false, false, false}  // recomputed for a descendant
}};

/// Is `from` -> `to` in the table? No state goes to itself. O(1), at compile time too.
constexpr bool legal(residency from, residency to) noexcept {
  return legal_transitions[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

/// What the host does with the bytes of a tensor that it acquires: look, or make a new version.
enum class access : std::uint8_t { read, write };

/// What may not happen to a tensor, by the user's word (the paper's evict_pinned and
/// offload_pinned; both: it stays, repairs P-2). A tensor without a producer can't be evicted
/// whatever its pin is (P-3). See manager::forbid.
enum class pin : std::uint8_t { none = 0, evict = 1, offload = 2, both = 3 };

/// All that either forbids.
constexpr pin operator|(pin a, pin b) noexcept {
  return static_cast<pin>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
/// What both forbid.
constexpr pin operator&(pin a, pin b) noexcept {
  return static_cast<pin>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
/// Does `p` forbid all that `what` forbids?
constexpr bool covers(pin p, pin what) noexcept {
  return (static_cast<unsigned>(p) & static_cast<unsigned>(what)) == static_cast<unsigned>(what);
}

/// The record of one managed tensor: one storage's bytes, shared by its views (repairs P-19). The
/// graph owns the records, the residency table changes them; policies see them through a context.
/// `where` says which of the two tokens are set.
struct tensor {
  /// No place in a list: of `planned` and of `edges`.
  static constexpr std::uint32_t nowhere = 0xffffffffu;
  /// A closure's cost that has to be asked for; no cost is negative.
  static constexpr double unknown = -1.0;

  bytes size{};            ///< as asked for
  bytes footprint{};       ///< as the storage counts it
  block device;            ///< while resident (a copy under way owns it otherwise)
  slab host;               ///< while host, or clean
  const char* label = "";  ///< the operator that made it, or what the program called it
  operator_id producer = operator_id::none;  ///< none: uncomputable (a variable, or closure lost)
  std::uint32_t references = 0;              ///< the program's: handles and views
  std::uint32_t locks = 0;                   ///< operators, plans and views that use it now
  std::uint32_t wanted = 0;                  ///< restores under way that will read it
  mutable double cost = unknown;    ///< of its closure, or a lower bound, where the graph keeps it
  std::uint64_t passed_over = 0;    ///< reservation in which it must not be asked about again
  std::uint32_t planned = nowhere;  ///< its row in the plan under way
  std::uint32_t edges = nowhere;    ///< the first of those to its readers (`graph`)
  mutable std::uint32_t mark = 0;   ///< last walk that visited it
  residency where = residency::dead;
  pin pinned = pin::none;
  bool in_use = false;      ///< the record stands for a tensor (else it waits to be recycled)
  bool persistent = false;  ///< a variable: lives across steps
  bool fresh = false;       ///< came back early and was not used yet (repairs P-26)
  bool listed = false;      ///< among the candidates, or cached
  bool weighed = false;     ///< whoever keeps weights has this tensor's
  bool copying = false;     ///< resident, and its host copy is still being made
  bool cached = false;      ///< dropped, and its bytes are kept while there is room
  /// How far `cost` was looked for: 4^reach records; `all_of_it`: it is exact.
  mutable std::uint8_t reach = 0;
  static constexpr std::uint8_t all_of_it = 255;
  std::uint16_t holds = 0;  ///< views and open operators that have shown its address

  /// Is there a record that makes it again, and is it no variable, which is not to be made again?
  [[nodiscard]] bool recomputable() const noexcept {
    return producer != operator_id::none && !persistent;
  }
};

/// Does the device hold its bytes (perhaps with a copy of them under way)? While reloading it holds
/// the block that they come to: memory is taken, and an operator may be ordered behind the copy.
constexpr bool on_device(residency r) noexcept {
  return r == residency::resident || r == residency::offloading || r == residency::reloading;
}

}  // namespace delta
