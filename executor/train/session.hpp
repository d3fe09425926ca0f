// delta executor: runs a graph's steps through a manager. The same code trains in an arena, on
// whatever machine, and, without kernels, asks the simulated storage what a budget would do.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "delta/engine/any_storage.hpp"
#include "delta/engine/manager_interface.hpp"
#include "delta/kernel.hpp"
#include "delta/learning_report.hpp"
#include "delta/observer.hpp"
#include "device/machine.hpp"
#include "hashes/hashed_storage.hpp"
#include "model/graph.hpp"
#include "trace/recorder.hpp"
#include "train/input_uploads.hpp"
#include "train/report.hpp"

namespace delta::executor {

/// What an operator costs on the virtual clock: by its flops or by the bytes that it moves,
/// whichever takes longer, and a fixed part. The rates are those of two cores with AVX-512, unless
/// the backend said what to expect. It is also what a policy goes by until it was measured.
[[nodiscard]] nanoseconds modelled_cost(const node&) noexcept;

/// Where the host's time in a step went; all without making the images.
struct step_times {
  nanoseconds wall{};     ///< the whole step, until its loss is known
  nanoseconds kernels{};  ///< in kernels, replays included; where they run on, in launching them
};

/// How far a session has come: what its random numbers and Adam's corrections depend on.
struct session_position {
  std::uint64_t steps = 0;      ///< of training
  std::uint64_t operators = 0;  ///< of all steps, inference's, too
};

/// Writes a batch: images (NHWC floats) and labels, every one of them.
class batch_source {
 public:
  virtual ~batch_source() = default;
  virtual void fill(float* images, std::int32_t* labels) = 0;
};

/// What a session works with. All of it outlives the session.
struct session_tools {
  machine* device = nullptr;    ///< that the storage is on; null: the storage keeps no bytes,
                                ///< so nothing is computed, filled or read
  thread_pool* pool = nullptr;  ///< for kernels on the CPU; null with `device`
  trace_recorder* recorder = nullptr;  ///< told what the steps ask of the memory; null: nobody is.
                                       ///< Where kernels run on and costs are measured, their
                                       ///< times are asked for when they are over.
  hashes::hashed_storage* hashed = nullptr;  ///< that the manager is on; null: on another one
};

/// A model in a memory, whatever the policy and the storage behind it.
class session final {
 public:
  /// The graph outlives the session.
  session(const graph& training, std::unique_ptr<manager_interface>, const session_tools&);
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session() = default;

  /// Makes the persistent values of the training graph and fills them from a seed.
  void create(std::uint64_t seed);
  /// In place of that: one persistent value, filled by `fill`, for each of them in any order; then
  /// the session goes on as behind the position.
  void create(value_id, const std::function<void(std::span<std::byte>)>& fill);
  void go_on_behind(const session_position&);
  [[nodiscard]] session_position position() const noexcept { return {steps_, operators_}; }
  [[nodiscard]] const graph& training() const noexcept { return *training_.what; }
  /// One training step; gives the loss. `batch` may be null without a device. `next`: what the next
  /// call will be given, or null; nothing but that call may follow then. A device whose kernels run
  /// on gets it during this step, where there is room, and `batch` is not asked again.
  float train(batch_source* batch, batch_source* next = nullptr);
  /// One inference step over a graph that shares the names of persistent values; the probabilities
  /// (batch x classes) are copied out.
  void infer(const graph& inference, batch_source* batch, std::span<float> probabilities);
  /// The bytes of a persistent value of the training graph. Not recorded.
  void read(value_id v, std::span<std::byte> to) { copy(persistent_[std::size_t(v)], to); }

  [[nodiscard]] const counters& counts() const { return memory_->counts(); }
  /// Batches that were brought to the device during the step before theirs.
  [[nodiscard]] std::uint64_t early_uploads() const noexcept { return early_uploads_; }
  [[nodiscard]] step_times times() const noexcept { return times_; }  ///< of the last step
  /// Bytes at the instant of the peak so far, by what they are for. Exact when nothing leaves.
  [[nodiscard]] bytes_by_class peak_by_class() const noexcept { return peak_; }
  /// What the policy has learned so far; without steps where it does not learn.
  [[nodiscard]] learning_report learned() const { return memory_->learned(); }

 private:
  using clock = std::chrono::steady_clock;

  /// A graph made ready: lists in delta's terms, so that a step allocates nothing.
  struct program {
    struct step {
      std::vector<bytes> outputs;
      trait traits = trait::pure;
      nanoseconds cost{};
      nanoseconds measured{};  ///< the last time; 0: never. Where kernels run on and are recorded
    };
    const graph* what;
    std::vector<tensor_id> ids;  ///< by value
    std::vector<step> steps;     ///< by node
    std::vector<std::vector<value_id>> dying;
    std::vector<std::uint64_t> ahead;  ///< by node: the most that is held behind it, unmanaged
    std::uint64_t peak = 0;            ///< of the step, unmanaged

    program(const graph&, const any_storage&);
  };

  tensor_id variable(const value&);
  void look(tensor_id from, std::span<std::byte> to);
  void copy(tensor_id from, std::span<std::byte> to);
  void fetch(tensor_id from, std::span<std::byte> to);
  nanoseconds feed(program&, batch_source*);
  nanoseconds make(const graph&, batch_source&);
  nanoseconds upload(program&, batch_source*);
  [[nodiscard]] bool upload_early(const program&, std::size_t node);
  void execute(program&);
  void finish(program&);
  void compute(const node&, call&);
  void record(program::step&, const operation_span&);
  void note_costs(bool all);
  void let_go(program&, value_id);
  void note(const value&, int sign);
  void note_peak(const node&);

  session_tools tools_;
  std::unique_ptr<manager_interface> memory_;
  std::unique_ptr<input_uploads> uploads_;  ///< null: the device's memory is written by `map`
  std::uint64_t early_uploads_ = 0;
  std::byte* fetched_ = nullptr;  ///< with uploads_: what the program reads
  bytes fetched_size_{};
  program training_;
  std::vector<std::unique_ptr<program>> inference_;  // kept: an evaluation has many batches
  std::vector<tensor_id> persistent_, inputs_, updates_, outputs_;
  // The addresses of the operator at hand.
  std::vector<const std::byte*> in_at_;
  std::vector<std::byte*> out_at_, update_at_;
  std::vector<std::int32_t> labels_;    ///< of the batch at hand
  std::uint64_t steps_ = 0;             ///< training steps so far
  std::uint64_t operators_ = 0;         ///< likewise, in them and in inference
  std::uint64_t operators_before_ = 0;  ///< of them, those that another session ran
  bool costs_come_later_ = false;       ///< are not known when an operator that is recorded returns
  /// Recorded operators, the oldest first, whose times are not known yet.
  struct unknown_cost {
    std::uint32_t operation;
    stamp done;
    program::step* of;
  };
  std::deque<unknown_cost> unknown_;
  nanoseconds took_{};  ///< the last kernel that was no replay, by the host's clock
  step_times times_;
  bytes_by_class held_, peak_;
};

}  // namespace delta::executor
