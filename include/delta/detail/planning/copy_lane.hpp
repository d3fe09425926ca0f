// delta: the time of a copy lane that a plan has given away, in a step that repeats for ever.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace delta::detail {

/// Which repetition `x` lies in: 0 is [0, period), -1 the one before it. `period` is above 0.
template <class T>
[[nodiscard]] constexpr T period_of(T x, T period) noexcept {
  return x >= 0 ? x / period : -((period - 1 - x) / period);
}

/// Busy intervals of [0, period), in ns. Windows may begin before 0 or end behind the period, in
/// the neighbouring steps. For copies that run as late as they can, time counts backwards.
class copy_lane {
 public:
  using time = std::int64_t;
  struct piece {
    time from, to;  ///< within [0, period)
  };

  explicit copy_lane(time period) noexcept : period_(period) {}

  /// Takes up to `need` ns of what is free in [from, to), one period of it at most, the earliest.
  /// Appends what was taken to `taken`, in that order. Gives the end of the last of it, as the
  /// window counts. O(busy intervals in the window + those behind each that is taken).
  time take(time from, time to, time& need, std::vector<piece>& taken) {
    const std::size_t first = taken.size();
    to = std::min(to, from + period_);
    time reached = from;
    while (from < to && need > 0) {
      const time shift = period_of(from, period_) * period_;
      const time a = from - shift, b = std::min(to - shift, period_);
      time at = a;
      for (std::size_t i = behind(a); at < b && need > 0; ++i) {
        const time end = i < busy_.size() ? std::min(b, busy_[i].from) : b;
        if (end > at) {
          const time n = std::min(need, end - at);
          taken.push_back({at, at + n});
          need -= n, reached = at + n + shift;
        }
        if (i >= busy_.size()) break;
        at = std::max(at, busy_[i].to);
      }
      from = shift + b;
    }
    for (std::size_t i = first; i < taken.size(); ++i) take(taken[i]);
    return reached;
  }
  /// What is free becomes busy, or the other way round.
  void take(const piece& p) {
    auto at = std::ranges::lower_bound(busy_, p.from, {}, &piece::from);
    const bool joins_before = at != busy_.begin() && (at - 1)->to == p.from;
    const bool joins_behind = at != busy_.end() && at->from == p.to;
    if (joins_before && joins_behind) {
      (at - 1)->to = at->to;
      busy_.erase(at);
    } else if (joins_before) {
      (at - 1)->to = p.to;
    } else if (joins_behind) {
      at->from = p.from;
    } else {
      busy_.insert(at, p);
    }
  }
  void give(const piece& p) {
    auto at = std::ranges::upper_bound(busy_, p.from, {}, &piece::from) - 1;
    const piece whole = *at;
    if (whole.from == p.from && whole.to == p.to) {
      busy_.erase(at);
    } else if (whole.from == p.from) {
      at->from = p.to;
    } else if (whole.to == p.to) {
      at->to = p.from;
    } else {
      at->to = p.from;
      busy_.insert(at + 1, {p.to, whole.to});
    }
  }
  /// ns of [from, to) that are busy, within [0, period). O(log busy intervals + those in it).
  [[nodiscard]] time busy(time from, time to) const noexcept {
    time sum = 0;
    for (std::size_t i = behind(from); i < busy_.size() && busy_[i].from < to; ++i)
      sum += std::min(busy_[i].to, to) - std::max(busy_[i].from, from);
    return sum;
  }
  /// All of it is free again, of another period.
  void clear(time period) noexcept { busy_.clear(), period_ = period; }

 private:
  // The first interval that ends behind `t`.
  [[nodiscard]] std::size_t behind(time t) const noexcept {
    const auto at = std::ranges::upper_bound(busy_, t, {}, &piece::to);
    return static_cast<std::size_t>(at - busy_.begin());
  }

  time period_;
  std::vector<piece> busy_;  // ascending, apart
};

}  // namespace delta::detail
