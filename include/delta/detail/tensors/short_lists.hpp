// delta: many short lists of one type in one table, so that a list costs its elements and no more.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace delta::detail {

/// Hands out runs of elements. A run of more than eight is rounded up to a power of two; a run is
/// used again by lists of its class, so a steady program stops asking the heap. Runs are named by
/// where they begin: they stay where they are by number, but a span over one holds until the next
/// `take`.
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

}  // namespace delta::detail
