// delta: what is on the host alone, by when it is due: which comes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "delta/step.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Bytes by position, and the first position that has any: a Fenwick tree (Fenwick 1994).
class position_sums {
 public:
  /// Empty, for positions below `length`. O(length).
  void reset(std::size_t length) { sums_.assign(length + 1, 0); }
  /// Bytes more, or less, at a position. O(log length).
  void add(std::uint32_t position, std::uint64_t bytes) noexcept { change(position, bytes); }
  void take(std::uint32_t position, std::uint64_t bytes) noexcept { change(position, 0 - bytes); }
  /// The first position with any; the length where there is none. O(log length).
  [[nodiscard]] std::uint32_t first() const noexcept {
    std::size_t at = 0, step = 1;
    while (2 * step < sums_.size()) step *= 2;
    for (; step > 0; step /= 2)
      if (at + step < sums_.size() && sums_[at + step] == 0) at += step;
    return static_cast<std::uint32_t>(at);
  }
  [[nodiscard]] std::size_t footprint() const noexcept {
    return sums_.capacity() * sizeof(std::uint64_t);
  }

 private:
  void change(std::uint32_t position, std::uint64_t by) noexcept {
    for (std::size_t i = std::size_t{position} + 1; i < sums_.size(); i += i & (0 - i))
      sums_[i] += by;
  }
  std::vector<std::uint64_t> sums_;  // counted from 1
};

/// Tensors whose bytes are on the host alone.
class due_times {
 public:
  /// Tensors below `rows` can be listed from now on. Throws std::bad_alloc.
  void cover(std::size_t rows) {
    if (rows <= rows_.size()) return;
    rows_.resize(rows);
    list_.reserve(rows);
  }
  /// Adds a tensor, which is not listed; `due`: the operator that uses it next, none: not known.
  /// O(log positions), no heap.
  void add(tensor_id t, bytes size, std::uint32_t due) noexcept {
    row& r = rows_[index(t)];
    r = {size.count, none, static_cast<std::uint32_t>(list_.size()), tensor_id::none, ++left_};
    list_.push_back(t);
    file(t, due);
  }
  /// Takes a tensor away, if it is listed. O(log positions), and those due at the same operator.
  void remove(tensor_id t) noexcept {
    row& r = rows_[index(t)];
    if (r.place == none) return;
    unfile(t);
    const tensor_id moved = list_.back();
    list_[r.place] = moved;
    rows_[index(moved)].place = r.place;
    list_.pop_back();
    r.place = none;
  }
  /// Nobody knows any more when it is due; it stays in the list. As `remove`.
  void forget(tensor_id t) noexcept { unfile(t); }
  /// Other positions count from now on: `due(t)` gives them anew. O(positions + listed), and those
  /// due at the same operator.
  template <class Due>
  void reset(std::size_t positions, const Due& due) {
    sums_.reset(positions);
    first_.assign(positions, tensor_id::none);
    for (const tensor_id t : list_) rows_[index(t)].due = none, file(t, due(t));
  }

  /// The tensor that is due first; of several the one that left last. O(log positions).
  [[nodiscard]] tensor_id first_due() const noexcept {
    const std::uint32_t at = sums_.first();
    return at < first_.size() ? first_[at] : tensor_id::none;
  }
  [[nodiscard]] std::size_t footprint() const noexcept {
    return rows_.capacity() * sizeof(row) + sums_.footprint() +
           (list_.capacity() + first_.capacity()) * sizeof(tensor_id);
  }

 private:
  static constexpr std::uint32_t none = step_record::none;
  struct row {
    std::uint64_t size = 0;
    std::uint32_t due = none;          // where its bytes count
    std::uint32_t place = none;        // in the list
    tensor_id next = tensor_id::none;  // due at the same operator: left before
    std::uint64_t left = 0;            // when, in such times
  };

  void file(tensor_id t, std::uint32_t due) noexcept {
    row& r = rows_[index(t)];
    if (due >= first_.size()) return;
    r.due = due;
    sums_.add(due, r.size);
    tensor_id* at = &first_[due];
    while (*at != tensor_id::none && rows_[index(*at)].left > r.left) at = &rows_[index(*at)].next;
    r.next = std::exchange(*at, t);
  }
  // Of those due at one operator few are away, so the list is walked.
  void unfile(tensor_id t) noexcept {
    row& r = rows_[index(t)];
    if (r.due == none) return;
    sums_.take(r.due, r.size);
    tensor_id* at = &first_[r.due];
    while (*at != t) at = &rows_[index(*at)].next;
    *at = r.next;
    r.due = none;
  }

  std::vector<row> rows_;  // by tensor
  std::vector<tensor_id> list_;
  position_sums sums_;
  std::vector<tensor_id> first_;  // by position; more in `row::next`
  std::uint64_t left_ = 0;
};

}  // namespace delta::detail
