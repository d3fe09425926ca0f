// delta: the records of tensors and of operators, and which changes of a residency are legal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "delta/kernel.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta::detail {

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

/// True if `from` -> `to` is in the table. No state goes to itself. O(1), at compile time too.
constexpr bool legal(residency from, residency to) noexcept {
  return legal_transitions[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

/// True if the device holds its bytes, perhaps with a copy of them under way. While reloading it
/// holds their block: memory is taken, and an operator may be ordered behind the copy.
constexpr bool on_device(residency r) noexcept {
  return r == residency::resident || r == residency::offloading || r == residency::reloading;
}

/// The record of one managed tensor: one storage's bytes, shared by its views (repairs P-19). The
/// graph owns it, the residency table changes it. `where` says which of the two tokens are set.
struct tensor_record {
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
  std::uint32_t restore_references = 0;      ///< restores under way that will read it
  mutable double cost = unknown;    ///< of its closure, or a lower bound, where the graph keeps it
  std::uint64_t skipped_in = 0;     ///< reservation in which it must not be asked about again
  std::uint32_t planned = nowhere;  ///< its row in the plan under way
  std::uint32_t edges = nowhere;    ///< the first of those to its readers (`graph`)
  mutable std::uint32_t mark = 0;   ///< last walk that visited it
  residency where = residency::dead;
  pin pinned = pin::none;
  bool in_use = false;      ///< the record stands for a tensor (else it waits to be recycled)
  bool persistent = false;  ///< a variable: lives across steps
  bool prefetched_unused = false;  ///< came back early and was not used yet (repairs P-26)
  bool is_candidate = false;       ///< among the candidates, or cached
  bool has_score = false;          ///< whoever keeps weights has this tensor's
  bool copying = false;            ///< resident, and its host copy is still being made
  bool cached = false;             ///< dropped, and its bytes are kept while there is room
  /// How far `cost` was looked for: 4^reach records; `all_of_it`: it is exact.
  mutable std::uint8_t reach = 0;
  static constexpr std::uint8_t all_of_it = 255;
  std::uint16_t holds = 0;  ///< views and open operators that have shown its address

  /// True if a record makes it again, and it is no variable, which is not to be made again.
  [[nodiscard]] bool recomputable() const noexcept {
    return producer != operator_id::none && !persistent;
  }
  /// Variables lie apart from what comes and goes within a step.
  [[nodiscard]] lifetime expected() const noexcept {
    return persistent ? lifetime::persistent : lifetime::transient;
  }
};

/// The bytes of a tensor are nowhere: evicted, or gone with the tensor.
[[nodiscard]] inline bool missing(const tensor_record& r) noexcept {
  return !on_device(r.where) && r.where != residency::host;
}

/// An input whose block an output of the same operator has taken over: its bytes are in that
/// output's block, until the kernel writes them.
struct replaced_input {
  tensor_id tensor;
  std::size_t output;  ///< its place
};

/// The record of one operator that may have to run again. Records exist only where the policy may
/// evict: without that nothing is ever replayed, and no kernel is stored.
struct operator_record {
  kernel replay;                   ///< makes all outputs again
  bytes workspace{};               ///< as asked for
  nanoseconds cost{};              ///< as measured last, or a prior, or a guess
  std::uint64_t sequence = 0;      ///< its number in the program's order
  const char* name = "";           ///< for errors and timelines
  mutable std::uint32_t mark = 0;  ///< last walk that visited it
  std::uint16_t replays = 0;       ///< in this step
  trait traits = trait::pure;      ///< what the replay must respect
  bool guessed : 1 = false;        ///< its cost is a guess (guessed_costs.hpp)
  bool in_use : 1 = false;  ///< the record stands for an operator (else it waits to be recycled)
  /// No answer that is kept depends on this record as an ancestor; or as a descendant. The same of
  /// answers that are exact.
  mutable bool swept_down : 1 = true, swept_up : 1 = true;
  mutable bool grown_down : 1 = true, grown_up : 1 = true;

 private:
  friend class graph;
  bool updating_ : 1 = false;  // there are updates
  // Inputs, outputs, one behind the other. Updates are seldom: how many they are, and they, follow
  // only where there are any.
  std::uint32_t lists_ = 0;
  std::uint32_t edges_ = 0;  // of the inputs
  std::uint32_t inputs_ = 0, outputs_ = 0;
};
static_assert(sizeof(void*) != 8 || sizeof(operator_record) <= 96, "there may be a million");

}  // namespace delta::detail
