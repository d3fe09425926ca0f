// delta: blocks that the program has taken for itself, and no tensor has yet.
#pragma once

#include <utility>
#include <vector>

#include "delta/units.hpp"

namespace delta::detail {

/// Held in place by the manager, as the program knows their addresses, until they become a tensor's
/// or are given back. A bit per row of the storage's table; O(1) each, but for the storage's part.
template <class Table, class Launcher>
class taken_blocks {
 public:
  taken_blocks(Table& t, Launcher& l) noexcept : table_(&t), kernels_(&l) {}

  /// From now on it is one. Throws std::bad_alloc, and then it is freed.
  void add(block& b) {
    try {
      if (b.index() >= rows_.size()) rows_.resize(b.index() + 1u);
    } catch (...) {
      table_->storage().free(std::move(b));
      throw;
    }
    rows_[b.index()] = true;
    kernels_->hold(b);
  }
  /// It is one no longer, if it was; somebody else holds it from now on, or nobody.
  void hand_over(const block& b) {
    if (b.index() >= rows_.size() || !rows_[b.index()]) return;
    rows_[b.index()] = false;
    kernels_->unhold(b);
  }
  void give_back(block&& b) noexcept {
    if (!b) return;
    hand_over(b);
    table_->storage().free(std::move(b));
  }

 private:
  Table* table_;
  Launcher* kernels_;
  std::vector<bool> rows_;
};

}  // namespace delta::detail
