// delta: the records of the steps that were seen, as many as are kept, found by their structure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "delta/step.hpp"

namespace delta::detail {

/// Different steps, each once; where there are too many, the least recently used makes room.
class kept_steps {
 public:
  static constexpr std::size_t most = 32;
  static constexpr std::uint32_t none = step_record::none;

  struct entry {
    step_record step;
    std::uint64_t used = 0;   ///< the agreement, counted over all records, that was its last
    std::uint64_t after = 0;  ///< the structure of the step that came after it; 0: not known
  };

  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(entries_.size());
  }
  [[nodiscard]] entry& operator[](std::uint32_t i) noexcept { return entries_[i]; }
  [[nodiscard]] const entry& operator[](std::uint32_t i) const noexcept { return entries_[i]; }
  [[nodiscard]] std::uint64_t key_of(std::uint32_t i) const noexcept {
    return entries_[i].step.structure();
  }
  /// The record of that structure that was used last; `rather`, a record, where that has it, too,
  /// or none has. O(records).
  [[nodiscard]] std::uint32_t like(std::uint64_t key, std::uint32_t rather) const noexcept {
    if (key_of(rather) == key) return rather;
    std::uint32_t best = none;
    for (std::uint32_t i = 0; i < size(); ++i)
      if (key_of(i) == key && (best == none || entries_[i].used > entries_[best].used)) best = i;
    return best == none ? rather : best;
  }
  /// A step has agreed with that record.
  void agreed(std::uint32_t i) noexcept { entries_[i].used = ++agreements_; }
  /// Keeps a step that has ended and has operators; `step` holds the record of that place then, for
  /// its memory: clear it. The place is that of a record just like it, else a new one, else the one
  /// that was of no use for longest. O(records), and its length where it is the first in its place.
  std::uint32_t keep(step_record& step) {
    const std::uint64_t exact = step.operations.back().exact;
    std::uint32_t place = none;
    for (std::uint32_t i = 0; i < size() && place == none; ++i) {
      const auto& o = entries_[i].step.operations;
      if (o.size() == step.operations.size() && o.back().exact == exact) place = i;
    }
    if (place == none && entries_.size() < most) {
      place = size();
      entries_.emplace_back();
    }
    if (place == none)
      place = static_cast<std::uint32_t>(std::ranges::min_element(entries_, {}, &entry::used) -
                                         entries_.begin());
    step_record& kept = entries_[place].step;
    const bool grown = kept.operations.empty();
    std::swap(kept, step);
    if (grown) kept.fit(), step.reserve_like(kept);
    agreed(place);
    return place;
  }
  /// Bytes that the records take. O(records).
  [[nodiscard]] std::size_t footprint() const noexcept {
    std::size_t sum = 0;
    for (const entry& e : entries_) sum += e.step.footprint();
    return sum;
  }

 private:
  std::vector<entry> entries_;
  std::uint64_t agreements_ = 0;
};

}  // namespace delta::detail
