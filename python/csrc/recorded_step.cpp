// delta_torch: the replay of a recorded step: constants, operators, drops and ends of steps, over
// simulated memory.
#include "recorded_step.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

#include "delta/engine/engine.hpp"
#include "delta/storage/simulated.hpp"
#include "own_policies.hpp"

namespace delta_torch {

namespace {

using delta::trace;

// How many events come before the first operation.
std::size_t before_operations(const trace& t) {
  const auto runs = [](const trace::event& e) { return e.what == trace::kind::run; };
  return static_cast<std::size_t>(std::ranges::find_if(t.events, runs) - t.events.begin());
}

// One recorded step, played as often as is asked for.
class player {
 public:
  player(delta::manager_interface& m, const recorded_step& s)
      : manager_(m),
        step_(s),
        ids_(s.events.tensors.size(), delta::tensor_id::none),
        once_(s.events.tensors.size(), false),
        first_(before_operations(s.events)) {
    const auto& events = s.events.events;
    for (std::size_t i = 0; i < first_; ++i)
      if (makes(events[i])) once_[events[i].index] = true;
    for (const trace::event& e : events)
      if (e.what == trace::kind::drop) once_[e.index] = false;
  }

  // What comes once.
  void begin() {
    for (std::size_t i = 0; i < first_; ++i)
      if (is_once(step_.events.events[i])) source(step_.events.events[i]);
  }
  // One step, its end included.
  void play() {
    for (const trace::event& e : step_.events.events) {
      if (is_once(e)) continue;
      if (makes(e))
        source(e);
      else if (e.what == trace::kind::run)
        operate(e.index);
      else if (e.what == trace::kind::drop)
        drop(e.index);
      else if (e.what == trace::kind::read)
        (void)manager_.acquire(ids_[e.index]);
      else if (e.what == trace::kind::write)
        (void)manager_.acquire(ids_[e.index], delta::access::write);
      else if (e.what == trace::kind::backward)
        manager_.backward();
      else if (e.what == trace::kind::end_of_step)
        manager_.end_of_step();
    }
  }
  // What the step has left, between two steps.
  void let_go() {
    for (std::uint32_t t = 0; t < ids_.size(); ++t)
      if (!once_[t] && ids_[t] != delta::tensor_id::none) drop(t);
  }

 private:
  static bool makes(const trace::event& e) {
    return e.what == trace::kind::constant || e.what == trace::kind::variable;
  }
  [[nodiscard]] bool is_once(const trace::event& e) const { return makes(e) && once_[e.index]; }

  void source(const trace::event& e) {
    const trace::tensor& t = step_.events.tensors[e.index];
    const char* label = t.name == trace::none ? "data" : step_.events.names[t.name].c_str();
    ids_[e.index] = e.what == trace::kind::constant ? manager_.constant(t.size, label)
                                                    : manager_.variable(t.size, label);
  }
  void drop(std::uint32_t tensor) {
    manager_.drop(ids_[tensor]);
    ids_[tensor] = delta::tensor_id::none;
  }
  void operate(std::uint32_t number) {
    const trace& t = step_.events;
    const trace::operation& o = t.operations[number];
    inputs_.clear(), updates_.clear(), sizes_.clear();
    for (const std::uint32_t in : t.inputs(o)) inputs_.push_back(ids_[in]);
    for (const std::uint32_t in : t.updates(o)) updates_.push_back(ids_[in]);
    const auto outputs = t.outputs(o);
    const std::size_t renewed = step_.replaced[number];
    for (const std::uint32_t out : outputs.subspan(renewed)) sizes_.push_back(t.tensors[out].size);
    made_.resize(sizes_.size());
    delta::operation_span what{.inputs = inputs_,
                               .outputs = sizes_,
                               .updates = updates_,
                               .workspace = o.workspace,
                               .traits = o.traits,
                               .cost = o.cost,
                               .name = t.name(o).c_str()};
    const auto nothing = [](delta::call&) {};
    const auto old = std::span(inputs_).first(renewed);
    if (renewed == 0) {
      manager_.run(what, made_, nothing);
    } else if (std::ranges::all_of(old, [&](auto id) { return manager_.recomputable(id); })) {
      made_.resize(outputs.size());
      auto open = manager_.begin(what);
      open.replace(old);
      open.end(made_, nothing);
    } else {
      // What can't be made again under this policy is changed for good.
      updates_.assign(old.begin(), old.end());
      what.inputs = std::span(inputs_).subspan(renewed);
      what.updates = updates_;
      what.traits = delta::trait::never_replay;
      manager_.run(what, made_, nothing);
      for (const delta::tensor_id id : old) made_.push_back(manager_.share(id));
    }
    // Fresh ones come first in `made_`, as they were named when it began.
    for (std::size_t i = 0; i < outputs.size(); ++i)
      ids_[outputs[i]] = made_[i < renewed ? sizes_.size() + i : i - renewed];
  }

  delta::manager_interface& manager_;
  const recorded_step& step_;
  std::vector<delta::tensor_id> ids_;  // none: not there
  std::vector<bool> once_;             // by tensor
  std::size_t first_;                  // events before the first operation
  std::vector<delta::tensor_id> inputs_, updates_, made_;
  std::vector<delta::bytes> sizes_;
};

delta::simulated_options memory_of(const recorded_step& s, const rehearsal_machine& on) {
  const auto origin = s.events.recorded_on.value_or(trace::origin{});
  // Without places: PyTorch's allocators have many pieces, not one region.
  return {.capacity = on.budget,
          .host_capacity = on.host,
          .rate_out = on.rate_out,
          .rate_in = on.rate_in,
          .latency = on.latency,
          .granularity = std::max<std::uint64_t>(origin.granularity, 1),
          .places = false,
          .burden_out = on.burden,
          .burden_in = on.burden};
}

delta::counters of_step(const delta::counters& now, const delta::counters& before) {
  delta::counters c;
  c.operators = now.operators - before.operators;
  c.evictions = now.evictions - before.evictions;
  c.offloads = now.offloads - before.offloads;
  c.reloads = now.reloads - before.reloads;
  c.recomputes = now.recomputes - before.recomputes;
  c.bytes_out = now.bytes_out - before.bytes_out;
  c.bytes_in = now.bytes_in - before.bytes_in;
  c.recompute_time = now.recompute_time - before.recompute_time;
  return c;
}

}  // namespace

void check(const recorded_step& s) {
  delta::check(s.events);
  const std::size_t all = s.events.events.size();
  if (s.events.has_results())
    throw delta::bad_trace(all, "a step without its end", "end_of_step as the last event");
  if (s.replaced.size() != s.events.operations.size())
    throw delta::bad_trace(all, "new versions of some operations only", "a number for each");
  for (std::size_t i = 0; i < s.replaced.size(); ++i)
    if (s.replaced[i] > s.events.operations[i].inputs ||
        s.replaced[i] > s.events.operations[i].outputs)
      throw delta::bad_trace(all, "more new versions than inputs or outputs", "fewer");
}

rehearsed rehearse(const recorded_step& s, const rehearsal_machine& on) {
  delta::simulated memory(memory_of(s, on));
  const auto manager = make_manager_of(on.policy, delta::over(memory), {});
  player play(*manager, s);
  rehearsed r;
  r.unmanaged = delta::total_cost(s.events);
  delta::nanoseconds began{}, waited{};
  delta::counters before{};
  const auto end = [&](rehearsed::verdict what) {
    r.what = what;
    r.time = memory.now() - began;
    r.stall = memory.waited() - waited;
    r.counts = of_step(manager->counts(), before);
    r.recompute = r.counts.recompute_time;
    r.peak = memory.peak();
    r.host_peak = memory.host_peak();
  };
  try {
    play.begin();
    for (unsigned i = 0; i < on.steps; ++i) {
      if (i > 0) play.let_go();
      began = memory.now(), waited = memory.waited(), before = manager->counts();
      play.play();
      end(rehearsed::verdict::fits);
      if (double(r.time.count()) <= on.limit * double(r.unmanaged.count())) continue;
      r.what = rehearsed::verdict::too_slow;
      break;
    }
  } catch (const delta::budget_exceeded& e) {
    end(dynamic_cast<const delta::thrash*>(&e) != nullptr ? rehearsed::verdict::too_slow
                                                          : rehearsed::verdict::out_of_memory);
    r.error = e.what();
    r.smallest_budget = e.report.smallest_budget;
  }
  return r;
}

}  // namespace delta_torch
