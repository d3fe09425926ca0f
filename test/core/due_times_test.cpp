// What is on the host and when it is due, against a plain list.
#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "delta/detail/history/due_times.hpp"
#include "dice.hpp"
#include "seeds.hpp"

using namespace delta;
using namespace delta::detail;
using namespace delta::test;

namespace {

constexpr std::uint32_t none = step_record::none;

tensor_id id(std::uint64_t row) {
  return static_cast<tensor_id>(row);
}

/// The same, searched.
struct plain_list {
  struct entry {
    std::uint64_t size;
    std::uint32_t due;   ///< none, or beyond the positions: it does not count
    std::uint64_t left;  ///< when it was added
  };
  std::map<std::uint32_t, entry> all;
  std::size_t positions = 0;

  /// Due first; of several the one that left last.
  [[nodiscard]] tensor_id first_due() const {
    const std::pair<const std::uint32_t, entry>* best = nullptr;
    for (const auto& one : all) {
      const entry& e = one.second;
      if (e.due >= positions) continue;
      if (best == nullptr || e.due < best->second.due ||
          (e.due == best->second.due && e.left > best->second.left))
        best = &one;
    }
    return best == nullptr ? tensor_id::none : id(best->first);
  }
};

}  // namespace

TEST_CASE("due_times: what is due first") {
  for (std::uint64_t seed = 1; seed <= seeds(300); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    due_times list;
    plain_list expected;
    std::uint64_t rows = 1 + roll.below(40), time = 0;
    list.cover(rows);
    CHECK(list.first_due() == tensor_id::none);
    const auto any_due = [&] {
      return roll.one_in(4) ? none : std::uint32_t(roll.below(expected.positions + 5));
    };
    for (int step = 0; step < 300; ++step) {
      CAPTURE(step);
      const auto row = std::uint32_t(roll.below(rows));
      switch (roll.below(roll.one_in(10) ? 6 : 4)) {
        case 0:
        case 1: {
          list.remove(id(row)), expected.all.erase(row);
          // Of no bytes at all a tensor may be, too; but then it is not found.
          const plain_list::entry e{1 + roll.below(100), any_due(), ++time};
          list.add(id(row), bytes{e.size}, e.due);
          expected.all[row] = e;
          break;
        }
        case 2:
          list.remove(id(row)), expected.all.erase(row);
          break;
        case 3:
          list.forget(id(row));
          if (expected.all.contains(row)) expected.all[row].due = none;
          break;
        case 4:
          rows += roll.below(5);
          list.cover(rows);
          list.cover(1);  // fewer than are covered already change nothing
          break;
        default: {
          expected.positions = roll.one_in(5) ? 0 : roll.below(70);
          std::map<std::uint32_t, std::uint32_t> due;
          for (auto& [r, e] : expected.all) due[r] = any_due();
          list.reset(expected.positions,
                     [&](tensor_id t) { return expected.all.at(index(t)).due = due.at(index(t)); });
        }
      }
      REQUIRE(list.first_due() == expected.first_due());
    }
  }
}

TEST_CASE("due_times: a tensor without bytes changes nothing") {
  due_times list;
  list.cover(2);
  list.reset(4, [](tensor_id) { return none; });
  list.add(id(0), 0_B, 1);
  list.add(id(1), 8_B, 2);
  CHECK(list.first_due() == id(1));
  list.remove(id(0)), list.remove(id(1)), list.remove(id(1));
  CHECK(list.first_due() == tensor_id::none);
}

TEST_CASE("due_times: what comes and goes takes no more memory") {
  due_times list;
  list.cover(100);
  const auto unknown = [](tensor_id) { return none; };
  list.reset(1000, unknown);
  const std::size_t before = list.footprint();
  for (int round = 0; round < 10; ++round) {
    for (std::uint64_t row = 0; row < 100; ++row) list.add(id(row), 8_B, std::uint32_t(row * 7));
    list.reset(1000, unknown);
    for (std::uint64_t row = 0; row < 100; ++row) list.remove(id(row));
    CHECK(list.footprint() == before);
  }
}
