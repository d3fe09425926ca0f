// delta executor: one training run in a memory, and what it leaves behind: what `train` and the
// search for a budget are made of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/backend.hpp"
#include "cli/options.hpp"
#include "data/dataset.hpp"
#include "delta/learning_report.hpp"
#include "delta/observer.hpp"
#include "delta/units.hpp"
#include "hashes/hashed_storage.hpp"
#include "kernels/thread_pool.hpp"
#include "model/graph.hpp"
#include "traces/trace.hpp"
#include "train/checkpoint.hpp"
#include "train/report.hpp"

namespace delta::executor {

/// Everything that the runs of one command line share. Progress (what is being built, which run,
/// which step) goes to `progress`, a line each; it and the options outlive the bench.
struct training_bench {
  /// Opens the data and the checkpoint and builds the graphs. Throws as `train`.
  training_bench(const train_options&, std::ostream& progress);
  /// Steps that were taken before all runs.
  [[nodiscard]] std::uint64_t first() const noexcept { return resumed ? resumed->head.step : 0; }

  const train_options& options;
  std::ostream& progress;
  std::unique_ptr<dataset> data;
  std::uint64_t steps;                ///< of the whole run
  std::unique_ptr<backend> on;        ///< that the graphs are bound to
  std::vector<fixed_flag> flags;      ///< that the bits depend on
  std::optional<checkpoint> resumed;  ///< that all runs go on from
  graph training;
  std::vector<graph> inference;  ///< whole batches, and the last one's size; empty: none wanted
  bytes_by_class expected;       ///< the unmanaged peak, as modelled
  bytes host_budget;             ///< as given, else that peak
  thread_pool pool;
};

/// One run.
struct run_request {
  std::string_view policy = "unmanaged";
  bytes budget{};
  bytes host_budget{};
  std::uint64_t steps = 0;
  std::string_view title;             ///< in progress lines
  bool evaluations = true;            ///< where the options ask for them
  std::ostream* timeline = nullptr;   ///< null: none
  std::ostream* decisions = nullptr;  ///< null: none
  bool recording = false;
  bool saving = false;  ///< where the options ask for it
  bool hashed = false;  ///< every tensor is, and compared (hashes/hashed_storage.hpp)
};

/// What one run leaves behind.
struct run_outcome {
  std::vector<float> losses;  ///< one per step, those before the first one, too
  std::vector<std::vector<std::byte>> parameters{}, state{};  ///< in the graph's order
  std::vector<double> accuracies{};
  /// Median, without the first step where there are more: pages and caches make that a slow one,
  /// and a policy that learns knows nothing in it.
  double step_seconds = 0;
  std::vector<double> seconds_by_step{};
  /// Of a step (mean), as train_report has them.
  double stall_seconds = 0, manager_seconds = 0, host_wait_seconds = 0;
  bool timed_alone = true;  ///< false: recording paused the device, to time operators
  nanoseconds last_step{};  ///< by the storage's clock
  counters counts;
  bool replays_were_checked = false;
  std::optional<hashes::hash_counts> hashed{};  ///< with --verify-tensors
  bytes peak{}, host_peak{};
  bytes_by_class by_class;
  std::uint64_t moves = 0, moved_bytes = 0;
  std::optional<int> copy_threads{};  ///< as train_report has them
  std::array<double, 2> burden{};     ///< the storage's, out and in
  std::optional<trace> recorded{};
  learning_report learned;  ///< behind the last training step
};

/// Trains. Throws delta's typed memory errors (a budget that nothing fits), and usage_error where
/// the device has less free.
run_outcome train_once(training_bench&, const run_request&);

/// An unmanaged run, in as much memory as it can need, or as its device has.
run_request unmanaged_run(const training_bench&, std::uint64_t steps, std::string_view title);

/// Every loss, parameter, optimizer state and running statistic.
bool same_bits(const run_outcome&, const run_outcome&);

/// Puts what the graph's operators run on into the report, where the backend had a choice.
void report_algorithms(train_report&, const graph&);

/// Puts what the unmanaged run measured into the report of the managed one.
void report_twin(train_report&, const run_outcome& twin);

/// Puts what came of the run into its report.
void report_run(train_report&, run_outcome&&);

}  // namespace delta::executor
