// A policy that learns where the right answer is obvious, what is recorded for it, and copies out
// that free nothing yet: bytes stay within the budget and results the same, whoever asks.
// Managers are made by name, or behind manager_interface; but where a step's record is looked at.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/detail/planning/rehearsal.hpp"
#include "delta/learning_report.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "dice.hpp"
#include "machine.hpp"
#include "random_program.hpp"
#include "seeds.hpp"
#include "storage_check.hpp"
#include "tested_policy.hpp"

using namespace delta;
using namespace delta::test;

namespace {

const auto nothing = [](call&) {};

/// A step of training: layers forward, whose outputs are read again on the way back.
struct training {
  int layers = 12;
  bytes activation = 64_KiB;
  nanoseconds cost{100'000};
  bool evaluates = false;           ///< without the way back: all is held to its end, and dropped
  std::vector<residency> at_use{};  ///< where each was when it was read on the way back

  template <class Manager, class Check>
  void step(Manager& m, const Check& check) {
    std::vector<tensor_id> kept;
    at_use.clear();
    for (int i = 0; i < layers; ++i) {
      kept.push_back(i == 0
                         ? m.run({.outputs = {activation}, .cost = cost, .name = "first"}, nothing)
                         : m.run({.inputs = {kept.back()},
                                  .outputs = {activation},
                                  .cost = cost,
                                  .name = "forward"},
                                 nothing));
      check();
    }
    for (int i = layers; i-- > 0;) {
      at_use.push_back(m.where(kept[std::size_t(i)]));
      if (!evaluates)
        m.template run<0>({.inputs = {kept[std::size_t(i)]}, .cost = cost, .name = "back"},
                          nothing);
      check();
      m.drop(kept[std::size_t(i)]);
    }
    m.end_of_step();
  }
};

/// Copies out what the test names, once; and notes how much is remembered of the steps before,
/// which is nothing, as it does not say that it learns.
struct cleans_this {
  tensor_id* which;
  std::size_t* remembered;
  tensor_id next(const context& c) const noexcept {
    *remembered = std::max(*remembered, c.past().footprint() + c.past().records());
    return tensor_id::none;
  }
  tensor_id copy_ahead(const context&) const noexcept {
    return std::exchange(*which, tensor_id::none);
  }
};
/// What it is told, and what it has noted.
struct cleaning {
  tensor_id which = tensor_id::none;
  std::size_t remembered = 0;
};
std::unique_ptr<manager_interface> make_cleaning(cleaning& told,
                                                 std::unique_ptr<any_storage> storage) {
  return make_manager(
      policy<lru, obedient, cleans_this>{{}, {&says_offload}, {&told.which, &told.remembered}},
      std::move(storage));
}

}  // namespace

TEST_CASE("adaptive: a training step that begins as the evaluations before it is none the slower") {
  // What evaluations hold and do not use again, a training step that begins alike does.
  const auto first_training_step = [](const char* policy) {
    training t{.layers = 40};
    simulated storage({.capacity = t.activation * 16,
                       .host_capacity = t.activation * 80,
                       .rate_out = double(t.activation.count) * 1e9 / 10'000,
                       .rate_in = double(t.activation.count) * 1e9 / 10'000,
                       .places = false});
    const auto m = make_manager(policy, over(storage));
    t.evaluates = true;
    t.step(*m, [] {}), t.step(*m, [] {});
    t.evaluates = false;
    const nanoseconds began = storage.now();
    t.step(*m, [] {});
    return double((storage.now() - began).count());
  };
  CHECK(first_training_step("adaptive") <= 1.03 * first_training_step("online"));
}

TEST_CASE("adaptive: copied out before the peak, gone without a wait, back before its use") {
  // Room for half of it. A copy takes half as long as a layer; making a layer again takes longer.
  training t;
  simulated storage({.capacity = t.activation * 6,
                     .host_capacity = t.activation * 12,
                     .rate_out = double(t.activation.count) * 1e9 / 50'000,
                     .rate_in = double(t.activation.count) * 1e9 / 50'000,
                     .places = false});
  manager m{adaptive(), storage};
  const auto within = [&] { CHECK(storage.used() <= storage.capacity()); };
  t.step(m, within), t.step(m, within);
  const counters before = m.counts();
  const nanoseconds waited = storage.waited(), began = storage.now();
  t.step(m, within);
  const counters& n = m.counts();
  CHECK(n.copies_ahead > before.copies_ahead);
  CHECK(n.clean_drops > before.clean_drops);
  CHECK(n.recomputes == before.recomputes);
  CHECK(n.prefetches > before.prefetches);
  CHECK(n.prefetches - before.prefetches == n.reloads - before.reloads);
  CHECK((storage.waited() - waited).count() == 0);
  CHECK(storage.now() - began == t.cost * 2 * t.layers);
  for (const residency r : t.at_use) CHECK(detail::on_device(r));
  // As fast as it ever was in the first steps, and no faster than the operators.
  CHECK(m.past().last_took() == doctest::Approx(m.past().last().time));
}

TEST_CASE(
    "adaptive: what copies cost the operators beside them is in the step and in its rehearsal") {
  for (const double burden : {0.0, 0.3, 0.8, 1.0}) {
    CAPTURE(burden);
    training t;
    const simulated_options machine{.capacity = t.activation * 6,
                                    .host_capacity = t.activation * 12,
                                    .rate_out = double(t.activation.count) * 1e9 / 50'000,
                                    .rate_in = double(t.activation.count) * 1e9 / 50'000,
                                    .places = false,
                                    .burden_out = burden,
                                    .burden_in = burden};
    simulated storage(machine);
    manager m{adaptive(), storage};
    const auto within = [&] { CHECK(storage.used() <= storage.capacity()); };
    for (int i = 0; i < 3; ++i) t.step(m, within);
    const counters before = m.counts();
    const step_record seen = m.past().last();
    // Recorded as if alone, whatever was beside them.
    CHECK(seen.time == doctest::Approx(double(t.cost.count()) * 2 * t.layers));
    const detail::next_step coming(m.seen(), m.past().last());
    const double expected = detail::rehearse(coming, m.policy().rehearsed());
    t.step(m, within);
    CHECK(m.past().last_took() == doctest::Approx(expected));
    if (burden > 0 && m.counts().bytes_in > before.bytes_in) CHECK(expected > seen.time);
    // Where compute does the copying nothing is gained by being early.
    CHECK((m.counts().copies_ahead > before.copies_ahead) == (burden < 1));
    CHECK((m.counts().prefetches > before.prefetches) == (burden < 1));
  }
}

TEST_CASE("adaptive: the first step is as good as without learning") {
  for (std::uint64_t seed = 1; seed <= seeds(100); ++seed) {
    CAPTURE(seed);
    program p = random_program(seed, {.steps = 1});
    // Not ended: what a program reads behind a step's end is another step.
    for (auto& o : p.ops) o.step = false;
    const auto took = [&](const char* policy) {
      simulated storage({.capacity = bytes{largest_footprint(p).count * 5 / 4},
                         .host_capacity = 1_MiB,
                         .rate_out = 2e9,
                         .rate_in = 2e9});
      const auto m = make_manager(policy, over(storage));
      run_program(*m, p, run_now{}, [] {});
      return m->counts();
    };
    const counters adapting = took("adaptive"), plain = took("online");
    CHECK(adapting.evictions == plain.evictions);
    CHECK(adapting.offloads == plain.offloads);
    CHECK(adapting.reloads == plain.reloads);
    CHECK(adapting.recomputes == plain.recomputes);
  }
}

TEST_CASE("adaptive: planning takes its part of what steps take beyond their operators, no more") {
  for (std::uint64_t seed = 1; seed <= seeds(20); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    simulated storage({.capacity = 64_KiB * (3 + roll.below(5)),
                       .host_capacity = roll.one_in(2) ? 4_MiB : bytes{},
                       .rate_out = 2e9,
                       .rate_in = 2e9,
                       .latency = nanoseconds{1000}});
    manager m{adaptive(), storage};
    // Operators take another time in every step, so that each seems to ask for another plan.
    training program;
    double lost = 0, free_of_charge = 0;
    for (int step = 0; step < 200; ++step) {
      program.cost = nanoseconds{50'000 + std::int64_t(roll.below(100'000))};
      program.evaluates = step % 5 == 1;
      program.step(m, [] {});
      lost += std::max(0.0, m.past().last_took() - m.past().last().time);
      if (step == 1) free_of_charge = m.policy().planning();  // one plan of each of the two kinds
    }
    CHECK(free_of_charge > 0);
    // The last plan may have cost more than was thought; and some are free again, where slower
    // copies would explain what the operators' times did.
    CHECK(m.policy().planning() < 1.2 * m.policy().invested * lost + 4 * free_of_charge);
  }
}

TEST_CASE("a tensor whose copy ahead is under way has to wait for it; one whose copy is over not") {
  for (const bool over : {false, true}) {
    CAPTURE(over);
    // One unit takes 64 ns on its way out.
    simulated storage({.capacity = unit * 2,
                       .host_capacity = unit * 2,
                       .rate_out = 1e9,
                       .rate_in = 1e9,
                       .granularity = 64});
    cleaning told;
    const auto managed = make_cleaning(told, delta::over(storage));
    manager_interface& m = *managed;
    const tensor_id a = m.run({.outputs = {unit}, .cost = nanoseconds{10}}, nothing);
    told.which = a;
    m.run<0>({.cost = nanoseconds{10}}, nothing);
    CHECK(m.counts().copies_ahead == 1);
    CHECK(m.where(a) == residency::resident);
    CHECK(storage.used() == unit);
    CHECK(storage.host_used() == unit);
    m.run<0>({.cost = nanoseconds{over ? 100 : 10}}, nothing);
    const nanoseconds now = storage.now();
    squeeze(m, 2);
    CHECK(storage.used() == bytes{});
    CHECK(m.where(a) == residency::host);
    // Either way it was copied once.
    CHECK(m.counts().bytes_out == unit.count);
    CHECK(m.counts().clean_drops == (over ? 1 : 0));
    CHECK(m.counts().offloads == (over ? 0 : 1));
    CHECK(storage.now() - now == nanoseconds{over ? 0 : 54});
    (void)m.acquire(a);
    CHECK(m.where(a) == residency::resident);
    CHECK(told.remembered == 0);
  }
}

TEST_CASE("a copy ahead that is of no use any more: updated, dropped, forbidden, used") {
  machine it(4, 4, copy_rates{.out = 1e6, .in = 1e9});
  cleaning told;
  const auto managed = make_cleaning(told, over(it.storage));
  manager_interface& m = *managed;
  const tensor_id v = variable_of(m, 3), w = variable_of(m, 4);
  const auto clean = [&](tensor_id t) {
    const std::uint64_t before = m.counts().copies_ahead;
    told.which = t;
    m.run<0>({}, nothing);
    CHECK(m.counts().copies_ahead == before + 1);
  };
  clean(v);
  CHECK(it.storage.host_used() == unit);
  m.run<0>({.updates = {v}}, adds(1));
  CHECK(it.storage.host_used() == bytes{});
  clean(v);
  squeeze(m, 4);
  CHECK(m.where(v) == residency::host);
  CHECK(read(m, v) == 4);
  m.run<0>({.updates = {w}}, adds(0));
  clean(w);
  CHECK(read(m, w) == 4);
  m.drop(w);
  CHECK(m.live_tensors() == 1);
  CHECK(it.storage.used() == unit);
  m.run<0>({.updates = {v}}, adds(1));
  clean(v);
  m.forbid(v, pin::offload);
  CHECK_THROWS_AS(squeeze(m, 4), budget_exceeded);
  CHECK(read(m, v) == 5);
}

TEST_CASE("where nobody learns nothing is recorded") {
  const auto play = [](const tested_policy& policy) {
    CAPTURE(policy.name);
    simulated storage({.capacity = 4_KiB, .host_capacity = 1_MiB});
    const auto m = policy.manage(over(storage));
    run_program(*m, repeated(random_program(1, {.steps = 1}), 3), run_now{}, [] {});
    const learning_report l = m->learned();
    CHECK(l.steps == (l.kinds > 0 ? 3 : 0));
    CHECK((l.memory > 0) == (l.kinds > 0));
    return l.kinds;
  };
  for (const char* name : {"online", "paper", "dtr"}) CHECK(play(by_name(name)) == 0);
  CHECK(play(by_name("adaptive")) > 0);
  // A report says nothing of what holds nothing; what a policy sees tells that no byte is kept.
  cleaning told;
  play({"one that does not learn",
        [&](std::unique_ptr<any_storage> s) { return make_cleaning(told, std::move(s)); }});
  CHECK(told.remembered == 0);
}

namespace {

/// Names anything at all, right or wrong.
struct reckless {
  dice* roll;
  std::uint64_t left = 0;
  tensor_id any(const context& c) {
    const auto list = c.offloaded();
    if (roll->one_in(3) && !list.empty()) return roll->any(list);
    auto t = tensor_id::none;
    for (const tensor_id x : c.candidates())
      if (t == tensor_id::none || roll->one_in(3)) t = x;
    return t;
  }
  tensor_id next(const context& c) { return any(c); }
  tensor_id copy_ahead(const context& c) { return roll->one_in(4) ? tensor_id::none : any(c); }
};

/// Steps of a program again and again, some of them of another one: what it computes stays.
counters play(std::uint64_t seed, const program& p, const tested_policy& policy, bytes host) {
  immediate device;
  const bytes budget = round_up(bytes{largest_footprint(p, 64).count * (10 + seed % 8) / 10}, 64);
  timed_arena<immediate> storage(
      device, {.capacity = budget, .host_capacity = host},
      copy_rates{.out = 2e9, .in = 3e9, .move = 5e8, .latency = nanoseconds{7}});
  const auto m = policy.manage(over(storage));
  const auto left = run_program(*m, p, run_now{}, [&] {
    REQUIRE(storage.used() <= budget);
    REQUIRE(storage.host_used() <= host);
    REQUIRE(check_invariants(storage) == "");
  });
  REQUIRE(left == evaluate(p));
  return m->counts();
}

}  // namespace

TEST_CASE("budgets and results are kept under plans, and whatever is named, on repeated programs") {
  counters sum;
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    // Of tensors that are large enough to be copied ahead.
    const program p = repeated(random_program(seed, {.operators = 16,
                                                     .steps = 1,
                                                     .largest = seed % 4 == 0 ? 16384u : 200u,
                                                     .updates_made = seed % 3 == 0}),
                               4);
    const auto with = [&](const tested_policy& policy) {
      CAPTURE(policy.name);
      const counters n = play(seed, p, policy, 1_MiB);
      sum.copies_ahead += n.copies_ahead;
      sum.prefetches += n.prefetches;
      sum.clean_drops += n.clean_drops;
      sum.recomputes += n.recomputes;
    };
    with(by_name("adaptive"));
    with(own("reckless with lru", policy<lru, cheaper, reckless>{{}, {}, {&roll}}));
  }
  CHECK(sum.copies_ahead > 0);
  CHECK(sum.prefetches > 0);
  CHECK(sum.clean_drops > 0);
  CHECK(sum.recomputes > 0);
}

TEST_CASE(
    "a prefetcher's word is put right: what is copied already, pinned, or not to be offloaded") {
  for (std::uint64_t seed = 1; seed <= seeds(100); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    const program p = repeated(random_program(seed, {.operators = 12, .steps = 1}), 3);
    simulated storage({.capacity = largest_footprint(p) + largest_footprint(p),
                       .host_capacity = 200_B,
                       .rate_out = 2e9,
                       .rate_in = 2e9});
    const auto m = make_manager(policy<dtr, evict_only, reckless>{{}, {}, {&roll}}, over(storage));
    try {
      run_program(*m, p, run_now{}, [&] { REQUIRE(check_invariants(storage) == ""); });
    } catch (const budget_exceeded&) {
    }
    CHECK(m->counts().copies_ahead == 0);
    CHECK(storage.host_used() == 0_B);
  }
}
