// delta benchmark: the adaptive policy, its pieces, and its peers' rules on recorded traces, step
// by step in virtual time. A JSON row per replay; bench/adaptive.py makes tables and figures of
// them.
//
//   adaptive_grid TRACE...

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "ablations.hpp"
#include "delta/peers/peer_presets.hpp"
#include "delta/presets.hpp"
#include "replay/bound.hpp"
#include "replay/on_all_cores.hpp"
#include "replay/replay_named.hpp"
#include "replay/replay_policy.hpp"
#include "simrd/simrd.hpp"
#include "trace/file.hpp"
#include "trace/perturb.hpp"
#include "trace/repeat.hpp"
#include "trace_name.hpp"

namespace {

using namespace delta;
using namespace delta::executor;

constexpr double gigabyte = 1e9;

/// A table of replays: which machine, which program.
struct setting {
  std::string_view name;
  double rate;           ///< bytes per second, each way
  double faster = 1;     ///< operators
  double noise = 0;      ///< of their times
  double real_rate = 1;  ///< part of the rate that copies reach
  std::size_t steps = 4;
};
constexpr setting settings[]{
    {"12 GB/s", 12 * gigabyte},
    {"25 GB/s", 25 * gigabyte},
    {"fast, 25 GB/s", 25 * gigabyte, 10},
    {"fast, 50 GB/s", 50 * gigabyte, 10},
    {"robust, 12 GB/s", 12 * gigabyte, 1, 0.2, 0.8},
    {"robust, 25 GB/s", 25 * gigabyte, 1, 0.2, 0.8},
    {"ten steps, 12 GB/s", 12 * gigabyte, 1, 0, 1, 10},
};

struct subject {
  std::string name;
  trace step;
  bytes peak{};
};

// Rows come from all cores.
class row_writer {
 public:
  void write(const std::string& row) {
    const std::scoped_lock one(lock_);
    std::cout << row << '\n';
  }

 private:
  std::mutex lock_;
};

std::string head(std::string_view table, const subject& s, std::string_view setting, double ratio,
                 std::string_view policy) {
  std::ostringstream out;
  out << R"({"table":")" << table << R"(","trace":")" << s.name << R"(","setting":")" << setting
      << R"(","ratio":)" << ratio << R"(,"policy":")" << policy << '"';
  return out.str();
}
std::string list_of(const auto& values) {
  std::ostringstream out;
  out.precision(6);
  const char* between = "";
  for (const auto& v : values) out << between << v, between = ",";
  return "[" + out.str() + "]";
}

replay_machine machine_for(const subject& s, const setting& on, double ratio) {
  return {.budget = bytes{static_cast<std::uint64_t>(ratio * static_cast<double>(s.peak.count))},
          .host_budget = s.peak * 4,
          .rate_out = on.rate,
          .rate_in = on.rate,
          .latency = nanoseconds{10'000},
          .limit_steps = true,
          .real_rate = on.real_rate,
          .places = false};
}

/// `replay_it` replays a program on a machine.
template <class Replay>
void replay_one(row_writer& rows, std::string_view table, const subject& s, const trace& program,
                const setting& on, double ratio, std::string_view name, const Replay& replay_it) {
  replay_machine machine = machine_for(s, on, ratio);
  // The limit is the step's; of the whole it is no concern.
  machine.thrash_limit = 2.0;
  const auto began = std::chrono::steady_clock::now();
  const replay_result r = replay_it(program, machine);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  std::vector<double> overheads;
  std::vector<std::uint64_t> tensors, records, host;
  for (const step_figures& f : r.steps) {
    const double unmanaged = static_cast<double>(f.unmanaged.count());
    overheads.push_back(unmanaged > 0 ? static_cast<double>(f.time.count()) / unmanaged : 0);
    tensors.push_back(f.live_tensors), records.push_back(f.live_records);
    host.push_back(f.host_after.count);
  }
  const bool passed = r.result == replay_result::verdict::pass;
  rows.write(head(table, s, on.name, ratio, name) + R"(,"passed":)" + (passed ? "true" : "false") +
             R"(,"overheads":)" + list_of(overheads) + R"(,"tensors":)" + list_of(tensors) +
             R"(,"records":)" + list_of(records) + R"(,"host":)" + list_of(host) +
             R"(,"milliseconds":)" + std::to_string(took.count()) + R"(,"operators":)" +
             std::to_string(s.step.operations.size()) + "}");
}

auto by_name(std::string_view policy) {
  return [policy](const trace& t, const replay_machine& m) { return replay_named(policy, t, m); };
}

using job = std::function<void()>;

// What is compared with: the lower bound, and DTR's simulator at the better of its two heuristics.
void reference(row_writer& rows, const subject& s, const setting& on, double ratio) {
  const bytes budget = machine_for(s, on, ratio).budget;
  const double bound = lower_bound(
      s.step, {.budget = budget, .rate_out = on.rate / on.faster, .rate_in = on.rate / on.faster});
  double best = never;
  for (const auto h : {simrd_policy::dtr, simrd_policy::dtr_eq}) {
    const simrd_result r = run_simrd(s.step, h, budget);
    if (r.result == simrd_result::verdict::pass)
      best = std::min(best, static_cast<double>(r.clock.count()) /
                                static_cast<double>(total_cost(s.step).count()));
  }
  const auto number = [](double x) { return std::isfinite(x) ? std::to_string(x) : "null"; };
  rows.write(head("reference", s, on.name, ratio, "") + R"(,"bound":)" + number(bound) +
             R"(,"dtr":)" + number(best) + "}");
}

void add_grid(std::vector<job>& jobs, row_writer& rows, const subject& s) {
  // Below 0.2 only who claims to pass there; single pieces where the differences are.
  constexpr double ratios[]{0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8};
  constexpr double for_pieces[]{0.2, 0.3, 0.4, 0.5, 0.7};
  for (const setting& on : settings) {
    const auto program = std::make_shared<const trace>(
        perturbed(repeat_trace(s.step, on.steps),
                  {.operators_faster = on.faster, .noise = on.noise, .seed = 1}));
    const bool plain = on.faster == 1 && on.noise == 0 && on.steps == 4;
    for (const double ratio : ratios) {
      const bool low = ratio < 0.2 || ratio == 0.25;
      if (low && !plain) continue;
      jobs.emplace_back([&rows, &s, &on, ratio] { reference(rows, s, on, ratio); });
      for (const preset& p : presets) {
        // The baseline needs no budget; peers are compared on the plain machines.
        const bool ours =
            p.name == "adaptive" || p.name == "auto" || p.name == "dtr" || p.name == "online";
        if (p.name == "unmanaged" || ((!plain || low) && !ours)) continue;
        jobs.emplace_back([&rows, &s, &on, ratio, program, name = p.name] {
          replay_one(rows, "grid", s, *program, on, ratio, name, by_name(name));
        });
      }
      if (plain && !low)
        for (const preset& p : peer_presets)
          jobs.emplace_back([&rows, &s, &on, ratio, program, name = p.name] {
            replay_one(rows, "grid", s, *program, on, ratio, name, by_name(name));
          });
      if (!plain || std::ranges::count(for_pieces, ratio) == 0) continue;
      bench::for_each_ablation([&](std::string_view name, auto policy) {
        jobs.emplace_back([&rows, &s, &on, ratio, program, name = std::string(name), policy] {
          replay_one(rows, "ablation", s, *program, on, ratio, name,
                     [&](const trace& t, const replay_machine& m) { return replay(t, policy, m); });
        });
      });
    }
  }
}

// Two kinds of steps in turns, and a change for good at the third step.
void add_changes(std::vector<job>& jobs, row_writer& rows, const std::vector<subject>& all) {
  static constexpr const setting& on = settings[0];
  for (std::size_t i = 0; i < all.size(); ++i) {
    const subject &a = all[i], &b = all[(i + 1) % all.size()];
    for (const double ratio : {0.3, 0.5, 0.7})
      for (const std::string_view name : {"adaptive", "auto"})
        jobs.emplace_back([&rows, &a, &b, ratio, name] {
          // The budget is that part of the larger one's peak; each alone under the same budget is
          // what the turns are compared with.
          const subject& larger = a.peak < b.peak ? b : a;
          const subject both{a.name + "+" + b.name, {}, larger.peak};
          replay_one(rows, "in turns", both, alternate(a.step, b.step, 4), on, ratio, name,
                     by_name(name));
          for (const subject* s : {&a, &b}) {
            const subject alone{both.name + ":" + (s == &a ? "first" : "second"), {}, larger.peak};
            replay_one(rows, "alone", alone, repeat_trace(s->step, 4), on, ratio, name,
                       by_name(name));
          }
        });
  }
}

int run(std::span<char*> files) {
  std::vector<subject> all;
  for (const char* f : files) {
    trace t = read_trace(f);
    const bytes peak = unmanaged_peak(t);
    all.push_back({bench::trace_name(f), std::move(t), peak});
  }
  row_writer rows;
  std::vector<job> jobs;
  for (const subject& s : all) add_grid(jobs, rows, s);
  add_changes(jobs, rows, all);
  on_all_cores(jobs.size(), [&](std::size_t i) { jobs[i](); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "adaptive_grid: no trace; expected: adaptive_grid TRACE...\n";
    return 2;
  }
  try {
    return run(std::span(argv + 1, static_cast<std::size_t>(argc - 1)));
  } catch (const std::exception& e) {
    std::cerr << "adaptive_grid: " << e.what() << '\n';
    return 2;
  }
}
