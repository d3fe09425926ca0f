// A policy of one's own as one object: the three roles share what it remembers.
#include <delta/delta.hpp>
#include <iostream>
#include <set>
#include <vector>

using namespace delta::literals;
using namespace std::chrono_literals;

// The biggest leaves first, but what has left in this step already leaves last.
struct once_a_step : delta::cheaper, delta::no_prefetch {
  double score(const delta::context& c, delta::tensor_id t) const {
    return left_.contains(t) ? c.bytes(t) : -c.bytes(t);  // lower leaves first
  }
  delta::action decide(const delta::context& c, delta::tensor_id t) {
    left_.insert(t);
    return delta::cheaper::decide(c, t);
  }
  void end_of_step(const delta::context&) { left_.clear(); }

 private:
  std::set<delta::tensor_id> left_;
};
static_assert(delta::Policy<once_a_step>);

int main() {
  delta::simulated storage{{.capacity = 8_MiB, .host_capacity = 64_MiB}};
  delta::manager manager{once_a_step{}, storage};
  const delta::tensor_id weights = manager.variable(1_MiB);
  for (int step = 0; step < 2; ++step) {
    std::vector<delta::tensor_id> layers{manager.variable(1_MiB)};
    for (int i = 0; i < 8; ++i)
      layers.push_back(manager.run(
          {.inputs = {layers.back(), weights}, .outputs = {2_MiB}, .cost = 1ms}, [](auto&) {}));
    for (; !layers.empty(); layers.pop_back()) {
      manager.run<0>({.inputs = {layers.back()}, .updates = {weights}, .cost = 2ms}, [](auto&) {});
      manager.drop(layers.back());
    }
    manager.end_of_step();
  }
  const auto& n = manager.counts();
  std::cout << "once_a_step: " << storage.now() / 1us << " us, " << n.evictions << " evictions, "
            << n.offloads << " offloads, at most " << storage.peak().count / 1048576 << " MiB\n";
  return n.evictions + n.offloads > 0 && storage.peak() <= storage.capacity() ? 0 : 1;
}
