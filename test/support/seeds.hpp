// delta tests: how many cases a test runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "process.hpp"

namespace delta::test {

/// True in a build with assertions or sanitizers, where everything takes many times longer.
#ifdef NDEBUG
inline constexpr bool slow_build = false;
#else
inline constexpr bool slow_build = true;
#endif

/// DELTA_TEST_SEEDS, else `usual`, or a tenth of it, but one at least, in a slow build.
inline std::uint64_t seeds(std::uint64_t usual = 1000) {
  if (const char* asked = environment("DELTA_TEST_SEEDS")) return std::strtoull(asked, nullptr, 10);
  return slow_build ? std::max<std::uint64_t>(usual / 10, 1) : usual;
}

/// DELTA_TEST_LONG=1: all cells of the tables in docs/results/budgets.md, which take minutes; else
/// those that differ most.
inline bool all_cells() {
  return environment("DELTA_TEST_LONG") != nullptr;
}

}  // namespace delta::test
