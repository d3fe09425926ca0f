// What deciding costs where closures are long and shared: <policy>/<part>, the training steps of a
// densely connected network (test/support/dense_program.hpp) with empty kernels over the simulated
// storage, in so many percent of the memory that they take. One iteration is a step of 5,320
// operators; counters are per operator of the program, so replays and copies are in them.
//
//   ns_per_operator   time of this thread in the manager, learning included
//   first_ns          the same in the first six steps, where policies are learned and rehearsed
//   answers           questions that a policy's roles answered
//   walked            tensor records that were read per answer, to find what is computed anew
//   replays, copies   operators run again, and copies to the host and back
//   virtual_us        virtual time of an operator, waiting and replays included
//
// Part 100 fits: what records, locks and touches cost without a decision. Managers are made by
// name, as tools make them: of all policies alike a call through a virtual function is in the time,
// which is less than a hundredth of it.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "delta/engine/engine.hpp"
#include "delta/error.hpp"
#include "delta/storage/simulated.hpp"
#include "dense_machine.hpp"
#include "dense_program.hpp"
#include "processor_time.hpp"

namespace {

using namespace delta;
using delta::test::dense_program;

void steps(benchmark::State& state, const char* policy, int part) {
  static const bytes peak = delta::test::dense_peak();
  simulated storage(bench::dense_machine(peak, part));
  const auto managed = make_manager(policy, over(storage));
  manager_interface& m = *managed;
  dense_program program(m, bench::dense_slowness);
  try {
    double operators = 0;
    double began = bench::processor_ns();
    for (int i = 0; i < bench::dense_first_steps; ++i)
      operators += static_cast<double>(program.step());
    state.counters["first_ns"] = (bench::processor_ns() - began) / operators;

    const auto counts = m.counts();
    const std::uint64_t answers = m.evaluations(), walked = m.walked();
    const auto virtual_began = storage.now();
    operators = 0;
    began = bench::processor_ns();
    for (auto _ : state) operators += static_cast<double>(program.step());
    const double took = bench::processor_ns() - began;
    const auto per_operator = [&](std::uint64_t now, std::uint64_t before) {
      return static_cast<double>(now - before) / operators;
    };
    const double answered = static_cast<double>(m.evaluations() - answers);
    state.counters["ns_per_operator"] = took / operators;
    state.counters["answers"] = answered / operators;
    state.counters["walked"] =
        answered > 0 ? static_cast<double>(m.walked() - walked) / answered : 0;
    state.counters["replays"] = per_operator(m.counts().recomputes, counts.recomputes);
    state.counters["copies"] =
        per_operator(m.counts().offloads + m.counts().reloads, counts.offloads + counts.reloads);
    state.counters["virtual_us"] =
        static_cast<double>((storage.now() - virtual_began).count()) / 1000 / operators;
  } catch (const error& e) {
    state.SkipWithError(e.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const char* policy : {"paper", "dtr", "online", "adaptive"})
    for (const int part : {100, 45, 12})
      benchmark::RegisterBenchmark(
          (policy + ("/" + std::to_string(part))).c_str(),
          [policy, part](benchmark::State& state) { steps(state, policy, part); })
          ->Unit(benchmark::kMillisecond)
          ->Iterations(bench::dense_steps);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
