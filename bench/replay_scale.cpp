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
#include "delta/trace.hpp"
#include "replay/replay.hpp"

namespace {

using namespace delta;
using namespace delta::executor;

constexpr unsigned time_limit = 120;  // seconds for a row

/// Writes a trace of residual networks, forward and backward: every layer reads the one before it
/// and a weight, every fourth also the one four before; its way back reads the layer's input and
/// the gradient. Sizes and times are those of four kinds of layers in turn.
class network {
 public:
  /// `depth` layers per step, 2 x depth x steps operators; layers use `weights` weights in turn.
  network(std::uint32_t depth, std::uint32_t steps, std::uint32_t weights) : weights_(weights) {
    reserve(depth, steps);
    t_.names = {"forward", "backward"};
    for (std::uint32_t w = 0; w < weights; ++w) source(trace::kind::constant, bytes{1 << 16});
    for (std::uint32_t s = 0; s < steps; ++s) step(depth);
  }
  trace take() { return std::move(t_); }

 private:
  void reserve(std::size_t depth, std::size_t steps) {
    const std::size_t operators = 2 * depth * steps;
    t_.tensors.reserve(weights_ + operators + steps);
    t_.operations.reserve(operators);
    t_.lists.reserve(4 * operators);
    t_.events.reserve(weights_ + 2 * operators + 4 * steps);
  }
  std::uint32_t tensor(bytes size, std::uint32_t producer) {
    t_.tensors.push_back({.size = size, .producer = producer});
    return static_cast<std::uint32_t>(t_.tensors.size() - 1);
  }
  std::uint32_t source(trace::kind what, bytes size) {
    const std::uint32_t made = tensor(size, trace::none);
    t_.events.push_back({what, made});
    return made;
  }
  void drop(std::uint32_t tensor) { t_.events.push_back({trace::kind::drop, tensor}); }

  std::uint32_t run(std::uint32_t name, std::uint32_t layer,
                    std::initializer_list<std::uint32_t> inputs) {
    constexpr std::uint64_t sizes[] = {4 << 20, 1 << 20, 4 << 20, 2 << 20};
    constexpr std::int64_t costs[] = {900'000, 60'000, 400'000, 1'500'000};
    const auto number = static_cast<std::uint32_t>(t_.operations.size());
    const std::uint32_t made = tensor(bytes{sizes[layer % 4]}, number);
    trace::operation o;
    o.name = name;
    o.cost = nanoseconds{costs[layer % 4]};
    o.first = static_cast<std::uint32_t>(t_.lists.size());
    o.inputs = static_cast<std::uint32_t>(inputs.size());
    o.outputs = 1;
    t_.lists.insert(t_.lists.end(), inputs);
    t_.lists.push_back(made);
    t_.operations.push_back(o);
    t_.events.push_back({trace::kind::run, number});
    return made;
  }
  void step(std::uint32_t depth) {
    std::vector<std::uint32_t> x{source(trace::kind::variable, bytes{4 << 20})};
    for (std::uint32_t i = 0; i < depth; ++i) {
      const std::uint32_t weight = i % weights_;
      x.push_back(i % 4 == 3 ? run(0, i, {x[i], weight, x[i - 3]}) : run(0, i, {x[i], weight}));
    }
    t_.events.push_back({trace::kind::backward, 0});
    std::uint32_t gradient = x[depth];
    for (std::uint32_t i = depth; i-- > 0;) {
      const std::uint32_t next = run(1, i, {x[i], gradient});
      drop(gradient);
      if (i + 1 < depth) drop(x[i + 1]);
      gradient = next;
    }
    drop(gradient);
    if (depth > 0) drop(x[0]);
    t_.events.push_back({trace::kind::end_of_step, 0});
  }

  std::uint32_t weights_;
  trace t_;
};

struct row {
  std::string_view shape;
  std::uint32_t operators;
  std::string_view policy;
  std::uint32_t percent;  ///< of the unmanaged peak
};

trace trace_of(const row& r) {
  constexpr std::uint32_t layers = 100, few = 16;
  if (r.shape == "steps") return network(layers, r.operators / (2 * layers), layers).take();
  const std::uint32_t depth = r.operators / 2;
  return network(depth, 1, r.shape == "one step" ? depth : few).take();
}

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
  replayer play(*m, t, [] {});
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
  const trace t = trace_of(r);
  check(t);
  const bytes peak = unmanaged_peak(t);
  const replay_machine machine{.budget = bytes{peak.count / 100 * r.percent},
                               .host_budget = peak * 4,
                               .latency = nanoseconds{10'000},
                               .places = true};
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
  if (std::ranges::find(presets, policy, &preset::name) == presets.end())
    reject("POLICY", in_quotes(policy), names_of(presets));
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
