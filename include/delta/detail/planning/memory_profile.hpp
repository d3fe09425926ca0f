// delta: the bytes that a plan holds at each position of a step, and what it pays for those over
// the budget.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "delta/detail/planning/periods.hpp"

namespace delta::detail {

/// Bytes by position. Positions are grouped into blocks, and a block pays for its fullest position:
/// `penalty` ns for each byte over the budget. So a change of a long range is O(blocks).
class memory_profile {
 public:
  using position = std::int32_t;
  static constexpr position most_blocks = 128;

  memory_profile(position length, double budget)
      : length_(length),
        block_(std::max<position>(1, (length + most_blocks - 1) / most_blocks)),
        budget_(budget),
        above_(static_cast<std::size_t>(length), 0.0) {
    const auto blocks = static_cast<std::size_t>((length + block_ - 1) / block_);
    top_.assign(blocks, 0.0), most_.assign(blocks, 0.0);
    changed_.assign(blocks, 0), budgets_.assign(blocks, budget);
  }

  [[nodiscard]] double at(position p) const noexcept {
    return above_[index(p)] + most_[index(p / block_)] - top_[index(p / block_)];
  }
  [[nodiscard]] double most() const noexcept { return *std::ranges::max_element(most_); }
  [[nodiscard]] double budget() const noexcept { return budget_; }
  /// Other budgets from one position to another, for a while: times the budget.
  void scale_budget(position from, position to, double factor) {
    for (position k = from / block_; k <= (to - 1) / block_; ++k)
      budgets_[index(k)] = budget_ * factor;
  }
  /// What is paid for a byte over the budget, in ns.
  void set_penalty(double ns) noexcept { penalty_ = ns; }
  [[nodiscard]] position blocks() const noexcept { return static_cast<position>(most_.size()); }

  /// Adds bytes to [from, to), which is any range of a step that repeats for ever. Gives what is
  /// paid more for it, in ns. O(blocks).
  double add(position from, position to, double bytes) {
    double change = 0;
    in_step(from, to,
            [&](position a, position b) { change += change_within<true>(*this, a, b, bytes); });
    return change;
  }
  /// What `add` would give.
  [[nodiscard]] double price(position from, position to, double bytes) const {
    double change = 0;
    in_step(from, to,
            [&](position a, position b) { change += change_within<false>(*this, a, b, bytes); });
    return change;
  }
  /// True if a byte more or less in [from, to) would change what is paid.
  [[nodiscard]] bool is_paid_for(position from, position to) const {
    bool any = false;
    in_step(from, to, [&](position a, position b) {
      for (position k = a / block_; k <= (b - 1) / block_ && !any; ++k)
        any = most_[index(k)] > budgets_[index(k)];
    });
    return any;
  }
  /// Marks what was changed since: `changed_since(from, to, when)` of an earlier `now()`.
  [[nodiscard]] std::uint32_t now() const noexcept { return now_; }
  void tick() noexcept { ++now_; }
  [[nodiscard]] bool changed_since(position from, position to, std::uint32_t when) const {
    bool any = false;
    in_step(from, to, [&](position a, position b) {
      for (position k = a / block_; k <= (b - 1) / block_ && !any; ++k)
        any = changed_[index(k)] > when;
    });
    return any;
  }
  void note_change(position from, position to) {
    in_step(from, to, [&](position a, position b) {
      for (position k = a / block_; k <= (b - 1) / block_; ++k) changed_[index(k)] = now_;
    });
  }

 private:
  static std::size_t index(position p) noexcept { return static_cast<std::size_t>(p); }

  template <class F>
  void in_step(position from, position to, const F& f) const {
    while (from < to) {
      const position begin = from - period_of(from, length_) * length_;
      const position n = std::min(length_ - begin, to - from);
      f(begin, begin + n);
      from += n;
    }
  }
  // A block's fullest position, above its base, if [first, last) had so many bytes more. O(last -
  // first); O(block) only where the fullest one gets less.
  [[nodiscard]] double top_with(std::size_t block, position first, position last,
                                double bytes) const {
    const auto most = [&](position from, position to) {
      double x = -1e300;
      for (position p = from; p < to; ++p) x = std::max(x, above_[index(p)]);
      return x;
    };
    const double top = top_[block], inside = most(first, last);
    if (bytes >= 0) return std::max(top, inside + bytes);
    if (inside < top) return top;
    const position begin = static_cast<position>(block) * block_;
    return std::max(
        {most(begin, first), inside + bytes, most(last, std::min(begin + block_, length_))});
  }
  // The same change of whole blocks. Four sums, as a compiler may not reorder one.
  template <bool Add, class Self>
  static double change_whole(Self& self, std::size_t from, std::size_t to, double bytes) {
    double sums[4] = {0, 0, 0, 0};
    auto* const most = self.most_.data();
    const double* const budgets = self.budgets_.data();
    const auto one = [&](std::size_t k, double& sum) {
      const double before = most[k], now = before + bytes;
      sum += std::max(now, budgets[k]) - std::max(before, budgets[k]);
      if constexpr (Add) most[k] = now;
    };
    std::size_t k = from;
    for (; k + 4 <= to; k += 4)
      for (std::size_t i = 0; i < 4; ++i) one(k + i, sums[i]);
    for (; k < to; ++k) one(k, sums[0]);
    return self.penalty_ * (sums[0] + sums[1] + sums[2] + sums[3]);
  }
  [[nodiscard]] double paid(std::size_t block, double most) const noexcept {
    return penalty_ * std::max(0.0, most - budgets_[block]);
  }
  template <bool Add, class Self>  // const where nothing is added
  static double change_within(Self& self, position from, position to, double bytes) {
    const position block_size = self.block_;
    double change = 0;
    const auto part = [&](std::size_t block, position first, position last) {
      const double before = self.most_[block], top = self.top_with(block, first, last, bytes);
      const double now = before - self.top_[block] + top;
      if constexpr (Add) {
        for (position p = first; p < last; ++p) self.above_[index(p)] += bytes;
        self.most_[block] = now, self.top_[block] = top;
      }
      change += self.paid(block, now) - self.paid(block, before);
    };
    position first = from / block_size, last = to / block_size;  // whole ones: [first, last)
    if (from % block_size != 0) {
      part(index(first), from, std::min(to, (first + 1) * block_size));
      ++first;
    }
    if (to == self.length_ && to % block_size != 0 && first <= last && from <= last * block_size)
      ++last;
    if (first < last) change += change_whole<Add>(self, index(first), index(last), bytes);
    if (last >= first && last * block_size < to)
      part(index(last), std::max(from, last * block_size), to);
    return change;
  }

  position length_, block_;
  double budget_, penalty_ = 0;
  std::vector<double> above_;           // by position: bytes above the base of its block
  std::vector<double> top_, most_;      // by block: its fullest position, above the base and in all
  std::vector<double> budgets_;         // by block
  std::vector<std::uint32_t> changed_;  // by block: when
  std::uint32_t now_ = 1;
};

}  // namespace delta::detail
