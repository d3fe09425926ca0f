// delta executor: on what machine a trace is replayed, and what came of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "delta/observer.hpp"
#include "delta/units.hpp"
#include "replay/replay_figures.hpp"
#include "traces/collectives.hpp"
#include "traces/network.hpp"
#include "traces/trace.hpp"

namespace delta::executor {

/// The machine that a trace is replayed on. How blocks are rounded up and how fast they move within
/// the device is the trace's to say.
struct replay_machine {
  bytes budget{};
  bytes host_budget{};
  double rate_out = 12e9;     ///< bytes per second, device to host
  double rate_in = 12e9;      ///< bytes per second, host to device
  nanoseconds latency{};      ///< of every copy
  double thrash_limit = 2.0;  ///< a run that takes more than this times the unmanaged time ends
  bool limit_steps = false;   ///< so does one of which a step takes more than that times its own
  double real_rate = 1.0;     ///< what copies reach of the rates that policies are told
  /// Have blocks places, between which free bytes scatter? Else these are in one piece, as behind a
  /// table of pages. Absent: yes where the trace says what it was recorded on, as delta's own
  /// recordings do.
  std::optional<bool> places{};
  double burden_out = 0;  ///< as simulated_options
  double burden_in = 0;
  rank_group group{};     ///< that the trace is one rank of: it has its collectives already
  bool one_link = false;  ///< collectives and copies share a link: simulated_rank
};

/// `otherwise`, but with the copy rates and the latency of the machine that the trace was recorded
/// on, as far as they are known.
[[nodiscard]] inline replay_machine machine_of(const trace& t, replay_machine otherwise = {}) {
  if (!t.recorded_on) return otherwise;
  const trace::origin& known = *t.recorded_on;
  if (known.rate_out > 0) otherwise.rate_out = static_cast<double>(known.rate_out);
  if (known.rate_in > 0) otherwise.rate_in = static_cast<double>(known.rate_in);
  otherwise.latency = known.latency.value_or(otherwise.latency);
  return otherwise;
}

/// Have blocks places in a replay of the trace on this machine?
[[nodiscard]] inline bool has_places(const trace& t, const replay_machine& on) {
  return on.places.value_or(t.recorded_on.has_value());
}

/// What came of one replay.
struct replay_result {
  enum class verdict : std::uint8_t {
    pass,
    oom,    ///< an operator's tensors did not come together in the budget
    thrash  ///< it took too long
  };
  verdict result = verdict::pass;
  nanoseconds time{};          ///< virtual, until the end or until it was given up
  nanoseconds recompute{};     ///< of that, in replays
  nanoseconds stall{};         ///< of that, waiting for copies
  nanoseconds network_wait{};  ///< of that, waiting for collectives
  bytes peak{};
  bytes host_peak{};
  std::uint64_t evaluations = 0;  ///< answers that the Filter asked its heuristic for
  std::uint64_t walked = 0;       ///< records visited for costs of closures
  counters counts;
  std::string error;  ///< of oom
  /// By step, the one that was given up last. A trace that has results ends in a step, too, so
  /// there is one at least.
  std::vector<step_figures> steps{};
};

/// What the trace takes without a budget: all operators once, collectives beside them, every
/// storage until its last reference is gone (constants too).
struct unmanaged_cost {
  nanoseconds time{};
  bytes peak{};
};
[[nodiscard]] inline unmanaged_cost unmanaged(const trace& t) {
  return {unmanaged_time(t), unmanaged_peak(t)};
}

}  // namespace delta::executor
