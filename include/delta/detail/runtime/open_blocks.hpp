// delta: blocks that no tensor has yet: those that the program has taken by `take_block`, and those
// of an open operator, with where they came from, and which of them may not move any more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/runtime/kernel_launch.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Held in place by the manager, as the program knows their addresses, until they become a tensor's
/// or are given back. O(1) each, but for the storage's part.
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
  /// The block of that row is one no longer, if it was: another owner holds it, or nobody.
  void hand_over(std::uint32_t row) {
    if (!has(row)) return;
    rows_[row] = 0;
    kernels_->unhold(block{row});
  }
  /// Frees it, behind all that was launched so far; a block that is none of them stays as it is.
  void give_back(block&& b) noexcept {
    block mine = std::move(b);
    if (!has(mine.index())) return;
    // The storage orders what was allocated in the bracket that is open behind it by itself.
    const bool ordered = kernels_->bracket() > 0 && rows_[mine.index()] == 1 + kernels_->bracket();
    hand_over(mine.index());
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

/// Outputs and scratch, in the order in which they were asked for. An output is a fresh block, one
/// that the program had already, or one of an input that it has replaced. The last two stay where
/// they are, as somebody has their addresses; the others do once they were shown.
template <class Table, class Launcher>
class open_blocks {
 public:
  open_blocks(Table& t, Launcher& l) noexcept : table_(&t), kernels_(&l) {}

  void clear() noexcept {
    sizes_.clear(), outputs_.clear(), scratch_.clear(), scratch_sizes_.clear();
    in_place_.clear(), replaced_.clear();
    output_bytes_ = in_place_bytes_ = replaced_bytes_ = again_ = {};
  }

  // --- outputs ----------------------------------------------------------------------------------

  [[nodiscard]] std::span<const bytes> sizes() const noexcept { return sizes_; }
  [[nodiscard]] std::span<block> outputs() noexcept { return outputs_; }
  [[nodiscard]] std::size_t count() const noexcept { return sizes_.size(); }
  /// So many can be added from now on without the heap.
  void reserve(std::size_t more) {
    sizes_.reserve(sizes_.size() + more);
    outputs_.reserve(outputs_.size() + more);
    in_place_.reserve(in_place_.size() + more);
    replaced_.reserve(replaced_.size() + more);
  }
  void add_output(bytes size, block&& b) {
    outputs_.push_back(std::move(b));
    sizes_.push_back(size);
    output_bytes_ += rounded(size);
  }
  /// Several, of which `obtain(size)` gives the blocks; none where it throws.
  template <class Obtain>
  void add_outputs(std::span<const bytes> sizes, const Obtain& obtain) {
    const std::size_t first = outputs_.size();
    try {
      outputs_.resize(first + sizes.size());
      obtain_largest_first(
          std::span(outputs_).subspan(first), [&](std::size_t i) { return sizes[i]; }, obtain);
      sizes_.insert(sizes_.end(), sizes.begin(), sizes.end());
      for (const bytes size : sizes) output_bytes_ += rounded(size);
    } catch (...) {
      free_outputs(first);
      throw;
    }
  }
  /// In a block whose address somebody has.
  void add_in_place(bytes size, block&& b) {
    kernels_->hold(b);
    in_place_bytes_ += rounded(size);
    in_place_.push_back(outputs_.size());
    add_output(size, std::move(b));
  }
  /// In the block of an input, which `add_in_place` is about to be given.
  void note_replaced(tensor_id t, bytes footprint) {
    const auto at = std::ranges::lower_bound(replaced_, t, {}, &replaced_input::tensor);
    replaced_.insert(at, {t, outputs_.size()});
    replaced_bytes_ += footprint;
    again_ += footprint;
  }
  [[nodiscard]] std::span<const replaced_input> replaced() const noexcept { return replaced_; }
  [[nodiscard]] bool is_replaced(tensor_id t) const noexcept {
    return std::ranges::binary_search(replaced_, t, {}, &replaced_input::tensor);
  }
  /// Bytes of the inputs that are on the device no more.
  [[nodiscard]] bytes replaced_bytes() const noexcept { return replaced_bytes_; }

  // --- scratch ----------------------------------------------------------------------------------

  [[nodiscard]] std::span<const block> scratch() const noexcept { return scratch_; }
  void reserve_scratch() {
    scratch_sizes_.reserve(scratch_sizes_.size() + 1);
    scratch_.reserve(scratch_.size() + 1);
  }
  void add_scratch(bytes size, block&& b) {
    scratch_.push_back(std::move(b));
    scratch_sizes_.push_back(size);
  }
  /// For replays only: no block stands for it.
  void add_replay_scratch(bytes size) {
    reserve_scratch();
    add_scratch(size, block{});
    again_ += rounded(size);
  }
  /// All of it, as one block that holds a replay's. One piece counts as it was asked for.
  [[nodiscard]] bytes scratch_bytes() const {
    if (scratch_sizes_.size() == 1) return scratch_sizes_.front();
    bytes all;
    for (const bytes size : scratch_sizes_) all += rounded(size);
    return all;
  }
  /// Where each piece ends in that block.
  [[nodiscard]] std::vector<bytes> scratch_ends() const {
    std::vector<bytes> ends;
    ends.reserve(scratch_sizes_.size());
    bytes end;
    for (const bytes size : scratch_sizes_) ends.push_back(end += rounded(size));
    return ends;
  }

  // --- all of them ------------------------------------------------------------------------------

  /// Rounded bytes of all blocks. O(pieces of scratch).
  [[nodiscard]] bytes held() const {
    bytes all = output_bytes_;
    for (std::size_t i = 0; i < scratch_.size(); ++i)
      if (scratch_[i]) all += rounded(scratch_sizes_[i]);
    return all;
  }
  /// Of those that took room: neither the program had them before, nor an input.
  [[nodiscard]] bytes fresh() const { return held() - in_place_bytes_; }
  /// What a run of it again allocates beside these blocks, or reads beside them.
  [[nodiscard]] bytes again() const noexcept { return again_; }
  [[nodiscard]] bool has(const block& b) const noexcept {
    const auto same = [&](const block& x) { return x.index() == b.index(); };
    return std::ranges::any_of(outputs_, same) || std::ranges::any_of(scratch_, same);
  }
  /// Their addresses are shown: what was not held so far is from now on.
  void show() {
    for (; seen_outputs_ < outputs_.size(); ++seen_outputs_)
      kernels_->hold(outputs_[seen_outputs_]);
    for (; seen_scratch_ < scratch_.size(); ++seen_scratch_)
      if (const block& b = scratch_[seen_scratch_]) kernels_->hold(b);
  }
  /// They may move again.
  void unhold() {
    for (; seen_outputs_ > 0; --seen_outputs_) kernels_->unhold(outputs_[seen_outputs_ - 1]);
    for (; seen_scratch_ > 0; --seen_scratch_)
      if (const block& b = scratch_[seen_scratch_ - 1]) kernels_->unhold(b);
    for (const std::size_t i : in_place_) kernels_->unhold(outputs_[i]);
    in_place_.clear();
  }
  /// Frees what no tensor has taken: everything after an abort, the scratch after a close.
  void release() noexcept {
    free_outputs(0);
    for (block& b : scratch_)
      if (b) table_->storage().free(std::move(b));
    scratch_.clear();
  }

 private:
  void free_outputs(std::size_t from) noexcept {
    for (std::size_t i = from; i < outputs_.size(); ++i)
      if (block& b = outputs_[i]) table_->storage().free(std::move(b));
    outputs_.resize(std::min(from, outputs_.size()));
  }
  [[nodiscard]] bytes rounded(bytes n) const { return table_->storage().rounded(n); }

  Table* table_;
  Launcher* kernels_;
  std::vector<bytes> sizes_, scratch_sizes_;
  std::vector<block> outputs_, scratch_;
  std::vector<std::size_t> in_place_;  // outputs whose addresses were known before
  std::vector<replaced_input> replaced_;
  bytes output_bytes_{}, in_place_bytes_{}, replaced_bytes_{}, again_{};
  std::size_t seen_outputs_ = 0, seen_scratch_ = 0;  // shown to the caller
};

/// A stored kernel whose operator asked for several pieces of scratch: a replay allocates one
/// block, and the kernel sees the pieces as at first. `ends`: of each piece in the block, rising.
template <class Kernel>
[[nodiscard]] auto split_scratch(std::vector<bytes> ends, Kernel&& body) {
  std::vector<std::byte*> places(ends.size());
  return [ends = std::move(ends), places = std::move(places),
          body = std::forward<Kernel>(body)](call& c) mutable {
    std::byte* const block = c.workspace();
    for (std::size_t i = 0; i < places.size(); ++i)
      places[i] = block == nullptr ? nullptr : block + (i == 0 ? 0 : ends[i - 1].count);
    call split = c.with_workspaces(places);
    body(split);
  };
}

}  // namespace delta::detail
