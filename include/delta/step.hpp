// delta: the record of one training step: its operators, the storages that they touch, and what the
// program did between them. A history keeps one for each kind of step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "delta/kernel.hpp"
#include "delta/units.hpp"

namespace delta {

/// What one step of the program did, in order: its operators, the storages that they touched, and
/// when those were made, used and dropped. Positions are operators, counted from 0, replays not
/// counted. Storages are numbered as first touched, so two steps that begin alike number alike;
/// held ones that were not touched come last. About 100 bytes an operator, 48 a storage, 12 a
/// change.
struct step_record {
  static constexpr std::uint32_t none = 0xffffffffu;

  struct operation {
    std::uint64_t kind = 0;    ///< hash of its name and its numbers of operands
    std::uint64_t key = 0;     ///< hash of its kind and its storages' numbers
    std::uint64_t prefix = 0;  ///< hash of all keys and numbers of outputs up to here
    std::uint64_t exact = 0;   ///< hash of the same and all sizes
    double start = 0;          ///< ns of the operators before it
    double cost = 0;           ///< ns, as last measured
    std::uint64_t live = 0;    ///< bytes that the program holds while it runs, workspace included
    bytes workspace{};         ///< rounded
    std::uint32_t first = 0;   ///< its lists: inputs, updates, outputs
    std::uint32_t inputs = 0, updates = 0, outputs = 0;
    trait traits = trait::pure;
  };
  struct storage {
    bytes size{};               ///< rounded
    std::uint32_t born = none;  ///< the operator that made it; none: it came from outside the step
    std::uint32_t died = none;  ///< the last operator before it was dropped; none: it outlived
    std::uint32_t first_use = 0, uses = 0;  ///< its slice of `uses`
    std::uint32_t again = none;     ///< its first use in the step after this one, as far as known
    std::uint32_t replaces = none;  ///< the input of its operator whose block it has taken over
    std::uint32_t was = none;  ///< its number in the last step of its kind, which used and left it
    tensor_id tensor = tensor_id::none;  ///< its id in the step; another tensor may have it by now
    bool pinned = false;                 ///< both ways
    bool created = false;                ///< the program made it within the step, as a source
    bool dropped = false;                ///< the program dropped it within the step
  };
  /// What the program did between operators to a storage: in the order in which it did so.
  struct change {
    enum class kind : std::uint8_t {
      created,  ///< it made a source
      dropped,  ///< the last reference was dropped
      read,     ///< the host looked at it
      written   ///< the host wrote it
    };
    std::uint32_t at = 0;  ///< before that operator; the step's length: behind the last one
    std::uint32_t storage = 0;
    kind what = kind::created;
  };

  std::vector<operation> operations;
  std::vector<storage> storages;
  std::vector<std::uint32_t> lists;  ///< of the operations: storages
  std::vector<std::uint32_t> uses;   ///< of the storages: positions, ascending, each once
  std::vector<change> changes;
  double time = 0;            ///< ns of all operators
  std::uint64_t peak = 0;     ///< the most of `live`, in bytes
  std::uint32_t peak_at = 0;  ///< and the first operator with that

  /// How many operators.
  [[nodiscard]] std::uint32_t length() const noexcept {
    return static_cast<std::uint32_t>(operations.size());
  }
  /// What it read and updated; what it made.
  [[nodiscard]] std::span<const std::uint32_t> touched(const operation& o) const noexcept {
    return std::span(lists).subspan(o.first, std::size_t{o.inputs} + o.updates);
  }
  [[nodiscard]] std::span<const std::uint32_t> outputs(const operation& o) const noexcept {
    return std::span(lists).subspan(std::size_t{o.first} + o.inputs + o.updates, o.outputs);
  }
  /// Identifies its structure, whatever the sizes: the last prefix; 0: it has no operators. O(1).
  [[nodiscard]] std::uint64_t structure() const noexcept {
    return operations.empty() ? 0 : operations.back().prefix;
  }
  /// True if it was there before the step.
  [[nodiscard]] bool was_there(std::size_t which) const noexcept {
    return storages[which].born == none && !storages[which].created;
  }
  /// What it takes of the machine's memory, in bytes. O(1).
  [[nodiscard]] std::size_t footprint() const noexcept {
    return operations.capacity() * sizeof(operation) + storages.capacity() * sizeof(storage) +
           (lists.capacity() + uses.capacity()) * sizeof(std::uint32_t) +
           changes.capacity() * sizeof(change);
  }
  /// Empty, but it keeps its memory.
  void clear() noexcept {
    operations.clear(), storages.clear(), lists.clear(), uses.clear(), changes.clear();
    time = 0, peak = 0, peak_at = 0;
  }

  /// Fills in what follows from the operations: starts, uses, peak. O(record).
  void finish() {
    for (storage& s : storages) s.uses = 0;
    for (const operation& o : operations)
      for (const std::uint32_t s : touched(o)) ++storages[s].uses;
    std::uint32_t next = 0;
    for (storage& s : storages) {
      s.first_use = next;
      next += s.uses;
      s.uses = 0;
    }
    uses.resize(next);
    time = 0, peak = 0, peak_at = 0;
    for (std::uint32_t i = 0; i < length(); ++i) {
      operation& o = operations[i];
      o.start = time;
      time += o.cost;
      if (o.live > peak) peak = o.live, peak_at = i;
      for (const std::uint32_t s : touched(o)) {
        storage& x = storages[s];
        const bool again = x.uses > 0 && uses[x.first_use + x.uses - 1] == i;  // named twice
        if (!again) uses[x.first_use + x.uses++] = i;
      }
    }
  }
};

}  // namespace delta
