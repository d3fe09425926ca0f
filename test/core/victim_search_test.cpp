// The search for a victim over words of rows, against the plain loop that says what it means. It is
// exact, so it is compared to the letter, where ties are frequent and rounding is near.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "delta/detail/tensors/id_set.hpp"
#include "delta/detail/victims/scores.hpp"
#include "dice.hpp"
#include "seeds.hpp"

using namespace delta;
using namespace delta::detail;
using namespace delta::test;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double tiniest = std::numeric_limits<double>::denorm_min();
constexpr double smallest_normal = std::numeric_limits<double>::min();
constexpr double largest = std::numeric_limits<double>::max();

tensor_id id(std::uint64_t row) {
  return static_cast<tensor_id>(row);
}

}  // namespace

// --- rows ---------------------------------------------------------------------------------------

namespace {

/// Values and last uses by row, whole words, and which rows are listed.
struct table {
  std::vector<double> value, last_use;
  id_set listed;
  double now = 1;

  void grow(std::size_t rows) {
    listed.cover(rows);
    value.resize(listed.words() * 64);
    last_use.resize(listed.words() * 64);
  }
  [[nodiscard]] victim_rows rows() const { return {value.data(), last_use.data(), &listed, now}; }

  /// What the searches must find: row by row, the lowest score, of equal ones the first.
  template <row_form Form>
  [[nodiscard]] tensor_id plain() const {
    tensor_id best = tensor_id::none;
    double lowest = 0;
    for (std::size_t row = 0; row < value.size(); ++row) {
      if (!listed.contains(id(row))) continue;
      const double score = score_at<Form>(urgency<Form>(rows(), row));
      if (best == tensor_id::none || score < lowest) best = id(row), lowest = score;
    }
    return best;
  }
};

// Where rounding, overflow and the lack of it lie.
constexpr std::array hard_weights{0.0,
                                  tiniest,
                                  3 * tiniest,
                                  smallest_normal / 8,
                                  smallest_normal,
                                  1e-300,
                                  1.0 / 3,
                                  1.0,
                                  1.0 + 0x1p-52,
                                  3.0,
                                  1e18,
                                  largest / 2,
                                  largest,
                                  infinite};
constexpr std::array hard_scores{-infinite, -largest, -1.0 - 0x1p-52,  -1.0, -tiniest,
                                 -0.0,      0.0,      smallest_normal, 1.0,  largest,
                                 infinite};

template <row_form Form>
double hard_value(dice& roll) {
  if (roll.one_in(8)) return static_cast<double>(roll.below(1u << 20));
  return Form == row_form::weights ? roll.any(hard_weights) : roll.any(hard_scores);
}
template <row_form Form>
table hard_table(dice& roll, std::size_t words) {
  table t;
  t.grow(words * 64);
  t.now = roll.one_in(2) ? static_cast<double>(roll.below(20)) : 9.0e15 + double(roll.below(20));
  for (std::size_t row = 0; row < t.value.size(); ++row) {
    t.value[row] = hard_value<Form>(roll);
    // Just used, used a moment ago, or at the beginning.
    t.last_use[row] = roll.one_in(4) ? 0 : std::max(0.0, t.now - double(roll.below(8)));
  }
  return t;
}
struct by_weights {
  static constexpr row_form form = row_form::weights;
};
struct by_scores {
  static constexpr row_form form = row_form::scores;
};

}  // namespace

TEST_CASE_TEMPLATE("rows: a scan finds the lowest score, of equal ones the lower id", Form,
                   by_weights, by_scores) {
  std::vector<double> per_word;
  for (std::uint64_t seed = 0; seed < seeds(5000); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    table t = hard_table<Form::form>(roll, 1 + roll.below(16));
    // Few values, so that nearly all are ties; none listed, some, all.
    if (roll.one_in(2)) {
      const std::array few{hard_value<Form::form>(roll), hard_value<Form::form>(roll)};
      for (double& v : t.value) v = roll.any(few);
    }
    const std::uint64_t listed = roll.below(4);
    for (std::size_t row = 0; row < t.value.size(); ++row)
      if (listed == 3 || (listed > 0 && roll.one_in(listed * 20))) t.listed.insert(id(row));
    per_word.assign(t.listed.words(), -1);
    scan_words<Form::form>(t.rows(), per_word);
    REQUIRE(first_row<Form::form>(t.rows(), per_word) == t.plain<Form::form>());
  }
}
