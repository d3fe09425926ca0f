// delta: the bytes that a plan holds at each position of a step, and what it pays for those over
// the budget.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "delta/detail/planning/copy_lane.hpp"

namespace delta::detail {

/// Bytes by position. Positions are grouped into blocks, and a block pays for its fullest position:
/// `penalty` ns for each byte over the budget. So a long range is changed in O(blocks). Sizes are
/// whole bytes below 2^53 in all, so what is added and taken again leaves no rounding behind.
class memory_profile {
 public:
  using position = std::int32_t;
  static constexpr position usual_blocks = 128;

  memory_profile(position length, double budget)
      : length_(length),
        block_(block_for(length)),
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

  /// A change of the profile begins. O(blocks).
  void begin() {
    was_top_ = top_, was_most_ = most_;
    added_.clear(), parts_.clear();
  }
  /// Adds bytes to [from, to), which is any range of a step that repeats for ever. O(blocks).
  void add(position from, position to, double bytes) {
    added_.push_back({from, to, bytes});
    in_step(from, to, [&](position a, position b) { add_within(a, b, bytes); });
  }
  /// Counts a range as changed, whose bytes stay. O(1).
  void touch(position from, position to) { added_.push_back({from, to, 0}); }
  /// What is paid more since the change began, in ns. O(blocks).
  [[nodiscard]] double paid_more() const noexcept {
    // Four sums, as a compiler may not reorder one.
    double sums[4] = {0, 0, 0, 0};
    const auto one = [&](std::size_t k, double& sum) {
      sum += std::max(most_[k], budgets_[k]) - std::max(was_most_[k], budgets_[k]);
    };
    std::size_t k = 0;
    for (; k + 4 <= most_.size(); k += 4)
      for (std::size_t i = 0; i < 4; ++i) one(k + i, sums[i]);
    for (; k < most_.size(); ++k) one(k, sums[0]);
    return penalty_ * (sums[0] + sums[1] + sums[2] + sums[3]);
  }
  /// The change is not made. O(ranges that it added).
  void roll_back() {
    top_.swap(was_top_), most_.swap(was_most_);
    for (const added& x : parts_) above(x.from, x.to, -x.bytes);
  }
  /// It is: changed_since tells it.
  void commit() {
    for (const added& x : added_) note_change(x.from, x.to);
  }
  /// What would be paid more with so many bytes added, in ns. O(blocks).
  [[nodiscard]] double price(position from, position to, double bytes) const {
    double change = 0;
    in_step(from, to, [&](position a, position b) { change += price_within(a, b, bytes); });
    return change;
  }
  /// True if a byte more or less in [from, to) would change what is paid.
  [[nodiscard]] bool is_paid_for(position from, position to) const {
    return any_block(from, to, [&](std::size_t k) { return most_[k] > budgets_[k]; });
  }
  /// Marks what was changed since: `changed_since(from, to, when)` of an earlier `now()`.
  [[nodiscard]] std::uint32_t now() const noexcept { return now_; }
  void tick() noexcept { ++now_; }
  [[nodiscard]] bool changed_since(position from, position to, std::uint32_t when) const {
    return any_block(from, to, [&](std::size_t k) { return changed_[k] > when; });
  }
  void note_change(position from, position to) {
    (void)any_block(from, to, [&](std::size_t k) { return changed_[k] = now_, false; });
  }

 private:
  static std::size_t index(position p) noexcept { return static_cast<std::size_t>(p); }
  // Positions of a block. A change takes O(block + blocks): of a long step both grow as its root.
  static position block_for(position length) noexcept {
    const auto root = static_cast<position>(std::sqrt(length));
    return std::max<position>(1, std::min((length + usual_blocks - 1) / usual_blocks, root));
  }

  template <class F>
  void in_step(position from, position to, const F& f) const {
    while (from < to) {
      const position begin = from - period_of(from, length_) * length_;
      const position n = std::min(length_ - begin, to - from);
      f(begin, begin + n);
      from += n;
    }
  }
  // True if `is(block)` is of any of these, in order.
  template <class Is>
  bool any_block(position from, position to, const Is& is) const {
    bool any = false;
    in_step(from, to, [&](position a, position b) {
      for (position k = a / block_; k <= (b - 1) / block_ && !any; ++k) any = is(index(k));
    });
    return any;
  }
  // A block's fullest position, above its base, if [first, last) had so many bytes more. O(last -
  // first); O(block) only where the fullest one gets less.
  [[nodiscard]] double top_with(std::size_t block, position first, position last,
                                double bytes) const {
    // Four at once, as a compiler may not reorder one.
    const auto most = [&](position from, position to) {
      double x[4] = {-1e300, -1e300, -1e300, -1e300};
      const double* p = above_.data() + from;
      const double* const end = above_.data() + to;
      for (; end - p >= 4; p += 4)
        for (std::size_t i = 0; i < 4; ++i) x[i] = std::max(x[i], p[i]);
      for (; p < end; ++p) x[0] = std::max(x[0], *p);
      return std::max(std::max(x[0], x[1]), std::max(x[2], x[3]));
    };
    const double top = top_[block], inside = most(first, last);
    if (bytes >= 0) return std::max(top, inside + bytes);
    if (inside < top) return top;
    const position begin = static_cast<position>(block) * block_;
    return std::max(
        {most(begin, first), inside + bytes, most(last, std::min(begin + block_, length_))});
  }
  // What of [from, to) is no whole block: part(first, last), each within one. Gives the whole
  // ones between these.
  struct blocks_of {
    position first, last;
  };
  template <class F>
  blocks_of in_parts(position from, position to, const F& part) const {
    position first = from / block_, last = to / block_;
    if (from % block_ != 0) {
      part(from, std::min(to, (first + 1) * block_));
      ++first;
    }
    // The last block may be shorter.
    if (to == length_ && to % block_ != 0 && first <= last && from <= last * block_) ++last;
    if (last >= first && last * block_ < to) part(std::max(from, last * block_), to);
    return {first, last};
  }
  void above(position first, position last, double bytes) {
    for (position p = first; p < last; ++p) above_[index(p)] += bytes;
  }
  void add_within(position from, position to, double bytes) {
    const blocks_of whole = in_parts(from, to, [&](position first, position last) {
      const std::size_t k = index(first / block_);
      const double top = top_with(k, first, last, bytes);
      above(first, last, bytes);
      parts_.push_back({first, last, bytes});
      most_[k] = most_[k] - top_[k] + top, top_[k] = top;
    });
    for (position k = whole.first; k < whole.last; ++k) most_[index(k)] += bytes;
  }
  [[nodiscard]] double price_within(position from, position to, double bytes) const {
    double sum = 0;
    const auto change = [&](std::size_t k, double now) {
      sum += std::max(now, budgets_[k]) - std::max(most_[k], budgets_[k]);
    };
    const blocks_of whole = in_parts(from, to, [&](position first, position last) {
      const std::size_t k = index(first / block_);
      change(k, most_[k] - top_[k] + top_with(k, first, last, bytes));
    });
    for (position k = whole.first; k < whole.last; ++k) change(index(k), most_[index(k)] + bytes);
    return penalty_ * sum;
  }

  struct added {
    position from, to;
    double bytes;
  };

  position length_, block_;
  double budget_, penalty_ = 0;
  std::vector<double> above_;       // by position: bytes above the base of its block
  std::vector<double> top_, most_;  // by block: its fullest position, above the base and in all
  std::vector<double> budgets_;     // by block
  // Of the change that began last: what was before, and what was added.
  std::vector<double> was_top_, was_most_;
  std::vector<added> added_, parts_;    // the parts are those of blocks
  std::vector<std::uint32_t> changed_;  // by block: when
  std::uint32_t now_ = 1;
};

}  // namespace delta::detail
