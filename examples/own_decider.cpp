// A decider of one's own, beside the library's, on the same work in virtual time.
#include <delta/delta.hpp>
#include <iostream>
#include <vector>

using namespace delta::literals;
using namespace std::chrono_literals;

// What takes long to compute again goes to the host; the rest is dropped.
struct save_the_dear {
  delta::action decide(const delta::context& c, delta::tensor_id t) const {
    return c.recompute_cost(t) > 2e6 ? delta::action::offload : delta::action::evict;  // ns
  }
};
static_assert(delta::explain_decider<save_the_dear>());

// Every second layer is dear. Copies are slow: 1 ms for a layer's output.
template <delta::Decider D>
delta::nanoseconds time_of(D decider) {
  delta::simulated storage{
      {.capacity = 16_MiB, .host_capacity = 1_GiB, .rate_out = 2e9, .rate_in = 2e9}};
  delta::manager manager{delta::base{}, decider, delta::no_prefetch{}, storage};
  std::vector<delta::tensor_id> kept{manager.variable(2_MiB)};
  for (int i = 0; i < 32; ++i)
    kept.push_back(manager.run(
        {.inputs = {kept.back()}, .outputs = {2_MiB}, .cost = i % 2 ? 10ms : 100us}, [](auto&) {}));
  while (kept.size() > 1) {
    const auto g =
        manager.run({.inputs = {kept.back()}, .outputs = {1_MiB}, .cost = 2ms}, [](auto&) {});
    manager.drop(g), manager.drop(kept.back());
    kept.pop_back();
  }
  return storage.now();
}

// As a member of a class. The storage is declared first, as it must outlive the manager.
auto save() {
  return delta::policy{delta::base{}, save_the_dear{}, delta::no_prefetch{}};
}
class session {
  delta::simulated storage_{{.capacity = 4_MiB, .host_capacity = 64_MiB}};
  delta::manager<decltype(save()), delta::simulated> manager_{save(), storage_};

 public:
  // Every second one of `layers` is dear; two fit at a time. Gives how many were saved.
  auto saved(int layers) {
    delta::tensor_id x = manager_.variable(1_MiB);
    for (int i = 0; i < layers; ++i)
      x = manager_.run({.inputs = {x}, .outputs = {2_MiB}, .cost = i % 2 ? 10ms : 100us},
                       [](auto&) {});
    return manager_.counts().offloads;
  }
};

int main() {
  if (session().saved(8) == 0) return 1;
  const auto own = time_of(save_the_dear{}), evict = time_of(delta::evict_only{}),
             offload = time_of(delta::offload_only{});
  std::cout << "save_the_dear " << own / 1us << " us, delta::evict_only " << evict / 1us
            << " us, delta::offload_only " << offload / 1us << " us\n";
  return own < evict && own < offload ? 0 : 1;
}
