// What finding a victim costs, by how it is found, mix and number of candidates:
// <finder>/<mix>/<n>. One iteration is an operator of decision_program.hpp, which touches three
// tensors, makes one and needs one victim; the choice is nearly all of it. Finders are those of
// finders.hpp:
//
//   record_scan   Algorithm 2 as written, in the order of the records
//   rows          what a manager uses: kept answers, compared by words of 64 rows
//
//   touch         of `rows` alone: one tensor is used
//   select        of `rows` alone: the choice without the rest of the operator, by the wall clock,
//                 whose reading is in it
//
// <finder>/trace_<name>/<n>: the same for what a real program asks, one iteration a whole replay of
// it (trace_log.hpp), where DELTA_DATA names a folder with traces/; n is the mean of the
// candidates.
//
// Before anything is timed all finders have to choose the same victims. Counters are per operator,
// but `worst_ns`, the longest of many single choices, and `worst_scans`, how many record scans of
// the same table would have taken as long.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "axes.hpp"
#include "decision_program.hpp"
#include "finders.hpp"
#include "heap_count.hpp"
#include "processor_time.hpp"
#include "trace/file.hpp"
#include "trace_log.hpp"

namespace {

using namespace delta;
using namespace delta::bench;

/// How much is done before anything is timed. What keeps nothing needs no warm-up.
struct effort {
  std::size_t warm_up, singles;
};
template <class Finder>
effort effort_of(std::int64_t n) {
  const bool many = n > 100'000;
  if constexpr (Finder::name == "record_scan") return many ? effort{2, 10} : effort{20, 100};
  return many ? effort{20, 100} : effort{200, 1'000};
}
std::size_t operators_compared(std::int64_t n) {
  return n > 100'000 ? 100 : 500;
}

template <class Mix, template <class> class Finder>
using program_of =
    decision_program<Mix, Finder<decltype(Mix::heuristic(std::declval<std::vector<double>>()))>>;

template <class Mix, template <class> class Finder>
std::vector<tensor_id> victims(std::int64_t n) {
  program_of<Mix, Finder> program(static_cast<std::size_t>(n));
  std::vector<tensor_id> chosen(operators_compared(n));
  for (tensor_id& t : chosen) {
    program.begin();
    t = program.choose();
    program.end(t);
  }
  return chosen;
}
void compare(std::string_view what, const std::vector<tensor_id>& expected,
             const std::vector<tensor_id>& chosen) {
  const auto [e, c] = std::ranges::mismatch(expected, chosen);
  if (e == expected.end()) return;
  std::fprintf(stderr,
               "decisions_bench: %.*s: operator %td: tensor %u is chosen; expected: %u, as the "
               "record scan has it\n",
               static_cast<int>(what.size()), what.data(), e - expected.begin(), index(*c),
               index(*e));
  std::exit(1);  // NOLINT(concurrency-mt-unsafe): there is one thread
}
/// Ends the program where finders differ: figures of different victims could not be compared.
/// Once per mix and n.
template <class Mix>
void compare_finders(std::int64_t n) {
  static std::set<std::int64_t> compared;
  if (!compared.insert(n).second) return;
  const auto expected = victims<Mix, record_scan>(n);
  const std::string of = "/" + std::string(Mix::name) + "/" + std::to_string(n);
  compare("rows" + of, expected, victims<Mix, row_search>(n));
}

/// A program that is in its stride, and how long its single choices were.
template <class Program>
struct running {
  explicit running(std::size_t live) : program(live) {}
  Program program;
  double worst_ns = 0, scan_ns = 0;
};

// The one that was set up last goes on where it stopped: a benchmark is called several times until
// it is known how many iterations it needs, and to set up may take longer than to measure.
std::shared_ptr<void> kept;
std::string kept_name;

template <class Program>
double mean_record_scan(const Program& program) {
  const auto heuristic = program.heuristic();
  const std::vector<tensor_id> all = program.everybody();
  constexpr int scans = 4;
  const auto once = [&] {
    detail::lowest_score lowest;
    for (const tensor_id t : all)
      lowest.offer(t, detail::score_of(heuristic, program.table().view, t));
    benchmark::DoNotOptimize(lowest.tensor());
  };
  once();
  const double began = processor_ns();
  for (int i = 0; i < scans; ++i) once();
  return (processor_ns() - began) / scans;
}

template <class Mix, template <class> class Finder>
running<program_of<Mix, Finder>>& set_up(std::int64_t n) {
  using program_type = program_of<Mix, Finder>;
  using finder_type = std::remove_cvref_t<decltype(std::declval<program_type>().finder())>;
  const std::string wanted =
      std::string(finder_type::name) + "/" + std::string(Mix::name) + "/" + std::to_string(n);
  if (kept_name != wanted) {
    kept.reset();  // before there is another
    compare_finders<Mix>(n);
    const auto made = std::make_shared<running<program_type>>(static_cast<std::size_t>(n));
    const effort e = effort_of<finder_type>(n);
    for (std::size_t i = 0; i < e.warm_up; ++i) made->program.run();
    // Apart from what is timed: to ask for the time takes longer than many a choice.
    for (std::size_t i = 0; i < e.singles; ++i) {
      made->program.begin();
      const double began = processor_ns();
      const tensor_id t = made->program.choose();
      made->worst_ns = std::max(made->worst_ns, processor_ns() - began);
      made->program.end(t);
    }
    made->scan_ns = mean_record_scan(made->program);
    kept = made;
    kept_name = wanted;
  }
  return *static_cast<running<program_type>*>(kept.get());
}

template <class Mix, template <class> class Finder>
void choice(benchmark::State& state) {
  auto& [program, worst_ns, scan_ns] = set_up<Mix, Finder>(state.range(0));
  const std::uint64_t evaluations = program.finder().evaluations();
  const std::uint64_t allocations = heap::allocations;
  for (auto _ : state) program.run();
  const auto per_operator = [&](std::uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(state.iterations());
  };
  const std::uint64_t allocated = heap::allocations - allocations;  // before counters are made
  state.counters["evaluations"] = per_operator(program.finder().evaluations() - evaluations);
  state.counters["allocations"] = per_operator(allocated);
  state.counters["worst_ns"] = worst_ns;
  state.counters["worst_scans"] = worst_ns / scan_ns;
}
void touch(benchmark::State& state) {
  auto& program = set_up<base_64_sizes, row_search>(state.range(0)).program;
  for (auto _ : state) {
    program.pass();
    program.touch_any();
  }
}
void select(benchmark::State& state) {
  using clock = std::chrono::steady_clock;
  auto& program = set_up<base_64_sizes, row_search>(state.range(0)).program;
  for (auto _ : state) {
    program.begin();
    const auto began = clock::now();
    const tensor_id t = program.choose();
    state.SetIterationTime(std::chrono::duration<double>(clock::now() - began).count());
    program.end(t);
  }
}

template <class Mix, template <class> class Finder>
void add_finder(const char* finder) {
  for (const std::int64_t n : candidates) {
    auto* const added = benchmark::RegisterBenchmark(
        (std::string(finder) + "/" + std::string(Mix::name)).c_str(), &choice<Mix, Finder>);
    added->Arg(n);
    // Tens of milliseconds each: a mean of few is good enough.
    if (n > 100'000 && std::string_view(finder) == "record_scan") added->Iterations(10);
  }
}
template <class Mix>
void add_mix() {
  add_finder<Mix, record_scan>("record_scan");
  add_finder<Mix, row_search>("rows");
}

// --- real programs -------------------------------------------------------------------------------

struct named_log {
  std::string name;
  trace_log content;
};

template <template <class> class Finder>
void drive(benchmark::State& state, const named_log& log) {
  log_program<Finder<base>> program(log.content);
  const auto once = [&] {
    const std::size_t wrong = program.run();
    if (wrong == log.content.entries.size()) return;
    std::fprintf(stderr,
                 "decisions_bench: %s/trace_%s: entry %zu of the log: another tensor is chosen; "
                 "expected: %u, as the manager has it\n",
                 Finder<base>::name.data(), log.name.c_str(), wrong,
                 index(log.content.entries[wrong].tensor));
    std::exit(1);  // NOLINT(concurrency-mt-unsafe): there is one thread
  };
  once();
  const std::uint64_t evaluations = program.finder().evaluations();
  const std::uint64_t allocations = heap::allocations;
  for (auto _ : state) once();
  const std::uint64_t allocated = heap::allocations - allocations;  // before counters are made
  const auto operators = static_cast<double>(log.content.operators);
  const auto per_operator = [&](std::uint64_t count) {
    return static_cast<double>(count) / operators / static_cast<double>(state.iterations());
  };
  state.counters["evaluations"] = per_operator(program.finder().evaluations() - evaluations);
  state.counters["allocations"] = per_operator(allocated);
  state.counters["operators"] = operators;
  state.counters["selects"] = static_cast<double>(log.content.selects) / operators;
  // (The console writes an s behind it, as of all that is a time per something.)
  using counter = benchmark::Counter;
  state.counters["ns_per_operator"] =
      counter(operators * 1e-9, counter::kIsIterationInvariantRate | counter::kInvert);
}

template <template <class> class Finder>
void add_log(const std::shared_ptr<const named_log>& log) {
  const trace_log& l = log->content;
  const std::size_t n = l.selects == 0 ? 0 : l.candidates / l.selects;
  benchmark::RegisterBenchmark(
      (std::string(Finder<base>::name) + "/trace_" + log->name + "/" + std::to_string(n)).c_str(),
      [log](benchmark::State& state) { drive<Finder>(state, *log); });
}
/// Their logs are made here, as names say how many candidates there are.
void add_traces() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here changes the environment
  const char* const data = std::getenv("DELTA_DATA");
  if (data == nullptr || *data == '\0') {
    std::fputs("decisions_bench: SKIPPED: real traces: DELTA_DATA is not set\n", stderr);
    return;
  }
  for (const char* name : trace_names) {
    const auto path = std::filesystem::path(data) / "traces" / (std::string(name) + ".log.gz");
    if (!std::filesystem::exists(path)) {
      std::fprintf(stderr, "decisions_bench: SKIPPED: %s: no such file\n", path.c_str());
      continue;
    }
    const trace t = executor::read_trace(path);
    const bytes budget{unmanaged_peak(t).count / 100 * trace_budget};
    const auto log = std::make_shared<const named_log>(named_log{name, log_of(t, budget)});
    add_log<record_scan>(log);
    add_log<row_search>(log);
  }
}

}  // namespace

int main(int argc, char** argv) {
  add_mix<base_64_sizes>();
  add_mix<base_distinct>();
  add_mix<dtr_cost_changes>();
  add_mix<equal_scores>();
  add_mix<greedy_distinct>();
  for (const std::int64_t n : candidates) {
    benchmark::RegisterBenchmark("touch", &touch)->Arg(n);
    benchmark::RegisterBenchmark("select", &select)->Arg(n)->UseManualTime();
  }
  add_traces();
  benchmark::AddCustomContext("compiler_flags", DELTA_BENCH_FLAGS);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
