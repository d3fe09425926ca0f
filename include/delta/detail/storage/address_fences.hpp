// delta: a fence per range of addresses that went back to their source: the last users of these
// bytes. Whoever gets the addresses next waits for it, as a copy may still read the freed bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "delta/units.hpp"

namespace delta::detail {

/// For tests: whether the books are in order (test/support/storage_check.hpp).
struct storage_check;

/// A stretch of memory: somebody's bytes, or a hole. A hole remembers in `written` who used it
/// last, so that the next owner's first writer waits for them: freeing need not wait.
struct stretch {
  std::uint64_t offset = 0;  ///< from the beginning of the memory
  std::uint64_t size = 0;    ///< bytes, already rounded
  fence written{};           ///< the last writer
  fence read{};              ///< everybody who reads since
  std::uint32_t before = 0;  ///< neighbours in address order
  std::uint32_t after = 0;
  std::uint32_t holds = 0;  ///< operators and callers who have its address: it may not move
  bool used = false;        ///< somebody's; else a hole, or a row to spare

  /// Whom the next writer waits for; readers wait for `written` alone.
  [[nodiscard]] fence users() const noexcept { return fence{written}.join(read); }
  /// What a copy of it copies.
  [[nodiscard]] bytes content() const noexcept { return bytes{size}; }
  /// One writer replaces all users: it was ordered behind them, so waiting for it suffices.
  void write_at(stamp s) noexcept { written = fence{}.join(s), read = {}; }
};

/// Ranges of addresses that are nobody's now, in order and apart, with the fence of their users. At
/// most `most`: of more, every next user waits for all, which is never wrong. Memory is taken once;
/// nothing else throws. O(log ranges), and a shift of the ranges behind for each.
class address_fences {
 public:
  static constexpr std::size_t most = 1024;

  address_fences() { ranges_.reserve(most); }

  /// These users have used [begin, end), of which no range knows.
  void add(std::uint64_t begin, std::uint64_t end, const fence& users) noexcept {
    if (begin == end) return;
    if (ranges_.size() == most) {
      for (const range& r : ranges_) rest_.join(r.users);
      ranges_.clear();
      merged_ = true;
    }
    ranges_.insert(first_behind(begin), {begin, end, users});
  }
  /// Somebody has [begin, end) from now on: whoever used any of it, and is forgotten here.
  fence take(std::uint64_t begin, std::uint64_t end) noexcept {
    fence users = rest_;
    const auto first = first_behind(begin);
    auto last = first;
    for (; last != ranges_.end() && last->begin < end; ++last) users.join(last->users);
    if (first == last) return users;
    // What the first and the last have beside it stays.
    const range low = *first, high = *(last - 1);
    ranges_.erase(first, last);
    if (low.begin < begin) add(low.begin, begin, low.users);
    if (end < high.end) add(end, high.end, high.users);
    return users;
  }
  /// That work, too, has used what is known of [begin, end).
  void note_use(std::uint64_t begin, std::uint64_t end, stamp done) noexcept {
    for (auto r = first_behind(begin); r != ranges_.end() && r->begin < end; ++r)
      r->users.join(done);
    if (merged_) rest_.join(done);
  }

  /// They have doubled since it was last asked which of them are over.
  [[nodiscard]] bool should_forget() const noexcept { return ranges_.size() >= next_; }
  /// Forgets ranges whose users are over by `reached(stamp)`, which is asked as seldom as can be.
  template <class Reached>
  void forget(Reached&& reached) {
    fence over;
    fence open;
    open.point.fill(std::numeric_limits<std::uint64_t>::max());
    const auto is_over = [&](const fence& f) {
      for (std::size_t e = 0; e < lane_count; ++e) {
        if (f.point[e] <= over.point[e]) continue;
        if (f.point[e] >= open.point[e]) return false;
        const bool yes = reached(stamp{static_cast<lane>(e), f.point[e]});
        (yes ? over : open).point[e] = f.point[e];
        if (!yes) return false;
      }
      return true;
    };
    std::erase_if(ranges_, [&](const range& r) { return is_over(r.users); });
    if (merged_ && is_over(rest_)) rest_ = {}, merged_ = false;
    next_ = std::clamp<std::size_t>(2 * ranges_.size(), 64, most);
  }
  /// All of them.
  [[nodiscard]] fence all() const noexcept {
    fence f = rest_;
    for (const range& r : ranges_) f.join(r.users);
    return f;
  }

 private:
  friend struct storage_check;
  struct range {
    std::uint64_t begin, end;
    fence users;
  };
  // The first that does not end before `at`, or there.
  [[nodiscard]] std::vector<range>::iterator first_behind(std::uint64_t at) noexcept {
    return std::partition_point(ranges_.begin(), ranges_.end(),
                                [&](const range& r) { return r.end <= at; });
  }

  std::vector<range> ranges_;  // never more than was reserved
  fence rest_;                 // of all addresses
  bool merged_ = false;        // rest_ stands for ranges
  std::size_t next_ = 64;
};

}  // namespace delta::detail
