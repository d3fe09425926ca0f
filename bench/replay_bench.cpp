// How long replays of DTR's traces take, where DELTA_DATA names a folder with traces/: one replay
// without reading the trace, and a table of many on all cores.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "replay/replay_named.hpp"
#include "replay/replay_runs.hpp"
#include "trace/file.hpp"
#include "traces/bound.hpp"
#include "traces/trace.hpp"

namespace {

using namespace delta;
using namespace delta::executor;

/// Nothing, and a loud line, without the data.
std::optional<named_trace> trace_named(benchmark::State& state, const std::string& name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here changes the environment
  const char* const data = std::getenv("DELTA_DATA");
  if (data == nullptr || *data == '\0') {
    state.SkipWithError("SKIPPED: DELTA_DATA is not set");
    return std::nullopt;
  }
  return named_trace{name, read_trace(std::filesystem::path(data) / "traces" / (name + ".log.gz"))};
}

void one(benchmark::State& state, const std::string& name, const std::string& policy) {
  const auto t = trace_named(state, name);
  if (!t) return;
  const bytes peak = unmanaged_peak(t->content);
  replay_machine machine = machine_for(t->content, peak, {});
  machine.places = true;
  machine.budget = replay_budget{static_cast<double>(state.range(0)) / 100, {}}.resolve(peak);
  for (auto _ : state) benchmark::DoNotOptimize(replay_named(policy, t->content, machine));
}
void bound(benchmark::State& state, const std::string& name) {
  const auto t = trace_named(state, name);
  if (!t) return;
  const bytes budget{unmanaged_peak(t->content).count / 2};
  for (auto _ : state)
    benchmark::DoNotOptimize(lower_bound(t->content, {budget, default_rate, default_rate}));
}
/// 10 budgets with all presets and DTR's simulator.
void table(benchmark::State& state, const std::string& name) {
  const auto t = trace_named(state, name);
  if (!t) return;
  replay_options options;
  options.policies = {"unmanaged", "paper", "dtr", "online", "simrd:dtr"};
  options.iterations = 1;
  options.places = true;
  options.budgets.clear();
  for (int i = 1; i <= 10; ++i) options.budgets.push_back({i / 10.0, {}});
  for (auto _ : state) benchmark::DoNotOptimize(replay_all({&*t, 1}, options));
}

BENCHMARK_CAPTURE(one, resnet32_online, "resnet32", "online")
    ->Arg(30)
    ->Arg(50)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one, resnet32_dtr, "resnet32", "dtr")
    ->Arg(30)
    ->Arg(50)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one, resnet32_paper, "resnet32", "paper")
    ->Arg(30)
    ->Arg(50)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one, lstm_online, "lstm", "online")
    ->Arg(30)
    ->Arg(50)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one, lstm_dtr, "lstm", "dtr")->Arg(30)->Arg(50)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bound, lstm, "lstm")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(table, densenet121, "densenet121")
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(1);

}  // namespace

BENCHMARK_MAIN();
