// Watching a manager: an observer of one's own, and a timeline for Perfetto.
#include <delta/delta.hpp>
#include <delta/timeline.hpp>
#include <fstream>
#include <iostream>
#include <vector>

using namespace delta::literals;
using namespace std::chrono_literals;

// What every decision to let a tensor go costs more than the best of both ways: regret, in ns.
struct regret {
  double* sum;
  void on(const delta::event& e) const {
    if (e.what == delta::event_kind::evict || e.what == delta::event_kind::offload)
      *sum += e.cost - std::min(e.cost, e.alternative);
  }
};

template <delta::Observer O>
delta::counters train(O observer) {
  delta::simulated storage{{.capacity = 64_MiB, .host_capacity = 1_GiB}};
  delta::manager manager{delta::paper(), storage, observer};
  std::vector<delta::tensor_id> kept{manager.variable(1_MiB)};
  for (int i = 0; i < 32; ++i)
    kept.push_back(manager.run({.inputs = {kept.back()},
                                .outputs = {i % 3 ? 2_MiB : 12_MiB},
                                .cost = i % 2 ? 1ms : 2500us,
                                .name = "layer"},
                               [](auto&) {}));
  manager.backward();
  while (kept.size() > 1) {
    manager.drop(
        manager.run({.inputs = {kept.back()}, .outputs = {1_MiB}, .cost = 4ms, .name = "gradient"},
                    [](auto&) {}));
    manager.drop(kept.back());
    kept.pop_back();
  }
  return manager.counts();
}

int main() {
  double sum = 0;
  const delta::counters n = train(regret{&sum});
  std::cout << n.evictions << " evicted, " << n.offloads << " offloaded, " << sum / 1e6
            << " ms more than the best of both ways\n";

  std::ofstream file("timeline.json");
  {
    delta::timeline lanes{file};
    train(delta::observed_by{&lanes});
  }
  std::cout << "timeline.json: open it in ui.perfetto.dev or chrome://tracing\n";
  return n.offloads > 0 && sum > 0 && file.flush() ? 0 : 1;
}
