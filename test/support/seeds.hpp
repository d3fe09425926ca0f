// delta tests: how many cases a test runs.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "process.hpp"

namespace delta::test {

/// DELTA_TEST_SEEDS, else `usual`, or a tenth of it in a build with assertions or sanitizers.
inline std::uint64_t seeds(std::uint64_t usual = 1000) {
  if (const char* asked = environment("DELTA_TEST_SEEDS")) return std::strtoull(asked, nullptr, 10);
#ifdef NDEBUG
  return usual;
#else
  return usual / 10;
#endif
}

/// DELTA_TEST_LONG=1: all cells of the tables in docs/results/budgets.md, which take minutes; else
/// those that differ most.
inline bool all_cells() {
  return environment("DELTA_TEST_LONG") != nullptr;
}

}  // namespace delta::test
