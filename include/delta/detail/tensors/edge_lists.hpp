// delta: many short lists of one type in one table, so that a list costs its elements and no more;
// and which records of operators read a tensor, as such lists.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "delta/units.hpp"

namespace delta::detail {

/// Hands out runs of elements. A run of more than eight is rounded up to a power of two, and used
/// again by lists of its class: a steady program stops asking the heap. Runs are named by where
/// they begin; a span over one holds until the next `take`.
template <class T>
class slices {
 public:
  /// A run of at least `n` elements, as they were left. 0 for n = 0. Amortised O(n). Throws
  /// std::bad_alloc, and then nothing has changed.
  std::uint32_t take(std::size_t n) {
    if (n == 0) return 0;
    auto& unused = unused_[size_class(n)];
    if (unused.empty()) {
      const std::size_t first = items_.size();
      items_.resize(first + (n <= small ? n : std::bit_ceil(n)));
      return static_cast<std::uint32_t>(first);
    }
    const std::uint32_t first = unused.back();
    unused.pop_back();
    return first;
  }
  /// Gives back the run of `n` elements that begins at `first`. Amortised O(1).
  void give(std::uint32_t first, std::size_t n) {
    if (n > 0) unused_[size_class(n)].push_back(first);
  }

  [[nodiscard]] std::span<T> at(std::uint32_t first, std::size_t n) noexcept {
    return std::span(items_).subspan(first, n);
  }
  [[nodiscard]] std::span<const T> at(std::uint32_t first, std::size_t n) const noexcept {
    return std::span(items_).subspan(first, n);
  }
  [[nodiscard]] T& operator[](std::uint32_t i) noexcept { return items_[i]; }
  [[nodiscard]] const T& operator[](std::uint32_t i) const noexcept { return items_[i]; }

 private:
  static constexpr std::size_t small = 8;
  // One each for up to eight; then 9 for up to 16, 10 for up to 32, ...
  static constexpr std::size_t size_class(std::size_t n) noexcept {
    return n <= small ? n : small - 3 + static_cast<std::size_t>(std::bit_width(n - 1));
  }

  std::vector<T> items_;
  std::array<std::vector<std::uint32_t>, 38> unused_;
};

/// Edges from tensors to the records that read them, one per mention. A record's lie side by side,
/// named by the first; a tensor's are linked, named by the newest: an edge goes in O(1).
class edge_lists {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// The records that read a tensor, each once per mention, the latest first: a range, and where a
  /// loop over it is. Valid until a record comes or goes.
  class readers {
   public:
    readers(const edge_lists& of, std::uint32_t first) noexcept : of_(&of), at_(first) {}
    [[nodiscard]] readers begin() const noexcept { return *this; }
    [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }
    operator_id operator*() const noexcept { return of_->edges_[at_].reader; }
    readers& operator++() noexcept { return at_ = of_->edges_[at_].next, *this; }
    bool operator==(std::default_sentinel_t) const noexcept { return at_ == none; }

   private:
    const edge_lists* of_;
    std::uint32_t at_;
  };

  /// `first`: the tensor's newest edge.
  [[nodiscard]] readers from(std::uint32_t first) const noexcept { return {*this, first}; }

  /// As slices': the edges of a record with `n` inputs.
  std::uint32_t take(std::size_t n) { return edges_.take(n); }
  void give(std::uint32_t first, std::size_t n) { edges_.give(first, n); }
  /// Edge `e` of record `o` becomes the newest of a tensor's, whose newest was `first`.
  void link(operator_id o, std::uint32_t& first, std::uint32_t e) noexcept {
    edges_[e] = {o, first, none};
    if (first != none) edges_[first].before = e;
    first = e;
  }
  void unlink(std::uint32_t& first, std::uint32_t e) noexcept {
    const edge gone = edges_[e];
    (gone.before == none ? first : edges_[gone.before].next) = gone.next;
    if (gone.next != none) edges_[gone.next].before = gone.before;
  }

 private:
  struct edge {
    operator_id reader = operator_id::none;
    std::uint32_t next = none, before = none;  // of the same tensor
  };
  slices<edge> edges_;
};

}  // namespace delta::detail
