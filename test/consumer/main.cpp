// The smallest program that needs delta: a chain of operators in half of the memory that it takes,
// in virtual time.
#include <array>
#include <delta/presets.hpp>
#include <delta/storage/simulated.hpp>
#include <iostream>

int main() {
  using namespace delta::literals;
  delta::simulated storage{{.capacity = 4_MiB}};
  delta::manager manager{delta::recompute_only(), storage};

  std::array<delta::tensor_id, 8> chain{};
  delta::tensor_id last = manager.variable(1_MiB);
  for (auto& made : chain) {
    made = last = manager.run({.inputs = {last}, .outputs = {1_MiB}}, [](auto&) {});
  }
  std::cout << chain.size() + 1 << " MiB of tensors in " << storage.capacity().count
            << " bytes: " << manager.counts().evictions << " evictions\n";
  return manager.counts().evictions > 0 && storage.used() <= storage.capacity() ? 0 : 1;
}
