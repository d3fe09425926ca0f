// How replays grow with the trace: CPU time per operator and memory per tensor beyond the trace
// itself, for 10,000 operators and for more. Each row is measured in a process of its own, so that
// one row's memory is not another's.
//
//   replay_scale                                        the rows of docs/results/replay_scale.md
//   replay_scale SHAPE OPERATORS POLICY PERCENT         one row, such as: steps 10000 dtr 60
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command_line.hpp"
#include "cli/option_values.hpp"
#include "delta/engine/engine.hpp"
#include "replay/replay.hpp"
#include "residual_network.hpp"
#include "traces/trace.hpp"

namespace {

using namespace delta;
using namespace delta::executor;

constexpr unsigned time_limit = 120;  // seconds for a row

struct row {
  std::string_view shape;
  std::uint32_t operators;
  std::string_view policy;
  std::uint32_t percent;  ///< of the unmanaged peak
};

/// A line of /proc/self/status, in bytes.
double status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key + ":")) return 1024 * std::atof(line.c_str() + key.size() + 1);
  return 0;
}
/// The peak counts from here on.
double reset_peak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
  return status("VmRSS");
}
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// What one replay took, and what it came to.
struct measured {
  const char* result = "pass";
  double seconds = 0;
  double held = 0;  ///< bytes, when all events are done and the manager is still there
  double overhead = 0;
  double scores = 0;
};

/// As executor::replay, looking at the memory before the manager goes.
measured replay_once(const trace& t, std::string_view policy, const replay_machine& on) {
  measured r;
  const double began = cpu_seconds();
  simulated storage(storage_for(t, on));
  const auto m = make_manager(policy, over(storage));
  trace_replayer play(*m, t);
  try {
    play.run();
  } catch (const thrash&) {
    r.result = "thrash";
  } catch (const budget_exceeded&) {
    r.result = "oom";
  }
  r.seconds = cpu_seconds() - began;
  r.held = status("VmRSS");
  r.overhead =
      static_cast<double>(storage.now().count()) / static_cast<double>(total_cost(t).count());
  r.scores = static_cast<double>(m->evaluations());
  return r;
}

/// What the row is called: its first four cells.
void print_name(const row& r) {
  std::printf("| %.*s | %u | %.*s | %u %% |", static_cast<int>(r.shape.size()), r.shape.data(),
              r.operators, static_cast<int>(r.policy.size()), r.policy.data(), r.percent);
}

/// Prints the row. Memory is the first run's; the time is the least of several, where one takes
/// less than a second.
void measure(const row& r) {
  const trace t = bench::residual_trace(r.shape, r.operators);
  check(t);
  const replay_machine machine = bench::scale_machine(t, r.percent);
  const double before = reset_peak();
  const measured first = replay_once(t, r.policy, machine);
  const double most = status("VmHWM");
  double least = first.seconds;
  for (double all = least; all < 1;) {
    const double took = replay_once(t, r.policy, machine).seconds;
    least = std::min(least, took);
    all += took;
  }
  const auto operators = static_cast<double>(t.operations.size());
  const auto tensors = static_cast<double>(t.tensors.size());
  print_name(r);
  std::printf(" %s | %.3f | %.0f | %.1f | %.0f | %.0f | %.2f |\n", first.result, first.overhead,
              1e9 * least / operators, first.scores / operators, (first.held - before) / tensors,
              (most - before) / tensors, least);
}

/// In a process of its own. Throws std::runtime_error where there can be none.
void measure_apart(const row& r) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(time_limit);
    measure(r);
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0)
    throw std::runtime_error("no process can be started");
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
    print_name(r);
    std::printf(" not measured: over %u s | | | | | | |\n", time_limit);
  } else if (status != 0) {
    throw std::runtime_error("a measurement ended early");
  }
}

void print_heading() {
  std::puts(
      "| shape | operators | policy | budget | result | overhead | ns per operator | scores per "
      "operator | bytes per tensor, held | at most | CPU, s "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|");
}

/// SHAPE OPERATORS POLICY PERCENT. Throws usage_error.
row row_of(std::span<char* const> words) {
  constexpr std::array<std::string_view, 3> shapes{"steps", "one step", "16 weights"};
  if (words.size() != 4) reject("arguments", "not four", "SHAPE OPERATORS POLICY PERCENT, or none");
  const std::string_view shape = words[0], policy = words[2];
  if (std::ranges::find(shapes, shape) == shapes.end())
    reject("SHAPE", in_quotes(shape), "steps, one step, 16 weights");
  if (std::ranges::find(named_policies, policy, &preset::name) == named_policies.end())
    reject("POLICY", in_quotes(policy), names_of(named_policies));
  return {shape, static_cast<std::uint32_t>(whole("OPERATORS", words[1], 200, 100'000'000)), policy,
          static_cast<std::uint32_t>(whole("PERCENT", words[3], 1, 100))};
}

void measure_all() {
  for (const char* policy : {"online", "dtr"})
    for (const std::uint32_t operators : {10'000u, 100'000u, 1'000'000u})
      measure_apart({"steps", operators, policy, 60});
  for (const char* policy : {"online", "dtr"})
    for (const std::uint32_t operators : {10'000u, 1'000'000u})
      measure_apart({"one step", operators, policy, 100});
  for (const std::uint32_t operators : {10'000u, 1'000'000u})
    measure_apart({"16 weights", operators, "online", 100});
  for (const char* policy : {"online", "dtr"})
    for (const std::uint32_t operators : {2'500u, 10'000u, 40'000u})
      measure_apart({"one step", operators, policy, 60});
}

int complain(const char* line, int code) {
  std::fprintf(stderr, "replay_scale: %s\n", line);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  const auto words = std::span(argv, static_cast<std::size_t>(argc)).subspan(1);
  try {
    const std::optional<row> only = words.empty() ? std::nullopt : std::optional(row_of(words));
    print_heading();
    only ? measure_apart(*only) : measure_all();
    return 0;
  } catch (const usage_error& error) {
    return complain(error.what(), 2);
  } catch (const std::exception& error) {
    return complain(error.what(), 1);
  }
}
