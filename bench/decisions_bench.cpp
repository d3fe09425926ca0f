// What the manager itself costs: ns per pair of operators by policy and number of live tensors,
// over the simulated storage, kernels empty, costs given. `fits`: everything stays, so this is the
// price of records, locks and touches. `pressed`: the budget holds nine tenths of the live tensors,
// so that every pair chooses victims and one in ten has to bring something back.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <vector>

#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"

namespace {

using namespace delta;

constexpr std::uint64_t seed = 20220430;
constexpr std::uint64_t tensor_bytes = 1 << 20;
constexpr std::size_t segment = 32;

struct lru_evict {
  auto operator()() const { return policy<lru, evict_only, no_prefetch>{}; }
};
struct base_offload {
  auto operator()() const { return policy<base, offload_only, no_prefetch>{}; }
};
struct dtr_preset {
  auto operator()() const { return recompute_only(); }
};
struct online_preset {
  auto operator()() const { return online(); }
};
struct paper_preset {
  auto operator()() const { return paper(); }
};

/// A pair of operators in a steady state: one makes a tensor from its two neighbours in a segment
/// of 32, one reads a tensor anywhere; then the oldest tensor is dropped. Segments start at a
/// variable, so that records are as bounded as a training step's.
template <class Preset>
void pair_of_operators(benchmark::State& state, bool pressed) {
  const auto live = static_cast<std::size_t>(state.range(0));
  const std::uint64_t budget = pressed ? live - live / 10 : live + 8;
  simulated storage({.capacity = bytes{budget * tensor_bytes},
                     .host_capacity = bytes{2 * live * tensor_bytes},
                     .latency = nanoseconds{10'000}});
  manager m{Preset{}(), storage};
  std::mt19937_64 random(seed);
  std::vector<tensor_id> ring;
  const tensor_id source = m.variable(bytes{tensor_bytes});
  const auto kernel = [](call&) {};
  const operation_span touch_only{.cost = nanoseconds{50'000}};
  const auto make = [&](std::size_t i, tensor_id last, tensor_id before) {
    return m.run({.inputs = {i % segment == 0 ? source : last, i % segment < 2 ? source : before},
                  .outputs = {bytes{tensor_bytes}},
                  .cost = nanoseconds{50'000}},
                 kernel);
  };
  for (std::size_t i = 0; i < live; ++i)
    ring.push_back(make(i, i == 0 ? source : ring[i - 1], i < 2 ? source : ring[i - 2]));
  std::size_t made = live;
  std::size_t head = 0;
  const auto evaluations = m.evaluations();
  const auto recomputes = m.counts().recomputes;
  for (auto _ : state) {
    const std::size_t newest = (head + live - 1) % live, before = (head + live - 2) % live;
    const std::size_t any = (head + 1 + random() % (live - 1)) % live;
    const tensor_id next = make(made++, ring[newest], ring[before]);
    auto touch = touch_only;
    touch.inputs = {&ring[any], 1};
    m.run(touch, {}, kernel);
    m.drop(ring[head]);
    ring[head] = next;
    head = (head + 1) % live;
  }
  const auto per_operator = [&](std::uint64_t n) {
    return benchmark::Counter(static_cast<double>(n), benchmark::Counter::kAvgIterations);
  };
  state.counters["evaluations"] = per_operator(m.evaluations() - evaluations);
  state.counters["recomputes"] = per_operator(m.counts().recomputes - recomputes);
  state.counters["records"] = static_cast<double>(m.live_records());
}

template <class Preset>
void fits(benchmark::State& state) {
  pair_of_operators<Preset>(state, false);
}
template <class Preset>
void pressed(benchmark::State& state) {
  pair_of_operators<Preset>(state, true);
}

BENCHMARK(fits<lru_evict>)->Arg(100)->Arg(1000)->Arg(10000);
BENCHMARK(fits<base_offload>)->Arg(100)->Arg(1000)->Arg(10000);
BENCHMARK(fits<dtr_preset>)->Arg(100)->Arg(1000)->Arg(10000);
BENCHMARK(fits<online_preset>)->Arg(100)->Arg(1000)->Arg(10000);
BENCHMARK(fits<paper_preset>)->Arg(100)->Arg(1000)->Arg(10000);
BENCHMARK(pressed<base_offload>)->Arg(100)->Arg(1000);
BENCHMARK(pressed<online_preset>)->Arg(100)->Arg(1000);
BENCHMARK(pressed<paper_preset>)->Arg(100)->Arg(1000);

}  // namespace

BENCHMARK_MAIN();
