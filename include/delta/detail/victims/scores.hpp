// delta: what a heuristic's answer is worth: one score for either form of heuristic, the lowest of
// several, and the scores of all tensors in columns, a word of 64 rows at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/tensors/id_set.hpp"
#include "delta/units.hpp"

namespace delta::detail {

// A weight that is negative or NaN counts as 0, which leaves last: a broken heuristic loses only
// its say. Bounded, so that no product with a staleness overflows: dropped tensors leave first.
constexpr double valid_weight(double w) noexcept {
  return w > 0 ? std::min(w, 0x1p960) : 0.0;
}
constexpr double valid_score(double s) noexcept {
  return s <= never ? s : never;
}

/// Score of a tensor under either form of heuristic; lower leaves first. A weight w stands for 1 /
/// (w s), equation (1) with any weight; weight 0 gives infinity, which leaves last. What the
/// program has dropped scores minus infinity. As dear as the heuristic's answer.
template <Heuristic H>
double score_of(const H& heuristic, const context& c, tensor_id t) {
  if (c.is_released(t)) return -never;  // nobody wants it back: before all others
  if constexpr (has_weight<H>)
    return 1.0 / (valid_weight(heuristic.weight(c, t)) * c.staleness(t));
  else
    return valid_score(heuristic.score(c, t));
}

/// The lowest score offered so far, of equal ones that with the lower id; a NaN counts as infinite.
/// The order of the offers does not matter, as locks reorder the candidates.
class lowest_score {
 public:
  /// Takes `t` into account. O(1).
  void offer(tensor_id t, double score) noexcept {
    if (!(score <= never)) score = never;
    if (tensor_ == tensor_id::none || score < score_ || (score == score_ && t < tensor_))
      tensor_ = t, score_ = score;
  }
  /// None if nothing was offered.
  [[nodiscard]] tensor_id tensor() const noexcept { return tensor_; }

 private:
  tensor_id tensor_ = tensor_id::none;
  double score_ = never;
};

/// Nothing is less urgent: no row.
inline constexpr double not_urgent = -std::numeric_limits<double>::infinity();

/// What the rows' values stand for.
enum class row_form : std::uint8_t {
  weights,  ///< urgency is weight x staleness, the reciprocal of the score
  scores    ///< of a heuristic that does not read the staleness: urgency is the score's negative
};

/// The most urgent leaves. By row, whole words; `candidates` says which rows count. Pointers into
/// tables that the owner keeps.
struct victim_rows {
  const double* value = nullptr;     ///< weights, not negative; or negated scores
  const double* last_use = nullptr;  ///< ns, as `graph` has it
  const id_set* candidates = nullptr;
  double now = 0;  ///< ns
};

/// Of one row, listed or not. The arithmetic of `score_of`, but for the reciprocal.
template <row_form Form>
constexpr double urgency(const victim_rows& rows, std::size_t row) noexcept {
  if constexpr (Form == row_form::weights)
    return rows.value[row] * staleness(rows.now, rows.last_use[row]);
  else
    return rows.value[row];
}
/// The score that an urgency stands for. Falls as urgency rises; different urgencies may have the
/// same score by rounding, which is what ties are decided on.
template <row_form Form>
constexpr double score_at(double urgency) noexcept {
  return Form == row_form::weights ? 1.0 / urgency : -urgency;
}
/// Below this an urgency is not `highest`'s equal even after rounding. (Where the score overflows,
/// what is not urgent at all is an equal.)
template <row_form Form>
constexpr double nearly(double highest) noexcept {
  if constexpr (Form == row_form::scores) return highest;
  return score_at<Form>(highest) <= std::numeric_limits<double>::max() ? highest * (1.0 - 0x1p-50)
                                                                       : 0.0;
}

/// The highest urgency of word `w`'s rows, of those in `mask`; not_urgent if there is none. Without
/// vector types: those take g++ four times as long, but where it may use AVX2, and then two thirds.
template <row_form Form>
double highest_urgency(const victim_rows& rows, std::size_t w, std::uint64_t mask) noexcept {
  double best = not_urgent;
  for (; mask != 0; mask &= mask - 1)
    best = std::max(best, urgency<Form>(rows, index(id_set::first_of(w, mask))));
  return best;
}

/// The highest urgency of every word's rows: what `first_row` goes by. O(rows).
template <row_form Form>
void scan_words(const victim_rows& rows, std::span<double> per_word) noexcept {
  for (std::size_t w = 0; w < per_word.size(); ++w)
    per_word[w] = highest_urgency<Form>(rows, w, rows.candidates->word(w));
}

/// The row with the lowest score, of equal ones the first; none if none is listed. It looks at rows
/// of those words alone that may hold it. O(words).
template <row_form Form>
tensor_id first_row(const victim_rows& rows, std::span<const double> per_word) noexcept {
  if (rows.candidates->empty()) return tensor_id::none;
  const double highest = std::ranges::max(per_word);
  if (highest == not_urgent) return *rows.candidates->begin();
  // No score is lower, and rows come in the order of ids: the first that has it is the one.
  const double lowest = score_at<Form>(highest);
  const double enough = nearly<Form>(highest);
  for (std::size_t w = 0; w < per_word.size(); ++w) {
    if (per_word[w] < enough) continue;
    for (std::uint64_t mask = rows.candidates->word(w); mask != 0; mask &= mask - 1)
      if (const tensor_id t = id_set::first_of(w, mask);
          score_at<Form>(urgency<Form>(rows, index(t))) == lowest)
        return t;
  }
  return tensor_id::none;
}

}  // namespace delta::detail
