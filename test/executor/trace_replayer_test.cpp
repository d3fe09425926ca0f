// Recorded programs played through managers: what they take without a budget, that bytes pass
// through the kernels given, and that with memory for all of it nobody takes more than they did.
// ctest-labels: long_sanitized
#include "traces/trace_replayer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "delta/engine/engine.hpp"
#include "delta/manager.hpp"
#include "delta/presets.hpp"
#include "delta/storage/arena.hpp"
#include "delta/storage/host_device.hpp"
#include "delta/storage/simulated.hpp"
#include "random_trace.hpp"
#include "trace/delta_format.hpp"
#include "trace/file.hpp"
#include "traces/trace.hpp"

using namespace delta;
using namespace delta::test;

namespace {

/// A chain of layers, forwards and backwards, whose batch is dropped early and whose activations
/// are normalised by an operator that no replay may run: what it made is kept for what reads it.
trace network(std::uint32_t layers, std::uint32_t steps,
              trace::kind batch = trace::kind::variable) {
  trace t;
  t.names = {"forward", "normalise", "backward"};
  const auto source = [&](trace::kind what, bytes size) {
    t.tensors.push_back({.size = size});
    const auto made = static_cast<std::uint32_t>(t.tensors.size() - 1);
    t.events.push_back({what, made});
    return made;
  };
  const auto run = [&](std::uint32_t name, std::vector<std::uint32_t> inputs, bytes size,
                       trait traits) {
    const auto made = static_cast<std::uint32_t>(t.tensors.size());
    const auto operation = static_cast<std::uint32_t>(t.operations.size());
    t.tensors.push_back({.size = size, .producer = operation});
    t.operations.push_back({.name = name,
                            .cost = nanoseconds{1000},
                            .first = static_cast<std::uint32_t>(t.lists.size()),
                            .inputs = static_cast<std::uint32_t>(inputs.size()),
                            .outputs = 1,
                            .traits = traits});
    t.lists.insert(t.lists.end(), inputs.begin(), inputs.end());
    t.lists.push_back(made);
    t.events.push_back({trace::kind::run, operation});
    return made;
  };
  const auto drop = [&](std::uint32_t tensor) { t.events.push_back({trace::kind::drop, tensor}); };
  const std::uint32_t weights = source(trace::kind::constant, bytes{64});
  for (std::uint32_t step = 0; step < steps; ++step) {
    std::uint32_t x = source(batch, bytes{256});
    std::vector<std::uint32_t> kept;
    for (std::uint32_t l = 0; l < layers; ++l) {
      const std::uint32_t y = run(0, {x, weights}, bytes{128}, trait::pure);
      if (kept.empty()) drop(x);
      const std::uint32_t z = run(1, {y}, bytes{128}, trait::never_replay);
      const std::uint32_t a = run(0, {z}, bytes{128}, trait::pure);
      drop(y), drop(z);
      kept.push_back(x = a);
    }
    std::uint32_t gradient = run(2, {x}, bytes{128}, trait::pure);
    for (; !kept.empty(); kept.pop_back()) {
      const std::uint32_t next = run(2, {gradient, kept.back()}, bytes{128}, trait::pure);
      drop(gradient), drop(kept.back());
      gradient = next;
    }
    drop(gradient);
    t.events.push_back({trace::kind::end_of_step, 0});
  }
  check(t);
  return t;
}

simulated_options memory(bytes capacity) {
  return {.capacity = capacity,
          .host_capacity = bytes{std::uint64_t{1} << 60},
          .rate_out = 1e9,
          .rate_in = 1e9};
}

/// The most bytes that the device had under that policy.
bytes peak_of(const trace& t, std::string_view policy, bytes capacity) {
  simulated_options machine = memory(capacity);
  machine.granularity = t.recorded_on ? std::max<std::uint64_t>(t.recorded_on->granularity, 1) : 1;
  simulated storage{machine};
  const auto manager = make_manager(policy, over(storage));
  trace_replayer play(*manager, t);
  play.run();
  return storage.peak();
}

}  // namespace

TEST_CASE("what a replay takes without a budget is what the trace says") {
  const trace t = network(6, 2);
  simulated storage{memory(bytes{std::uint64_t{1} << 40})};
  manager all{unmanaged(), storage};
  int operations = 0, steps = 0;
  trace_replayer play(
      all, t, [&] { ++operations; }, [&] { ++steps; });
  play.run();
  CHECK(operations == static_cast<int>(t.operations.size()));
  CHECK(steps == 2);
  CHECK(storage.now() == total_cost(t));
  CHECK(storage.peak() == unmanaged_peak(t));
}

TEST_CASE("a replay over real memory calls the kernel of each operation, and again") {
  trace t = network(8, 1);
  t.events.pop_back();  // what is left at the end is a result
  t.events.pop_back();
  check(t);
  // Every byte of an output depends on the operation and on all that was computed for it.
  const auto mix = [](std::uint64_t number, call& c, const trace& in,
                      const trace::operation& o) -> std::uint64_t {
    std::uint64_t sum = number * 0x9e3779b97f4a7c15u + 1;
    for (std::size_t i = 0; i < o.inputs; ++i) {
      const trace::tensor& read = in.tensors[in.inputs(o)[i]];
      if (read.producer == trace::none) continue;  // nobody has written it
      for (std::size_t b = 0; b < read.size.count; ++b)
        sum = sum * 31 + std::to_integer<unsigned>(c.in(i)[b]);
    }
    for (std::size_t b = 0; b < in.tensors[in.outputs(o)[0]].size.count; ++b)
      c.out(0)[b] = static_cast<std::byte>(sum >> (8 * (b % 8)));
    return sum;
  };
  const auto results = [&](bytes capacity, std::uint64_t& replays) {
    host_device device;
    arena storage{device, {.capacity = capacity, .host_capacity = bytes{std::uint64_t{1} << 20}}};
    manager m{recompute_only(), storage};
    std::map<std::uint64_t, std::uint64_t> sums;  // by operation: of its last run
    trace_replayer play(m, t, [&](const trace::operation& o, call& c) {
      const auto number = static_cast<std::uint64_t>(&o - t.operations.data());
      sums[number] = mix(number, c, t, o);
    });
    play.run();
    play.gather_results();
    replays = m.counts().recomputes;
    return sums;
  };
  std::uint64_t none = 0, some = 0;
  const auto expected = results(bytes{std::uint64_t{1} << 20}, none);
  CHECK(none == 0);
  // The operators that no replay may run keep what they made: most of the memory.
  CHECK(results(bytes{64 * 64}, some) == expected);
  CHECK(expected.size() == t.operations.size());
}

TEST_CASE("with memory for everything no policy takes more than the program by itself") {
  const auto holds = [](const trace& t) {
    const bytes alone = unmanaged_peak(t);
    for (const preset& p : named_policies) {
      CAPTURE(p.name);
      for (const bytes capacity : {alone, alone + bytes{1}, alone * 2, alone * 16})
        CHECK(peak_of(t, p.name, capacity) <= alone);
    }
  };
  for (const std::uint32_t layers : {1u, 2u, 5u, 20u}) {
    CAPTURE(layers);
    holds(network(layers, 4));
  }
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    trace t = random_trace(seed, 200).take();
    for (trace::event& e : t.events)
      if (e.what == trace::kind::constant) e.what = trace::kind::variable;
    holds(t);
  }
}

TEST_CASE("constants that were dropped are part of that from the second step on") {
  const trace t = network(5, 4, trace::kind::constant);
  const bytes alone = unmanaged_peak(t);
  for (const preset& p : named_policies) {
    CAPTURE(p.name);
    simulated storage{memory(alone * 2)};
    const auto m = make_manager(p.name, over(storage));
    bytes most;
    int steps = 0;
    trace_replayer play(
        *m, t,
        [&] {
          if (steps > 0) most = std::max(most, storage.used());
        },
        [&] { ++steps; });
    play.run();
    CHECK(steps == 4);
    CHECK(most <= alone);
  }
}

TEST_CASE("a call that asks for more than there is says nothing about the program's own peak") {
  const trace t = network(5, 1);
  const bytes alone = unmanaged_peak(t);
  simulated storage{memory(alone * 4)};
  manager m{online(), storage};
  CHECK_THROWS_AS(m.make_room(alone * 5), budget_exceeded);
  trace_replayer play(m, t);
  play.run();
  CHECK(storage.peak() <= alone);
}

TEST_CASE("a constant that was dropped goes rather than that there is no room") {
  simulated storage{memory(bytes{300})};
  manager m{recompute_only(), storage};
  const tensor_id c = m.constant(bytes{100});
  const tensor_id y = m.run({.inputs = {c}, .outputs = {bytes{100}}}, [](call&) {});
  m.drop(c);
  // y could be recomputed from c, but both of these can't be had beside c.
  const auto big = m.run<2>({.inputs = {y}, .outputs = {bytes{100}, bytes{100}}}, [](call&) {});
  CHECK(big.size() == 2);
  CHECK(storage.used() == bytes{300});
}

TEST_CASE("a step is played again, with new versions in old blocks") {
  trace t;
  t.names = {"make", "in place"};
  t.tensors = {{.size = bytes{100}},
               {.size = bytes{100}, .producer = 0},
               {.size = bytes{100}, .producer = 1}};
  t.lists = {0, 1, 1, 2};
  t.operations = {
      {.name = 0, .cost = nanoseconds{5}, .inputs = 1, .outputs = 1},
      {.name = 1, .cost = nanoseconds{5}, .first = 2, .inputs = 1, .outputs = 1, .replaced = 1}};
  t.events = {{trace::kind::variable, 0},
              {trace::kind::run, 0},
              {trace::kind::run, 1},
              {trace::kind::drop, 1},
              {trace::kind::end_of_step, 0}};
  check(t);
  for (const char* name : {"online", "unmanaged"}) {
    CAPTURE(name);
    simulated storage{memory(bytes{200})};
    const auto m = make_manager(name, over(storage));
    int operations = 0;
    trace_replayer play(*m, t, [&] { ++operations; });
    play.begin();
    play.run();
    play.let_go();
    play.run();
    CHECK(operations == 4);
    CHECK(m->counts().operators == 4);
    CHECK(storage.peak() == bytes{200});
    CHECK(m->live_tensors() == 2);
  }
  CHECK(executor::parse_trace(executor::to_text(t), "written").operations == t.operations);
  t.operations[1].replaced = 2;
  CHECK_THROWS_AS(check(t), bad_trace);
  t.operations[1].replaced = 1;
  t.tensors[2] = {.view_of = 1, .producer = 1};
  CHECK_THROWS_AS(check(t), bad_trace);
}

TEST_CASE("a step that is played again drops the gradients that the one before has left") {
  trace t;
  t.names = {"backward"};
  t.tensors = {{.size = bytes{100}}, {.size = bytes{200}}, {.size = bytes{200}, .producer = 0}};
  t.operations = {{.name = 0, .cost = nanoseconds{5}, .inputs = 1, .outputs = 1}};
  t.lists = {0, 2};
  t.events = {{trace::kind::variable, 0},
              {trace::kind::variable, 1},
              {trace::kind::drop, 1},
              {trace::kind::run, 0},
              {trace::kind::end_of_step, 0}};
  check(t);
  simulated storage{memory(bytes{300})};
  const auto m = make_manager("unmanaged", over(storage));
  trace_replayer play(*m, t);
  play.begin();
  play.run();
  for (int step = 1; step < 3; ++step) {
    play.let_go();
    CHECK(storage.used() == bytes{300});
    play.run();
    CHECK(storage.used() == bytes{300});
    CHECK(m->live_tensors() == 2);
  }
}

TEST_CASE("a run can be ended from the kernel") {
  const trace t = network(2, 1);
  simulated storage{memory(bytes{std::uint64_t{1} << 20})};
  manager m{online(), storage};
  int left = 3;
  trace_replayer play(m, t, [&] {
    if (--left == 0) throw std::runtime_error("enough");
  });
  CHECK_THROWS_WITH(play.run(), "enough");
  CHECK(m.counts().operators == 2);
}
