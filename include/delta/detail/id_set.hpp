// delta: sets of ids: a bit per row of a table, and a bit per word of those. Small, dense numbers
// that come and go with every operator want no node and no hash.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "delta/units.hpp"

namespace delta::detail {

/// Ids, iterated from the lowest up. `cover` says up to which; afterwards nothing allocates, so
/// that what unlocks a tensor can't fail. O(1) each; iteration O(size + rows / 4096).
class id_set {
 public:
  static constexpr std::size_t word_bits = 64;

  /// Rows below `rows` can be inserted from now on. Amortised O(1) per row. Throws std::bad_alloc.
  void cover(std::size_t rows) {
    const std::size_t words = (rows + word_bits - 1) / word_bits;
    if (words <= words_.size()) return;
    // The summary first: if the second throws, the first is larger than it need be, no more.
    summary_.resize((words + word_bits - 1) / word_bits);
    words_.resize(words);
  }
  [[nodiscard]] bool contains(tensor_id t) const noexcept {
    const std::size_t w = index(t) / word_bits;
    return w < words_.size() && (words_[w] & bit(index(t))) != 0;
  }
  /// Nothing happens to what is in already.
  void insert(tensor_id t) noexcept {
    const std::size_t w = index(t) / word_bits;
    assert(w < words_.size() && "not covered");
    size_ += (words_[w] & bit(index(t))) == 0;
    words_[w] |= bit(index(t));
    summary_[w / word_bits] |= bit(w);
  }
  void erase(tensor_id t) noexcept {
    const std::size_t w = index(t) / word_bits;
    if (w >= words_.size()) return;
    size_ -= (words_[w] & bit(index(t))) != 0;
    words_[w] &= ~bit(index(t));
    if (words_[w] == 0) summary_[w / word_bits] &= ~bit(w);
  }
  void clear() noexcept {
    for_each_word([&](std::size_t w, std::uint64_t) { words_[w] = 0; });
    for (std::uint64_t& s : summary_) s = 0;
    size_ = 0;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  /// 64 rows at once: bit i is row 64 w + i.
  [[nodiscard]] std::uint64_t word(std::size_t w) const noexcept {
    return w < words_.size() ? words_[w] : 0;
  }
  [[nodiscard]] std::size_t words() const noexcept { return words_.size(); }

  /// Calls `visit(w, word)` for every word that is not empty, in order. The word at hand may be
  /// changed meanwhile.
  template <class Visit>
  void for_each_word(const Visit& visit) const {
    for (std::size_t s = 0; s < summary_.size(); ++s)
      for (std::uint64_t left = summary_[s]; left != 0; left &= left - 1) {
        const std::size_t w = s * word_bits + static_cast<std::size_t>(std::countr_zero(left));
        visit(w, words_[w]);
      }
  }

  /// The same, until `visit` names a tensor: that one, or none.
  template <class Visit>
  [[nodiscard]] tensor_id find_word(const Visit& visit) const {
    for (std::size_t s = 0; s < summary_.size(); ++s)
      for (std::uint64_t left = summary_[s]; left != 0; left &= left - 1) {
        const std::size_t w = s * word_bits + static_cast<std::size_t>(std::countr_zero(left));
        if (const tensor_id t = visit(w, words_[w]); t != tensor_id::none) return t;
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
      const std::size_t end = set_->words_.size();
      while (word_ < end) {
        const std::uint64_t rest = set_->summary_[word_ / word_bits] >> (word_ % word_bits);
        if (rest == 0) {
          word_ = (word_ / word_bits + 1) * word_bits;
          continue;
        }
        word_ += static_cast<std::size_t>(std::countr_zero(rest));
        left_ = set_->words_[word_];
        return;
      }
      word_ = end;
    }
    const id_set* set_ = nullptr;
    std::size_t word_ = 0;
    std::uint64_t left_ = 0;
  };
  [[nodiscard]] iterator begin() const noexcept { return {*this, 0}; }
  [[nodiscard]] iterator end() const noexcept { return {*this, words_.size()}; }

 private:
  static constexpr std::uint64_t bit(std::size_t i) noexcept {
    return std::uint64_t{1} << (i % word_bits);
  }

  std::vector<std::uint64_t> words_, summary_;
  std::size_t size_ = 0;
};

}  // namespace delta::detail
