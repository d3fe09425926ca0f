// What policies see and what they answer, on a situation whose numbers are worked out by hand.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "delta/decider.hpp"
#include "delta/detail/victims/victim_search.hpp"
#include "delta/heuristic.hpp"
#include "delta/prefetcher.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "lifo_prefetch.hpp"
#include "machine.hpp"
#include "more_heuristics.hpp"
#include "one_object.hpp"
#include "random_program.hpp"
#include "seeds.hpp"
#include "tested_policy.hpp"

using namespace delta;
using namespace delta::test;

namespace {

/// v (variable) -> to_a(10 ns) -> a, evicted -> to_b(20 ns) -> b, here -> to_c(40 ns) -> c, evicted
///                              a, h (variable, on the host) -> to_d(5 ns) -> d, here
/// One byte out takes 1 ns, one in 0.5 ns.
struct situation {
  detail::graph g;
  detail::machine_state now;
  tensor_id v, a, b, c, h, d;
  operator_id to_a, to_b, to_c, to_d;

  situation() {
    v = add(100, residency::resident, 9);
    a = add(200, residency::evicted, 2);
    b = add(300, residency::resident, 6);
    c = add(400, residency::evicted, 7);
    h = add(50, residency::host, 1);
    d = add(60, residency::resident, 8);
    g[h].host = slab{0};
    to_a = make(10, {v}, a);
    to_b = make(20, {a}, b);
    to_c = make(40, {b}, c);
    to_d = make(5, {a, h}, d);
    now.now = 10;
    now.clock = nanoseconds{10};
    now.budget = 2000_B;
    now.used = 460_B;
    now.host_free = 1000_B;
    now.rate = {1e9, 2e9};
    now.latency = {5, 7};
    now.backlog = {100, 11};
    now.recompute_cap = 3;
  }
  ~situation() { (void)slab(std::move(g[h].host)); }

  tensor_id add(std::uint64_t size, residency where, std::int64_t used) {
    const tensor_id t = g.add_tensor(bytes{size}, bytes{size});
    g[t].where = where;
    g.set_last_use(t, nanoseconds{used});
    return t;
  }
  operator_id make(std::int64_t cost, const std::vector<tensor_id>& inputs, tensor_id output) {
    const operator_id o = g.add_record(inputs, std::span(&output, 1));
    g[o].cost = nanoseconds{cost};
    return o;
  }
  [[nodiscard]] context view() const { return {g, now}; }
};

}  // namespace

TEST_CASE("context: sizes, staleness and costs") {
  situation s;
  const context c = s.view();
  CHECK(c.bytes(s.b) == 300);
  CHECK(c.staleness(s.b) == 4);
  s.g.set_last_use(s.b, nanoseconds{10});
  CHECK(c.staleness(s.b) == 1);              // at least one
  CHECK(c.recompute_cost(s.b) == 30);        // to_b, and to_a, as a is gone
  CHECK(c.neighbourhood_cost(s.b) == 70);    // and to_c, as c is gone
  CHECK(c.recompute_cost(s.c) == 40);        // b is here
  CHECK(c.reload_cost(s.h) == 11 + 7 + 25);  // behind the queue
  CHECK(c.recompute_cost(s.d) == 5 + 10 + 43);
  CHECK(c.recompute_cost(s.v) == never);
  CHECK(c.neighbourhood_cost(s.h) == never);
  CHECK(c.reload_cost(s.b) == never);
  CHECK(c.swap_cost(s.b) == 5 + 300 + 7 + 150);
  CHECK(c.exposed_swap_cost(s.b) == 462 + 100);
  CHECK(c.release_cost(s.b) == 30);
  CHECK(c.release_cost(s.v) == 5 + 100 + 7 + 50 + 100);
  s.g[s.b].host = slab{1};  // clean: the way out is free, and no queue
  CHECK(c.swap_cost(s.b) == 157);
  CHECK(c.exposed_swap_cost(s.b) == 157);
  (void)slab(std::move(s.g[s.b].host));
  s.g[s.c].references = 0;  // dropped, and nothing is computed from it
  CHECK(c.neighbourhood_cost(s.b) == 30);
  const tensor_id e = s.add(10, residency::resident, 9);
  s.make(1, {s.c}, e);  // now something may be
  CHECK(c.neighbourhood_cost(s.b) == 70);
}

TEST_CASE("context: what can leave, and how") {
  situation s;
  const context c = s.view();
  CHECK(c.can_evict(s.b));
  CHECK(!c.can_evict(s.v));
  CHECK(c.can_offload(s.v));
  s.g[s.to_b].replays = 3;
  CHECK(!c.can_evict(s.b));  // the cap
  s.g[s.to_b].replays = 2;
  CHECK(c.can_evict(s.b));
  s.g[s.b].pinned = pin::evict;
  CHECK(!c.can_evict(s.b));
  s.g[s.b].pinned = pin::offload;
  CHECK(c.can_evict(s.b));
  CHECK(!c.can_offload(s.b));
  CHECK(c.swap_cost(s.b) == never);
  s.g[s.b].pinned = pin::none;
  s.now.host_free = 299_B;
  CHECK(!c.can_offload(s.b));
  s.now.host_free = 300_B;
  CHECK(c.can_offload(s.b));
  s.g[s.b].persistent = true;
  CHECK(!c.can_evict(s.b));
  s.g[s.b].persistent = false;
  s.now.may_evict = false;
  CHECK(!c.can_evict(s.b));
  s.now.may_offload = false;
  CHECK(!c.can_offload(s.v));
  CHECK(!c.is_released(s.b));
  s.g[s.b].references = 0;
  CHECK(c.is_released(s.b));
  CHECK(c.release_cost(s.b) == 0);
  s.g[s.b].restore_references = 1;
  CHECK(!c.is_released(s.b));
}

TEST_CASE("heuristics: the equations") {
  situation s;
  const context c = s.view();
  const auto score = [&](const auto& heuristic) { return detail::score_of(heuristic, c, s.b); };
  CHECK(score(base{}) == doctest::Approx(1.0 / (300 * 4)));
  CHECK(score(lru{}) == doctest::Approx(1.0 / 4));
  CHECK(score(greedy{}) == doctest::Approx(1.0 / 300));
  CHECK(score(dtr{}) == doctest::Approx(70.0 / (300 * 4)));
  CHECK(score(msps{}) == doctest::Approx(30.0 / 300));
  CHECK(score(joint{}) == doctest::Approx(30.0 / (300 * 4)));
  s.g[s.to_b].cost = nanoseconds{10'000};
  CHECK(score(joint{}) == doctest::Approx(562.0 / (300 * 4)));
  // What can't be computed leaves last by its cost, never as a number that is none.
  CHECK(detail::score_of(dtr{}, c, s.v) == never);
  CHECK(detail::score_of(msps{}, c, s.v) == never);
  s.now.may_offload = false;
  CHECK(detail::score_of(joint{}, c, s.v) == never);
  s.g[s.b].references = 0;  // dropped, and can be made again: before all others
  CHECK(score(lru{}) < 0);
  CHECK(score(dtr{}) < 0);
}

namespace {
struct listed {
  std::vector<double> scores;
  double score(const context&, tensor_id t) const noexcept { return scores[index(t)]; }
};
/// The Filter's choice among these.
template <class H, class May>
tensor_id choice(detail::filter<H>& f, const H& h, situation& s, const std::vector<tensor_id>& of,
                 const May& may) {
  detail::candidate_list list;
  list.cover(s.g.tensor_slots());
  for (const tensor_id t : of) list.show(t);
  return f.select(h, s.view(), s.g, s.now, list, [&](tensor_id t) {
    return may(t) ? detail::permission::yes : detail::permission::not_now;
  });
}
}  // namespace

TEST_CASE("filter: the lowest, ties to the lower id, no number last, whatever the order") {
  situation s;
  const context c = s.view();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto pick = [&](std::vector<double> scores, auto may) {
    std::vector<tensor_id> list{s.v, s.a, s.b, s.c, s.h, s.d};
    const listed h{std::move(scores)};
    detail::filter<listed> f;
    const tensor_id first = choice(f, h, s, list, may);
    detail::lowest_score back;
    for (auto t = list.rbegin(); t != list.rend(); ++t)
      if (may(*t)) back.offer(*t, detail::score_of(h, c, *t));
    CHECK(back.tensor() == first);
    return first;
  };
  const auto all = [](tensor_id) { return true; };
  CHECK(pick({5, 4, 3, 3, 3, 9}, all) == s.b);
  CHECK(pick({nan, 4, 3, nan, 2, 9}, all) == s.h);
  CHECK(pick({nan, nan, never, nan, nan, nan}, all) == s.v);
  CHECK(pick({-never, 4, 3, nan, 2, 9}, all) == s.v);
  CHECK(pick({1, 1, 1, 1, 1, 1}, [&](tensor_id t) { return t == s.c || t == s.d; }) == s.c);
  CHECK(pick({1, 1, 1, 1, 1, 1}, [](tensor_id) { return false; }) == tensor_id::none);
  const listed h{{1, 1, 1, 1, 1, 1}};
  detail::filter<listed> f;
  choice(f, h, s, {s.v, s.b}, all);
  CHECK(f.evaluations() == 2);
  CHECK(choice(f, h, s, {}, all) == tensor_id::none);
}

namespace {
struct names : listed {
  tensor_id who;
  tensor_id victim(const context&, const auto&) const noexcept { return who; }
};
}  // namespace

TEST_CASE("filter: whom the heuristic names leaves without a search, if it may") {
  situation s;
  const std::vector<tensor_id> list{s.v, s.a, s.b};
  const std::vector<double> scores{5, 4, 3, 3, 3, 9};
  detail::filter<names> f;
  const auto all = [](tensor_id) { return true; };
  CHECK(choice(f, {{scores}, s.v}, s, list, all) == s.v);
  CHECK(f.evaluations() == 0);
  CHECK(choice(f, {{scores}, s.v}, s, list, [&](tensor_id t) { return t != s.v; }) == s.b);
  CHECK(choice(f, {{scores}, tensor_id::none}, s, list, all) == s.b);
  CHECK(f.evaluations() == 5);
}

TEST_CASE("deciders: the paper's ratio") {
  situation s;
  const context c = s.view();
  paper_director rule;
  s.g[s.d].footprint = 35_B;  // c_s = m / (0.35 b) = 100 ns
  s.g[s.a].where = residency::resident;
  s.g[s.h].where = residency::resident;
  s.g[s.to_d].cost = nanoseconds{100};
  CHECK(rule.decide(c, s.d) == action::evict);  // F = 1
  s.g[s.to_d].cost = nanoseconds{101};
  CHECK(rule.decide(c, s.d) == action::offload);
  CHECK(rule.decide(c, s.v) == action::offload);  // can't be computed
  s.now.host_free = 34_B;
  CHECK(rule.decide(c, s.d) == action::evict);  // the host is full
  s.now.host_free = 1000_B;
  s.now.backward = true;
  CHECK(rule.decide(c, s.d) == action::offload);
  rule.strict = true;
  CHECK(rule.decide(c, s.d) == action::keep);
  s.g[s.d].references = 0;
  CHECK(rule.decide(c, s.d) != action::keep);
  CHECK(rule.restore(c, s.d) == restoration::recompute);
  CHECK(rule.restore(c, s.h) == restoration::reload);
}

TEST_CASE("deciders: the cheaper behind the queue, and those that know one answer") {
  situation s;
  const context c = s.view();
  const cheaper rule;
  s.g[s.to_b].cost = nanoseconds{452};  // c_r = 462 = c_s; the queue makes 562
  CHECK(rule.decide(c, s.b) == action::evict);
  s.now.backlog = {0, 0};
  CHECK(rule.decide(c, s.b) == action::evict);
  s.g[s.to_b].cost = nanoseconds{453};
  CHECK(rule.decide(c, s.b) == action::offload);
  s.now.backlog = {1, 0};
  CHECK(rule.decide(c, s.b) == action::evict);
  CHECK(rule.decide(c, s.v) == action::offload);
  s.now.host_free = {};
  s.g[s.to_b].cost = nanoseconds{100'000};
  CHECK(rule.decide(c, s.b) == action::evict);
  CHECK(evict_only{}.decide(c, s.b) == action::evict);
  CHECK(offload_only{}.decide(c, s.b) == action::offload);
  CHECK(never_release{}.decide(c, s.b) == action::keep);
  CHECK_FALSE((cheaper::may_keep() || evict_only::may_keep() || offload_only::may_keep()));
  static_assert(detail::value_of_evicts<evict_only>() && !detail::value_of_offloads<evict_only>());
  static_assert(!detail::value_of_evicts<offload_only>() &&
                detail::value_of_offloads<offload_only>());
  static_assert(!detail::value_of_evicts<never_release>() &&
                !detail::value_of_offloads<never_release>());
  static_assert(detail::value_of_evicts<cheaper>() && detail::value_of_offloads<cheaper>());
}

TEST_CASE("prefetchers: order, number, room, phase") {
  situation s;
  const std::vector<tensor_id> queue{s.h, s.a, s.c};
  const context c(s.g, s.now, {.offloaded = queue});
  s.now.backward = true;
  CHECK(no_prefetch{}.next(c) == tensor_id::none);
  CHECK(fifo_prefetch{}.next(c) == s.h);
  CHECK(lifo_prefetch{}.next(c) == s.c);
  s.now.backward = false;
  CHECK(fifo_prefetch{}.next(c) == tensor_id::none);
  s.now.backward = true;
  fifo_prefetch two;
  two.n = 2;
  CHECK(two.next(c) == s.h);
  CHECK(two.next(c) == s.h);
  CHECK(two.next(c) == tensor_id::none);
  two.end_of_operator(c);
  CHECK(two.next(c) == s.h);
  fifo_prefetch roomy;
  s.now.used = 1850_B;  // 0.95 of 2000 is 1900, h has 50
  CHECK(roomy.next(c) == s.h);
  s.now.coming_need = 1_B;
  CHECK(roomy.next(c) == tensor_id::none);
  s.now.coming_need = {};
  s.now.used = 1851_B;
  CHECK(roomy.next(c) == tensor_id::none);
  s.now.used = {};
  CHECK(fifo_prefetch{}.next(s.view()) == tensor_id::none);
  fifo_prefetch halved;
  CHECK(halved.n == 8);
  for (const std::uint32_t n : {4u, 2u, 1u, 1u}) {
    halved.wasted(c, s.h);
    CHECK(halved.n == n);
  }
}

TEST_CASE("prefetchers: the early start, in forward only") {
  situation s;
  const context c = s.view();
  const fifo_prefetch p;
  s.now.used = 1500_B;
  CHECK(p.early_release_bytes(c) == 0);
  s.now.used = 1600_B;
  CHECK(p.early_release_bytes(c) == 100);
  s.now.leaving = 60_B;
  CHECK(p.early_release_bytes(c) == 40);
  s.now.backward = true;
  CHECK(p.early_release_bytes(c) == 0);
}

TEST_CASE("what the program has dropped leaves before anything in use, whatever the scores") {
  struct far_below {
    double score(const context&, tensor_id) const { return -1e300; }
  };
  situation s;
  s.g[s.b].references = 0;
  CHECK(s.view().is_released(s.b));
  CHECK(detail::score_of(far_below{}, s.view(), s.b) <
        detail::score_of(far_below{}, s.view(), s.d));
  const std::vector<tensor_id> candidates{s.d, s.b};
  detail::filter<far_below> f;
  CHECK(choice(f, far_below{}, s, candidates, [](tensor_id) { return true; }) == s.b);
}

TEST_CASE("a tensor that may not be offloaded does not end on the host because it was there") {
  machine it(3, 4);
  manager m{obeying(says_offload), it.storage};
  const tensor_id v = variable_of(m, 7);
  squeeze(m, 3);
  CHECK(m.where(v) == residency::host);
  CHECK(read(m, v) == 7);  // clean now
  m.forbid(v, pin::offload);
  CHECK_THROWS_AS(squeeze(m, 3), budget_exceeded);
  CHECK(m.where(v) == residency::resident);
  const tensor_id y = m.run({.outputs = {unit}}, gives(5));
  m.drop(v);
  squeeze(m, 3);
  CHECK(read(m, y) == 5);
  m.forbid(y, pin::offload);
  squeeze(m, 3);
  CHECK(m.where(y) == residency::evicted);
  CHECK(read(m, y) == 5);
}

TEST_CASE("only what left again unused counts as wasted") {
  struct counting {
    int* wasted_ones;
    tensor_id next(const context& c) const {
      return c.offloaded().empty() ? tensor_id::none : c.offloaded().front();
    }
    void wasted(const context&, tensor_id) const { ++*wasted_ones; }
  };
  machine it(4, 4);
  int wasted = 0;
  action word = action::offload;
  manager m{lru{}, obedient{&word}, counting{&wasted}, it.storage};
  const tensor_id v = variable_of(m, 7);
  squeeze(m, 4);
  m.run<0>({}, [](call&) {});  // it comes back early
  CHECK(detail::on_device(m.where(v)));
  word = action::keep;
  CHECK_THROWS_AS(squeeze(m, 4), budget_exceeded);
  CHECK(wasted == 0);
  word = action::offload;
  squeeze(m, 4);
  CHECK(wasted == 1);
}

namespace {

static_assert(Policy<decltype(online())>);

/// One object counts how often it is told of an end; as three roles it is told three times.
struct counts_ends : online_as_one_object {
  int* operators;
  int* steps;
  void end_of_operator(const context&) { ++*operators; }
  void end_of_step(const context&) { ++*steps; }
};

}  // namespace

TEST_CASE("a policy of one object is told of each end once") {
  simulated storage({.capacity = 400_B});
  const auto ends = [&](const auto& make) {
    int operators = 0, steps = 0;
    const counts_ends counts{{}, &operators, &steps};
    manager m{make(counts), storage};
    for (int i = 0; i < 3; ++i) m.drop(m.run({.outputs = {60_B}}, [](call&) {}));
    m.end_of_step();
    return std::pair{operators, steps};
  };
  CHECK(ends([](const counts_ends& p) { return p; }) == std::pair{3, 1});
  CHECK(ends([](const counts_ends& p) { return policy{p, p, p}; }) == std::pair{9, 3});
}

TEST_CASE("one object for all three roles decides as the three do") {
  for (std::uint64_t seed = 1; seed <= seeds(60); ++seed) {
    CAPTURE(seed);
    const program p = repeated(random_program(seed, {.steps = 1}), 3);
    const auto run = [&](const tested_policy& policy) {
      simulated storage({.capacity = bytes{largest_footprint(p).count * 6 / 5},
                         .host_capacity = 4_MiB,
                         .rate_out = 5e9,
                         .rate_in = 5e9,
                         .places = false});
      const auto m = policy.manage(over(storage));
      run_program(*m, p, run_now{}, [] {});
      const counters& n = m->counts();
      return std::array{
          n.evictions,  n.offloads,    n.reloads,   n.recomputes,
          n.prefetches, n.clean_drops, n.decisions, std::uint64_t(storage.now().count())};
    };
    CHECK(run(own("one object", online_as_one_object{})) == run(by_name("online")));
  }
}
