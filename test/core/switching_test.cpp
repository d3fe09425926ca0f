// Several policies in one: who is asked, when that changes, and who is chosen by rehearsal.
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
#include "dice.hpp"
#include "random_program.hpp"
#include "seeds.hpp"
#include "tested_policy.hpp"

using namespace delta;
using namespace delta::test;

// The default's rehearsals are compiled in delta::engine.
extern template std::array<double, 2> delta::detail::rehearse_both(
    const detail::next_step&, decltype(delta::detail::planned_or_not::make(always{})),
    std::uint32_t, double, int, std::vector<double>*);

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

const tested_policy online_of_two = own("online of two", switching(always{}, online(), planned()));

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
    CHECK(run(own("planned of two", switching(always{}, planned(), online()))) ==
          run(by_name("planned")));
    CHECK(run(own("another of two", switching(always{}, third, online()))) ==
          run(own("another", third)));
    // One object for all three roles decides as the three do, by itself and among others.
    CHECK(run(own("one object", online_as_one_object{})) == run(by_name("online")));
    CHECK(run(own("one object of two", switching(always{}, online_as_one_object{}, third))) ==
          run(by_name("online")));
  }
}

namespace {

/// The most recently used leaves first: what a restore has just made is gone again. It says that it
/// learns, so that steps are recorded: without a record there is nothing to rehearse.
struct newest_first {
  static constexpr bool learns = true;
  static constexpr quantity depends_on = quantity::staleness;
  double score(const context& c, tensor_id t) const noexcept { return c.staleness(t); }
};
using hopeless = policy<newest_first, evict_only, no_prefetch>;

/// `rehearsing` of these two.
struct hopeless_first {
  static constexpr std::array<std::string_view, 2> names{"hopeless", "online"};
  template <Selector S>
  static auto make(S selector) {
    return switching(std::move(selector), hopeless{},
                     policy<cheapest_way_root, cheaper, no_prefetch>{});
  }
};

/// Who says which of the two, as told: one type, so that the manager is compiled once for all.
enum class chooses : std::uint8_t {
  first,     ///< always, and names nobody else
  a_spare,   ///< the first always; where it thrashes, the other one
  rehearsed  ///< `rehearsing` does
};
struct any_selector {
  static constexpr auto names = hopeless_first::names;
  chooses how;
  int replaced = 0;  ///< times that another was asked for in the step under way
  int replacements = 0;
  detail::rehearsing<hopeless_first> rehearser{};

  std::uint32_t choose(const context& c) {
    replaced = 0;
    return how == chooses::rehearsed ? rehearser.choose(c) : 0;
  }
  std::uint32_t replacement(const context& c, bool thrashes) {
    if (how == chooses::rehearsed) return rehearser.replacement(c, thrashes);
    if (!thrashes) return c.variant();
    ++replaced, ++replacements;
    if (how == chooses::first) return c.variant();
    CHECK(replaced <= 2);  // the second time there is nobody else
    return c.variant() == 0 ? 1 : c.variant();
  }
  // For reports.
  [[nodiscard]] const detail::step_results& results() const noexcept { return rehearser.results(); }
  [[nodiscard]] double expected(const step_record& s) const { return rehearser.expected(s); }
};
/// The test looks at what the manager's selector knows.
struct shown_selector {
  static constexpr auto names = any_selector::names;
  any_selector* to;
  std::uint32_t choose(const context& c) const { return to->choose(c); }
  std::uint32_t replacement(const context& c, bool thrashes) const {
    return to->replacement(c, thrashes);
  }
  [[nodiscard]] const detail::step_results& results() const noexcept { return to->results(); }
  [[nodiscard]] double expected(const step_record& s) const { return to->expected(s); }
};

enum class ending : std::uint8_t { passes, thrashes, does_not_fit };

ending end_of(const program& p, any_selector&& selector) {
  const bytes least = largest_footprint(p);
  simulated storage({.capacity = least, .host_capacity = least, .rate_out = 2e9, .rate_in = 2e9});
  const auto m = make_manager(hopeless_first::make(shown_selector{&selector}), over(storage));
  ending result = ending::passes;
  try {
    run_program(*m, p, run_now{}, [&] { CHECK(storage.check_invariants() == ""); });
  } catch (const thrash&) {
    result = ending::thrashes;
  } catch (const budget_exceeded&) {
    result = ending::does_not_fit;
  }
  if (selector.how == chooses::a_spare) CHECK(selector.replacements > 0);
  if (selector.how == chooses::rehearsed && result == ending::passes) {
    // It has thrashed once, and is not tried again.
    const learning_report l = m->learned();
    CHECK(l.steps == 3);
    CHECK(l.policy == "online");
    CHECK(selector.results().kinds()[0].thrashes(0));
  }
  return result;
}

}  // namespace

TEST_CASE("switching: a policy under which recomputation thrashes gives way to another one") {
  int thrashing = 0, saved = 0, saved_by_rehearsing = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    const program p = random_program(seed, {.operators = 40, .steps = 1});
    if (end_of(p, {chooses::first}) != ending::thrashes) continue;
    ++thrashing;
    saved += end_of(p, {chooses::a_spare}) == ending::passes;
    saved_by_rehearsing += end_of(repeated(p, 3), {chooses::rehearsed}) == ending::passes;
  }
  MESSAGE(thrashing << " thrash, " << saved << " of them pass with another one to take over, "
                    << saved_by_rehearsing << " three times with one that rehearses");
  CHECK(saved > 0);
  CHECK(saved_by_rehearsing > 0);
}

TEST_CASE("rehearsing: steps without operators are no steps") {
  simulated storage({.capacity = 100_B, .host_capacity = 400_B});
  manager m{adaptive(), storage};
  m.end_of_step(), m.end_of_step();
  const auto& selector = m.policy().selector;
  CHECK(m.variant() == 0);
  CHECK(selector.rehearsals() == 0);
  const auto step = [&](std::int64_t cost) {
    m.drop(m.run({.outputs = {60_B}, .cost = nanoseconds{cost}}, nothing));
    m.end_of_step();
  };
  step(10);
  CHECK(selector.rehearsals() == 1);
  const std::uint32_t decided = m.variant();
  m.end_of_step();
  CHECK(m.variant() == decided);
  CHECK(selector.results().kinds().front().seen() == 1);
  step(10);
  CHECK(selector.rehearsals() == 2);
  for (int i = 0; i < 5; ++i) step(10);
  CHECK(selector.rehearsals() == 2);
  step(12);  // drift
  CHECK(selector.rehearsals() == 3);
}

TEST_CASE("rehearsing: where kinds of steps take turns each is rehearsed, not every step") {
  simulated storage({.capacity = 100_B, .host_capacity = 400_B, .places = false});
  manager m{adaptive(), storage};
  const detail::rehearsing<delta::detail::planned_or_not>& selector = m.policy().selector;
  const auto run = [&](std::int64_t cost) {
    return m.run({.outputs = {60_B}, .cost = nanoseconds{cost}}, nothing);
  };
  std::uint64_t rehearsals = 0;
  for (int round = 0; round < 12; ++round) {
    if (round == 6) rehearsals = selector.rehearsals();
    m.drop(run(10));
    m.end_of_step();
    const tensor_id a = run(400), b = run(600);
    m.drop(a), m.drop(b);
    m.end_of_step();
  }
  REQUIRE(selector.results().kinds().size() == 2);
  for (const detail::step_kind& k : selector.results().kinds()) {
    CHECK(k.rehearsals() >= 2);
    CHECK(k.rehearsals() <= 4);
  }
  CHECK(selector.rehearsals() == rehearsals);
}

TEST_CASE(
    "rehearsing: sizes over a tenth apart are kinds of their own, and measured by themselves") {
  simulated storage({.capacity = 400_B, .host_capacity = 400_B, .places = false});
  manager m{adaptive(), storage};
  const detail::rehearsing<delta::detail::planned_or_not>& selector = m.policy().selector;
  const auto step = [&](bytes size) {
    const tensor_id a = m.run({.outputs = {size}, .cost = nanoseconds{100}}, nothing);
    m.drop(m.run({.inputs = {a}, .outputs = {size}, .cost = nanoseconds{100}}, nothing));
    m.drop(a);
    m.end_of_step();
  };
  std::uint64_t rehearsals = 0;
  for (int round = 0; round < 20; ++round) {
    if (round == 10) rehearsals = selector.rehearsals();
    for (const bytes size : {40_B, 42_B, 80_B, 120_B}) step(size);
  }
  CHECK(selector.results().kinds().size() == 3);
  CHECK(selector.rehearsals() == rehearsals);
}

namespace {

/// The least recently used leaves first. It says that it learns, so that steps are recorded.
struct oldest_first {
  static constexpr bool learns = true;
  static constexpr quantity depends_on = quantity::staleness;
  double score(const context& c, tensor_id t) const noexcept { return -c.staleness(t); }
};
/// `rehearsing` of recomputing and of swapping.
struct either_way {
  static constexpr std::array<std::string_view, 2> names{"recomputing", "swapping"};
  enum : std::uint32_t { recomputing, swapping };
  template <Selector S>
  static auto make(S selector) {
    return delta::switching(std::move(selector), policy<oldest_first, evict_only, no_prefetch>{},
                            policy<oldest_first, offload_only, no_prefetch>{});
  }
};

/// Steps of three operators, of 100 us in all, whose first tensor has to leave: to recompute it
/// takes 6 us, to swap it 2 us over `real_rate`. Swapping is tried in the third step, since the
/// first seems to say that recomputing takes no time.
struct two_ways {
  explicit two_ways(double real_rate = 1)
      : storage({.capacity = 100_B,
                 .host_capacity = 400_B,
                 .rate_out = 60e6,
                 .rate_in = 60e6,
                 .real_rate = real_rate,
                 .places = false}) {
    step(1, 60_B, 100);
    step(1);
  }
  /// One more, with operators as slow as that. Who decided in it?
  std::uint32_t step(double slower, bytes size = 60_B, std::int64_t first_cost = 6000) {
    const std::uint32_t decided = m.variant();
    const auto cost = [&](std::int64_t ns) {
      return nanoseconds{static_cast<std::int64_t>(slower * static_cast<double>(ns))};
    };
    const tensor_id a = m.run({.outputs = {size}, .cost = cost(first_cost)}, nothing);
    m.drop(m.run({.outputs = {60_B}, .cost = cost(40000)}, nothing));
    m.run<0>({.inputs = {a}, .cost = cost(100000 - 40000 - first_cost)}, nothing);
    m.drop(a);
    m.end_of_step();
    return decided;
  }
  /// So many more. In how many of them did swapping decide?
  int swapping_in(int steps, double slower = 1, double slower_while_swapping = 1) {
    int n = 0;
    for (int i = 0; i < steps; ++i) {
      const bool swaps = m.variant() == either_way::swapping;
      n += int(swaps);
      step(swaps ? slower_while_swapping : slower);
    }
    return n;
  }
  [[nodiscard]] const detail::step_results& results() const {
    return m.policy().selector.results();
  }
  [[nodiscard]] const detail::step_kind& kind() const { return results().kinds().front(); }
  [[nodiscard]] double expected() const { return m.policy().selector.expected(m.past().last()); }

  simulated storage;
  manager<decltype(either_way::make(detail::rehearsing<either_way>{})), simulated> m{
      either_way::make(detail::rehearsing<either_way>{}), storage};
};

}  // namespace

// The first step of a policy also brings everything to where it has it, and is not measured.
TEST_CASE("rehearsing: what was measured beside slow operators is measured again, and may stay") {
  two_ways program;
  CHECK(program.kind().measured(either_way::recomputing) == 106000);
  CHECK(program.swapping_in(2, 1.09, 1.09) == 2);
  CHECK(program.kind().measured(either_way::swapping) == 111000);
  // The operators' time is that of three steps.
  CHECK(program.swapping_in(3) == 0);
  CHECK(program.m.variant() == either_way::swapping);
  CHECK(program.expected() == doctest::Approx(111000 / 1.09));
  CHECK(program.step(1) == either_way::swapping);
  CHECK(program.results().outcomes().back().predicted == doctest::Approx(1.11 / 1.09));
  CHECK(program.results().outcomes().back().measured == doctest::Approx(1.02));
  CHECK(program.step(1) == either_way::swapping);
  CHECK(program.kind().measured(either_way::swapping) == 102000);
  CHECK(program.swapping_in(20) == 20);
  CHECK(program.m.policy().selector.rehearsals() == 2);
}

TEST_CASE("rehearsing: a second try takes two steps, and the second counts") {
  two_ways program;
  CHECK(program.swapping_in(2, 1.09, 1.09) == 2);
  CHECK(program.swapping_in(3) == 0);
  CHECK(program.step(1.09) == either_way::swapping);
  CHECK(program.kind().measured(either_way::swapping) == 111000);
  CHECK(program.swapping_in(20) == 20);
  CHECK(program.kind().measured(either_way::swapping) == 102000);
}

TEST_CASE("rehearsing: who makes the operators slow is tried again once, until all has changed") {
  two_ways program;
  CHECK(program.swapping_in(2, 1.09, 1.09) == 2);
  CHECK(program.swapping_in(30, 1, 1.09) == 2);
  CHECK(program.kind().tried_again(either_way::swapping));
  // A machine that has changed: all are tried anew, and once more.
  program.step(1.5);
  CHECK(!program.kind().tried_again(either_way::swapping));
}

TEST_CASE("rehearsing: one fast step, other sizes, slow copies are no reason to try again") {
  // Swapping takes 10 us more.
  two_ways slow_copies(0.2);
  CHECK(slow_copies.swapping_in(2) == 2);
  CHECK(slow_copies.swapping_in(4) == 0);
  CHECK(slow_copies.step(0.93) == either_way::recomputing);
  CHECK(slow_copies.swapping_in(10) == 0);

  // Slow beside slow operators, and no faster beside others.
  two_ways slower_anyway(0.2);
  CHECK(slower_anyway.swapping_in(2, 1.09, 1.09) == 2);
  CHECK(slower_anyway.swapping_in(10) == 0);
  CHECK(slower_anyway.kind().slowdown(either_way::swapping) == doctest::Approx(1.09));

  two_ways other_sizes;
  CHECK(other_sizes.step(1.09, 64_B) == either_way::swapping);
  CHECK(other_sizes.step(1.09, 64_B) == either_way::swapping);
  CHECK(other_sizes.swapping_in(10) == 0);
  CHECK(other_sizes.kind().slowdown(either_way::swapping) == 1);
}

TEST_CASE("rehearse: what does not come to its end, or not in time, takes for ever") {
  const program p = heavy(1);
  simulated storage(machine_for(p, 100));
  manager m{planned(), storage};
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
      manager m{planned(), storage};
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
