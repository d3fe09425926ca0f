// Costs of closures that are kept with the tensors equal a fresh walk at every moment, or are below
// it where they are kept as lower bounds; and what is kept changes no decision: whole programs
// decide the same when every answer is asked for anew.
// ctest-labels: slow
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "delta/engine/engine.hpp"
#include "delta/engine/manager_of.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "dice.hpp"
#include "do_anything.hpp"
#include "lifo_prefetch.hpp"
#include "more_heuristics.hpp"
#include "random_program.hpp"
#include "seeds.hpp"
#include "undeclared.hpp"

using namespace delta;
using namespace delta::test;
using delta::detail::closure;

namespace {

// A policy sees a context, and a context does not show its graph; these tests look nevertheless.
// (An explicit instantiation may name private members.)
struct behind {
  static inline const detail::graph* (*graph_of)(const context&) = nullptr;
};
template <auto Pricing>
struct reveal {
  static inline const bool done = [] {
    behind::graph_of = [](const context& c) -> const detail::graph* {
      return (c.*Pricing).tensors;
    };
    return true;
  }();
};
template struct reveal<&context::pricing_>;

/// What comparisons found.
struct tally {
  explicit tally(std::uint64_t seed) : roll(seed) {}
  dice roll;
  std::uint64_t answers = 0, costs = 0;  ///< that were compared
  std::uint64_t bounds = 0;              ///< of the costs, lower bounds
  std::uint64_t wrong_answers = 0, wrong_costs = 0;
  std::uint64_t sparing = 1;  ///< all costs that are known are compared every so many times
};

/// One of several ways out, each with its way back, as told: one type, so that the managers, which
/// are dear to compile, are compiled once for all of them.
enum class ways : std::uint8_t { cheaper_lifo, cheaper_alone, offload_only, paper_fifo };
class any_decider {
 public:
  explicit any_decider(ways w) : ways_(w) {}
  action decide(const context& c, tensor_id t) {
    switch (ways_) {
      case ways::cheaper_lifo:
      case ways::cheaper_alone:
        return cheaper{}.decide(c, t);
      case ways::offload_only:
        return offload_only{}.decide(c, t);
      default:
        return paper_.decide(c, t);
    }
  }
  restoration restore(const context& c, tensor_id t) {
    if (ways_ == ways::paper_fifo) return paper_.restore(c, t);
    cheaper by_default;
    return detail::restoration_of(by_default, c, t);
  }

 private:
  ways ways_;
  paper_director paper_;
};
class any_prefetcher {
 public:
  explicit any_prefetcher(ways w) : ways_(w) {}
  tensor_id next(const context& c) {
    switch (ways_) {
      case ways::cheaper_lifo:
        return lifo_.next(c);
      case ways::paper_fifo:
        return fifo_.next(c);
      default:
        return tensor_id::none;
    }
  }
  double early_release_bytes(const context& c) const {
    switch (ways_) {
      case ways::cheaper_lifo:
        return lifo_.early_release_bytes(c);
      case ways::paper_fifo:
        return fifo_.early_release_bytes(c);
      default:
        return 0;
    }
  }
  void wasted(const context& c, tensor_id t) { fifo_.wasted(c, t), lifo_.wasted(c, t); }
  void end_of_operator(const context& c) { fifo_.end_of_operator(c), lifo_.end_of_operator(c); }

 private:
  ways ways_;
  lifo_prefetch lifo_;
  fifo_prefetch fifo_;
};
template <Heuristic H>
policy<H, any_decider, any_prefetcher> going(H h, ways w) {
  return {std::move(h), any_decider{w}, any_prefetcher{w}};
}
template <Heuristic H>
policy<H, evict_only, no_prefetch> evicting(H h) {
  return {std::move(h), {}, {}};
}

/// `dtr` or `joint`, as told: they ask for costs of different closures, and `checked` tells the
/// graph which ones to keep.
struct dtr_or_joint {
  static constexpr quantity depends_on = dtr::depends_on | joint::depends_on;
  closure kept = closure::neighbourhood;
  double weight(const context& c, tensor_id t) const {
    return kept == closure::neighbourhood ? dtr{}.weight(c, t) : joint{}.weight(c, t);
  }
};

/// The same answers as `H`'s; each is compared with one for which nothing was kept.
template <Heuristic H>
class checked {
 public:
  static constexpr quantity depends_on = H::depends_on;
  explicit checked(tally& t, H h = {}) : h_(h), tally_(&t) {}

  double weight(const context& c, tensor_id t) const
    requires detail::has_weight<H>
  {
    return compared(c, [&] { return h_.weight(c, t); });
  }
  double score(const context& c, tensor_id t) const
    requires detail::has_score<H>
  {
    return compared(c, [&] { return h_.score(c, t); });
  }
  /// Whatever is known is right, also of what nobody asked about now; and some questions more, so
  /// that it varies what is known.
  void end_of_operator(const context& c) const {
    const detail::graph& g = keeping(c);
    if (tally_->roll.one_in(tally_->sparing)) compare_known(c);
    for (std::uint64_t n = tally_->roll.below(4); n-- > 0;)
      (void)cost(c, static_cast<tensor_id>(tally_->roll.below(g.tensor_slots())));
    if (tally_->roll.one_in(tally_->sparing)) compare_known(c);
  }

 private:
  static detail::graph& graph_of(const context& c) {
    return const_cast<detail::graph&>(*behind::graph_of(c));
  }
  // The manager has told the graph to keep the costs of one of the two, by what they depend on.
  detail::graph& keeping(const context& c) const {
    detail::graph& g = graph_of(c);
    if constexpr (requires { h_.kept; })
      if (std::exchange(g.cached_closure, h_.kept) != h_.kept)
        for (std::uint32_t i = 0; i < g.tensor_slots(); ++i)
          g[static_cast<tensor_id>(i)].cost = detail::tensor_record::unknown;
    return g;
  }
  static double cost(const context& c, tensor_id t) {
    return graph_of(c).cached_closure == closure::neighbourhood ? c.neighbourhood_cost(t)
                                                                : c.recompute_cost(t);
  }
  template <class F>
  static double anew(const context& c, const F& ask) {
    detail::graph& g = graph_of(c);
    const closure kept = std::exchange(g.cached_closure, closure::none);
    const double answer = ask();
    g.cached_closure = kept;
    return answer;
  }
  template <class F>
  double compared(const context& c, const F& ask) const {
    keeping(c);
    if (tally_->roll.one_in(16 * tally_->sparing)) compare_known(c);
    const double answer = ask();
    ++tally_->answers;
    tally_->wrong_answers += answer != anew(c, ask);
    return answer;
  }
  void compare_known(const context& c) const {
    const detail::graph& g = graph_of(c);
    const closure kept = g.cached_closure;
    for (std::uint32_t i = 0; i < g.tensor_slots(); ++i) {
      const auto t = static_cast<tensor_id>(i);
      if (!g[t].in_use || g[t].cost < 0 || !c.can_recompute(t)) continue;
      ++tally_->costs;
      const double fresh = anew(c, [&] {
        return kept == closure::neighbourhood ? c.neighbourhood_cost(t) : c.recompute_cost(t);
      });
      const bool exact = g[t].reach == detail::tensor_record::all_of_it;
      tally_->bounds += !exact;
      tally_->wrong_costs += exact ? g[t].cost != fresh : g[t].cost > fresh;
    }
  }

  H h_;
  tally* tally_;
};

/// Plays `program(manager, rng)` under the policy that `make(tally)` gives.
template <class Make, class Program>
void play_checked(tally& sum, const simulated_options& on, std::uint64_t seed,
                  const Program& program, const Make& make) {
  tally found(seed);
  found.sparing = sum.sparing;
  simulated storage{on};
  std::mt19937_64 rng(seed);
  {
    const auto m = make_manager(make(found), over(storage));
    program(*m, rng);
  }
  CHECK(found.wrong_answers == 0);
  CHECK(found.wrong_costs == 0);
  sum.answers += found.answers, sum.costs += found.costs, sum.bounds += found.bounds;
}
auto checked_evicting(closure kept) {
  return [kept](tally& t) { return evicting(checked(t, dtr_or_joint{kept})); };
}
auto checked_going(closure kept, ways w) {
  return [kept, w](tally& t) { return going(checked(t, dtr_or_joint{kept}), w); };
}
/// Under policies whose closures are made of ancestors or of neighbours, with and without a host.
template <class Program>
void play_all_checked(tally& sum, const simulated_options& on, std::uint64_t seed,
                      const Program& program) {
  constexpr closure of_dtr = detail::filter<dtr>::keeps_costs,
                    of_joint = detail::filter<joint>::keeps_costs;
  static_assert(of_dtr == closure::neighbourhood && of_joint == closure::ancestors);
  play_checked(sum, on, seed, program, checked_evicting(of_dtr));
  play_checked(sum, on, seed, program, checked_going(of_dtr, ways::cheaper_lifo));
  play_checked(sum, on, seed, program, checked_going(of_joint, ways::cheaper_alone));
  play_checked(sum, on, seed, program, checked_evicting(of_joint));
  play_checked(sum, on, seed, program,
               [](tally& t) { return going(checked<msps>(t), ways::paper_fifo); });
}
void report(const char* what, const tally& sum) {
  std::printf("%s: %llu answers and %llu costs compared, of these %llu lower bounds\n", what,
              static_cast<unsigned long long>(sum.answers),
              static_cast<unsigned long long>(sum.costs),
              static_cast<unsigned long long>(sum.bounds));
  CHECK(sum.answers > 1000);
  CHECK(sum.costs > 1000);
}

/// A machine for tensors of some bytes, with copies that take about as long as operators.
simulated_options machine(std::uint64_t seed, std::uint64_t budget) {
  return {.capacity = bytes{budget},
          .host_capacity = bytes{budget / 4 * (seed % 3)},
          .rate_out = seed % 2 == 0 ? 1e9 : 1e7,
          .rate_in = seed % 5 < 2 ? 1e9 : 1e7};
}

constexpr auto anything = [](auto& m, std::mt19937_64& rng) {
  for (const tensor_id t : do_anything(m, rng, 200)) {
    (void)had_room([&] { (void)m.acquire(t); });
    m.drop(t);
  }
};
/// Steps as of a training, with updates in place and records that go.
constexpr auto training = [](auto& m, std::mt19937_64& rng) {
  const program p = random_program(rng(), {.operators = 40, .steps = 2, .updates_made = true});
  (void)had_room([&] { run_program(m, p, run_now{}, [] {}); });
};
/// `length` operators, each of which reads what the last made, or that before it; and questions for
/// any of them. Nothing is dropped, so closures are as long as the chain.
template <std::size_t length>
struct chain {
  void operator()(auto& m, std::mt19937_64& rng) const {
    constexpr auto nothing = [](call&) {};
    std::vector<tensor_id> links{m.variable(bytes{1})};
    while (links.size() < length) {
      const std::size_t back = 1 + (rng() % 4 == 0 && links.size() > 1);
      const auto cost = nanoseconds{std::int64_t(1 + rng() % 50)};
      links.push_back(
          m.run({.inputs = {links[links.size() - back]}, .outputs = {1_B}, .cost = cost}, nothing));
      if (rng() % 200 == 0) (void)m.acquire(links[rng() % links.size()]);
    }
  }
};

}  // namespace

TEST_CASE("kept costs are those of a fresh walk: whatever a program may do") {
  tally sum(0);
  for (std::uint64_t seed = 0; seed < seeds(100); ++seed) {
    CAPTURE(seed);
    play_all_checked(sum, machine(seed, 400), seed, anything);
  }
  report("anything", sum);
}

TEST_CASE("kept costs are those of a fresh walk: training") {
  tally sum(0);
  for (std::uint64_t seed = 0; seed < seeds(100); ++seed) {
    CAPTURE(seed);
    const std::uint64_t budget = 300 + seed % 7 * 60;
    play_all_checked(sum, machine(seed, budget), seed, training);
  }
  report("training", sum);
}

TEST_CASE("kept costs are those of a fresh walk: closures longer than a walk") {
  tally sum(0);
  sum.sparing = 100;
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    CAPTURE(seed);
    simulated_options on = machine(seed, 60);
    on.host_capacity = {};
    for (const closure kept : {closure::neighbourhood, closure::ancestors})
      play_checked(sum, on, seed, chain<1400>{}, checked_evicting(kept));
  }
  report("long chains", sum);
}

// --- the same decisions --------------------------------------------------------------------------

namespace {

/// All that was told, to the bit: what is not known equals itself.
struct diary final : any_observer {
  using line = std::array<std::uint64_t, 9>;
  std::vector<line> lines;

  void on(const event& e) override {
    const auto bits = [](double x) { return std::bit_cast<std::uint64_t>(x); };
    lines.push_back({std::uint64_t(e.what), index(e.tensor), e.size.count,
                     std::uint64_t(e.began.count()), std::uint64_t(e.took.count()), bits(e.score),
                     bits(e.cost), bits(e.alternative), e.use.device.count});
  }
};
struct told {
  std::vector<diary::line> lines;
  std::uint64_t evaluations = 0;
};

/// A manager over that storage, which tells the observer.
using managed =
    std::function<std::unique_ptr<manager_interface>(std::unique_ptr<any_storage>, any_observer*)>;
template <class Policy>
managed by(Policy p) {
  return [p](std::unique_ptr<any_storage> s, any_observer* o) {
    return make_manager(p, std::move(s), {.observer = o});
  };
}
managed by(const char* name) {
  return [name](std::unique_ptr<any_storage> s, any_observer* o) {
    return make_manager(name, std::move(s), {.observer = o});
  };
}

/// `base` or `lru`, as told: both are weights on which no closure has a bearing.
struct base_or_lru {
  static constexpr quantity depends_on = base::depends_on;
  bool sizes;
  double weight(const context& c, tensor_id t) const {
    return sizes ? base{}.weight(c, t) : lru{}.weight(c, t);
  }
};

/// A heuristic whose answers are kept, in policies; and the same where every answer is asked for
/// anew.
struct subject {
  const char* name;
  undeclared anew;
  managed evicts;               ///< by evict_only
  std::array<managed, 4> goes;  ///< by each of `ways`

  [[nodiscard]] managed evicts_anew() const { return by(evicting(anew)); }
  [[nodiscard]] managed goes_anew(ways w) const { return by(going(anew, w)); }
};
template <Heuristic H>
subject subject_of(const char* name, const undeclared& anew, H h, managed evicts) {
  subject s{name, anew, std::move(evicts), {}};
  for (std::size_t w = 0; w < s.goes.size(); ++w) s.goes[w] = by(going(h, static_cast<ways>(w)));
  return s;
}
/// What is a policy with a name is taken from delta::engine, which has it compiled.
std::vector<subject> subjects() {
  const base_or_lru sized{true}, equal{false};
  std::vector<subject> all{subject_of("base", base{}, sized, by(evicting(sized))),
                           subject_of("lru", lru{}, equal, by(evicting(equal))),
                           subject_of("greedy", greedy{}, greedy{}, by(evicting(greedy{}))),
                           subject_of("dtr", dtr{}, dtr{}, by("dtr")),
                           subject_of("msps", msps{}, msps{}, by(evicting(msps{}))),
                           subject_of("joint", joint{}, joint{}, by(evicting(joint{})))};
  const auto paper_fifo = std::size_t(ways::paper_fifo);
  all[0].goes[paper_fifo] = by("paper");
  all[1].goes[paper_fifo] = by(policy<lru, paper_director, fifo_prefetch>{});
  all[2].goes[paper_fifo] = by(policy<greedy, paper_director, fifo_prefetch>{});
  return all;
}

template <class Program>
told diary_of(const managed& manage, const simulated_options& on, std::uint64_t seed,
              const Program& program) {
  simulated storage{on};
  std::mt19937_64 rng(seed);
  diary written;
  const auto m = manage(over(storage), &written);
  program(*m, rng);
  return {std::move(written.lines), m->evaluations()};
}

struct sums {
  std::uint64_t decisions = 0, asked = 0, asked_anew = 0;
};
template <class Program>
void check_same(sums& sum, const simulated_options& on, std::uint64_t seed, const Program& program,
                const managed& keeping, const managed& asking) {
  const told kept = diary_of(keeping, on, seed, program);
  const told anew = diary_of(asking, on, seed, program);
  const auto [a, b] = std::ranges::mismatch(kept.lines, anew.lines);
  CAPTURE(a - kept.lines.begin());
  CHECK(kept.lines.size() == anew.lines.size());
  CHECK(a == kept.lines.end());
  sum.decisions += kept.lines.size();
  sum.asked += kept.evaluations, sum.asked_anew += anew.evaluations;
}
template <class Program>
void check_same_under_all(sums& sum, const simulated_options& on, std::uint64_t seed,
                          const Program& program, const subject& s) {
  check_same(sum, on, seed, program, s.evicts, s.evicts_anew());
  for (const ways w : {ways::cheaper_lifo, ways::offload_only, ways::paper_fifo})
    check_same(sum, on, seed, program, s.goes[std::size_t(w)], s.goes_anew(w));
}
void report(const char* what, const sums& sum) {
  std::printf("%s: %llu events; asked %llu times, and %llu where nothing is kept\n", what,
              static_cast<unsigned long long>(sum.decisions),
              static_cast<unsigned long long>(sum.asked),
              static_cast<unsigned long long>(sum.asked_anew));
  CHECK(sum.decisions > 1000);
}

/// Some thousand tensors, of which a part is here: so many candidates that the Filter keeps an
/// index. What was made lately is read, mostly; what is dropped is any.
template <std::size_t live, std::size_t operators>
struct large {
  void operator()(auto& m, std::mt19937_64& rng) const {
    constexpr auto nothing = [](call&) {};
    std::vector<tensor_id> held;
    for (int i = 0; i < 20; ++i) held.push_back(m.variable(bytes{8 * (1 + rng() % 8)}));
    for (std::size_t i = 0; i < operators; ++i) {
      const auto any = [&](std::size_t among) {
        return held[held.size() - 1 - rng() % std::min(held.size(), among)];
      };
      const auto cost = nanoseconds{std::int64_t(rng() % 100)};
      held.push_back(m.run({.inputs = {any(10), any(rng() % 20 == 0 ? live : 40)},
                            .outputs = {bytes{8 * (1 + rng() % 8)}},
                            .cost = cost},
                           nothing));
      if (held.size() < live) continue;
      std::swap(held[rng() % held.size()], held.back());
      m.drop(held.back());
      held.pop_back();
    }
  }
};

}  // namespace

TEST_CASE("keeping answers changes no decision") {
  for (const subject& s : subjects()) {
    CAPTURE(s.name);
    sums wild, trained;
    for (std::uint64_t seed = 0; seed < seeds(100); ++seed) {
      CAPTURE(seed);
      check_same_under_all(wild, machine(seed, 300 + seed % 4 * 100), seed, anything, s);
      check_same_under_all(trained, machine(seed, 300 + seed % 7 * 60), seed, training, s);
    }
    // Seeds at which a decision once depended on who was parked.
    for (const std::uint64_t seed : {110u, 188u})
      check_same_under_all(wild, machine(seed, 300 + seed % 4 * 100), seed, anything, s);
    report("anything", wild);
    report("training", trained);
  }
}

TEST_CASE("keeping answers changes no decision: with an index") {
  for (const subject& s : subjects()) {
    if (s.name == std::string("greedy")) continue;
    CAPTURE(s.name);
    sums sum;
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      CAPTURE(seed);
      // 2,200 tensors of 36 bytes on average; of them about 1,500 are here.
      simulated_options on = machine(seed, 1500 * 36);
      on.host_capacity = bytes{1u << 20};
      check_same(sum, on, seed, large<2200, 4000>{}, s.evicts, s.evicts_anew());
      constexpr ways w = ways::cheaper_alone;
      check_same(sum, on, seed, large<2200, 4000>{}, s.goes[std::size_t(w)], s.goes_anew(w));
    }
    report("many tensors", sum);
    CHECK(sum.asked < sum.asked_anew / 5);
  }
}
