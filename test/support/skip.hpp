// delta tests: what does not run, and says so.
#pragma once

#include <string_view>

namespace delta::test {

/// Says on stdout that a test, or a part of it, does not run, and why. The program then ends with
/// exit code 77 unless something fails, and ctest reports it as skipped. Defined in
/// doctest_main.cpp.
void skip(std::string_view what, std::string_view why);

}  // namespace delta::test
