// delta: sets of ids, as a bit per row of a table: ids are small, dense, and change often.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "delta/units.hpp"

namespace delta::detail {

/// Ids, iterated from the lowest up. Only `cover` allocates, so that what unlocks a tensor can't
/// fail. O(1) each; iteration and `clear` O(rows / 64), of an empty set O(1).
class id_set {
 public:
  static constexpr std::size_t word_bits = 64;

  /// Rows below `rows` can be inserted from now on. Amortised O(1) per row. Throws std::bad_alloc.
  void cover(std::size_t rows) {
    const std::size_t words = (rows + word_bits - 1) / word_bits;
    if (words > words_.size()) words_.resize(words);
  }
  [[nodiscard]] bool contains(tensor_id t) const noexcept {
    return (word(index(t) / word_bits) & bit(t)) != 0;
  }
  /// Nothing happens to what is in already.
  void insert(tensor_id t) noexcept {
    assert(index(t) / word_bits < words_.size() && "not covered");
    size_ += !contains(t);
    words_[index(t) / word_bits] |= bit(t);
  }
  void erase(tensor_id t) noexcept {
    if (!contains(t)) return;
    --size_;
    words_[index(t) / word_bits] &= ~bit(t);
  }
  void clear() noexcept {
    if (std::exchange(size_, 0) > 0) std::ranges::fill(words_, 0);
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  /// 64 rows at once: bit i is row 64 w + i.
  [[nodiscard]] std::uint64_t word(std::size_t w) const noexcept {
    return w < words_.size() ? words_[w] : 0;
  }
  [[nodiscard]] std::size_t words() const noexcept { return words_.size(); }
  /// The row of a word's lowest bit.
  [[nodiscard]] static tensor_id first_of(std::size_t w, std::uint64_t word) noexcept {
    return static_cast<tensor_id>(w * word_bits + static_cast<std::size_t>(std::countr_zero(word)));
  }

  /// From the lowest id to the highest. What the loop erases behind or at its place is no matter.
  class iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = tensor_id;
    iterator() = default;
    iterator(const id_set& s, std::size_t w) noexcept : set_(&s), word_(w), left_(s.word(w)) {
      skip_empty();
    }
    tensor_id operator*() const noexcept { return first_of(word_, left_); }
    iterator& operator++() noexcept {
      left_ &= left_ - 1;
      skip_empty();
      return *this;
    }
    void operator++(int) noexcept { ++*this; }
    bool operator==(const iterator& o) const noexcept = default;

   private:
    void skip_empty() noexcept {
      while (left_ == 0 && word_ < set_->words()) left_ = set_->word(++word_);
    }
    const id_set* set_ = nullptr;
    std::size_t word_ = 0;
    std::uint64_t left_ = 0;
  };
  [[nodiscard]] iterator begin() const noexcept { return {*this, empty() ? words() : 0}; }
  [[nodiscard]] iterator end() const noexcept { return {*this, words()}; }

 private:
  static constexpr std::uint64_t bit(tensor_id t) noexcept {
    return std::uint64_t{1} << (index(t) % word_bits);
  }
  std::vector<std::uint64_t> words_;
  std::size_t size_ = 0;
};

}  // namespace delta::detail
