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
    std::uint64_t used = 0;        ///< the agreement, counted over all records, that was its last
    std::uint32_t in_a_row = 0;    ///< so many came in a row, the last time; 0: not known
    std::uint64_t then = 0;        ///< what came after these: its structure,
    std::uint64_t then_exact = 0;  ///< and its sizes
  };

  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(entries_.size());
  }
  [[nodiscard]] entry& operator[](std::uint32_t i) noexcept { return entries_[i]; }
  [[nodiscard]] const entry& operator[](std::uint32_t i) const noexcept { return entries_[i]; }
  [[nodiscard]] std::uint64_t key_of(std::uint32_t i) const noexcept {
    return entries_[i].step.structure();
  }
  /// What comes after the step kept last, and after one like the record `i` if that is next: as
  /// many in a row as last time, then what came then; the same if not known, or more. O(records).
  [[nodiscard]] std::uint32_t next() const noexcept { return after(last_, run_); }
  [[nodiscard]] std::uint32_t behind(std::uint32_t i) const noexcept {
    return after(i, i == last_ ? run_ + 1 : 1);
  }
  /// One step like the record `i` comes next, and then one like the record `next`.
  void expect(std::uint32_t i, std::uint32_t next) noexcept {
    came(i, 1, next);
    last_ = none, run_ = 0;
  }
  /// A step has agreed with that record.
  void agreed(std::uint32_t i) noexcept { entries_[i].used = ++agreements_; }
  /// Keeps an ended step that has operators, in place of an equal record, in a new place, or in
  /// that unused for longest. `step` then holds the old record there: clear it. O(records).
  std::uint32_t keep(step_record& step) {
    const std::uint64_t exact = step.operations.back().exact;
    auto at = std::ranges::find_if(entries_, [&](const entry& e) {
      const auto& o = e.step.operations;
      return o.size() == step.operations.size() && o.back().exact == exact;
    });
    if (at == entries_.end() && entries_.size() < most) at = entries_.emplace(at);
    if (at == entries_.end()) {
      at = std::ranges::min_element(entries_, {}, &entry::used);
      at->in_a_row = 0;
    }
    std::swap(at->step, step);
    const auto place = static_cast<std::uint32_t>(at - entries_.begin());
    agreed(place);
    if (place == last_) {
      ++run_;
    } else {
      if (last_ != none) came(last_, run_, place);
      last_ = place, run_ = 1;
    }
    return place;
  }
  /// Bytes that the records take. O(records).
  [[nodiscard]] std::size_t footprint() const noexcept {
    std::size_t sum = 0;
    for (const entry& e : entries_) sum += e.step.footprint();
    return sum;
  }

 private:
  // So many steps like the record `i` came in a row, then one like the record `next`.
  void came(std::uint32_t i, std::uint32_t run, std::uint32_t next) noexcept {
    entry& e = entries_[i];
    e.in_a_row = run, e.then = key_of(next);
    e.then_exact = entries_[next].step.operations.back().exact;
  }
  [[nodiscard]] std::uint32_t after(std::uint32_t i, std::uint32_t run) const noexcept {
    const entry& e = entries_[i];
    if (run != e.in_a_row) return i;
    // With those sizes, else the one of that structure that was used last.
    std::uint32_t best = none;
    for (std::uint32_t k = 0; k < size(); ++k) {
      if (key_of(k) != e.then) continue;
      if (entries_[k].step.operations.back().exact == e.then_exact) return k;
      if (best == none || entries_[k].used > entries_[best].used) best = k;
    }
    return best == none ? i : best;
  }

  std::vector<entry> entries_;
  std::uint32_t last_ = none, run_ = 0;  // the step kept last, and so many like it in a row
  std::uint64_t agreements_ = 0;
};

}  // namespace delta::detail
