// delta_torch: the replay of a recorded step over simulated memory.
#include "recorded_step.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "delta/engine/engine.hpp"
#include "delta/storage/simulated.hpp"
#include "own/own_policies.hpp"
#include "traces/network.hpp"
#include "traces/trace_replayer.hpp"

namespace delta_torch {

namespace {

delta::simulated_options memory_of(const delta::trace& step, const rehearsal_machine& on) {
  const auto origin = step.recorded_on.value_or(delta::trace::origin{});
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

// A run's collective is an operator that took its time: what of that was the network's is not
// known.
delta::trait alone(delta::trait traits) {
  const auto bits = static_cast<unsigned>(traits);
  return static_cast<delta::trait>(bits & ~static_cast<unsigned>(delta::trait::asynchronous));
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

constexpr double first_limit = 4;  // of several steps: times the limit

}  // namespace

rehearsed rehearse(const delta::trace& step, const rehearsal_machine& on) {
  delta::simulated_rank memory(memory_of(step, on), on.one_link);
  const auto manager = delta::own::make_manager(on.policy, delta::over(memory), {});
  delta::trace_replayer play(*manager, step, delta::no_work{}, delta::no_work{},
                             delta::replayed_network(*manager, memory, step));
  rehearsed r;
  r.unmanaged = delta::unmanaged_time(step);
  delta::nanoseconds began{}, waited{}, network{};
  delta::counters before{};
  const auto end = [&](rehearsed::verdict what) {
    r.what = what;
    r.time = memory.now() - began;
    r.network = memory.waited_for_collectives() - network;
    r.stall = memory.waited() - waited - r.network;
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
      network = memory.waited_for_collectives();
      play.run();
      end(rehearsed::verdict::fits);
      // Nobody has learned anything in the first, and there is one of it.
      const double most = i == 0 && on.steps > 1 ? first_limit * on.limit : on.limit;
      if (double(r.time.count()) <= most * double(r.unmanaged.count())) continue;
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

delta::trace trace_of(const delta::step_record& step, std::uint64_t granularity) {
  using kind = delta::trace::kind;
  using change = delta::step_record::change;
  delta::trace t;
  t.names = {"operator"};
  t.recorded_on.emplace().granularity = granularity;
  std::vector<std::uint32_t> number(step.storages.size(), delta::trace::none);  // in the trace
  const auto make = [&](std::uint32_t storage, std::uint32_t producer) {
    number[storage] = static_cast<std::uint32_t>(t.tensors.size());
    t.tensors.push_back({.size = step.storages[storage].size, .producer = producer});
    return number[storage];
  };
  const auto appear = [&](std::uint32_t storage) {
    const auto what = step.storages[storage].pinned ? kind::constant : kind::variable;
    t.events.push_back({what, make(storage, delta::trace::none)});
  };
  for (std::uint32_t s = 0; s < step.storages.size(); ++s)
    if (step.was_there(s)) appear(s);
  auto next = step.changes.begin();
  const auto changes_before = [&](std::uint32_t position) {
    for (; next != step.changes.end() && next->at <= position; ++next) {
      if (next->what == change::kind::created)
        appear(next->storage);
      else
        t.events.push_back({next->what == change::kind::dropped ? kind::drop
                            : next->what == change::kind::read  ? kind::read
                                                                : kind::write,
                            number[next->storage]});
    }
  };
  for (std::uint32_t i = 0; i < step.length(); ++i) {
    changes_before(i);
    const auto& o = step.operations[i];
    const auto touched = step.touched(o), outputs = step.outputs(o);
    const auto cost = delta::nanoseconds{static_cast<std::int64_t>(o.cost)};
    // New versions come first among a trace's outputs, and what they replace among its inputs.
    std::vector<std::uint32_t> inputs(touched.begin(), touched.begin() + o.inputs);
    std::vector<std::uint32_t> made(outputs.begin(), outputs.end());
    const auto fresh = std::ranges::stable_partition(made, [&](std::uint32_t s) {
      return step.storages[s].replaces != delta::step_record::none;
    });
    const auto replaced = static_cast<std::uint32_t>(made.size() - fresh.size());
    for (std::uint32_t k = 0; k < replaced; ++k)
      std::swap(inputs[k],
                *std::find(inputs.begin() + k, inputs.end(), step.storages[made[k]].replaces));
    t.operations.push_back({.cost = cost,
                            .first = static_cast<std::uint32_t>(t.lists.size()),
                            .inputs = o.inputs,
                            .outputs = o.outputs,
                            .updates = o.updates,
                            .workspace = o.workspace,
                            .traits = alone(o.traits),
                            .replaced = replaced});
    for (const std::uint32_t s : inputs) t.lists.push_back(number[s]);
    for (const std::uint32_t s : made) t.lists.push_back(make(s, i));
    for (const std::uint32_t s : touched.subspan(o.inputs)) t.lists.push_back(number[s]);
    t.events.push_back({kind::run, i});
  }
  changes_before(step.length());
  t.events.push_back({kind::end_of_step});
  delta::check(t);
  return t;
}

}  // namespace delta_torch
