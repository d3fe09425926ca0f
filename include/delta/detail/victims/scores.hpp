// delta: what a heuristic's answer is worth: one score for either form of heuristic, the lowest of
// several, and the scores of all tensors in columns, so that the search for a victim is vector
// instructions over whole words of rows. No intrinsics: vector types, with a scalar twin that tests
// hold it to.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/tensors/id_set.hpp"
#include "delta/units.hpp"

namespace delta::detail {

// What is no weight, or no number, leaves last: a heuristic that breaks its word loses no more than
// its say. None is so heavy that its product with a staleness overflows: what the program has
// dropped leaves before it.
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

/// Which closure costs the graph should keep for this heuristic (`graph::cached_closure`).
template <Heuristic H>
consteval closure costs_to_keep() {
  constexpr quantity q = value_of_depends_on<H>();
  if (q == quantity::everything) return closure::none;
  if (covers(q, quantity::neighbourhood_cost)) return closure::neighbourhood;
  return covers(q, quantity::recompute_cost) ? closure::ancestors : closure::none;
}

/// The lowest score offered so far, of equal ones that with the lower id. A score that is not a
/// number counts as infinite. In whatever order tensors are offered, the same one wins: the order
/// of the candidates changes with every lock, and decisions must not depend on it.
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

/// The highest urgency of word `w`'s rows, of those in `mask`; not_urgent if there is none. Row by
/// row: the twin of the next one, and what stands in for it where the compiler has no vector types.
template <row_form Form>
double highest_urgency_by_row(const victim_rows& rows, std::size_t w, std::uint64_t mask) noexcept {
  double best = not_urgent;
  for (; mask != 0; mask &= mask - 1) {
    const auto bit = static_cast<std::size_t>(std::countr_zero(mask));
    best = std::max(best, urgency<Form>(rows, w * id_set::word_bits + bit));
  }
  return best;
}

#if defined(__GNUC__) && !defined(__CUDACC__)
// Vector types, which g++ and Clang have for every target: without flags that forbid the compiler
// to think of NaN and traps, neither makes vectors of a loop with a maximum.
template <row_form Form>
double highest_urgency(const victim_rows& rows, std::size_t w, std::uint64_t mask) noexcept {
  using numbers = double __attribute__((vector_size(32)));
  using bits = std::int64_t __attribute__((vector_size(32)));
  constexpr std::size_t lanes = 4, chains = 4;
  const auto load = [](numbers& to, const double* from) { std::memcpy(&to, from, sizeof to); };
  const double* value = rows.value + w * id_set::word_bits;
  const double* last_use = rows.last_use + w * id_set::word_bits;
  const numbers now = numbers{} + rows.now, one = numbers{} + 1.0, nothing = numbers{} + not_urgent;
  // Lane k of step i is bit 4 i + k: the mask is shifted, so the bits looked for stay the same.
  const bits lane{1, 2, 4, 8};
  // Several maxima, as each is a chain: the next has to wait for the last.
  numbers best[chains] = {nothing, nothing, nothing, nothing};
  for (std::size_t i = 0; i < id_set::word_bits; i += lanes * chains)
    for (std::size_t k = 0; k < chains; ++k) {
      const std::size_t row = i + k * lanes;
      numbers u, touched;
      load(u, value + row);
      if constexpr (Form == row_form::weights) {
        load(touched, last_use + row);
        const numbers s = now - touched;
        u *= s > one ? s : one;
      }
      const bits shifted = bits{} + static_cast<std::int64_t>((mask >> row) & 15);
      u = (shifted & lane) != 0 ? u : nothing;
      best[k] = u > best[k] ? u : best[k];
    }
  double highest = not_urgent;
  for (const numbers& b : best)
    for (std::size_t k = 0; k < lanes; ++k) highest = std::max(highest, double{b[k]});
  return highest;
}
#else
template <row_form Form>
double highest_urgency(const victim_rows& rows, std::size_t w, std::uint64_t mask) noexcept {
  return highest_urgency_by_row<Form>(rows, w, mask);
}
#endif

/// The highest urgency of every listed word's rows: what `first_row` goes by. O(listed words).
template <row_form Form>
void scan_words(const victim_rows& rows, double* per_word) noexcept {
  rows.candidates->for_each_word([&](std::size_t w, std::uint64_t mask) {
    per_word[w] = highest_urgency<Form>(rows, w, mask);
  });
}
/// The row with the lowest score, of equal ones the first; none if none is listed. It looks at rows
/// of those words alone that may hold it. O(listed words).
template <row_form Form>
tensor_id first_row(const victim_rows& rows, const double* per_word) noexcept {
  double highest = not_urgent;
  rows.candidates->for_each_word(
      [&](std::size_t w, std::uint64_t) { highest = std::max(highest, per_word[w]); });
  if (highest == not_urgent)
    return rows.candidates->empty() ? tensor_id::none : *rows.candidates->begin();
  // No score is lower than this one's, and rows come in the order of their ids: the first that has
  // it is the one.
  const double lowest = score_at<Form>(highest);
  const double enough = nearly<Form>(highest);
  return rows.candidates->find_word([&](std::size_t w, std::uint64_t mask) {
    if (per_word[w] < enough) return tensor_id::none;
    for (; mask != 0; mask &= mask - 1) {
      const std::size_t row =
          w * id_set::word_bits + static_cast<std::size_t>(std::countr_zero(mask));
      if (score_at<Form>(urgency<Form>(rows, row)) == lowest) return static_cast<tensor_id>(row);
    }
    return tensor_id::none;
  });
}

}  // namespace delta::detail
