// Sets of ids, against std::set.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "delta/detail/tensors/id_set.hpp"
#include "dice.hpp"
#include "seeds.hpp"

using namespace delta;
using namespace delta::detail;
using namespace delta::test;

namespace {

tensor_id id(std::uint64_t row) {
  return static_cast<tensor_id>(row);
}

/// All that a set tells, against std::set.
void check_equal(const id_set& s, const std::set<std::uint32_t>& expected) {
  REQUIRE(s.size() == expected.size());
  REQUIRE(s.empty() == expected.empty());
  std::vector<std::uint32_t> iterated, by_word;
  for (const tensor_id t : s) iterated.push_back(index(t));
  REQUIRE(std::ranges::equal(iterated, expected));
  for (std::size_t w = 0; w < s.words(); ++w)
    for (std::uint32_t bit = 0; bit < 64; ++bit)
      if ((s.word(w) >> bit & 1) != 0) by_word.push_back(static_cast<std::uint32_t>(w * 64) + bit);
  REQUIRE(std::ranges::equal(by_word, expected));
}

}  // namespace

TEST_CASE("id_set: what a set of numbers does, in its order") {
  for (std::uint64_t seed = 0; seed < seeds(200); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    id_set s;
    std::set<std::uint32_t> expected;
    std::uint64_t rows = 0;
    for (int step = 0; step < 200; ++step) {
      if (rows == 0 || roll.one_in(20)) {
        const std::uint64_t covered = roll.below(1u << (4 + roll.below(10))) + 1;
        s.cover(covered);  // fewer than are covered already change nothing
        rows = std::max(rows, covered);
        REQUIRE(s.words() == (rows + 63) / 64);
      }
      const auto row = static_cast<std::uint32_t>(
          roll.one_in(3) ? std::min<std::uint64_t>(rows - 1, 63 + roll.below(3))
                         : roll.below(rows));
      const std::uint64_t what = roll.below(40);
      if (what < 24) {
        s.insert(id(row)), expected.insert(row);
      } else if (what < 38) {
        s.erase(id(row)), expected.erase(row);
      } else if (what == 38) {
        s.erase(id(rows + 1000));  // not covered: not in
      } else if (roll.one_in(3)) {
        s.clear(), expected.clear();
      }
      REQUIRE(s.contains(id(row)) == expected.contains(row));
      REQUIRE_FALSE(s.contains(id(rows + 1000)));
      check_equal(s, expected);
    }
  }
}

TEST_CASE("id_set: a loop may erase at its place, and behind it") {
  for (std::uint64_t seed = 0; seed < seeds(200); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    id_set s;
    s.cover(9000);
    std::set<std::uint32_t> before, left;
    for (std::uint64_t i = roll.below(300); i-- > 0;) {
      const auto row = static_cast<std::uint32_t>(roll.below(roll.one_in(2) ? 200 : 9000));
      s.insert(id(row)), before.insert(row);
    }
    left = before;
    std::vector<std::uint32_t> visited;
    for (const tensor_id t : s) {
      visited.push_back(index(t));
      if (roll.one_in(2)) s.erase(t), left.erase(index(t));
      const std::uint32_t earlier = visited[roll.below(visited.size())];
      if (roll.one_in(4)) s.erase(id(earlier)), left.erase(earlier);
    }
    REQUIRE(std::ranges::equal(visited, before));
    check_equal(s, left);
  }
}
