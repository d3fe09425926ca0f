// delta executor: what each step of a replay took, and what was there behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "delta/observer.hpp"
#include "delta/units.hpp"
#include "traces/network.hpp"
#include "traces/trace.hpp"

namespace delta::executor {

/// One step of a replay: what is counted is of this step alone.
struct step_figures {
  nanoseconds time{};          ///< virtual, until its end or until it was given up
  nanoseconds unmanaged{};     ///< what its operations take once each, collectives beside them
  nanoseconds recompute{};     ///< of the time, in replays
  nanoseconds stall{};         ///< of the time, waiting for copies
  nanoseconds network_wait{};  ///< of the time, waiting for collectives
  std::uint64_t evaluations = 0;
  std::uint64_t walked = 0;
  counters counts;
  // From the beginning of the replay up to the end of the step.
  bytes peak{};
  bytes host_peak{};
  // Behind the step: what it hands to the next.
  std::size_t live_tensors = 0;
  std::size_t live_records = 0;
  bytes device_after{};
  bytes host_after{};
};

/// What the operations of each step take, step by step, by unmanaged_clock. A step ends with
/// `end_of_step`, the last one with the trace where it has results. O(events).
[[nodiscard]] inline std::vector<nanoseconds> step_costs(const trace& t) {
  std::vector<nanoseconds> costs;
  unmanaged_clock clock(t);
  nanoseconds began{};
  for (const trace::event& e : t.events) {
    if (e.what == trace::kind::run) clock.run(t.operations[e.index]);
    if (e.what != trace::kind::end_of_step) continue;
    costs.push_back(clock.now() - std::exchange(began, clock.now()));
  }
  if (t.has_results()) costs.push_back(clock.now() - began);
  return costs;
}

/// What was counted since: every counter of `now` less that of `before`.
[[nodiscard]] constexpr counters difference(const counters& now, const counters& before) noexcept {
  return {.operators = now.operators - before.operators,
          .evictions = now.evictions - before.evictions,
          .offloads = now.offloads - before.offloads,
          .clean_drops = now.clean_drops - before.clean_drops,
          .copies_ahead = now.copies_ahead - before.copies_ahead,
          .reloads = now.reloads - before.reloads,
          .prefetches = now.prefetches - before.prefetches,
          .recomputes = now.recomputes - before.recomputes,
          .revivals = now.revivals - before.revivals,
          .backward_releases = now.backward_releases - before.backward_releases,
          .waits = now.waits - before.waits,
          .decisions = now.decisions - before.decisions,
          .bytes_out = now.bytes_out - before.bytes_out,
          .bytes_in = now.bytes_in - before.bytes_in,
          .recompute_time = now.recompute_time - before.recompute_time};
}

/// Takes the figures of a replay at the ends of its steps. Both outlive it.
template <class Manager, class Storage>
class step_meter {
 public:
  step_meter(const Manager& m, const Storage& s, std::vector<nanoseconds> costs)
      : manager_(&m), storage_(&s), costs_(std::move(costs)), before_(so_far()) {}

  /// The step that is under way: how long it has taken, and what its operations take.
  [[nodiscard]] nanoseconds time() const { return storage_->now() - before_.time; }
  [[nodiscard]] nanoseconds unmanaged() const { return costs_[done_.size()]; }
  /// It is over, or given up.
  void end_step() {
    const step_figures now = so_far();
    step_figures step = now;
    step.time = time();
    step.unmanaged = unmanaged();
    step.recompute -= before_.recompute;
    step.stall -= before_.stall;
    step.network_wait -= before_.network_wait;
    step.evaluations -= before_.evaluations;
    step.walked -= before_.walked;
    step.counts = difference(now.counts, before_.counts);
    done_.push_back(step);
    before_ = now;
  }
  /// Those of every step that has ended. Once.
  [[nodiscard]] std::vector<step_figures> take() { return std::move(done_); }

 private:
  /// All of it since the beginning.
  [[nodiscard]] step_figures so_far() const {
    const nanoseconds network = storage_->waited_for_collectives();
    return {.time = storage_->now(),
            .recompute = manager_->counts().recompute_time,
            .stall = storage_->waited() - network,
            .network_wait = network,
            .evaluations = manager_->evaluations(),
            .walked = manager_->walked(),
            .counts = manager_->counts(),
            .peak = storage_->peak(),
            .host_peak = storage_->host_peak(),
            .live_tensors = manager_->live_tensors(),
            .live_records = manager_->live_records(),
            .device_after = storage_->used(),
            .host_after = storage_->host_used()};
  }

  const Manager* manager_;
  const Storage* storage_;
  std::vector<nanoseconds> costs_;  // by step
  step_figures before_;             // at the end of the step before
  std::vector<step_figures> done_;
};

}  // namespace delta::executor
