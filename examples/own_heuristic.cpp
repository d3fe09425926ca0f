// A heuristic of one's own, beside the library's, on the same work in virtual time.
#include <delta/delta.hpp>
#include <delta/testing/verify_heuristic.hpp>
#include <iostream>
#include <vector>

#include "mostly_big.hpp"

using namespace delta::literals;
using namespace std::chrono_literals;

static_assert(delta::explain_heuristic<mostly_big>());

// The same, and a promise: of what a context tells it reads the bytes alone.
struct mostly_big_declared : mostly_big {
  static constexpr delta::quantity depends_on = delta::quantity::bytes;
};

template <delta::Heuristic H>
delta::nanoseconds time_of(H heuristic) {
  delta::simulated storage{{.capacity = 64_MiB, .host_capacity = 1_GiB}};
  delta::manager manager{heuristic, delta::cheaper{}, delta::no_prefetch{}, storage};
  std::vector<delta::tensor_id> kept{manager.variable(1_MiB)};
  for (int i = 0; i < 32; ++i)
    kept.push_back(manager.run(
        {.inputs = {kept.back()}, .outputs = {i % 3 ? 2_MiB : 12_MiB}, .cost = 1ms}, [](auto&) {}));
  while (kept.size() > 1) {
    const auto g =
        manager.run({.inputs = {kept.back()}, .outputs = {1_MiB}, .cost = 2ms}, [](auto&) {});
    manager.drop(g), manager.drop(kept.back());
    kept.pop_back();
  }
  return storage.now();
}

int main() {
  const auto own = time_of(mostly_big{}), lru = time_of(delta::lru{});
  const delta::heuristic_report report = delta::verify_heuristic(mostly_big_declared{});
  std::cout << "verify_heuristic: " << report.what() << " (seed " << report.seed << ")\n";
  if (!report) return 1;
  std::cout << "mostly_big " << own / 1us << " us, delta::lru " << lru / 1us << " us\n";
  return own > 96ms && own < lru ? 0 : 1;  // 32 operators of 1 ms, 32 of 2 ms, and what it costs
}
