// delta: plays a recorded program (trace.hpp) through a manager: the same constants, operators,
// drops and marks, in order. Over `simulated` that takes virtual time, over any other storage the
// kernel given for each operation.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "delta/detail/runtime/run_in_place.hpp"
#include "delta/error.hpp"
#include "delta/kernel.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"
#include "traces/handed_over.hpp"
#include "traces/network.hpp"
#include "traces/trace.hpp"

namespace delta {

/// A kernel that does nothing, and takes no notice of the end of a step.
struct no_work {
  void operator()() const noexcept {}
};

/// One run of a trace through one manager: `delta::manager`, or a `manager_interface` that was made
/// by name (engine/engine.hpp).
///
///   delta::check(recorded);  // throws bad_trace
///   delta::simulated storage{{.capacity = 64_MiB, .host_capacity = 1_GiB}};
///   delta::manager manager{delta::online(), storage};
///   delta::trace_replayer replay(manager, recorded);
///   replay.run();
///   replay.gather_results();
///   std::cout << storage.now().count() << " ns\n";
///
/// `work` is the kernel of every operation, now and when it is recomputed: `work(operation,
/// call&)`, or `work()` where the bytes don't matter. `step_ended()` is called after each end of a
/// step. Both may end the run by throwing. `network` plays the collectives, operations that are
/// trait::asynchronous: replayed_network in virtual time; by default they are operations like any.
/// The replayer outlives its manager's last replay.
template <class Manager, class Work = no_work, std::invocable StepEnded = no_work,
          class Network = no_network>
  requires std::invocable<Work&> || std::invocable<Work&, const trace::operation&, call&>
class trace_replayer {
 public:
  /// The trace keeps the rules: `check(t)` says so. O(tensors). Throws std::bad_alloc.
  trace_replayer(Manager& m, const trace& t, Work work = {}, StepEnded step_ended = {},
                 Network network = {})
      : manager_(&m),
        trace_(&t),
        work_(std::move(work)),
        step_ended_(std::move(step_ended)),
        network_(std::move(network)),
        ids_(t.tensors.size(), tensor_id::none),
        references_(t.tensors.size(), 0),
        once_(t.tensors.size(), false) {}
  /// Kernels point to it.
  trace_replayer(const trace_replayer&) = delete;
  trace_replayer& operator=(const trace_replayer&) = delete;

  /// Makes the sources that a repeated step keeps: those that the trace makes before its first
  /// operation, and never drops. `run` may follow several times, with `let_go` in between. Throws
  /// as `run`.
  void begin() {
    const auto& all = trace_->events;
    for (std::size_t i = 0; i < all.size() && all[i].what != trace::kind::run; ++i)
      if (is_source(all[i].what)) once_[all[i].index] = true;
    for (const trace::event& e : all)
      if (e.what == trace::kind::drop) once_[e.index] = false;
    for (const trace::event& e : all)
      if (is_source(e.what) && once_[e.index]) make(e);
    becomes_ = handed_over(*trace_);
  }
  /// Drops what the step has left, but for those sources, and for what it leaves to the next one.
  void let_go() {
    for (std::uint32_t t = 0; t < ids_.size(); ++t)
      if (becomes_[t] != trace::none && std::exchange(references_[t], 0) > 0)
        made(becomes_[t], ids_[t]);
      else if (!once_[t])
        for (; references_[t] > 0; --references_[t]) manager_->drop(ids_[t]);
  }
  /// Carries the events out, once. Throws what the manager throws: budget_exceeded and thrash where
  /// the budget does not do. Linear in the trace, beside what the manager takes.
  void run() {
    for (const trace::event& e : trace_->events) {
      switch (e.what) {
        case trace::kind::constant:
        case trace::kind::variable:
          if (references_[e.index] == 0) make(e);
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
  /// What still has references is the program's result: all of it comes together on the device, as
  /// if one operator read it. Nothing, where the trace ends with a step. Throws as `run`.
  void gather_results() {
    if (!trace_->has_results()) return;
    inputs_.clear();
    for (std::size_t t = 0; t < ids_.size(); ++t)
      if (references_[t] > 0) inputs_.push_back(ids_[t]);
    manager_->run(operation_span{.inputs = inputs_, .name = "results"}, {}, [](call&) {});
  }

 private:
  void make(const trace::event& e) {
    made(e.index, e.what == trace::kind::constant
                      ? manager_->constant(size(e.index), label(e.index, "constant"))
                      : manager_->variable(size(e.index), label(e.index, "variable")));
  }
  void made(std::uint32_t tensor, tensor_id id) {
    ids_[tensor] = id;
    references_[tensor] = 1;
  }
  [[nodiscard]] bytes size(std::uint32_t tensor) const { return trace_->tensors[tensor].size; }
  [[nodiscard]] const char* label(std::uint32_t tensor, const char* otherwise) const {
    const std::uint32_t name = trace_->tensors[tensor].name;
    return name == trace::none ? otherwise : trace_->names[name].c_str();
  }
  void work_on([[maybe_unused]] const trace::operation& o, [[maybe_unused]] call& c) {
    network_.within(o);
    if constexpr (std::invocable<Work&>)
      work_();
    else
      work_(o, c);
  }
  void operate(const trace::operation& o) {
    network_.before(o);
    while (!try_to_run(o)) continue;
    network_.after(o, ids_);
  }
  // False: memory was short, and a collective in flight that held some of it was waited for.
  bool try_to_run(const trace::operation& o) {
    try {
      carry_out(o);
      return true;
    } catch (const thrash&) {
      throw;
    } catch (const budget_exceeded&) {
      if (!network_.wait_for_oldest()) throw;
      return false;
    }
  }
  void carry_out(const trace::operation& o) {
    inputs_.clear(), updates_.clear(), sizes_.clear();
    for (const std::uint32_t t : trace_->inputs(o)) inputs_.push_back(ids_[t]);
    for (const std::uint32_t t : trace_->updates(o)) updates_.push_back(ids_[t]);
    const auto all = trace_->outputs(o), fresh = all.subspan(o.replaced);
    for (const std::uint32_t t : fresh)
      if (trace_->tensors[t].view_of == trace::none) sizes_.push_back(size(t));
    detail::run_in_place(*manager_,
                         operation_span{.inputs = inputs_,
                                        .outputs = sizes_,
                                        .updates = updates_,
                                        .workspace = o.workspace,
                                        .traits = o.traits,
                                        .cost = network_.cost(o),
                                        .name = trace_->name(o).c_str()},
                         std::span<const tensor_id>(inputs_).first(o.replaced), outputs_,
                         [this, &o](call& c) { work_on(o, c); });
    // Fresh ones come first in `outputs_`, as they were named when it began.
    for (std::uint32_t i = 0; i < o.replaced; ++i) made(all[i], outputs_[sizes_.size() + i]);
    std::size_t next = 0;
    for (const std::uint32_t t : fresh) {
      const std::uint32_t base = trace_->tensors[t].view_of;
      made(t, base == trace::none ? outputs_[next++] : manager_->share(ids_[base]));
    }
  }

  Manager* manager_;
  const trace* trace_;
  [[no_unique_address]] Work work_;
  [[no_unique_address]] StepEnded step_ended_;
  [[no_unique_address]] Network network_;
  std::vector<tensor_id> ids_;             // by tensor of the trace; views have their storage's
  std::vector<std::uint32_t> references_;  // by tensor of the trace
  std::vector<bool> once_;                 // by tensor of the trace: `begin` has made it
  std::vector<std::uint32_t> becomes_;     // by tensor of the trace: handed_over
  std::vector<tensor_id> inputs_, updates_, outputs_;
  std::vector<bytes> sizes_;
};

}  // namespace delta
