#include <delta/delta.hpp>
#include <iostream>
#include <utility>
#include <vector>

using namespace delta::literals;
using namespace std::chrono_literals;

// Sixteen layers, forward and backward. A simulated machine counts bytes, and time by `cost`.
void train(const char* name, auto policy, delta::bytes budget) {
  delta::simulated machine{{.capacity = budget, .host_capacity = 64_MiB}};
  delta::manager manager{policy, machine};
  const auto kernel = [](delta::call&) {};  // yours computes: call.in(0) -> call.out(0)

  std::vector x{manager.variable(1_MiB, "input")};
  while (x.size() <= 16)
    x.push_back(manager.run({.inputs = {x.back()}, .outputs = {1_MiB}, .cost = 150us}, kernel));
  for (auto dy = manager.variable(1_MiB, "loss"); x.size() > 1; x.pop_back()) {
    const auto dx =
        manager.run({.inputs = {x.back(), dy}, .outputs = {1_MiB}, .cost = 300us}, kernel);
    manager.drop(std::exchange(dy, dx)), manager.drop(x.back());
  }
  const delta::counters& n = manager.counts();
  std::cout << name << ": " << machine.peak().count / 1048576 << " MiB, "
            << machine.now().count() / 1000 << " us, " << n.offloads << " tensors copied out, "
            << n.recomputes << " computed again\n";
}

int main() {
  train("unmanaged", delta::unmanaged(), 64_MiB);
  train("online", delta::online(), 6_MiB);
}
