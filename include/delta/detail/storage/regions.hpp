// delta: who has which bytes of a memory, and what the next to use them must wait for. Addresses
// and fences only: the bytes themselves are elsewhere, or nowhere.
#pragma once

#include <algorithm>
#include <cassert>
#include <compare>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "delta/detail/storage/address_fences.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// The bytes [0, capacity) of one memory, tiled by stretches. Best fit: the smallest hole that
/// holds the request; long-lived stretches from the low end, short-lived ones from the high end.
/// O(log holes) each; no heap is used once the table has grown, and never by `release`.
///   0                                                      capacity
///   | weights | weights |   hole   | x | hole |   y   |   z   |
///     persistent: from here ->              <- from here: transient
/// Rows are linked in address order, holes indexed by size. A token carries a row number, so moving
/// a stretch changes no token. Always true: no two holes are neighbours, every hole is in the
/// index, and there is one index node per row, in use or spare.
class region {
 public:
  /// No row: before the first stretch, behind the last.
  static constexpr std::uint32_t none = 0xffffffffu;
  using row = stretch;
  static constexpr bool can_move = true;
  /// The stretches from one hole to another, both included, between which `moved` bytes are in the
  /// way. Row numbers: valid until anything is placed or released.
  struct window {
    std::uint32_t first, last;
    std::uint64_t moved;
  };

  /// One hole; no stretch where there are no bytes. Without places only bytes are counted: what is
  /// free is in one piece, as behind a table of pages, and nobody waits for past users.
  explicit region(bytes capacity, bool places = true) : capacity_(capacity.count), places_(places) {
    if (capacity_ == 0 || !places_) return;
    head_ = tail_ = fresh_row();
    rows_[head_] = {.offset = 0, .size = capacity_, .before = none, .after = none};
    index(head_);
  }

  /// By the index of a token. Asserts that the row is in use: most freed tokens show there.
  [[nodiscard]] stretch& operator[](std::uint32_t i) noexcept {
    assert(i < rows_.size() && rows_[i].used && "a token that was freed, or another storage's");
    return rows_[i];
  }
  [[nodiscard]] const stretch& operator[](std::uint32_t i) const noexcept {
    return const_cast<region&>(*this)[i];
  }
  /// True if that is a stretch of so many bytes that somebody has. O(1).
  [[nodiscard]] bool has(std::uint32_t i, std::uint64_t n) const noexcept {
    return i < rows_.size() && rows_[i].used && rows_[i].size == n;
  }
  /// O(1): the sum is kept, and the index ends with the largest.
  [[nodiscard]] bytes capacity() const noexcept { return bytes{capacity_}; }
  [[nodiscard]] bytes used() const noexcept { return bytes{used_}; }
  [[nodiscard]] bytes peak() const noexcept { return bytes{peak_}; }
  [[nodiscard]] bytes largest_hole() const noexcept {
    if (!places_) return bytes{capacity_ - used_};
    return bytes{holes_.empty() ? 0 : holes_.rbegin()->size};
  }

  /// A stretch of `n` bytes (any number; rounding is the caller's), or nullopt when no hole is as
  /// large. Nothing moves. A stretch of zero bytes has a row but no place, and always fits. If the
  /// heap throws nothing has changed. What was asked for before rounding makes no difference here.
  [[nodiscard]] std::optional<std::uint32_t> place(std::uint64_t n, lifetime life,
                                                   std::uint64_t /*asked*/ = 0) {
    if (n == 0 || !places_) {
      if (n > capacity_ - used_) return std::nullopt;
      const std::uint32_t i = fresh_row();
      rows_[i] = {.size = n, .before = none, .after = none};
      return take(i);
    }
    // The smallest that will do; of equals the lowest for what stays, else the highest.
    auto hole = holes_.lower_bound({n, 0, 0});
    if (hole == holes_.end()) return std::nullopt;
    const bool high = life == lifetime::transient;
    if (high)
      hole = std::prev(
          holes_.upper_bound({hole->size, std::numeric_limits<std::uint64_t>::max(), none}));
    const std::uint32_t i = hole->row;
    // Before the hole leaves the index: this may throw.
    const std::uint32_t made = hole->size == n ? i : fresh_row();
    unindex(i);
    // The request is cut from the end that its kind grows from; the rest stays the same hole.
    if (made != i) {
      stretch& from = rows_[i];
      rows_[made] = {.offset = high ? from.offset + from.size - n : from.offset, .size = n};
      // Both parts had the same last users.
      rows_[made].written = from.written;
      if (!high) from.offset += n;
      from.size -= n;
      link(made, high ? i : from.before, high ? from.after : i);
      index(i);
    }
    return take(made);
  }

  /// Makes a hole of a stretch and joins it to the holes beside it. Does not throw: every row
  /// brought its index node along (fresh_row). O(log holes).
  void release(std::uint32_t i) noexcept {
    stretch& r = (*this)[i];
    assert(r.holds == 0 && "freed while held, or in use by the running operator");
    used_ -= r.size;
    // Its next writer waits for the readers, too: they are past users now.
    r.written = r.users();
    r.read = {};
    r.used = false;
    // It was never in the list.
    if (r.size == 0 || !places_) return spare_rows_.push_back(i);
    if (r.after != none && !rows_[r.after].used) {
      unindex(r.after);
      absorb(i, r.after);
    }
    if (r.before != none && !rows_[r.before].used) {
      // The hole before takes it in, and is indexed anew with its new size.
      const std::uint32_t left = r.before;
      unindex(left);
      absorb(left, i);
      i = left;
    }
    index(i);
  }

  /// The window that yields `n` free bytes for the fewest bytes moved; the lowest of equals.
  /// `fixed(stretch&)` says what may not move; it is asked only between holes, as asking may be
  /// dear. nullopt: what is fixed prevents it. Two ends run through the list once: O(stretches).
  template <class Fixed>
  [[nodiscard]] std::optional<window> cheapest_window(std::uint64_t n, Fixed&& fixed) {
    assert(n > 0);
    std::optional<window> best;
    std::uint32_t left = none;
    std::uint64_t free = 0, moved = 0;
    for (std::uint32_t i = head_; i != none; i = rows_[i].after) {
      stretch& r = rows_[i];
      if (r.used) {
        // Nothing slides past it: the window starts anew behind it.
        if (left != none && fixed(r)) left = none, free = moved = 0;
        if (left != none) moved += r.size;
        continue;
      }
      if (left == none) left = i;
      free += r.size;
      while (free - rows_[left].size >= n) {  // what is left of the next hole need not move
        free -= rows_[left].size;
        for (left = rows_[left].after; rows_[left].used; left = rows_[left].after)
          moved -= rows_[left].size;
      }
      // Strictly fewer: of equals the lowest stays, so that runs repeat exactly.
      if (free >= n && (!best || moved < best->moved)) best = window{left, i, moved};
    }
    return best;
  }

  /// Slides what is in the window together, away from the end that `life` is placed at, so that its
  /// holes become one there. `lanes` begins after everybody who used the window, moves, and ends.
  /// Gives the number of stretches moved. O(stretches of the window, log holes for each hole).
  ///   transient:   | hole | x | hole | y | hole |  ->  | x | y |     hole      |
  ///   persistent:  | hole | x | hole | y | hole |  ->  |     hole      | x | y |
  template <class Lanes>
  std::uint64_t close(window w, lifetime life, Lanes& lanes) {
    const bool down = life == lifetime::transient;
    const std::uint32_t outside_low = rows_[w.first].before, outside_high = rows_[w.last].after;
    const std::uint64_t begin = rows_[w.first].offset;
    const std::uint64_t end = rows_[w.last].offset + rows_[w.last].size;
    // Moving is a write to all of the window, holes included: whoever used them is waited for.
    fence after;
    for (std::uint32_t i = w.first; i != outside_high; i = rows_[i].after)
      after.join(rows_[i].users());
    lanes.begin(after);
    std::uint64_t to = 0, count = 0;
    // First the bytes, then the books; in an order that writes over nothing before it was moved.
    const auto slide = [&](const auto& place) {
      to = down ? begin : end;
      for (std::uint32_t i = down ? w.first : w.last; i != (down ? outside_high : outside_low);
           i = down ? rows_[i].after : rows_[i].before) {
        stretch& r = rows_[i];
        if (!r.used) continue;
        if (!down) to -= r.size;
        place(r);
        if (down) to += r.size;
      }
    };
    slide([&](const stretch& r) { lanes.move(to, r.offset, r.size); });
    const stamp done = lanes.end_moves(bytes{w.moved});
    slide([&](stretch& r) { r.offset = to, ++count; });  // only now: the device may throw
    // The move wrote all of the window. Of its holes' rows one stays, and becomes the new hole.
    for (std::uint32_t i = w.first, next; i != outside_high; i = next) {
      next = rows_[i].after;
      rows_[i].write_at(done);
      if (rows_[i].used) continue;
      unindex(i);
      unlink(i);
      if (i != w.first) spare_rows_.push_back(i);
    }
    // What slid down leaves the hole above it, and the other way round.
    const std::uint64_t hole_begin = down ? to : begin;
    rows_[w.first].offset = hole_begin;
    rows_[w.first].size = (down ? end : to) - hole_begin;
    if (down) {
      const std::uint32_t low = outside_high == none ? tail_ : rows_[outside_high].before;
      link(w.first, low, outside_high);
    } else {
      link(w.first, outside_low, outside_low == none ? head_ : rows_[outside_low].after);
    }
    index(w.first);
    return count;
  }

  /// That work has used the bytes from `offset` on, which are holes by now, or in use by it: who
  /// gets them waits for it. O(stretches).
  void note_use(std::uint64_t offset, std::uint64_t size, stamp done) noexcept {
    for (std::uint32_t i = head_; i != none; i = rows_[i].after) {
      stretch& r = rows_[i];
      if (!r.used && r.offset < offset + size && offset < r.offset + r.size) r.written.join(done);
    }
  }

  /// Calls `f(row, stretch)` for every stretch in address order.
  template <class F>
  void walk(F&& f) const {
    for (std::uint32_t i = head_; i != none; i = rows_[i].after) f(i, rows_[i]);
  }

 private:
  friend struct storage_check;
  // By size, for the smallest that fits; then by address, all different: placing repeats exactly.
  struct hole_key {
    std::uint64_t size, offset;
    std::uint32_t row;
    auto operator<=>(const hole_key&) const = default;
  };
  using index_type = std::set<hole_key>;

  // The row is somebody's.
  std::uint32_t take(std::uint32_t i) noexcept {
    rows_[i].used = true;
    used_ += rows_[i].size;
    peak_ = std::max(peak_, used_);
    return i;
  }
  /// A row to fill in. Each row brings the index node that it may need as a hole, and the lists of
  /// spares grow with the table: so neither splitting nor releasing asks the heap.
  std::uint32_t fresh_row() {
    if (spare_rows_.empty()) {
      if (rows_.size() == rows_.capacity()) {
        const std::size_t n = std::max<std::size_t>(64, rows_.size() * 2);
        spare_rows_.reserve(n);
        spare_nodes_.reserve(n);
        rows_.reserve(n);
      }
      index_type one{{0, 0, none}};
      spare_nodes_.push_back(one.extract(one.begin()));
      spare_rows_.push_back(static_cast<std::uint32_t>(rows_.size()));
      rows_.emplace_back();
    }
    const std::uint32_t i = spare_rows_.back();
    spare_rows_.pop_back();
    return i;
  }
  // A node comes from the spares and goes back there: each row has one, in the index or spare.
  void index(std::uint32_t i) noexcept {
    auto node = std::move(spare_nodes_.back());
    spare_nodes_.pop_back();
    node.value() = {rows_[i].size, rows_[i].offset, i};
    holes_.insert(std::move(node));
  }
  void unindex(std::uint32_t i) noexcept {
    spare_nodes_.push_back(holes_.extract(hole_key{rows_[i].size, rows_[i].offset, i}));
  }
  // Between these two; an end of the list is remembered as such.
  void link(std::uint32_t i, std::uint32_t before, std::uint32_t after) noexcept {
    rows_[i].before = before, rows_[i].after = after;
    (before == none ? head_ : rows_[before].after) = i;
    (after == none ? tail_ : rows_[after].before) = i;
  }
  void unlink(std::uint32_t i) noexcept {
    const std::uint32_t before = rows_[i].before, after = rows_[i].after;
    (before == none ? head_ : rows_[before].after) = after;
    (after == none ? tail_ : rows_[after].before) = before;
  }
  // The right one of two holes goes into the left one, which then waits for the users of both.
  // Neither may be in the index meanwhile: the left one's size changes.
  void absorb(std::uint32_t i, std::uint32_t right) noexcept {
    rows_[i].size += rows_[right].size;
    rows_[i].written.join(rows_[right].written);
    unlink(right);
    spare_rows_.push_back(right);
  }

  std::uint64_t capacity_, used_ = 0, peak_ = 0;
  bool places_;
  std::vector<stretch> rows_;              // by token
  std::vector<std::uint32_t> spare_rows_;  // neither used nor a hole
  std::uint32_t head_ = none, tail_ = none;
  index_type holes_;  // by size, then address
  std::vector<index_type::node_type> spare_nodes_;
};

}  // namespace delta::detail
