// delta: the victim index: the most urgent row without looking at all of them. Urgency rises with
// time while a tensor is not used, so the moment at which a row will reach a threshold stands as
// long as nobody touches it: rows that are not due yet need not be looked at. (Kinetic tournaments,
// which keep the whole order, have to be mended more often than anybody asks.)
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "delta/detail/tensors/id_set.hpp"
#include "delta/detail/victims/rows.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Rows over the threshold are in a short list; of all others a tree knows when the first of them
/// is due:
///
///   due      [                 min over 16               ]   one per 4,096 rows
///            [ min over 16 ][ min over 16 ] ...              one per 256
///            [  ][  ][  ] ...                                one per leaf of 16 rows
///
/// A touch makes a row due later than its leaf believes, which costs one look into the leaf and no
/// more; so touching costs nothing here. Where nothing is over the threshold it is lowered and the
/// tree made anew; where too much is, it is raised, which needs no new tree: rows are due later
/// than believed. What a search finds is exact; the threshold decides only what it costs.
template <row_form Form>
class victim_index {
 public:
  [[nodiscard]] bool built() const noexcept { return built_; }
  /// Rows that it can hold without the heap. Throws std::bad_alloc.
  void cover(std::size_t rows) { over_.cover(rows); }
  void forget() noexcept { built_ = false; }

  /// Makes it anew for all rows that are listed. False: no threshold parts few from many, as where
  /// all are equally urgent; then a plain scan is the better search. O(rows), some passes. Throws
  /// std::bad_alloc.
  bool build(const victim_rows& rows) {
    built_ = false;
    over_.clear();
    hot_.clear();
    const std::size_t leaves = rows.listed->words() * (id_set::word_bits / leaf_rows);
    shape(leaves + leaves / 2);  // rows may be added for a while
    wanted_ = std::clamp(static_cast<std::size_t>(std::sqrt(double(rows.listed->size())) / 2),
                         std::size_t{32}, std::size_t{512});
    if (!choose_threshold(rows)) return false;
    for (double& d : due_[0]) d = never_due;
    rows.listed->for_each_word([&](std::size_t w, std::uint64_t word) {
      if (hot_.size() > most_over()) return;
      for (std::size_t k = 0; k < id_set::word_bits / leaf_rows; ++k)
        if (((word >> (k * leaf_rows)) & leaf_mask) != 0)
          look_into(rows, w * (id_set::word_bits / leaf_rows) + k);
    });
    if (hot_.size() > most_over()) return false;
    for (std::size_t level = 1; level < levels_; ++level)
      for (std::size_t i = 0; i < due_[level - 1].size() / branches; ++i)
        due_[level][i] = earliest(level - 1, i);
    limit_ = wanted_;
    return built_ = true;
  }

  /// The row is listed or weighs something else. (Of a use nobody need tell.) Amortised O(1): it
  /// climbs while it is due earlier than its neighbours.
  void move(const victim_rows& rows, tensor_id t) noexcept {
    over_.erase(t);
    const std::size_t leaf = index(t) / leaf_rows;
    if (leaf >= due_[0].size()) return forget();  // a new word of rows
    climb(leaf, due(rows, index(t)));
  }

  /// The row with the lowest score, of equal ones the first; none: no listed row is over the
  /// threshold.
  tensor_id find(const victim_rows& rows) {
    if (hot_.size() > limit_) raise(rows);
    for (std::size_t round = 0;; ++round) {
      fill_levels(rows, levels_ - 1, 0);
      const double highest = hot_.highest(rows.now);
      // Not so near the threshold that rounding could hide an equal below it.
      if (hot_.size() == 0 || !clearly_over(highest)) return tensor_id::none;
      // Stale ones are noticed when they would win, as the last victim would; many go together, as
      // each costs a search. What was only used may still be over, so it is looked for again.
      std::size_t at = 0;
      if (const tensor_id t = hot_.first_with(highest, rows, at); t != tensor_id::none) return t;
      round < 3 ? put_back(rows, at) : put_back_stale(rows);
    }
  }

 private:
  static constexpr std::size_t leaf_rows = 16, branches = 16;
  static constexpr std::uint64_t leaf_mask = (std::uint64_t{1} << leaf_rows) - 1;
  static constexpr double never_due = std::numeric_limits<double>::infinity();
  // What was over the threshold when last looked at, with what it was looked at with. In columns,
  // whole words, as the rows themselves: what is searched is searched in one way.
  class short_list {
   public:
    [[nodiscard]] std::size_t size() const noexcept { return tensor_.size(); }
    [[nodiscard]] tensor_id tensor(std::size_t i) const noexcept { return tensor_[i]; }
    void clear() noexcept { tensor_.clear(); }
    void add(const victim_rows& rows, std::size_t row) {
      if (tensor_.size() == value_.size()) {
        value_.resize(value_.size() + id_set::word_bits);
        last_use_.resize(value_.size());
        per_word_.push_back(not_urgent);
      }
      value_[tensor_.size()] = rows.value[row];
      last_use_[tensor_.size()] = rows.last_use[row];
      tensor_.push_back(static_cast<tensor_id>(row));
    }
    // The last one fills the gap.
    void erase(std::size_t i) noexcept {
      const std::size_t last = size() - 1;
      value_[i] = value_[last], last_use_[i] = last_use_[last], tensor_[i] = tensor_[last];
      tensor_.pop_back();
    }
    // It has been touched, weighed anew, or is no candidate any more.
    [[nodiscard]] bool stale(std::size_t i, const victim_rows& rows) const noexcept {
      const std::size_t row = index(tensor_[i]);
      return !rows.listed->contains(tensor_[i]) || rows.value[row] != value_[i] ||
             rows.last_use[row] != last_use_[i];
    }
    [[nodiscard]] double urgency_at(std::size_t i, double now) const noexcept {
      return urgency<Form>({value_.data(), last_use_.data(), nullptr, now}, i);
    }
    [[nodiscard]] double highest(double now) noexcept {
      const victim_rows rows{value_.data(), last_use_.data(), nullptr, now};
      double most = not_urgent;
      for (std::size_t w = 0; w * id_set::word_bits < size(); ++w) {
        const std::size_t left = size() - w * id_set::word_bits;
        const std::uint64_t mask =
            left >= id_set::word_bits ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
        most = std::max(most, per_word_[w] = highest_urgency<Form>(rows, w, mask));
      }
      return most;
    }
    // The lowest id of those whose score is that of `highest`, which was just found. None: a stale
    // one is among them, the one at `at`.
    [[nodiscard]] tensor_id first_with(double highest, const victim_rows& rows,
                                       std::size_t& at) const noexcept {
      const double lowest = score_at<Form>(highest), enough = nearly<Form>(highest);
      tensor_id found = tensor_id::none;
      for (std::size_t w = 0; w * id_set::word_bits < size(); ++w) {
        if (per_word_[w] < enough) continue;
        const std::size_t first = w * id_set::word_bits;
        const std::size_t end = std::min(size(), first + id_set::word_bits);
        for (std::size_t i = first; i < end; ++i) {
          const double u = urgency_at(i, rows.now);
          if (u < enough || score_at<Form>(u) != lowest) continue;
          if (stale(i, rows)) return at = i, tensor_id::none;
          found = std::min(found, tensor_[i]);
        }
      }
      return found;
    }

   private:
    std::vector<double> value_, last_use_, per_word_;
    std::vector<tensor_id> tensor_;
  };
  // What was used since goes back to its leaf. What is no candidate is moved when it is one again.
  void put_back(const victim_rows& rows, std::size_t at) noexcept {
    if (rows.listed->contains(hot_.tensor(at))) move(rows, hot_.tensor(at));
    hot_.erase(at);
  }
  void put_back_stale(const victim_rows& rows) noexcept {
    for (std::size_t i = 0; i < hot_.size();) hot_.stale(i, rows) ? put_back(rows, i) : void(++i);
  }
  [[nodiscard]] bool clearly_over(double urgency) const noexcept {
    return Form == row_form::weights ? urgency >= threshold_ * (1.0 + 0x1p-40)
                                     : urgency >= threshold_;
  }
  // Not later than the moment at which the row is over the threshold: rounded down by more than
  // what rounding may have added, and by the nanosecond that a staleness has at least.
  [[nodiscard]] double due(const victim_rows& rows, std::size_t row) const noexcept {
    if constexpr (Form == row_form::weights) {
      const double at = rows.last_use[row] + threshold_ / rows.value[row];
      return at < never_due ? at - at * 0x1p-50 - 1.0 : never_due;
    } else {
      return rows.value[row] >= threshold_ ? -never_due : never_due;
    }
  }

  // The tree's levels, from the leaves to one node.
  void shape(std::size_t leaves) {
    levels_ = 0;
    for (std::size_t n = leaves;; n = (n + branches - 1) / branches) {
      if (levels_ == due_.size()) due_.emplace_back();
      // Whole nodes.
      due_[levels_++].assign((n + branches - 1) / branches * branches, never_due);
      if (n <= branches) return;
    }
  }
  [[nodiscard]] double earliest(std::size_t level, std::size_t node) const noexcept {
    const double* d = due_[level].data() + node * branches;
    double first = never_due;
    for (std::size_t i = 0; i < branches; ++i) first = d[i] < first ? d[i] : first;
    return first;
  }
  void climb(std::size_t i, double at) noexcept {
    for (std::size_t level = 0; level < levels_ && at < due_[level][i]; ++level, i /= branches)
      due_[level][i] = at;
  }
  // Looks into every leaf below a node that is due.
  void fill_levels(const victim_rows& rows, std::size_t level, std::size_t node) {
    for (std::size_t i = node * branches; i < (node + 1) * branches; ++i) {
      if (due_[level][i] > rows.now) continue;
      if (level == 0) {
        look_into(rows, i);
      } else {
        fill_levels(rows, level - 1, i);
        due_[level][i] = earliest(level - 1, i);
      }
    }
  }
  // Rows over the threshold join the list; the leaf learns when the next of the others is due.
  void look_into(const victim_rows& rows, std::size_t leaf) {
    const std::size_t first = leaf * leaf_rows, w = first / id_set::word_bits;
    const std::size_t shift = first % id_set::word_bits;
    std::uint64_t left = ((rows.listed->word(w) & ~over_.word(w)) >> shift) & leaf_mask;
    double next = never_due;
    for (; left != 0; left &= left - 1) {
      const std::size_t row = first + static_cast<std::size_t>(std::countr_zero(left));
      if (urgency<Form>(rows, row) >= threshold_) {
        hot_.add(rows, row);
        over_.insert(static_cast<tensor_id>(row));
      } else {
        const double at = due(rows, row);
        next = at < next ? at : next;
      }
    }
    due_[0][leaf] = next;
  }

  // Of as many leaves all rows may be over the threshold, where neighbours are of one age; the next
  // search raises it. More are so many equals.
  [[nodiscard]] std::size_t most_over() const noexcept { return (wanted_ / 2 + 2) * leaf_rows; }
  // So that about half of what is wanted is over it: the urgency of that many leaves' first.
  bool choose_threshold(const victim_rows& rows) {
    std::vector<double>& tops = scratch_;
    tops.clear();
    rows.listed->for_each_word([&](std::size_t w, std::uint64_t word) {
      for (std::size_t k = 0; k < id_set::word_bits / leaf_rows; ++k) {
        const std::uint64_t leaf = word & (leaf_mask << (k * leaf_rows));
        if (leaf == 0) continue;
        const double top = highest_urgency_by_row<Form>(rows, w, leaf);
        if (Form == row_form::scores || top > 0) tops.push_back(top);
      }
    });
    if (tops.empty()) return false;
    const std::size_t rank = std::min(wanted_ / 2, tops.size() - 1);
    std::nth_element(tops.begin(), tops.begin() + std::ptrdiff_t(rank), tops.end(),
                     std::greater<>());
    threshold_ = Form == row_form::weights ? tops[rank] * (1.0 - 0x1p-30) : tops[rank];
    // A score that overflows has equals below any threshold.
    return std::isfinite(threshold_) && std::isfinite(score_at<Form>(threshold_));
  }
  // Too many are over it: half of what is wanted stay, the others go back to their leaves.
  void raise(const victim_rows& rows) {
    put_back_stale(rows);
    if (hot_.size() > wanted_) {
      std::vector<double>& all = scratch_;
      all.clear();
      for (std::size_t i = 0; i < hot_.size(); ++i) all.push_back(hot_.urgency_at(i, rows.now));
      const auto at = all.begin() + std::ptrdiff_t(wanted_ / 2);
      std::nth_element(all.begin(), at, all.end(), std::greater<>());
      if (std::isfinite(*at)) threshold_ = std::max(threshold_, *at);
      for (std::size_t i = 0; i < hot_.size();) {
        if (hot_.urgency_at(i, rows.now) >= threshold_) {
          ++i;
        } else {
          move(rows, hot_.tensor(i));
          hot_.erase(i);
        }
      }
    }
    // Where many are equal they stay: looked at again once there are twice as many.
    limit_ = std::max(wanted_, 2 * hot_.size());
  }

  bool built_ = false;
  double threshold_ = 0;
  std::size_t wanted_ = 64;  // in the list, at most, about
  std::size_t limit_ = 64;   // of the list, before the threshold is raised
  std::size_t levels_ = 0;
  std::vector<std::vector<double>> due_;  // from the leaves up
  short_list hot_;
  id_set over_;  // rows in the list, as far as their leaves know
  std::vector<double> scratch_;
};

}  // namespace delta::detail
