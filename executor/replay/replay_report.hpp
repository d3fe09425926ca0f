// delta executor: what replays found, as JSON for programs and as a table for people.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>

namespace delta::executor {

/// One replay of one trace, or one iteration of it: what is counted, and both times, are then of
/// this iteration alone, and the peaks of all up to it. Member names are the JSON keys; absent
/// optionals are null there.
struct replay_row {
  std::string trace;
  std::string policy;
  std::optional<double> ratio;  ///< budget / unmanaged peak, as given where it was
  std::uint64_t budget_bytes = 0;
  std::uint64_t host_budget_bytes = 0;
  std::uint64_t bandwidth = 0;     ///< bytes per second, device to host
  std::uint64_t bandwidth_in = 0;  ///< bytes per second, host to device
  std::int64_t latency_ns = 0;
  double real_rate = 1;  ///< what copies reach of the bandwidths
  std::string memory;    ///< "places" or "pages"; DTR's simulator knows pages only
  double operators_faster = 1;
  double noise = 0;
  std::uint64_t seed = 1;  ///< of the noise and the jitter
  double jitter = 0;
  std::uint64_t ranks = 1;
  // Of several ranks.
  std::optional<std::string> parallel;             ///< ddp or fsdp
  std::optional<std::string> collectives;          ///< ring or tree
  std::optional<std::uint64_t> network;            ///< bytes per second, of each rank
  std::optional<std::int64_t> network_latency_ns;  ///< of each hop
  std::optional<bool> one_link;                    ///< for copies and collectives
  double thrash_limit = 0;

  std::string result;                ///< pass, oom or thrash
  std::optional<std::string> error;  ///< why not pass, where there is more to say
  std::int64_t time_ns = 0;          ///< until the end, or until it was given up
  std::int64_t unmanaged_time_ns = 0;
  std::optional<double> overhead;  ///< time / unmanaged time, of pass
  /// What no policy beats on this machine (traces/bound.hpp); absent where an operator does not
  /// fit.
  std::optional<double> bound_overhead;
  std::uint64_t unmanaged_peak_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t host_peak_bytes = 0;
  std::int64_t recompute_ns = 0;
  std::int64_t stall_ns = 0;         ///< waits for copies
  std::int64_t network_wait_ns = 0;  ///< waits for collectives

  std::uint64_t evictions = 0;
  std::uint64_t offloads = 0;
  std::uint64_t clean_drops = 0;
  std::uint64_t reloads = 0;
  std::uint64_t prefetches = 0;
  std::uint64_t recomputes = 0;
  std::uint64_t evaluations = 0;
  std::uint64_t walked = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t iteration = 1;  ///< 1 where there is one
  /// What was there behind it, and crosses to the next; absent: not known to DTR's simulator.
  std::optional<std::uint64_t> live_tensors, live_records;
  std::optional<std::uint64_t> device_bytes_after, host_bytes_after;

  std::optional<double> max_overhead;  ///< that a budget was searched for; absent: none was
  std::optional<bool> keeps;           ///< to that: it passes, and takes no longer
};

/// Writes a list of all rows; the file appears whole or not at all. Throws std::runtime_error
/// naming the path.
void write_rows(std::span<const replay_row>, const std::filesystem::path& path);

/// Of a time over the unmanaged time: "1.234x", or "-".
[[nodiscard]] std::string overhead_text(std::optional<double>);

/// What the replays of one trace have in common: "name: unmanaged 16.0 ms and ...", a line.
void print_trace_line(std::ostream&, const replay_row& any);

/// The rows of one trace: a line about the trace, then an aligned line for each replay. With
/// `iterations` of more than 1 that has the overheads of the first and the last iteration, and the
/// counters of the last.
void print_rows(std::ostream&, std::span<const replay_row>, std::uint64_t iterations = 1);

}  // namespace delta::executor
