// delta tests: chance, from a seed.
#pragma once

#include <cstdint>
#include <iterator>
#include <random>

namespace delta::test {

/// The bias of % does not matter in tests.
class dice {
 public:
  explicit dice(std::uint64_t seed) : rng_(seed) {}
  std::uint64_t below(std::uint64_t n) { return rng_() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  std::uint64_t bits() { return rng_(); }
  template <class List>
  auto any(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  std::mt19937_64 rng_;
};

}  // namespace delta::test
