// delta benchmark: the machines of docs/results/adaptive.md, and the row of JSON that says what
// came of a replay on one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "delta/units.hpp"
#include "replay/replay_result.hpp"
#include "simrd/simrd.hpp"
#include "subject.hpp"
#include "trace/perturb.hpp"
#include "trace/repeat.hpp"
#include "traces/bound.hpp"
#include "traces/trace.hpp"

namespace delta::bench {

/// A table of replays: which machine, which program.
struct setting {
  std::string_view name;
  double rate;           ///< bytes per second, each way
  double faster = 1;     ///< operators
  double noise = 0;      ///< of their times
  double real_rate = 1;  ///< part of the rate that copies reach
  std::size_t steps = 4;
};
inline constexpr double gigabyte = 1e9;
inline constexpr setting settings[]{
    {"12 GB/s", 12 * gigabyte},
    {"25 GB/s", 25 * gigabyte},
    {"fast, 25 GB/s", 25 * gigabyte, 10},
    {"fast, 50 GB/s", 50 * gigabyte, 10},
    {"robust, 12 GB/s", 12 * gigabyte, 1, 0.2, 0.8},
    {"robust, 25 GB/s", 25 * gigabyte, 1, 0.2, 0.8},
    {"ten steps, 12 GB/s", 12 * gigabyte, 1, 0, 1, 10},
};

/// The peers that the page has. Not those that move parameters, too: in DTR's traces these are
/// constants, which stay where they are.
inline constexpr std::string_view compared_peers[]{"paper-lru",    "paper-greedy", "vdnn",
                                                   "superneurons", "capuchin",     "chen"};

/// The step as often as the setting has it, with the setting's times.
inline trace program_for(const subject& s, const setting& on) {
  return executor::perturbed(executor::repeat_trace(s.step, on.steps),
                             {.operators_faster = on.faster, .noise = on.noise, .seed = 1});
}

inline executor::replay_machine machine_for(const subject& s, const setting& on, double ratio) {
  return {.budget = bytes{static_cast<std::uint64_t>(ratio * static_cast<double>(s.peak.count))},
          .host_budget = s.peak * 4,
          .rate_out = on.rate,
          .rate_in = on.rate,
          .latency = nanoseconds{10'000},
          .thrash_limit = 2.0,  // of each step; of the whole it is no concern
          .limit_steps = true,
          .real_rate = on.real_rate,
          .places = false};
}

/// Which replay a row is of.
struct row_name {
  std::string_view table;
  std::string_view trace;
  std::string_view setting;
  double ratio = 0;
  std::string_view policy;
};

inline std::string head_of(const row_name& n) {
  std::ostringstream out;
  out << R"({"table":")" << n.table << R"(","trace":")" << n.trace << R"(","setting":")"
      << n.setting << R"(","ratio":)" << n.ratio << R"(,"policy":")" << n.policy << '"';
  return out.str();
}
inline std::string list_of(const auto& values) {
  std::ostringstream out;
  const char* between = "";
  for (const auto& v : values) out << between << v, between = ",";
  return "[" + out.str() + "]";
}

/// The row, step by step. Numbers have six digits.
inline std::string row_of(const row_name& n, const subject& s, const executor::replay_result& r) {
  std::vector<double> overheads;
  std::vector<std::uint64_t> tensors, records, host;
  for (const executor::step_figures& f : r.steps) {
    const auto unmanaged = static_cast<double>(f.unmanaged.count());
    overheads.push_back(unmanaged > 0 ? static_cast<double>(f.time.count()) / unmanaged : 0);
    tensors.push_back(f.live_tensors), records.push_back(f.live_records);
    host.push_back(f.host_after.count);
  }
  const bool passed = r.result == executor::replay_result::verdict::pass;
  return head_of(n) + R"(,"passed":)" + (passed ? "true" : "false") + R"(,"overheads":)" +
         list_of(overheads) + R"(,"tensors":)" + list_of(tensors) + R"(,"records":)" +
         list_of(records) + R"(,"host":)" + list_of(host) + R"(,"operators":)" +
         std::to_string(s.step.operations.size()) + "}";
}

/// What a cell is compared with: the lower bound, and DTR's simulator at the better of its two
/// heuristics. Infinite: there is none.
struct reference {
  double bound = std::numeric_limits<double>::infinity();
  double dtr = std::numeric_limits<double>::infinity();
};
inline reference reference_of(const subject& s, const setting& on, double ratio) {
  const bytes budget = machine_for(s, on, ratio).budget;
  reference r;
  r.bound = lower_bound(
      s.step, {.budget = budget, .rate_out = on.rate / on.faster, .rate_in = on.rate / on.faster});
  for (const auto h : {executor::simrd_policy::dtr, executor::simrd_policy::dtr_eq}) {
    const executor::simrd_result found = executor::run_simrd(s.step, h, budget);
    if (found.result == executor::simrd_result::verdict::pass)
      r.dtr = std::min(r.dtr, static_cast<double>(found.clock.count()) /
                                  static_cast<double>(total_cost(s.step).count()));
  }
  return r;
}
inline std::string row_of(const row_name& n, const reference& r) {
  const auto number = [](double x) { return std::isfinite(x) ? std::to_string(x) : "null"; };
  return head_of(n) + R"(,"bound":)" + number(r.bound) + R"(,"dtr":)" + number(r.dtr) + "}";
}

}  // namespace delta::bench
