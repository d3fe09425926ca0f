// delta tests: main. Exit code 77: nothing failed, but something was skipped (skip.hpp).
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <string_view>

#include "skip.hpp"

namespace {
int skips = 0;
}

void delta::test::skip(std::string_view what, std::string_view why) {
  ++skips;
  std::printf("\nSKIPPED: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
              static_cast<int>(why.size()), why.data());
}

int main(int argc, char** argv) {
  doctest::Context tests(argc, argv);
  const int result = tests.run();
  constexpr int skipped = 77;
  return result == 0 && skips > 0 ? skipped : result;
}
