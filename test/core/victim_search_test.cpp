// The searches for a victim, vector instructions over words of rows and the index, against the
// plain loops that say what they mean. Both are exact, so both are compared to the letter, where
// ties are frequent and rounding is near.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "delta/detail/tensors/id_set.hpp"
#include "delta/detail/victims/index.hpp"
#include "delta/detail/victims/rows.hpp"
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
std::uint64_t any_mask(dice& roll) {
  switch (roll.below(6)) {
    case 0:
      return 0;
    case 1:
      return ~std::uint64_t{0};
    case 2:
      return std::uint64_t{1} << roll.below(64);
    case 3:
      return roll.bits() & roll.bits() & roll.bits();
    default:
      return roll.bits();
  }
}

struct by_weights {
  static constexpr row_form form = row_form::weights;
};
struct by_scores {
  static constexpr row_form form = row_form::scores;
};

}  // namespace

TEST_CASE_TEMPLATE("rows: a word's highest urgency is its scalar twin's", Form, by_weights,
                   by_scores) {
  for (std::uint64_t seed = 0; seed < seeds(2000); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    const table t = hard_table<Form::form>(roll, 3);
    for (std::size_t w = 0; w < 3; ++w)
      for (int k = 0; k < 8; ++k) {
        const std::uint64_t mask = any_mask(roll);
        REQUIRE(highest_urgency<Form::form>(t.rows(), w, mask) ==
                highest_urgency_by_row<Form::form>(t.rows(), w, mask));
      }
  }
}

TEST_CASE_TEMPLATE("rows: a scan finds the lowest score, of equal ones the lower id", Form,
                   by_weights, by_scores) {
  std::array<double, 16> scratch{};
  for (std::uint64_t seed = 0; seed < seeds(5000); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    table t = hard_table<Form::form>(roll, 1 + roll.below(scratch.size()));
    // Few values, so that nearly all are ties; none listed, some, all.
    if (roll.one_in(2)) {
      const std::array few{hard_value<Form::form>(roll), hard_value<Form::form>(roll)};
      for (double& v : t.value) v = roll.any(few);
    }
    const std::uint64_t listed = roll.below(4);
    for (std::size_t row = 0; row < t.value.size(); ++row)
      if (listed == 3 || (listed > 0 && roll.one_in(listed * 20))) t.listed.insert(id(row));
    scratch.fill(-1);
    REQUIRE(scan_rows<Form::form>(t.rows(), scratch.data()) == t.plain<Form::form>());
  }
}

// --- the index ----------------------------------------------------------------------------------

namespace {

/// An index kept as the Filter keeps it, and the number of its builds.
template <row_form Form>
struct indexed {
  table t;
  victim_index<Form> index;
  id_set moved;
  std::vector<double> scratch;
  int built = 0, found_by_index = 0;

  void grow(std::size_t rows) {
    t.grow(rows);
    index.cover(rows);
    moved.cover(rows);
    scratch.resize(t.listed.words());
  }
  void list(tensor_id i) { t.listed.insert(i), moved.insert(i); }
  tensor_id find() {
    if (index.built())
      for (const tensor_id i : moved)
        if (index.built() && t.listed.contains(i)) index.move(t.rows(), i);
    moved.clear();
    if (index.built())
      if (const tensor_id i = index.find(t.rows()); i != tensor_id::none)
        return ++found_by_index, i;
    ++built;
    if (index.build(t.rows()))
      if (const tensor_id i = index.find(t.rows()); i != tensor_id::none)
        return ++found_by_index, i;
    index.forget();
    return scan_rows<Form>(t.rows(), scratch.data());
  }
};

/// What values and times are like in one sequence.
template <row_form Form>
struct kinds {
  std::vector<double> values;
  std::vector<double> steps;

  explicit kinds(dice& roll) {
    static const std::vector<std::vector<double>> weights{
        {1},
        {1, 2},
        {0, 1, 2, 4, 8},     // equal urgency in different weights
        {1.0 / 3, 3, 1, 9},  // urgencies that only rounding parts
        {0, 1, infinite},
        {0},
        {infinite},
        {tiniest, 0, smallest_normal, 1e-300, 1},
        {largest, 1e300, 1, 1e-300},
        {1, 1 + 0x1p-52, 1 + 0x1p-51, 1 - 0x1p-53},  // different urgencies of the same score
        {512, 4096, 65536, 1048576, 3145728},
        {}};  // none are alike
    static const std::vector<std::vector<double>> scores{
        {-1},        {-1, -2, -3}, {infinite, 0, -infinite}, {0.0, -0.0},
        {-infinite}, {infinite},   {-1 - 0x1p-52, -1},       {}};
    const auto& lists = Form == row_form::weights ? weights : scores;
    values = roll.any(lists);
    static const std::vector<std::vector<double>> paces{
        {0}, {1}, {0, 1}, {0, 1, 1000}, {1, 1e6, 1e13}, {1000}, {0, 0, 0, 1e9}};
    steps = roll.any(paces);
  }
  double value(dice& roll) const {
    if (!values.empty()) return roll.any(values);
    const double v = static_cast<double>(1 + roll.below(1u << 30));
    return Form == row_form::weights ? v : -v;
  }
};

/// One random sequence; every answer against the plain scan.
template <row_form Form>
void play(std::uint64_t seed, indexed<Form>& x) {
  dice roll(seed);
  const kinds<Form> of(roll);
  const std::size_t most = roll.one_in(100) ? 5000 : roll.one_in(4) ? 64 : 600;
  std::size_t rows = 1 + roll.below(most);
  x.grow(rows);
  x.t.now = roll.one_in(4) ? 1e15 : roll.one_in(2) ? 1e9 : 1;
  const double ages = roll.one_in(2) ? 4 : 1e6;
  for (std::size_t r = 0; r < rows; ++r) {
    x.t.value[r] = of.value(roll);
    x.t.last_use[r] = std::max(0.0, x.t.now - double(roll.below(static_cast<std::uint64_t>(ages))));
    if (!roll.one_in(10)) x.list(id(r));
  }
  std::vector<tensor_id> hidden;
  for (int step = 0; step < 60; ++step) {
    // Some things at once, as an operator does many.
    for (std::uint64_t n = roll.below(6); n-- > 0;) {
      const tensor_id i = id(roll.below(rows));
      const std::size_t row = delta::index(i);
      switch (roll.below(12)) {
        case 0:
        case 1:
        case 2:  // used: it is locked and unlocked
          x.t.last_use[row] = x.t.now;
          x.list(i);
          break;
        case 3:  // used, and the time is as it was
          x.list(i);
          break;
        case 4:  // gone, for a while; what happens to it meanwhile is told when it is back
          x.t.listed.erase(i);
          break;
        case 5:
          x.t.listed.erase(i);
          x.t.value[row] = of.value(roll);
          x.t.last_use[row] = x.t.now;
          break;
        case 6:
          x.list(i);
          break;
        case 7:
        case 8:
          x.t.value[row] = of.value(roll);
          if (x.t.listed.contains(i)) x.moved.insert(i);
          break;
        case 9:  // new rows, soon or late listed
          if (rows < most + 200) {
            rows += 1 + roll.below(roll.one_in(4) ? 150 : 3);
            x.grow(rows);
            x.t.last_use[rows - 1] = x.t.now;
            x.t.value[rows - 1] = of.value(roll);
            x.list(id(rows - 1));
          }
          break;
        case 10:
          x.t.now += roll.any(of.steps);
          break;
        default:
          if (roll.one_in(30)) x.index.forget();
      }
    }
    const tensor_id found = x.find();
    CAPTURE(step);
    REQUIRE(found == x.t.template plain<Form>());
    // One that may not leave is hidden while others are looked for, and shown again.
    for (std::uint64_t n = roll.one_in(3) ? roll.below(5) : 0; n-- > 0;) {
      const tensor_id i = x.t.template plain<Form>();
      if (i == tensor_id::none) break;
      x.t.listed.erase(i);
      hidden.push_back(i);
      REQUIRE(x.find() == x.t.template plain<Form>());
    }
    for (const tensor_id i : hidden) {
      x.t.listed.insert(i);
      if (x.index.built()) x.index.move(x.t.rows(), i);
    }
    hidden.clear();
    x.t.now += roll.any(of.steps);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("index: what it finds is what the plain scan finds", Form, by_weights,
                   by_scores) {
  int built = 0, found = 0;
  for (std::uint64_t seed = 0; seed < seeds(10'000); ++seed) {
    CAPTURE(seed);
    indexed<Form::form> x;
    play<Form::form>(seed, x);
    built += x.built, found += x.found_by_index;
  }
  std::printf("%d answers by an index, %d builds\n", found, built);
  CHECK(2 * found > built);
}

// In a steady state the tree stands for long: rows become due, the threshold is raised when too
// many are over it and lowered when none is. The one found leaves, or is used.
TEST_CASE("index: long runs in which the time goes on") {
  int built = 0, found = 0;
  for (std::uint64_t seed = 0; seed < seeds(100); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    indexed<row_form::weights> x;
    const std::size_t rows = 300 + roll.below(4000);
    x.grow(rows);
    x.t.now = roll.one_in(2) ? 1e15 : 1e6;
    const std::uint64_t alike = roll.below(3);  // all, as in a few classes, none
    const auto weight = [&] {
      if (alike == 0) return 1 + double(roll.below(4)) * 0x1p-52;
      return alike == 1 ? double(1 + roll.below(12)) : double(1 + roll.below(1u << 30)) / 3;
    };
    const auto use = [&](tensor_id i) {
      x.t.last_use[delta::index(i)] = x.t.now;
      x.list(i);
    };
    for (std::size_t r = 0; r < rows; ++r) {
      x.t.value[r] = weight();
      x.t.last_use[r] = x.t.now - double(roll.below(100'000));
      x.list(id(r));
    }
    const double pace = roll.any(std::array{1.0, 10.0, 1000.0, 100'000.0});
    const std::uint64_t used_each = roll.below(4), searches = 1 + roll.below(3);
    for (int step = 0; step < 400; ++step) {
      CAPTURE(step);
      x.t.now += pace;
      for (std::uint64_t n = used_each; n-- > 0;) use(id(roll.below(rows)));
      for (std::uint64_t n = searches; n-- > 0;) {
        const tensor_id i = x.find();
        REQUIRE(i == x.t.plain<row_form::weights>());
        if (i == tensor_id::none) break;
        x.t.listed.erase(i);
        // It comes back at once, soon, or not at all.
        if (roll.one_in(2)) use(i);
      }
      if (roll.one_in(2)) use(id(roll.below(rows)));
    }
    built += x.built, found += x.found_by_index;
  }
  std::printf("long runs: %d answers by an index, %d builds\n", found, built);
  CHECK(found > 20 * built);
}
