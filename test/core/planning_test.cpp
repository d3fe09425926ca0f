// The planned policy and what it is made of: bytes by position and a lane's time against plain
// arrays; plans of random steps, whose books agree with a count by first principles; and steps that
// take what was planned, within the budget, with what is kept and copied when the plan says.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/detail/planning/copy_lane.hpp"
#include "delta/detail/planning/memory_profile.hpp"
#include "delta/detail/planning/plan_search.hpp"
#include "delta/detail/planning/residency_script.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "dice.hpp"
#include "seeds.hpp"
#include "step_script.hpp"

using namespace delta;
using namespace delta::test;
using detail::copy_lane;
using detail::memory_profile;
using detail::residency_plan;

namespace {

const auto nothing = [](call&) {};

std::size_t wrapped(std::int64_t p, std::int64_t n) {
  return static_cast<std::size_t>(((p % n) + n) % n);
}

/// The record of the second of two steps like that, under a policy that learns. Some operators
/// write over an input, which is dropped at once or read on the way back.
step_record record_of(std::uint64_t seed) {
  dice roll(seed);
  simulated storage({.capacity = 1_GiB, .host_capacity = 1_GiB, .places = false});
  manager m{adaptive(), storage};
  const tensor_id weights = m.variable(bytes{1000 + roll.below(50'000)});
  tensor_id gradient = tensor_id::none;
  const auto layers = 3 + roll.below(30);
  const bool frees_late = roll.one_in(2);
  for (int step = 0; step < 2; ++step) {
    dice same(seed + 1);
    std::vector<tensor_id> made;
    for (std::uint64_t i = 0; i < layers; ++i) {
      const bytes size{1000 + same.below(60'000)};
      const nanoseconds cost{static_cast<std::int64_t>(10'000 + same.below(100'000))};
      std::vector<tensor_id> inputs{weights};
      if (!made.empty()) inputs.push_back(made.back());
      if (made.size() > 2 && same.one_in(3)) inputs.push_back(made[same.below(made.size())]);
      std::vector<bytes> sizes{size};
      std::vector<tensor_id> out, old;
      if (!made.empty() && same.one_in(4)) sizes.clear(), old = {made.back()};
      detail::run_in_place(m,
                           operation_span{.inputs = inputs,
                                          .outputs = sizes,
                                          .workspace = bytes{same.below(5000)},
                                          .cost = cost,
                                          .name = "forward"},
                           old, out, nothing);
      if (!old.empty() && same.one_in(2)) m.drop(made.back()), made.pop_back();
      made.push_back(out[0]);
    }
    if (gradient != tensor_id::none) m.drop(gradient), gradient = tensor_id::none;
    while (!made.empty()) {
      m.run<0>({.inputs = {made.back(), weights}, .cost = nanoseconds{40'000}, .name = "back"},
               nothing);
      m.drop(made.back());
      made.pop_back();
    }
    if (frees_late) {
      gradient = m.run({.inputs = {weights},
                        .outputs = {bytes{20'000}},
                        .cost = nanoseconds{1000},
                        .name = "gradient"},
                       nothing);
    }
    m.run<0>({.updates = {weights}, .cost = nanoseconds{1000}, .name = "update"}, nothing);
    m.end_of_step();
  }
  return m.past().last();
}

/// Bytes by position, counted need by need.
std::vector<double> counted(const residency_plan& plan) {
  const auto& model = plan.model();
  const std::int64_t n = model.length();
  std::vector<double> held(static_cast<std::size_t>(n), 0.0);
  using way = residency_plan::way;
  for (std::uint32_t s = 0; s < model.storages().size(); ++s) {
    const auto needs = plan.needs(s);
    for (std::size_t k = 0; k < needs.size(); ++k) {
      const std::int64_t before = k > 0 ? needs[k - 1].at : needs.back().at - n;
      const bool end = model[s].ends_held && k + 1 == needs.size();
      const auto hold = [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t p = from; p < to; ++p) held[wrapped(p, n)] += model[s].size;
      };
      if (needs[k].how == way::kept) hold(before + 1, needs[k].at + (end ? 1 : 0));
      if (needs[k].how != way::copied) continue;
      const residency_plan::copy& copies = plan.copy_of(needs[k]);
      CHECK(copies.out_until >= before);
      CHECK(copies.in_from > copies.out_until);
      hold(before + 1, copies.out_until + 1), hold(copies.in_from, needs[k].at);
    }
  }
  return held;
}

}  // namespace

TEST_CASE("planning: bytes by position, as an array has them") {
  for (std::uint64_t seed = 0; seed < seeds(40); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    // Beyond 16,384 positions blocks are as long as there are many.
    const bool is_long = roll.one_in(8);
    const auto n = static_cast<std::int32_t>(1 + roll.below(700) + (is_long ? 20'000 : 0));
    memory_profile profile(n, 5000);
    const std::int32_t blocks = profile.blocks();
    CHECK((is_long ? blocks * blocks > n / 2 && blocks * blocks < 2 * n : blocks <= 128));
    profile.set_penalty(2);
    std::vector<double> plain(static_cast<std::size_t>(n), 0.0);
    for (int i = 0; i < 60; ++i) {
      const std::vector<double> before = plain;
      const bool one = roll.one_in(2);
      profile.begin();
      for (int k = 0; k < (one ? 1 : 4); ++k) {
        const auto from = static_cast<std::int32_t>(roll.below(3 * std::uint64_t(n))) - n;
        const auto to = from + static_cast<std::int32_t>(roll.below(std::uint64_t(n) + 1));
        const double more = static_cast<double>(roll.below(1000)) - 300;
        const auto last = to - 1;
        const bool within = to > from && (from + n) / n == (last + n) / n;
        const double expected = profile.price(from, to, more);
        profile.add(from, to, more);
        if (one && within) CHECK(profile.paid_more() == doctest::Approx(expected));
        for (std::int64_t p = from; p < to; ++p) plain[wrapped(p, n)] += more;
      }
      if (roll.one_in(3)) profile.roll_back(), plain = before;
      CHECK(profile.most() == *std::ranges::max_element(plain));
      const auto where = static_cast<std::int32_t>(roll.below(std::uint64_t(n)));
      CHECK(profile.at(where) == plain[std::size_t(where)]);
    }
  }
}

TEST_CASE("planning: a lane's time is given away once, the earliest of a window") {
  for (std::uint64_t seed = 0; seed < seeds(60); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    constexpr std::int64_t period = 200;
    copy_lane lane(period);
    std::vector<bool> busy(period);
    std::vector<std::vector<copy_lane::piece>> taken;
    for (int i = 0; i < 60; ++i) {
      if (!taken.empty() && roll.one_in(3)) {
        const auto which = roll.below(taken.size());
        for (const auto& p : taken[which]) {
          lane.give(p);
          for (auto t = p.from; t < p.to; ++t) busy[std::size_t(t)] = false;
        }
        taken.erase(taken.begin() + std::ptrdiff_t(which));
        continue;
      }
      const auto from = static_cast<std::int64_t>(roll.below(2 * period)) - period;
      const auto to = from + static_cast<std::int64_t>(roll.below(period + 1));
      const auto wanted = static_cast<std::int64_t>(1 + roll.below(40));
      // The same on an array, ns by ns.
      std::vector<std::int64_t> expected;
      for (std::int64_t t = from; t < to; ++t) {
        if (!busy[wrapped(t, period)] && std::int64_t(expected.size()) < wanted)
          expected.push_back(t);
      }
      auto left = wanted;
      auto& pieces = taken.emplace_back();
      const auto reached = lane.take(from, to, left, pieces);
      CHECK(wanted - left == std::int64_t(expected.size()));
      CHECK(reached == (expected.empty() ? from : expected.back() + 1));
      for (const auto& p : pieces)
        for (auto t = p.from; t < p.to; ++t) {
          CHECK(!busy[std::size_t(t)]);
          busy[std::size_t(t)] = true;
        }
      for (const std::int64_t t : expected) CHECK(busy[wrapped(t, period)]);
    }
  }
}

TEST_CASE("planning: a plan's books agree with a count of its needs, and it fits") {
  for (std::uint64_t seed = 0; seed < seeds(60); ++seed) {
    CAPTURE(seed);
    const step_record step = record_of(seed);
    const detail::step_model model(step);
    for (const double part : {0.35, 0.6}) {
      CAPTURE(part);
      const double budget = part * static_cast<double>(step.peak);
      detail::plan_search search(model, {.budget = budget,
                                         .host = seed % 3 == 0 ? 0 : 1e9,
                                         .rate = {1e9, 1e9},
                                         .latency = {1000, 1000}});
      search.run(step.time);
      const residency_plan& plan = search.plan();
      const auto held = counted(plan);
      double most = 0, replays = 0;
      for (std::int32_t p = 0; p < model.length(); ++p) {
        // What lies there between needs, and beside it at least what the operator touches.
        const double there = plan.memory().at(p) - model.base(p) - held[std::size_t(p)];
        double touched = static_cast<double>(model.operation(p).workspace.count);
        std::map<std::uint32_t, bool> met;
        for (const std::uint32_t s : step.touched(model.operation(p))) met[s] = true;
        for (const std::uint32_t s : step.outputs(model.operation(p))) met[s] = true;
        for (const auto& [s, _] : met)
          if (model[s].movable) touched += model[s].size;
        touched -= model.in_place(p);
        CHECK(there >= touched);
        if (plan.replays(p).empty()) CHECK(there == touched);
        most = std::max(most, plan.memory().at(p));
        for (const auto& r : plan.replays(p)) {
          CHECK(r.operation < std::uint32_t(p));
          replays += step.operations[r.operation].cost;
        }
      }
      CHECK(plan.recomputing() == doctest::Approx(replays));
      CHECK(most == plan.memory().most());
      CHECK(plan.fits() == (most <= budget));
    }
  }
}

TEST_CASE("adaptive: a step takes what was planned for it, within the budget") {
  // Room for half of it; a copy takes half as long as a layer, so nothing needs to be waited for.
  constexpr int layers = 12;
  constexpr bytes activation = 64_KiB;
  constexpr nanoseconds cost{100'000};
  simulated storage({.capacity = activation * 7,
                     .host_capacity = activation * 12,
                     .rate_out = double(activation.count) * 1e9 / 50'000,
                     .rate_in = double(activation.count) * 1e9 / 50'000,
                     .places = false});
  manager m{adaptive(), storage};
  counters before;
  for (int step = 0; step < 4; ++step) {
    before = m.counts();
    std::vector<tensor_id> made;
    for (int i = 0; i < layers; ++i) {
      made.push_back(i == 0
                         ? m.run({.outputs = {activation}, .cost = cost, .name = "first"}, nothing)
                         : m.run({.inputs = {made.back()},
                                  .outputs = {activation},
                                  .cost = cost,
                                  .name = "forward"},
                                 nothing));
      CHECK(storage.used() <= storage.capacity());
    }
    while (!made.empty()) {
      m.run<0>({.inputs = {made.back()}, .cost = cost, .name = "back"}, nothing);
      CHECK(storage.used() <= storage.capacity());
      m.drop(made.back());
      made.pop_back();
    }
    m.end_of_step();
  }
  const counters& n = m.counts();
  CHECK(n.recomputes == before.recomputes);
  CHECK(n.bytes_out > before.bytes_out);
  CHECK(n.reloads > before.reloads);
  CHECK(m.past().last_took() == doctest::Approx(m.past().last().time));
}

TEST_CASE("adaptive: without a host, never behind online by more than a thousandth") {
  // Chains with a way back, recomputation alone: what is planned is measured, too.
  for (std::uint64_t seed = 0; seed < seeds(30); ++seed) {
    CAPTURE(seed);
    const auto last_took = [&](auto policy) {
      dice roll(seed);
      const auto layers = 6 + roll.below(20);
      std::vector<bytes> sizes;
      std::vector<nanoseconds> costs;
      bytes sum{}, largest{};
      for (std::uint64_t i = 0; i < layers; ++i) {
        sizes.push_back(bytes{1000 + roll.below(60'000)});
        costs.push_back(nanoseconds{static_cast<std::int64_t>(10'000 + roll.below(200'000))});
        sum += sizes.back(), largest = std::max(largest, sizes.back());
      }
      simulated storage({.capacity = bytes{sum.count / 2 + 3 * largest.count}, .places = false});
      manager m{policy, storage};
      nanoseconds began{};
      for (int step = 0; step < 4; ++step) {
        began = storage.now();
        std::vector<tensor_id> made;
        for (std::uint64_t i = 0; i < layers; ++i)
          made.push_back(
              i == 0 ? m.run({.outputs = {sizes[i]}, .cost = costs[i], .name = "first"}, nothing)
                     : m.run({.inputs = {made.back()},
                              .outputs = {sizes[i]},
                              .cost = costs[i],
                              .name = "forward"},
                             nothing));
        while (!made.empty()) {
          m.template run<0>({.inputs = {made.back()}, .cost = nanoseconds{30'000}, .name = "back"},
                            nothing);
          m.drop(made.back());
          made.pop_back();
        }
        m.end_of_step();
      }
      return static_cast<double>((storage.now() - began).count());
    };
    CHECK(last_took(adaptive()) <= 1.001 * last_took(online()));
  }
}

TEST_CASE("planning: what a step leaves behind is not let go at its end") {
  // A gradient that another step uses, made by the last operator, and cheap to make again.
  simulated storage({.capacity = 1_MiB, .places = false});
  manager m{adaptive(), storage};
  const tensor_id weights = m.variable(16_KiB);
  std::vector<tensor_id> made;
  for (int i = 0; i < 8; ++i)
    made.push_back(m.run({.inputs = {made.empty() ? weights : made.back()},
                          .outputs = {64_KiB},
                          .cost = nanoseconds{10'000},
                          .name = "forward"},
                         nothing));
  for (; made.size() > 1; m.drop(made.back()), made.pop_back())
    m.run<0>({.inputs = {made.back()}, .cost = nanoseconds{10'000}, .name = "back"}, nothing);
  m.run({.inputs = {made[0]}, .outputs = {16_KiB}, .cost = nanoseconds{10}, .name = "gradient"},
        nothing);
  m.drop(made[0]);
  m.end_of_step();
  const step_record& step = m.past().last();
  const detail::step_model model(step);
  detail::plan_search search(model, {.budget = 64.0 * 1024 * 5});
  search.run(1e6);
  REQUIRE(search.plan().fits());
  const detail::residency_script script(search.plan());
  CHECK(!script.absences().empty());
  const std::uint32_t gradient = step.outputs(step.operations.back())[0];
  for (const auto& away : script.absences()) CHECK(away.storage != gradient);
}

TEST_CASE("planning: a source that the program drops stays while what is made from it may go") {
  simulated storage({.capacity = 1_MiB, .host_capacity = 1_MiB, .places = false});
  manager m{adaptive(), storage};
  for (int step = 0; step < 2; ++step) {
    const tensor_id batch = m.variable(4_KiB);
    const tensor_id a = m.run({.inputs = {batch}, .outputs = {8_KiB}, .name = "a"}, nothing);
    m.drop(batch);
    const tensor_id b = m.run({.inputs = {a}, .outputs = {8_KiB}, .name = "b"}, nothing);
    m.drop(a);
    for (int i = 0; i < 3; ++i) m.run<0>({.inputs = {b}, .name = "reads"}, nothing);
    m.drop(b);
    m.run<0>({.name = "last"}, nothing);
    m.end_of_step();
  }
  const step_record& step = m.past().last();
  const detail::step_model model(step);
  const std::uint32_t batch = step.touched(step.operations[0])[0];
  REQUIRE(model[batch].size == 4096);
  CHECK(model[batch].ends_held);
  CHECK(model.uses(batch).back() == 4);
}

TEST_CASE("planning: a loss that is held while parameters are updated is not let go before") {
  for (const bool read_again : {false, true}) {
    simulated storage({.capacity = 1_MiB, .host_capacity = 1_MiB, .places = false});
    manager m{adaptive(), storage};
    const tensor_id weights = m.variable(16_KiB), batch = m.variable(4_KiB);
    const tensor_id a = m.run({.inputs = {batch, weights}, .outputs = {8_KiB}}, nothing);
    const tensor_id b = m.run({.inputs = {a}, .outputs = {8_KiB}}, nothing);
    const tensor_id loss = m.run({.inputs = {b}, .outputs = {64_B}}, nothing);
    m.run<0>({.inputs = {a, b}, .name = "back"}, nothing);
    m.drop(a), m.drop(b);
    m.run<0>({.updates = {weights}, .traits = trait::never_replay, .name = "sgd"}, nothing);
    m.run<0>({.inputs = {batch}, .name = "last"}, nothing);
    if (read_again) (void)m.acquire(loss);
    m.drop(loss);
    m.end_of_step();
    const step_record& step = m.past().last();
    const detail::step_model model(step);
    const auto made_by = [&](std::uint32_t o) { return step.outputs(step.operations[o])[0]; };
    CHECK(model[made_by(2)].ends_held != read_again);
    CHECK(model.uses(made_by(2)).back() == 5);
    // What is gone before the update may be made again.
    CHECK(!model[made_by(0)].ends_held);
    CHECK(!model[made_by(1)].ends_held);
  }
}

TEST_CASE("planning: what reads a source that the host has just written may run again") {
  // As dropout does, from the state of a generator.
  for (const bool written_later : {false, true}) {
    simulated storage({.capacity = 1_MiB, .host_capacity = 1_MiB, .places = false});
    manager m{adaptive(), storage};
    const tensor_id x = m.variable(16_KiB), state = m.variable(2_KiB);
    m.run<0>({.inputs = {x}, .name = "first"}, nothing);
    (void)m.acquire(state, access::write);
    const tensor_id drawn = m.run({.inputs = {x, state}, .outputs = {8_KiB}}, nothing);
    const tensor_id mask = m.run({.inputs = {drawn}, .outputs = {8_KiB}}, nothing);
    m.drop(drawn);
    if (written_later) (void)m.acquire(state, access::write);
    m.run<0>({.inputs = {x}, .name = "other"}, nothing);
    m.run<0>({.inputs = {mask}, .name = "back"}, nothing);
    m.drop(mask);
    m.end_of_step();
    const step_record& step = m.past().last();
    const detail::step_model model(step);
    const auto made_by = [&](std::uint32_t o) { return step.outputs(step.operations[o])[0]; };
    CHECK(model.recomputable(made_by(1), 2));
    CHECK(model.recomputable(made_by(1), 4) != written_later);
    CHECK(model.recomputable(made_by(2), 4));
    // Its bytes go with the last reference, if it may run again by then.
    CHECK_FALSE(model[made_by(1)].ends_held);
  }
}

TEST_CASE("planning: a batch norm may run again, though its running means were written") {
  for (const trait t : {trait::effect_once, trait::never_replay}) {
    simulated storage({.capacity = 1_MiB, .places = false});
    manager m{adaptive(), storage};
    const tensor_id x = m.variable(4_KiB), means = m.variable(4_KiB);
    const tensor_id normal =
        m.run({.inputs = {x}, .outputs = {64_KiB}, .updates = {means}, .traits = t, .name = "norm"},
              nothing);
    const tensor_id y = m.run({.inputs = {normal}, .outputs = {64_KiB}, .name = "relu"}, nothing);
    m.run<0>({.inputs = {normal, y}, .name = "back"}, nothing);
    m.drop(normal), m.drop(y);
    m.end_of_step();
    const step_record& step = m.past().last();
    const std::uint32_t made = step.outputs(step.operations[0])[0];
    CHECK(detail::step_model(step).recomputable(made, 2) == (t == trait::effect_once));
  }
}

TEST_CASE("adaptive: where an operator takes all memory, the next one's input comes behind it") {
  // Nobody can compute beside these copies: each is waited for, once, and none is in vain. What is
  // written goes out each time, too.
  constexpr nanoseconds copy{30'000}, cost{100'000};
  constexpr bytes unit = 64_KiB;
  const double rate = 3.0 * double(unit.count) * 1e9 / double(copy.count());
  for (const bool written : {false, true}) {
    CAPTURE(written);
    simulated storage({.capacity = unit * 10,
                       .host_capacity = unit * 10,
                       .rate_out = rate,
                       .rate_in = rate,
                       .places = false});
    manager m{adaptive(), storage};
    const tensor_id state = m.variable(unit * 3);
    nanoseconds took{};
    for (int step = 0; step < 4; ++step) {
      const nanoseconds began = storage.now();
      for (int i = 0; i < 3; ++i) {
        m.run<0>({.workspace = unit * 9, .cost = cost, .name = "large"}, nothing);
        if (written)
          m.run<0>({.updates = {state}, .cost = nanoseconds{1000}, .name = "small"}, nothing);
        else
          m.run<0>({.inputs = {state}, .cost = nanoseconds{1000}, .name = "small"}, nothing);
      }
      m.end_of_step();
      took = storage.now() - began;
    }
    const detail::step_model model(m.past().last());
    detail::plan_search search(
        model,
        {.budget = double(unit.count) * 10, .host = double(unit.count) * 10, .rate = {rate, rate}});
    search.run(1e6);
    CHECK(search.plan().fits());
    CHECK(took == 3 * (cost + nanoseconds{1000} + copy * (written ? 2 : 1)));
  }
}

TEST_CASE("planning: a first step's sources are those of every step") {
  // Their places before the step and behind it are one absence, though the first step makes them.
  constexpr bytes unit = 64_KiB;
  constexpr int states = 6;
  simulated storage({.capacity = 1_MiB});
  manager m{adaptive(), storage};
  std::vector<tensor_id> state;
  for (int i = 0; i < states; ++i) {
    state.push_back(m.variable(unit));
    (void)m.acquire(state.back(), access::write);
  }
  for (const tensor_id s : state)
    m.run<0>({.inputs = {s}, .cost = nanoseconds{100'000}, .name = "use"}, nothing);
  m.end_of_step();
  const detail::step_model model(m.past().last());
  detail::plan_search search(model,
                             {.budget = 2.5 * double(unit.count), .host = 1e9, .rate = {1e9, 1e9}});
  search.run(1e6);
  REQUIRE(search.plan().fits());
  CHECK(search.plan().waiting() == 0);
  const detail::residency_script script(search.plan());
  CHECK(script.absences().size() >= states - 2);
  for (const auto& away : script.absences()) CHECK(!away.copies_out);  // nobody writes them
}
