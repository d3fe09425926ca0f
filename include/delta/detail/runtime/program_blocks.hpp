// delta: the blocks that the program has taken by `take_block`, and that no tensor has yet.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "delta/units.hpp"

namespace delta::detail {

/// Held in place by the manager, as the program knows their addresses, until they become a tensor's
/// or are given back. A number per row of the storage's table; O(1) each, but for the storage's
/// part.
template <class Table, class Launcher>
class program_blocks {
 public:
  program_blocks(Table& t, Launcher& l) noexcept : table_(&t), kernels_(&l) {}

  /// From now on it is one. Throws std::bad_alloc, and then it is freed.
  void add(block& b) {
    try {
      if (b.index() >= rows_.size()) rows_.resize(b.index() + 1u);
      kernels_->cover_late_frees(b);
    } catch (...) {
      table_->storage().free(std::move(b));
      throw;
    }
    rows_[b.index()] = 1 + kernels_->bracket();
    kernels_->hold(b);
  }
  /// It is one no longer, if it was; somebody else holds it from now on, or nobody.
  void hand_over(const block& b) {
    if (!has(b.index())) return;
    rows_[b.index()] = 0;
    kernels_->unhold(b);
  }
  /// The same where the block is somebody's already, who is known by its row.
  void hand_over(std::uint32_t row) { hand_over(block{row}); }
  /// Frees it, behind all that was launched so far. What is none of them stays as it is: it is
  /// somebody's by now.
  void give_back(block&& b) noexcept {
    block mine = std::move(b);
    if (!has(mine.index())) return;
    // The storage orders what was allocated in the bracket that is open behind it by itself.
    const bool ordered = kernels_->bracket() > 0 && rows_[mine.index()] == 1 + kernels_->bracket();
    hand_over(mine);
    if (ordered) return table_->storage().free(std::move(mine));
    kernels_->free_behind_launches(std::move(mine));
  }
  /// The manager goes: it holds none of them any more.
  void let_go() {
    for (std::uint32_t row = 0; row < rows_.size(); ++row) hand_over(row);
  }

 private:
  [[nodiscard]] bool has(std::uint32_t row) const noexcept {
    return row < rows_.size() && rows_[row] > 0;
  }

  Table* table_;
  Launcher* kernels_;
  std::vector<std::uint64_t> rows_;  // 0: none of them; else 1 + the bracket it was taken in
};

}  // namespace delta::detail
