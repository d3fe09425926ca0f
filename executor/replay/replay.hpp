// delta executor: runs a recorded program through a delta::manager in virtual time. The manager and
// its policies are those that train; only the bytes are missing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "delta/manager.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/trace.hpp"
#include "replay/replay_figures.hpp"

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
  nanoseconds time{};       ///< virtual, until the end or until it was given up
  nanoseconds recompute{};  ///< of that, in replays
  nanoseconds stall{};      ///< of that, waiting for copies
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

/// What the trace takes without a budget: all operators once, every storage until its last
/// reference is gone (constants too).
struct unmanaged_cost {
  nanoseconds time{};
  bytes peak{};
};
[[nodiscard]] inline unmanaged_cost unmanaged(const trace& t) {
  return {total_cost(t), unmanaged_peak(t)};
}

/// Takes no notice of the end of a step.
struct ignore_steps {
  void operator()() const noexcept {}
};

/// One run of a trace over one manager type. `watch()` is called whenever an operator runs, again
/// too, and `step_ended()` right after the end of each step; they end the run by throwing. The
/// replayer outlives its last call of the manager.
template <class Manager, class Watch, class StepEnded = ignore_steps>
class replayer {
 public:
  replayer(Manager& m, const trace& t, Watch watch, StepEnded step_ended = {})
      : manager_(&m),
        trace_(&t),
        watch_(std::move(watch)),
        step_ended_(std::move(step_ended)),
        ids_(t.tensors.size(), tensor_id::none),
        references_(t.tensors.size(), 0) {}

  /// Carries the events out.
  void run() {
    for (const trace::event& e : trace_->events) {
      switch (e.what) {
        case trace::kind::constant:
          made(e.index, manager_->constant(size(e.index), label(e.index, "constant")));
          break;
        case trace::kind::variable:
          made(e.index, manager_->variable(size(e.index), label(e.index, "variable")));
          break;
        case trace::kind::run:
          operate(trace_->operations[e.index]);
          break;
        case trace::kind::share:
          ++references_[e.index];
          manager_->share(ids_[e.index]);
          break;
        case trace::kind::drop:
          --references_[e.index];
          manager_->drop(ids_[e.index]);
          break;
        case trace::kind::read:
          (void)manager_->acquire(ids_[e.index]);
          break;
        case trace::kind::write:
          (void)manager_->acquire(ids_[e.index], access::write);
          break;
        case trace::kind::backward:
          manager_->backward();
          break;
        case trace::kind::end_of_step:
          manager_->end_of_step();
          step_ended_();
          break;
      }
    }
  }
  /// What still has references is the program's result: all of it has to be there at the end.
  /// After the end of a step nothing is a result, and nothing happens.
  void gather_results() {
    if (!trace_->has_results()) return;
    inputs_.clear();
    for (std::size_t t = 0; t < ids_.size(); ++t)
      if (references_[t] > 0) inputs_.push_back(ids_[t]);
    manager_->run(operation_span{.inputs = inputs_, .name = "results"}, {}, [](call&) {});
  }

 private:
  void made(std::uint32_t tensor, tensor_id id) {
    ids_[tensor] = id;
    references_[tensor] = 1;
  }
  [[nodiscard]] bytes size(std::uint32_t tensor) const { return trace_->tensors[tensor].size; }
  [[nodiscard]] const char* label(std::uint32_t tensor, const char* otherwise) const {
    const std::uint32_t name = trace_->tensors[tensor].name;
    return name == trace::none ? otherwise : trace_->names[name].c_str();
  }
  void operate(const trace::operation& o) {
    inputs_.clear(), updates_.clear(), sizes_.clear();
    for (const std::uint32_t t : trace_->inputs(o)) inputs_.push_back(ids_[t]);
    for (const std::uint32_t t : trace_->updates(o)) updates_.push_back(ids_[t]);
    for (const std::uint32_t t : trace_->outputs(o))
      if (trace_->tensors[t].view_of == trace::none) sizes_.push_back(size(t));
    outputs_.resize(sizes_.size());
    manager_->run(operation_span{.inputs = inputs_,
                                 .outputs = sizes_,
                                 .updates = updates_,
                                 .workspace = o.workspace,
                                 .traits = o.traits,
                                 .cost = o.cost,
                                 .name = trace_->name(o).c_str()},
                  outputs_, [this](call&) { watch_(); });
    std::size_t next = 0;
    for (const std::uint32_t t : trace_->outputs(o)) {
      const std::uint32_t base = trace_->tensors[t].view_of;
      made(t, base == trace::none ? outputs_[next++] : manager_->share(ids_[base]));
    }
  }

  Manager* manager_;
  const trace* trace_;
  Watch watch_;
  StepEnded step_ended_;
  std::vector<tensor_id> ids_;             // by tensor of the trace; views have their storage's
  std::vector<std::uint32_t> references_;  // by tensor of the trace
  std::vector<tensor_id> inputs_, updates_, outputs_;
  std::vector<bytes> sizes_;
};

/// The simulated memory for a trace.
[[nodiscard]] inline simulated_options storage_for(const trace& t, const replay_machine& on) {
  const trace::origin known = t.recorded_on.value_or(trace::origin{});
  return {.capacity = on.budget,
          .host_capacity = on.host_budget,
          .rate_out = on.rate_out,
          .rate_in = on.rate_in,
          .latency = on.latency,
          .granularity = std::max<std::uint64_t>(known.granularity, 1),
          .rate_move = static_cast<double>(known.rate_move),
          .real_rate = on.real_rate,
          .places = has_places(t, on),
          .burden_out = on.burden_out,
          .burden_in = on.burden_in};
}

/// Replays a trace under a policy. An infeasible budget is a result, not an error.
template <class H, class D, class P, class O = no_observer>
replay_result replay(const trace& t, policy<H, D, P> p, const replay_machine& on, O observer = {}) {
  simulated storage(storage_for(t, on));
  replay_result r;
  const double limit = on.thrash_limit * double(total_cost(t).count());
  manager m{std::move(p), storage, std::move(observer)};
  step_meter meter(m, storage, step_costs(t));
  struct too_late {};
  const auto too_long = [&](nanoseconds time, double most) {
    if (double(time.count()) > most) throw too_late{};
  };
  const auto in_time = [&] {
    too_long(storage.now(), limit);
    if (on.limit_steps) too_long(meter.time(), on.thrash_limit * double(meter.unmanaged().count()));
  };
  const auto end_step = [&] {
    in_time();
    meter.end_step();
  };
  replayer play(m, t, in_time, end_step);
  try {
    play.run();
    play.gather_results();
    if (t.has_results()) end_step();
  } catch (too_late) {
    r.result = replay_result::verdict::thrash;
  } catch (const thrash& e) {
    r.result = replay_result::verdict::thrash;
    r.error = e.what();
  } catch (const budget_exceeded& e) {
    r.result = replay_result::verdict::oom;
    r.error = e.what();
  }
  r.time = storage.now();
  r.recompute = m.counts().recompute_time;
  r.stall = storage.waited();
  r.peak = storage.peak();
  r.host_peak = storage.host_peak();
  r.evaluations = m.evaluations();
  r.walked = m.walked();
  r.counts = m.counts();
  if (r.result != replay_result::verdict::pass) meter.end_step();
  r.steps = meter.take();
  return r;
}

}  // namespace delta::executor
