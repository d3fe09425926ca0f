// delta: sets of ids: a bit per row of a table, and a bit per word of those, twice. Small, dense
// numbers that come and go with every operator want no node and no hash.
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "delta/units.hpp"

namespace delta::detail {

/// Ids, iterated from the lowest up. `cover` says up to which; afterwards nothing allocates, so
/// that what unlocks a tensor can't fail. O(1) each; iteration O(size + rows / 2^18).
class id_set {
 public:
  static constexpr std::size_t word_bits = 64;

  /// Rows below `rows` can be inserted from now on. Amortised O(1) per row. Throws std::bad_alloc.
  void cover(std::size_t rows) {
    const std::size_t words = (rows + word_bits - 1) / word_bits;
    if (words <= level_[0].size()) return;
    // The summaries first: if the last one throws, they are larger than they need be, no more.
    for (std::size_t l = levels; l-- > 0;) level_[l].resize((words >> (6 * l)) + (l > 0));
  }
  [[nodiscard]] bool contains(tensor_id t) const noexcept {
    return (word(index(t) / word_bits) & bit(index(t))) != 0;
  }
  /// Nothing happens to what is in already.
  void insert(tensor_id t) noexcept {
    const std::size_t w = index(t) / word_bits;
    assert(w < level_[0].size() && "not covered");
    const std::uint64_t old = level_[0][w], with = old | bit(index(t));
    size_ += with != old;
    level_[0][w] = with;
    if (old == 0) announce(w);
  }
  void erase(tensor_id t) noexcept {
    const std::size_t w = index(t) / word_bits;
    if (w >= level_[0].size()) return;
    const std::uint64_t old = level_[0][w], without = old & ~bit(index(t));
    if (old == without) return;
    --size_;
    level_[0][w] = without;
    if (without == 0) retract(w);
  }
  /// O(words that are not empty).
  void clear() noexcept {
    if (size_ == 0) return;
    for (std::size_t top = 0; top < level_[2].size(); ++top)
      for (std::uint64_t& left = level_[2][top]; left != 0; left &= left - 1) {
        const std::size_t s = next(top, left);
        for (std::uint64_t& rest = level_[1][s]; rest != 0; rest &= rest - 1)
          level_[0][next(s, rest)] = 0;
      }
    size_ = 0;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// 64 rows at once: bit i is row 64 w + i.
  [[nodiscard]] std::uint64_t word(std::size_t w) const noexcept {
    return w < level_[0].size() ? level_[0][w] : 0;
  }
  [[nodiscard]] std::size_t words() const noexcept { return level_[0].size(); }

  /// Calls `visit(w, word)` for every word that is not empty, in order. The word at hand may be
  /// changed meanwhile.
  template <class Visit>
  void for_each_word(const Visit& visit) const {
    (void)find_word([&](std::size_t w, std::uint64_t bits) {
      visit(w, bits);
      return tensor_id::none;
    });
  }
  /// The same, until `visit` names a tensor: that one, or none.
  template <class Visit>
  [[nodiscard]] tensor_id find_word(const Visit& visit) const {
    if (size_ == 0) return tensor_id::none;
    for (std::size_t top = 0; top < level_[2].size(); ++top)
      for (std::uint64_t left = level_[2][top]; left != 0; left &= left - 1) {
        const std::size_t s = next(top, left);
        for (std::uint64_t rest = level_[1][s]; rest != 0; rest &= rest - 1) {
          const std::size_t w = next(s, rest);
          if (const tensor_id t = visit(w, level_[0][w]); t != tensor_id::none) return t;
        }
      }
    return tensor_id::none;
  }

  /// From the lowest id to the highest. What the loop erases behind or at its place is no matter.
  class iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = tensor_id;
    using pointer = const tensor_id*;
    using reference = tensor_id;
    using iterator_category = std::input_iterator_tag;
    iterator() = default;
    iterator(const id_set& s, std::size_t w) noexcept : set_(&s), word_(w) { find(); }
    tensor_id operator*() const noexcept {
      return static_cast<tensor_id>(word_ * word_bits +
                                    static_cast<std::size_t>(std::countr_zero(left_)));
    }
    iterator& operator++() noexcept {
      left_ &= left_ - 1;
      if (left_ == 0) ++word_, find();
      return *this;
    }
    iterator operator++(int) noexcept {
      const iterator old = *this;
      return ++*this, old;
    }
    bool operator==(const iterator& o) const noexcept {
      return word_ == o.word_ && left_ == o.left_;
    }

   private:
    // The next word that has anything, from `word_` on; or the end.
    void find() noexcept {
      left_ = 0;
      for (const std::size_t end = set_->words(); word_ < end;) {
        const std::uint64_t rest = set_->level_[1][word_ / word_bits] >> (word_ % word_bits);
        if (rest != 0) {
          word_ += static_cast<std::size_t>(std::countr_zero(rest));
          left_ = set_->level_[0][word_];
          return;
        }
        word_ = (word_ / word_bits + 1) * word_bits;
      }
      word_ = set_->words();
    }
    const id_set* set_ = nullptr;
    std::size_t word_ = 0;
    std::uint64_t left_ = 0;
  };
  [[nodiscard]] iterator begin() const noexcept { return {*this, 0}; }
  [[nodiscard]] iterator end() const noexcept { return {*this, words()}; }

 private:
  static constexpr std::uint64_t bit(std::size_t i) noexcept {
    return std::uint64_t{1} << (i % word_bits);
  }
  static std::size_t next(std::size_t word, std::uint64_t bits) noexcept {
    return word * word_bits + static_cast<std::size_t>(std::countr_zero(bits));
  }

  // A word of rows is empty no longer, or empty again. Seldom, next to what is done to its bits.
  void announce(std::size_t w) noexcept {
    level_[2][w / word_bits / word_bits] |= bit(w / word_bits);
    level_[1][w / word_bits] |= bit(w);
  }
  void retract(std::size_t w) noexcept {
    std::uint64_t& summary = level_[1][w / word_bits];
    summary &= ~bit(w);
    if (summary == 0) level_[2][w / word_bits / word_bits] &= ~bit(w / word_bits);
  }

  static constexpr std::size_t levels = 3;
  // A bit per row; per word of those; per word of these.
  std::array<std::vector<std::uint64_t>, levels> level_;
  std::size_t size_ = 0;
};

}  // namespace delta::detail
