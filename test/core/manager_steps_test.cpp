// Steps, marks, counters, and the paper's way of releasing and bringing back.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "machine.hpp"

using namespace delta;
using namespace delta::test;

namespace {
const auto nothing = [](call&) {};
}  // namespace

TEST_CASE("the end of a step: what is referenced becomes a variable, all records go") {
  machine it(8, 8);
  manager m{obeying(says_evict), it.storage};
  const tensor_id a = m.run({.outputs = {unit}}, gives(1));
  const tensor_id b = m.run({.inputs = {a}, .outputs = {unit}}, sums(1, 10));
  const tensor_id c = m.run({.inputs = {b}, .outputs = {unit}}, sums(1, 100));
  m.drop(b);
  squeeze(m, 8);
  CHECK(m.where(c) == residency::evicted);
  CHECK(m.live_records() == 3);
  m.backward();
  m.end_of_step();
  CHECK(m.live_records() == 0);
  CHECK(m.live_tensors() == 2);
  CHECK(m.where(a) == residency::resident);
  CHECK(m.where(c) == residency::resident);
  squeeze(m, 8);  // variables now: offloaded, although the decider says evict
  CHECK(m.where(a) == residency::host);
  CHECK(m.where(c) == residency::host);
  {
    const auto held = m.acquire(a, access::write);
    put(held.data(), 50);
  }
  CHECK(read(m, a) == 50);
  CHECK(read(m, c) == 111);
}

TEST_CASE("parameters that are new tensors in each step keep no step alive") {
  machine it(8, 8);
  manager m{obeying(says_evict), it.storage};
  tensor_id w = variable_of(m, 0);
  std::size_t slots = 0;
  for (int step = 1; step <= 50; ++step) {
    std::vector<tensor_id> activations{w};
    for (int i = 0; i < 6; ++i)
      activations.push_back(m.run({.inputs = {activations.back()}, .outputs = {unit}}, sums(1, 1)));
    const tensor_id next =
        m.run({.inputs = {w, activations.back()}, .outputs = {unit}},
              [](call& c) { put(c.out(0), number(c.in(0)) + number(c.in(1)) % 2 + 1); });
    CHECK(m.live_records() <= 14);
    for (const tensor_id t : activations) m.drop(t);
    w = next;
    m.end_of_step();
    CHECK(m.live_records() == 0);
    CHECK(m.live_tensors() == 1);
    if (step == 2) slots = m.live_tensors();
  }
  CHECK(slots == 1);
  CHECK(read(m, w) >= 50);
}

TEST_CASE("a step that ends with something held, or on its way") {
  machine it(8, 8, copy_rates{.out = 1e6, .in = 1e6});
  manager m{obeying(says_offload), it.storage};
  const tensor_id a = m.run({.outputs = {unit}}, gives(1));
  const tensor_id b = m.run({.outputs = {unit}}, gives(2));
  squeeze(m, 7);
  {
    const auto view = m.acquire(b);
    m.drop(b);
    m.end_of_step();
    CHECK(number(view.data()) == 2);
  }
  CHECK(m.live_tensors() == 1);
  CHECK(read(m, a) == 1);
}

TEST_CASE("counters count") {
  machine it(4, 4);
  action word = action::offload;
  manager m{obeying(word), it.storage};
  const tensor_id a = m.run({.outputs = {unit}, .cost = nanoseconds{1000}}, gives(1));
  squeeze(m, 4);
  read(m, a);
  word = action::evict;
  m.run<0>({.updates = {}}, nothing);
  m.backward();
  squeeze(m, 4);
  read(m, a);
  const counters& n = m.counts();
  CHECK(n.operators == 4);
  CHECK(n.offloads == 1);
  CHECK(n.clean_drops == 1);
  CHECK(n.evictions == 0);
  CHECK(n.reloads == 2);
  CHECK(n.prefetches == 0);
  CHECK(n.recomputes == 0);
  CHECK(n.backward_releases == 1);
  CHECK(n.decisions == 2);
  CHECK(n.bytes_out == 64);
  CHECK(n.bytes_in == 128);
  CHECK(m.evaluations() == 1);
}

namespace {
struct recorder {
  std::vector<event>* heard;
  void on(const event& e) const { heard->push_back(e); }
};
}  // namespace

TEST_CASE("an observer hears of everything, in order") {
  machine it(4, 4);
  std::vector<event> heard;
  action word = action::offload;
  manager m{lru{}, obedient{&word}, no_prefetch{}, it.storage, recorder{&heard}};
  const tensor_id a = m.run({.outputs = {unit}, .cost = nanoseconds{1000}}, gives(1));
  squeeze(m, 4);
  read(m, a);
  squeeze(m, 4);
  const tensor_id b = m.run({.outputs = {unit}}, gives(2));
  word = action::evict;
  squeeze(m, 4);
  read(m, b);
  using enum event_kind;
  std::vector<event_kind> what;
  for (const event& e : heard)
    if (e.what != wait) what.push_back(e.what);
  CHECK(what == std::vector<event_kind>{run, copy_out, offload, run, reload, copy_in, clean_drop,
                                        run, run, evict, run, recompute});
}

namespace {
// Times are known when the work is over.
struct told_late : simulated {
  using simulated::simulated;
  std::optional<nanoseconds> elapsed(stamp s) {
    return reached(s) ? simulated::elapsed(s) : std::nullopt;
  }
};
}  // namespace

TEST_CASE("an observer hears of a copy once it was waited for, before anything else happens") {
  told_late storage({.capacity = unit * 4, .host_capacity = unit * 4, .rate_out = 1e9});
  std::vector<event> heard;
  manager m{lru{}, offload_only{}, no_prefetch{}, storage, recorder{&heard}};
  static_cast<void>(m.variable(unit * 2));
  static_cast<void>(m.variable(unit * 2));
  m.run({.outputs = {unit * 4}}, nothing);
  using enum event_kind;
  std::vector<event_kind> what;
  for (const event& e : heard) what.push_back(e.what);
  CHECK(what == std::vector<event_kind>{offload, offload, wait, copy_out, wait, copy_out, run});
}

TEST_CASE("an observer is told when, why and what the alternative was") {
  // 64 bytes at 1 byte per ns; recomputing takes 1000 ns.
  simulated storage({.capacity = unit * 4,
                     .host_capacity = unit * 4,
                     .rate_out = 1e9,
                     .rate_in = 1e9,
                     .granularity = 64});
  std::vector<event> heard;
  manager m{lru{}, cheaper{}, no_prefetch{}, storage, recorder{&heard}};
  const auto find = [&](event_kind what) {
    const auto at =
        std::find_if(heard.begin(), heard.end(), [&](const event& e) { return e.what == what; });
    REQUIRE(at != heard.end());
    return *at;
  };
  const tensor_id a =
      m.run({.outputs = {unit}, .cost = nanoseconds{1000}, .name = "maker"}, nothing);
  m.run<0>({.workspace = unit * 4, .cost = nanoseconds{10}, .name = "squeezer"}, nothing);
  (void)m.acquire(a);
  const event made = find(event_kind::run);
  CHECK(made.tensor == a);
  CHECK(std::string_view(made.operation) == "maker");
  CHECK(made.began == nanoseconds{0});
  CHECK(made.took == nanoseconds{1000});
  const event left = find(event_kind::offload);
  CHECK(left.tensor == a);
  CHECK(std::string_view(left.operation) == "squeezer");
  CHECK(left.size == unit);
  CHECK(left.began == nanoseconds{1000});
  CHECK(left.score == 1.0);         // one tick
  CHECK(left.cost == 128);          // out and in
  CHECK(left.alternative == 1000);  // made again
  CHECK(left.use.device == unit);
  CHECK(left.use.in_flight == unit);
  CHECK(left.use.host == unit);
  const event out = find(event_kind::copy_out);
  CHECK(out.began == nanoseconds{1000});
  CHECK(out.took == nanoseconds{64});
  const event back = find(event_kind::reload);
  CHECK(back.cost == 64);
  CHECK(back.alternative == 1000);
  const event in = find(event_kind::copy_in);
  CHECK(in.began == nanoseconds{1074});
  CHECK(in.took == nanoseconds{64});
}

TEST_CASE("paper: early release in forward, reload ahead in backward") {
  // Ten units; from 7.5 on something leaves.
  simulated storage({.capacity = unit * 10,
                     .host_capacity = unit * 10,
                     .rate_out = 64e9,
                     .rate_in = 64e9,
                     .granularity = 64});
  manager m{paper(), storage};
  std::vector<tensor_id> kept;
  kept.reserve(9);
  for (int i = 0; i < 9; ++i)
    kept.push_back(m.run({.outputs = {unit}, .cost = nanoseconds{100}}, nothing));
  CHECK(m.counts().offloads > 0);  // recomputing costs more than copying
  CHECK(m.counts().waits == 0);
  CHECK(storage.used() < unit * 10);
  CHECK(m.where(kept[0]) != residency::resident);
  CHECK(m.counts().prefetches == 0);
  m.backward();
  m.drop(kept.back());
  kept.pop_back();
  m.drop(kept.back());
  kept.pop_back();
  m.run<0>({.cost = nanoseconds{1}}, nothing);
  CHECK(m.counts().prefetches > 0);
  CHECK(detail::on_device(m.where(kept[0])));  // first in, first out
  CHECK(m.counts().backward_releases == 0);
  m.end_of_step();
}

TEST_CASE("paper, strict: nothing is released in backward") {
  for (const bool strict : {false, true}) {
    machine it(4, 4);
    manager m{base{}, paper_director{.strict = strict}, fifo_prefetch{}, it.storage};
    const tensor_id a = m.run({.outputs = {unit * 2}}, gives(1));
    m.backward();
    if (strict) {
      CHECK_THROWS_AS(squeeze(m, 4), budget_exceeded);
      CHECK(read(m, a) == 1);
      m.end_of_step();  // and a new forward pass
      squeeze(m, 4);
    } else {
      squeeze(m, 4);
      CHECK(m.counts().backward_releases == 1);
    }
    CHECK(read(m, a) == 1);
  }
}

TEST_CASE("what a storage was to the last step like this one is the number of one that it used") {
  machine it(16, 16);
  manager m{adaptive(), it.storage};
  std::vector<tensor_id> all;
  for (std::uint64_t i = 0; i < 12; ++i) all.push_back(variable_of(m, i));
  // Each step uses another one, the last first; and what it does not use gets less.
  while (!all.empty()) {
    const tensor_id used = all.back();
    all.pop_back();
    m.drop(m.run({.inputs = {used}, .outputs = {unit}}, sums(1, 1)));
    m.end_of_step();
    m.drop(used);
    const step_record& step = m.past().last();
    for (const step_record::storage& x : step.storages)
      if (x.was != step_record::none) {
        REQUIRE(x.was < step.storages.size());
        CHECK(step.storages[x.was].uses > 0);
      }
  }
}
