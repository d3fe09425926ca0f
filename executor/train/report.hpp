// delta executor: what a training run found, as JSON for programs and as a table for people.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace delta::executor {

/// Bytes held at the instant of the unmanaged peak, by what they are for. The parts add up to
/// `total`.
struct bytes_by_class {
  std::uint64_t total = 0;
  std::uint64_t parameters = 0;
  std::uint64_t gradients = 0;
  std::uint64_t optimizer_state = 0;
  std::uint64_t activations = 0;  ///< also batches, labels and running statistics
  std::uint64_t workspace = 0;
};

/// One step as its plan was rehearsed, and as it came out: overheads as below.
struct step_report {
  double predicted = 0;  ///< 0: there was no plan
  double measured = 0;
};

/// What a policy that learns had learned by the end of the last training step. An overhead is here
/// a step's time by the manager's clock over its operators' time, each counted once.
struct learned_report {
  std::uint64_t steps = 0;        ///< that it saw, those of evaluations included
  std::uint64_t kinds = 0;        ///< how many of them differ, in operators or in sizes; 32 at most
  std::uint64_t divergences = 0;  ///< steps that stopped being like any before
  std::uint64_t operators = 0;    ///< of the last one
  std::uint64_t peak_bytes = 0;   ///< the most that its tensors and workspace take unmanaged
  double measured_overhead = 0;   ///< of the last one
  std::optional<double> expected_overhead;  ///< of the next one under its plan; absent: it has none
  std::uint64_t memory_bytes = 0;           ///< what remembering takes
  /// The steps that ended, in order, as far back as the policy keeps them; absent: it makes no
  /// plans.
  std::optional<std::vector<step_report>> outcomes{};
};

/// What a kernel library runs an operator on.
struct algorithm_report {
  std::string operation;  ///< its name in the graph
  std::string algorithm;  ///< "cuDNN engine 68, knobs 2=0 13=0, tensor cores"
  std::uint64_t workspace_bytes = 0;
};

/// The result of one run. Member names are the JSON keys; absent optionals are null there.
struct train_report {
  std::string model;
  std::string device = "cpu";              ///< what kind: "cpu" or "cuda"
  std::optional<std::string> device_name;  ///< what it is called
  std::string data;
  int batch = 0;
  int image = 0;
  std::uint64_t seed = 0;
  int threads = 0;
  std::uint64_t steps = 0;

  std::string policy;
  std::uint64_t budget_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::optional<bytes_by_class> unmanaged_peak_bytes;
  std::optional<std::uint64_t> host_budget_bytes;
  std::uint64_t host_peak_bytes = 0;

  double step_seconds = 0;  ///< median, without the first step where there are more
  std::optional<std::vector<double>> seconds_by_step;  ///< of every step, in order
  std::optional<double> unmanaged_step_seconds;
  double stall_seconds = 0;  ///< a step's waits for copies (mean)
  /// A step's wall time less kernels (where they run on: less launching them) less what the host
  /// waited (mean).
  double manager_seconds = 0;
  /// What the host waited in a step (mean): for copies and, where kernels run on, for results.
  std::optional<double> host_wait_seconds;

  std::vector<float> losses;  ///< one per step
  std::string losses_digest;
  std::string parameters_digest;
  std::string state_digest;                 ///< optimizer state and running statistics
  std::optional<bool> bit_identical;        ///< absent without --verify
  std::vector<double> evaluation_accuracy;  ///< in [0, 1], one per evaluation pass

  std::uint64_t evictions = 0;
  std::uint64_t offloads = 0;
  std::uint64_t reloads = 0;
  std::uint64_t recomputes = 0;
  std::uint64_t prefetches = 0;
  std::optional<std::uint64_t> replays_checked;    ///< operators, with --check-replays
  std::optional<std::uint64_t> replays_unchecked;  ///< for which there was no room
  std::optional<std::uint64_t> tensors_compared;   ///< by their hashes, with --verify-tensors
  /// Operators that were priced by their bytes; absent: none.
  std::optional<std::uint64_t> guessed_costs;
  std::optional<std::uint64_t> host_waits;  ///< for a copy to free bytes, as the policy had it
  std::uint64_t moves = 0;                  ///< blocks moved together inside the arena
  std::uint64_t moved_bytes = 0;

  /// Of the training step's operators, in order, those whose backend had a choice; absent:
  /// none.
  std::optional<std::vector<algorithm_report>> algorithms{};

  std::optional<learned_report> learned;  ///< absent: the policy does not learn

  bool virtual_clock = false;
  std::optional<bool> fused;        ///< batch norms with the additions and ReLUs behind them
  std::optional<double> copy_rate;  ///< bytes per second each way, where throttled
  std::optional<int> copy_threads;  ///< of the host's; 0: those that compute copied

  // Only of a run in a budget that was looked for.
  std::optional<double> max_overhead;        ///< asked for: time / unmanaged time
  std::optional<double> predicted_overhead;  ///< of the last step in this budget, by replaying one
  std::optional<double> measured_overhead;   ///< in this run, likewise behind the first step
  std::optional<bool> budget_confirmed;      ///< it kept to the budget and to the overhead

  // Only where no run came to its end; the figures are those of the command line then.
  std::optional<std::string> error;                    ///< the error's line
  std::optional<std::uint64_t> smallest_budget_bytes;  ///< that a memory error names, if any
};

/// Writes the report to a temporary file beside `path` and renames it: a reader sees the old file
/// or the whole new one. Throws std::runtime_error naming the path.
void write_json(const train_report&, const std::filesystem::path& path);

/// Reads a report that write_json wrote. Throws std::runtime_error naming the path.
train_report read_json(const std::filesystem::path& path);

/// One aligned line per report: model, policy, budget, peak, saving, step time ratio, counts,
/// bit-identical. Unknown values are "-". Below, one line per report of the device, where that is
/// no CPU, and of what its policy learned, where it learns; where it predicts, a second one with
/// what it predicted and what came out.
void print_table(std::ostream&, std::span<const train_report>);

}  // namespace delta::executor
