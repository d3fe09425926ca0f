// Several policies in one: who is asked, and when that changes; what a rehearsal says.
// ctest-labels: slow
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/learning_report.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/switching.hpp"
#include "dice.hpp"
#include "random_program.hpp"
#include "seeds.hpp"
#include "tested_policy.hpp"

using namespace delta;
using namespace delta::test;

// The default's rehearsals are compiled in delta::engine.
extern template std::array<double, 2> delta::detail::rehearse_both(const detail::next_step&,
                                                                   adaptive, std::uint32_t, double,
                                                                   int, std::vector<double>*);

namespace {

const auto nothing = [](call&) {};

/// Who was asked what, by policy.
struct calls {
  int scores = 0, judged = 0, restored = 0, next = 0, clean = 0, ahead = 0, ends = 0;
  std::size_t remembered = 0;  ///< of the steps before, when one has ended
};
struct scoring {
  calls* of;
  double score(const context& c, tensor_id t) const noexcept {
    ++of->scores;
    return -c.staleness(t);
  }
  void end_of_step(const context& c) {
    ++of->ends;
    of->remembered = std::max(of->remembered, c.past().records() + c.past().footprint());
  }
};
struct judging {
  calls* of;
  action decide(const context&, tensor_id) {
    ++of->judged;
    return action::offload;
  }
};
struct judging_all : judging {
  restoration restore(const context&, tensor_id) {
    ++of->restored;
    return restoration::recompute;
  }
};
struct naming {
  calls* of;
  tensor_id next(const context&) {
    ++of->next;
    return tensor_id::none;
  }
};
struct naming_all : naming {
  tensor_id copy_ahead(const context&) {
    ++of->clean;
    return tensor_id::none;
  }
  double early_release_bytes(const context&) {
    ++of->ahead;
    return 0;
  }
};

/// What the test says, once a step.
struct told {
  const std::uint32_t* which;
  int* asked;
  std::uint32_t choose(const context&) const {
    ++*asked;
    return *which;
  }
};

/// A program of large and small tensors, where it matters who decides.
program heavy(std::uint64_t seed) {
  program p = random_program(seed, {.operators = 30, .steps = 1, .largest = 16384});
  for (program::op& o : p.ops) o.cost *= 300;
  return p;
}

struct online_as_one_object : cheapest_way_root, cheaper, no_prefetch {};
static_assert(Policy<online_as_one_object> && Policy<decltype(online())>);

/// One object counts how often it is told of an end; as three roles it is told three times.
struct counts_ends : online_as_one_object {
  int* operators;
  int* steps;
  void end_of_operator(const context&) { ++*operators; }
  void end_of_step(const context&) { ++*steps; }
};

const tested_policy online_of_two = own("online of two", switching(always{}, online(), adaptive()));

simulated_options machine_for(const program& p, double share) {
  const double least = double(largest_footprint(p).count);
  return {.capacity = bytes{std::uint64_t(least * share)},
          .host_capacity = 4_MiB,
          .rate_out = 5e9,
          .rate_in = 5e9,
          .places = false};
}

}  // namespace

TEST_CASE("switching: the one that is chosen is asked, and only between steps another is chosen") {
  calls first, second;
  std::uint32_t which = 1;
  int asked = 0;
  simulated storage({.capacity = 100_B, .host_capacity = 400_B, .rate_out = 1e9, .rate_in = 1e9});
  const auto managed = make_manager(
      switching(told{&which, &asked},
                policy<scoring, judging, naming>{{&first}, {&first}, {&first}},
                policy<scoring, judging_all, naming_all>{{&second}, {&second}, {&second}}),
      over(storage));
  manager_interface& m = *managed;
  const auto step = [&] {
    const tensor_id a = m.run({.outputs = {60_B}, .cost = nanoseconds{5}}, nothing);
    const tensor_id b = m.run({.outputs = {60_B}, .cost = nanoseconds{5}}, nothing);
    m.run<0>({.inputs = {a}, .cost = nanoseconds{5}}, nothing);
    m.drop(a), m.drop(b);
    m.end_of_step();
  };
  step();
  CHECK(first.scores > 0);
  CHECK(first.judged > 0);
  CHECK(first.next > 0);
  CHECK((second.scores == 0 && second.judged == 0 && second.next == 0 && second.clean == 0));
  // All are told of ends.
  CHECK(first.ends == second.ends);
  CHECK(asked == 1);
  const calls before = first;
  step();
  CHECK((first.scores == before.scores && first.judged == before.judged));
  CHECK(first.next == before.next);
  CHECK((second.scores > 0 && second.judged > 0 && second.next > 0));
  CHECK((second.clean > 0 && second.ahead > 0 && second.restored > 0));
  which = 7;  // there is none: the first
  step();
  const calls last = second;
  step();
  CHECK(second.judged == last.judged);
  CHECK(first.judged > before.judged);
  CHECK(first.remembered == 0);  // nobody learns
}

TEST_CASE("a policy of one object is told of each end once") {
  simulated storage({.capacity = 400_B});
  const auto ends = [&](const auto& make) {
    int operators = 0, steps = 0;
    const counts_ends counts{{}, &operators, &steps};
    manager m{make(counts), storage};
    for (int i = 0; i < 3; ++i) m.drop(m.run({.outputs = {60_B}}, nothing));
    m.end_of_step();
    return std::pair{operators, steps};
  };
  CHECK(ends([](const counts_ends& p) { return p; }) == std::pair{3, 1});
  CHECK(ends([](const counts_ends& p) { return policy{p, p, p}; }) == std::pair{9, 3});
  CHECK(ends([](const counts_ends& p) { return switching(always{}, p, online()); }) ==
        std::pair{3, 1});
}

TEST_CASE("switching: always the same one decides as that one alone") {
  for (std::uint64_t seed = 1; seed <= seeds(60); ++seed) {
    CAPTURE(seed);
    const program p = repeated(random_program(seed, {.steps = 1}), 3);
    const auto run = [&](const tested_policy& policy) {
      simulated storage(machine_for(p, 1.2));
      const auto m = policy.manage(over(storage));
      run_program(*m, p, run_now{}, [] {});
      const counters& n = m->counts();
      return std::array{
          n.evictions,  n.offloads,    n.reloads,   n.recomputes,
          n.prefetches, n.clean_drops, n.decisions, std::uint64_t(storage.now().count())};
    };
    const policy<lru, cheaper, lifo_prefetch> third;
    CHECK(run(online_of_two) == run(by_name("online")));
    CHECK(run(own("adaptive of two", switching(always{}, adaptive(), online()))) ==
          run(by_name("adaptive")));
    CHECK(run(own("another of two", switching(always{}, third, online()))) ==
          run(own("another", third)));
    // One object for all three roles decides as the three do, by itself and among others.
    CHECK(run(own("one object", online_as_one_object{})) == run(by_name("online")));
    CHECK(run(own("one object of two", switching(always{}, online_as_one_object{}, third))) ==
          run(by_name("online")));
  }
}

namespace {

/// The most recently used leaves first: what a restore has just made is gone again.
struct newest_first {
  static constexpr quantity depends_on = quantity::staleness;
  double score(const context& c, tensor_id t) const noexcept { return c.staleness(t); }
};
using hopeless = policy<newest_first, evict_only, no_prefetch>;

/// The first of the two always; where it thrashes, the other one, if there is a spare.
struct spare {
  bool is_there = false;
  int* asked;

  std::uint32_t choose(const context&) const { return 0; }
  std::uint32_t replacement(const context& c, bool thrashes) const {
    if (!thrashes) return c.variant();
    CHECK(++*asked <= 2);  // the second time there is nobody else
    return is_there && c.variant() == 0 ? 1 : c.variant();
  }
};

enum class ending : std::uint8_t { passes, thrashes, does_not_fit };

ending end_of(const program& p, bool has_spare) {
  const bytes least = largest_footprint(p);
  simulated storage({.capacity = least, .host_capacity = least, .rate_out = 2e9, .rate_in = 2e9});
  int asked = 0;
  const auto m =
      make_manager(switching(spare{has_spare, &asked}, hopeless{}, online()), over(storage));
  ending result = ending::passes;
  try {
    run_program(*m, p, run_now{}, [&] { CHECK(storage.check_invariants() == ""); });
  } catch (const thrash&) {
    result = ending::thrashes;
  } catch (const budget_exceeded&) {
    result = ending::does_not_fit;
  }
  if (has_spare) CHECK(asked > 0);
  return result;
}

}  // namespace

TEST_CASE("switching: a policy under which recomputation thrashes gives way to another one") {
  int thrashing = 0, saved = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    const program p = random_program(seed, {.operators = 40, .steps = 1});
    if (end_of(p, false) != ending::thrashes) continue;
    ++thrashing;
    saved += end_of(p, true) == ending::passes;
  }
  MESSAGE(thrashing << " thrash, " << saved << " of them pass with another one to take over");
  CHECK(saved > 0);
}

TEST_CASE("rehearse: what does not come to its end, or not in time, takes for ever") {
  const program p = heavy(1);
  simulated storage(machine_for(p, 100));
  manager m{adaptive(), storage};
  run_program(m, p, run_now{}, [] {});
  const step_record& step = m.past().last();
  simulated_options on = machine_for(p, 100);
  const double whole = detail::rehearse(step, online(), 0, on);
  CHECK(whole == doctest::Approx(step.time));
  CHECK(detail::rehearse(step, online(), 0, on, whole / 2) == never);
  on.capacity = bytes{largest_footprint(p).count / 2};
  CHECK(detail::rehearse(step, online(), 0, on) == never);
  on.capacity = largest_footprint(p), on.host_capacity = {};
  CHECK(detail::rehearse(step, policy<lru, offload_only, no_prefetch>{}, 0, on) == never);
}

TEST_CASE("rehearse: about what the next step takes, and what is chosen is seldom a mistake") {
  int close = 0, all = 0, worse = 0;
  for (std::uint64_t seed = 1; seed <= seeds(100); ++seed) {
    CAPTURE(seed);
    const program p = heavy(seed);
    const simulated_options on = machine_for(p, 1.3);
    // What each takes in its fourth step, over its operators' time, which is the same for all.
    const auto fourth = [&](const tested_policy& policy) {
      simulated storage(on);
      const auto m = policy.manage(over(storage));
      run_program(*m, repeated(p, 4), run_now{}, [] {});
      return m->learned().measured;
    };
    const auto [taught, rehearsed] = [&] {
      simulated storage(on);
      manager m{adaptive(), storage};
      run_program(m, repeated(p, 4), run_now{}, [] {});
      const step_record& last = m.past().last();
      return std::pair(m.past().last_took() / last.time,
                       detail::rehearse(last, m.policy().rehearsed(), 0, on) / last.time);
    }();
    const double chosen = fourth(by_name("adaptive")), untaught = fourth(online_of_two);
    ++all;
    close += rehearsed > 0.9 * taught && rehearsed < 1.1 * taught;
    worse += chosen > 1.05 * std::min(taught, untaught);
  }
  MESSAGE(close << " of " << all << " rehearsals within a tenth; " << worse << " choices worse");
  CHECK(close * 10 >= all * 8);
  CHECK(worse * 10 < all);
}
