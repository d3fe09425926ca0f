// What the manager itself costs per operator, by policy and number of live tensors: over the
// simulated storage, kernels empty, costs given. The program is steady_program.hpp's.
//
//   fits      everything stays: the price of records, locks and touches
//   early     the same in a budget with little to spare, for a policy that starts before it must
//   touch     everything stays; operators read three tensors and make none
//   pressed   one tensor in ten must be elsewhere; every operator is followed by one that reads a
//             tensor anywhere, so victims are chosen and come back
//   restore   a chain of operators is run again because something needs its end
//
// Counters are per operator (of `restore` per chain), except `operators`, which one iteration has,
// and `records`, at the end.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "axes.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "heap_count.hpp"
#include "instructions.hpp"
#include "steady_program.hpp"

namespace {

using namespace delta;
using namespace delta::bench;

/// Counts what a manager does from `start` to `report`, per operator.
template <class Manager>
class tally {
 public:
  explicit tally(const Manager& m) : manager_(&m) {}
  void start() {
    evaluations_ = manager_->evaluations();
    recomputes_ = manager_->counts().recomputes;
    allocations_ = heap::allocations;
    instructions_.start();
  }
  /// `operators`: of one iteration.
  void report(benchmark::State& state, double operators) {
    instructions_.stop();
    const std::uint64_t allocations = heap::allocations - allocations_;  // before counters are made
    const auto per_operator = [&](const char* name, std::uint64_t n) {
      state.counters[name] =
          static_cast<double>(n) / (operators * static_cast<double>(state.iterations()));
    };
    per_operator("evaluations", manager_->evaluations() - evaluations_);
    per_operator("recomputes", manager_->counts().recomputes - recomputes_);
    per_operator("allocations", allocations);
    if (const auto n = instructions_.count()) per_operator("instructions", *n);
    state.counters["operators"] = operators;
    state.counters["records"] = static_cast<double>(manager_->live_records());
  }
  [[nodiscard]] instruction_counter& instructions() { return instructions_; }

 private:
  const Manager* manager_;
  std::uint64_t evaluations_ = 0, recomputes_ = 0, allocations_ = 0;
  instruction_counter instructions_;
};

/// A manager and its program, in a budget of `tensors`.
template <class Policy>
struct running {
  running(std::uint64_t tensors, std::size_t live)
      : storage{machine(tensors, 2 * live)}, m{Policy{}(), storage}, program(m, live) {}
  simulated storage;
  decltype(manager{Policy{}(), std::declval<simulated&>()}) m;
  steady_program<decltype(m)> program;
};

// The one that was set up last goes on where it stopped: a benchmark is called several times until
// it is known how many iterations it needs, and to set up may take longer than to measure.
std::shared_ptr<void> kept;
std::string kept_name;

/// The program `name` in a budget of `tensors`, after a warm-up of `rounds` steps per live tensor.
template <class Policy, class Step>
void steady(benchmark::State& state, const char* name, std::uint64_t tensors, double rounds,
            double operators, const Step& step) {
  const auto live = static_cast<std::size_t>(state.range(0));
  const std::string wanted =
      name + std::string("/") + std::string(Policy::name) + "/" + std::to_string(live);
  if (kept_name != wanted) {
    kept.reset();  // before there is another
    const auto made = std::make_shared<running<Policy>>(tensors, live);
    const auto warm_up = static_cast<std::size_t>(rounds * static_cast<double>(live));
    for (std::size_t i = 0; i < warm_up; ++i) step(made->program);
    kept = made;
    kept_name = wanted;
  }
  auto& [storage, m, program] = *static_cast<running<Policy>*>(kept.get());
  tally counted(m);
  counted.start();
  for (auto _ : state) step(program);
  counted.report(state, operators);
}

// Four rounds: rows are used again, and lists are as long as they get.
template <class Policy>
void fits(benchmark::State& state) {
  const auto live = static_cast<std::size_t>(state.range(0));
  steady<Policy>(state, "fits", roomy(live), 4, 1, [](auto& program) { program.run(); });
}
template <class Policy>
void early(benchmark::State& state) {
  const auto live = static_cast<std::size_t>(state.range(0));
  steady<Policy>(state, "early", just_enough(live), 1, 1, [](auto& program) { program.run(); });
}
template <class Policy>
void touch(benchmark::State& state) {
  const auto live = static_cast<std::size_t>(state.range(0));
  steady<Policy>(state, "touch", roomy(live), 0, 1, [](auto& program) { program.read_newest(); });
}
template <class Policy>
void pressed(benchmark::State& state) {
  const auto live = static_cast<std::size_t>(state.range(0));
  // Less of a warm-up where scores are many: a steady state is near once the memory is full.
  const double rounds = live < 10'000 ? 4 : live < 100'000 ? 1 : 0.01;
  steady<Policy>(state, "pressed", nine_tenths(live), rounds, 2,
                 [](auto& program) { program.run(), program.read_anywhere(); });
}

/// Restores of chains of `length` operators, each from one input: all tensors are evicted, then for
/// every chain an operator reads its end. Only that is timed. The chains start at one variable.
void restore(benchmark::State& state) {
  const auto length = static_cast<std::size_t>(state.range(0));
  const auto all = static_cast<std::size_t>(chained_tensors);
  const std::size_t chains = all / length;
  simulated storage{machine(all + 1, 0)};
  manager m{lru_evict{}(), storage};
  const tensor_id variable = m.variable(bytes{tensor_bytes});
  std::vector<tensor_id> made(all);
  const auto make_chains = [&] {
    for (std::size_t i = 0; i < all; ++i)
      made[i] = m.run({.inputs = {i % length == 0 ? variable : made[i - 1]},
                       .outputs = {bytes{tensor_bytes}},
                       .cost = nanoseconds{operator_ns}},
                      idle_kernel<4>{});
  };
  const auto restore_all = [&] {
    for (std::size_t end = length - 1; end < all; end += length)
      m.run<0>({.inputs = {made[end]}, .cost = nanoseconds{operator_ns}}, idle_kernel<4>{});
  };
  // An operator that was replayed often is not evicted any more, so there are new ones in time.
  std::uint32_t replays = 0;
  const auto renew_chains = [&] {
    for (const tensor_id t : made) m.drop(t);
    make_chains();
    replays = 0;
  };
  const auto evict_all = [&] {
    if (++replays == decltype(m)::recompute_cap) renew_chains();
    m.make_room(bytes{all * tensor_bytes});
  };
  make_chains();
  for (int i = 0; i < 2; ++i) evict_all(), restore_all(), renew_chains();  // lists grow
  tally counted(m);
  counted.start();
  for (auto _ : state) {
    state.PauseTiming();
    counted.instructions().stop();
    evict_all();
    counted.instructions().start();
    state.ResumeTiming();
    restore_all();
  }
  counted.report(state, static_cast<double>(chains));
  state.counters.erase("evaluations");  // those of the evictions
}

template <class Policy>
void add_policy() {
  const std::string policy = "/" + std::string(Policy::name);
  const auto add = [&](const char* name, void (*function)(benchmark::State&), const auto& counts) {
    auto* const added = benchmark::RegisterBenchmark((name + policy).c_str(), function);
    for (const std::int64_t n : counts) added->Arg(n);
  };
  add("fits", &fits<Policy>, live_tensors);
  add("touch", &touch<Policy>, live_tensors);
  // A scan of 100,000 candidates takes milliseconds; the policies with several scans or walks for
  // one decision are left out there.
  constexpr bool dear = Policy::name == online_preset::name || Policy::name == paper_preset::name;
  if constexpr (dear)
    add("pressed", &pressed<Policy>, live_tensors_scanned);
  else
    add("pressed", &pressed<Policy>, live_tensors);
  if constexpr (Policy::name == paper_preset::name)
    add("early", &early<Policy>, live_tensors_scanned);
}

}  // namespace

int main(int argc, char** argv) {
  add_policy<lru_evict>();
  add_policy<base_offload>();
  add_policy<dtr_preset>();
  add_policy<online_preset>();
  add_policy<paper_preset>();
  auto* const restores = benchmark::RegisterBenchmark("restore/lru_evict", &restore);
  for (const std::int64_t n : chain_lengths) restores->Arg(n);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
