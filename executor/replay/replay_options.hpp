// delta executor: what delta-replay is asked to do, read from the command line and checked before
// anything is replayed. Nothing here opens a trace.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/option_values.hpp"
#include "cli/own_policy_file.hpp"
#include "delta/units.hpp"
#include "trace/perturb.hpp"
#include "traces/collectives.hpp"

namespace delta::executor {

/// What a plan of --plan is called among the policies.
inline constexpr std::string_view plan_policy = "plan";

/// What --policy takes: delta's presets, then the policies of DTR's simulator.
std::span<const preset> replay_policies() noexcept;

/// A budget for every trace: bytes, or a part of its unmanaged peak.
struct replay_budget {
  std::optional<double> ratio;  ///< in (0, 1]
  bytes size{};                 ///< without a ratio

  /// In bytes for that peak, rounded down.
  [[nodiscard]] bytes resolve(bytes unmanaged_peak) const noexcept;
};

/// Of copies, where neither the command line nor the trace says.
inline constexpr double default_rate = 12e9;  ///< bytes per second, each way
inline constexpr nanoseconds default_latency{10'000};

/// How many iterations a trace is replayed for where the command line does not say.
inline constexpr std::uint64_t default_iterations = 3;

/// Everything that a call of delta-replay needs to know. The defaults are its own.
struct replay_options {
  std::vector<std::filesystem::path> traces;
  std::vector<std::string> policies{"dtr", "online", "adaptive"};
  std::vector<own_policy_file> own;  ///< to be loaded; their names are among the policies
  std::vector<replay_budget> budgets{{0.3, {}}, {0.5, {}}, {0.7, {}}};
  // Absent: what a trace says of the machine that it was recorded on, else the defaults below.
  std::optional<double> rate_out;      ///< bytes per second, device to host
  std::optional<double> rate_in;       ///< bytes per second, host to device
  std::optional<nanoseconds> latency;  ///< of every copy
  std::optional<bytes> host_budget;    ///< absent: four times the unmanaged peak
  double thrash_limit = 2.0;
  std::uint64_t iterations = default_iterations;  ///< steps one behind the other
  perturbation perturbed_by{};                    ///< of the operations' costs
  rank_group group{};                             ///< that trains; of one rank: no collectives
  bool one_link = false;                          ///< for copies and collectives
  double real_rate = 1.0;                         ///< what copies reach of the rates above
  std::optional<bool> places;       ///< replay_machine::places; absent: by the trace, as there
  bool find_budget = false;         ///< in place of `budgets`, the smallest one that will do
  double max_overhead = 1.2;        ///< with find_budget
  std::filesystem::path plan;       ///< empty: none; else `plan_policy` is among the policies
  std::filesystem::path plan_out;   ///< empty: none
  std::filesystem::path json;       ///< empty: none
  std::filesystem::path timeline;   ///< empty: none
  std::filesystem::path decisions;  ///< empty: none
};

/// A parsed command line.
struct replay_command {
  std::string text;  ///< to be printed instead of replaying (help, the policies); empty: replay
  replay_options options;
};

/// Reads delta-replay's command line. Throws usage_error. Also checks that the files of --json,
/// --timeline, --decisions and --plan-out can be written, as parse_options does.
replay_command parse_replay_options(int argc, const char* const* argv);

}  // namespace delta::executor
