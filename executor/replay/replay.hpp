// delta executor: runs a recorded program through a manager in virtual time, one that is given. The
// manager and its policies are those that train; only the bytes are missing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "delta/error.hpp"
#include "delta/kernel.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/tensor.hpp"
#include "delta/trace.hpp"
#include "replay/replay_figures.hpp"
#include "replay/replay_result.hpp"

namespace delta::executor {

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

/// Replays a trace by a manager over that storage, both fresh. An infeasible budget is a result,
/// not an error.
template <class Manager>
replay_result replay_by(Manager& m, simulated& storage, const trace& t, const replay_machine& on) {
  replay_result r;
  const double limit = on.thrash_limit * double(total_cost(t).count());
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
