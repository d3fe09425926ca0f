// The Filter over a manager's candidates, with answers that are kept, against the Filter that asks
// each of them (Algorithm 2 to the letter): the same victim at every search, whatever happened in
// between. And how often it asks.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <utility>
#include <vector>

#include "delta/detail/tensors/candidates.hpp"
#include "delta/detail/tensors/closure_costs.hpp"
#include "delta/detail/victims/victim_search.hpp"
#include "delta/heuristic.hpp"
#include "dice.hpp"
#include "more_heuristics.hpp"
#include "seeds.hpp"

using namespace delta;
using namespace delta::test;

namespace {

// Answers out of a table: anything at all, and `reweigh` where they change.
struct weights_of_table {
  static constexpr quantity depends_on = quantity::bytes;
  const std::vector<double>* table;
  double weight(const context&, tensor_id t) const noexcept { return (*table)[index(t)]; }
};
struct scores_of_table {
  static constexpr quantity depends_on = quantity::bytes;
  const std::vector<double>* table;
  double score(const context&, tensor_id t) const noexcept { return (*table)[index(t)]; }
};

/// Tensors, records and candidates to which everything happens that a residency table does, by its
/// rules (tensors/residency_table.hpp); and who may leave, by chance.
struct world {
  explicit world(std::uint64_t seed) : roll(seed) {
    now.clock = nanoseconds{1};
    now.rate = {1e9, 2e9};
    now.budget = bytes{1u << 30};
    now.host_free = bytes{1u << 30};
  }
  world(const world&) = delete;
  world& operator=(const world&) = delete;

  [[nodiscard]] context seen() const { return {g, now, {.offloaded = on_host}}; }

  dice roll;
  detail::graph g;
  detail::machine_state now;
  detail::candidate_list list;
  detail::closure_watch watch;
  std::vector<double> table;  ///< of answers
  std::vector<detail::permission> may;
  std::vector<tensor_id> on_host;

  [[nodiscard]] std::size_t size() const { return g.tensor_slots(); }
  tensor_id any() { return static_cast<tensor_id>(roll.below(size())); }

  /// An operator begins: time passes.
  void advance(std::int64_t took) {
    ++now.now;
    now.clock += nanoseconds{took};
  }
  /// A source, or made from tensors that were made not long ago.
  tensor_id add(bool made) {
    constexpr std::uint64_t neighbours = 20;
    const bytes footprint{64 * (1 + roll.below(64))};
    std::vector<tensor_id> inputs;
    // Of those that are here, as an operator's inputs are.
    if (made && size() > 0)
      for (std::uint64_t n = 1 + roll.below(2); n-- > 0;) {
        const auto t = static_cast<tensor_id>(
            size() - 1 - roll.below(std::min<std::uint64_t>(size(), neighbours)));
        if (g[t].where == residency::resident) inputs.push_back(t);
      }
    list.cover(size() + 1);
    const tensor_id t = g.add_tensor(footprint, footprint);
    table.push_back(answer());
    may.push_back(detail::permission::yes);
    if (!inputs.empty()) {
      const operator_id o = g.add_record(inputs, std::span(&t, 1));
      g[o].cost = nanoseconds{std::int64_t(roll.below(6)) * 100};
      watch.operator_changed(g, o);
    }
    g.set_last_use(t, now.clock);
    move(t, residency::resident);
    return t;
  }
  void use(tensor_id t) {
    if (g[t].where != residency::resident) return;
    if (roll.one_in(4)) {
      list.delist(g, t);
      g.set_last_use(t, now.clock);
      enlist(t);
    } else if (roll.one_in(10)) {  // restored for an operator, after that began
      g.set_last_use(t, std::max(nanoseconds{1}, now.clock - nanoseconds{500}));
    } else {  // as a manager does, mostly: nobody is told
      g.set_last_use(t, now.clock);
    }
  }
  /// It leaves by the way that is open, or it comes back.
  void leave_or_return(tensor_id t) {
    detail::tensor_record& r = g[t];
    const residency from = r.where;
    if (from == residency::resident) {
      const bool made = r.producer != operator_id::none;
      if (!made || (r.references > 0 && roll.one_in(4))) {
        r.host = slab{index(t)};
        on_host.push_back(t);
        move(t, residency::host);
      } else {
        r.host = slab{};
        move(t, r.references > 0 ? residency::evicted : residency::dead);
      }
      return;
    }
    if (from == residency::dead) r.references = 1, g.reweigh(t);
    if (from == residency::host) std::erase(on_host, t);
    if (from == residency::host && roll.one_in(2)) r.host = slab{};  // else it is clean
    if (from != residency::host || roll.one_in(2)) g.set_last_use(t, now.clock);
    move(t, residency::resident);
  }
  /// Something happens to a tensor that changes what it costs, or whether anybody wants it.
  void change(tensor_id t) {
    detail::tensor_record& r = g[t];
    const bool made = r.producer != operator_id::none, here = r.where == residency::resident;
    switch (roll.below(7)) {
      case 0:
        if (!made) break;
        g[r.producer].cost = nanoseconds{std::int64_t(roll.below(6)) * 100};
        watch.operator_changed(g, r.producer);
        break;
      case 1:  // it was copied while it was in use, or the copy is given up
        if (!here) break;
        if (r.host) {
          r.host = slab{};
          g.reweigh(t);
        } else {
          list.delist(g, t);
          r.host = slab{index(t)};
          enlist(t);
        }
        break;
      case 2:
        if (made && here && roll.one_in(4)) r.references = 0, g.reweigh(t);
        break;
      case 3:
        if (here) r.restore_references = r.restore_references == 0 ? 1 : 0, g.reweigh(t);
        break;
      case 4:
        r.pinned = static_cast<pin>(roll.below(roll.one_in(10) ? 4 : 3));
        list.delist(g, t);
        enlist(t);
        break;
      default:
        table[index(t)] = answer();
        g.reweigh(t);
    }
  }
  void change_prices() {
    const std::size_t d = roll.below(2);
    switch (roll.below(4)) {
      case 0:
        now.backlog[d] = double(roll.below(4)) * 1000;
        break;
      case 1:
        now.rate[d] = 1e9 * double(1 + roll.below(3));
        break;
      case 2:
        now.latency[d] = double(roll.below(3)) * 10;
        break;
      default:
        now.host_free = bytes{roll.below(1u << 13)};
    }
  }
  /// Whoever may not leave now may do so at any time; whoever may not as it is stays so.
  void change_permission(tensor_id t) {
    if (may[index(t)] != detail::permission::not_as_is) may[index(t)] = any_permission();
  }

  /// The fast search and the plain one, which counts its questions. `fast` only sees what a
  /// manager's Filter sees.
  template <class H>
  void search(const H& h, detail::filter<H>& fast, std::uint64_t& asked_plainly, tensor_id& found,
              tensor_id& expected) {
    const context view = seen();
    found = fast.select(h, view, g, now, list, [&](tensor_id t) { return may[index(t)]; });
    const auto kept = std::exchange(g.cached_closure, detail::closure::none);
    detail::lowest_score lowest;
    for (const detail::id_set* s : {&list.all(), &list.parked()})
      for (const tensor_id t : *s)
        if (may[index(t)] == detail::permission::yes)
          lowest.offer(t, detail::score_of(h, view, t)), ++asked_plainly;
    expected = lowest.tensor();
    g.cached_closure = kept;
  }

 private:
  double answer() {
    constexpr std::array few{1.0, 2.0, 3.0, 1.0 / 3, 9.0, 4096.0, 1e-3};
    constexpr std::array hard{0.0,    never, -1.0, std::numeric_limits<double>::quiet_NaN(),
                              1e-310, 1e308};
    return roll.one_in(200) ? roll.any(hard) : roll.any(few) * double(1 + roll.below(300));
  }
  detail::permission any_permission() {
    return roll.one_in(40)   ? detail::permission::not_as_is
           : roll.one_in(20) ? detail::permission::not_now
                             : detail::permission::yes;
  }
  void enlist(tensor_id t) {
    may[index(t)] = any_permission();
    list.enlist(g, t);
  }
  void move(tensor_id t, residency to) {
    const bool left = detail::on_device(g[t].where);
    g[t].where = to;
    watch.tensor_changed(g, t, left);
    list.delist(g, t);
    if (to == residency::resident) enlist(t);
  }
};

template <class H>
H heuristic_of(const world& w) {
  if constexpr (requires { H{&w.table}; })
    return H{&w.table};
  else
    return H{};
}

struct searches {
  std::uint64_t all = 0, asked = 0, asked_plainly = 0;
};

/// A search per operator or two among `n`, while everything happens. `dear`: prices change often,
/// and every answer with them.
template <class H>
void play(std::uint64_t seed, std::size_t n, int operators, bool dear, searches& sum) {
  world w(seed);
  w.g.cached_closure = detail::filter<H>::keeps_costs;
  for (std::size_t i = 0; i < n; ++i) w.add(!w.roll.one_in(10)), w.now.clock += nanoseconds{1};
  const H h = heuristic_of<H>(w);
  detail::filter<H> fast;
  const std::int64_t pace = std::int64_t(w.roll.below(3)) * 50;
  for (int op = 0; op < operators; ++op) {
    w.advance(w.roll.one_in(100) ? 1'000'000 : pace);
    for (std::uint64_t k = w.roll.below(6); k-- > 0;) w.use(w.any());
    for (std::uint64_t k = w.roll.below(3); k-- > 0;) w.change(w.any());
    for (std::uint64_t k = w.roll.below(3); k-- > 0;) w.change_permission(w.any());
    if (w.roll.one_in(3)) w.add(true);
    if (const tensor_id t = w.any(); w.g[t].where != residency::resident || w.roll.one_in(20))
      w.leave_or_return(t);
    if (w.roll.one_in(dear ? 10 : 500)) w.change_prices();
    for (std::uint64_t k = 1 + w.roll.below(2); k-- > 0;) {
      tensor_id found{}, expected{};
      w.search(h, fast, sum.asked_plainly, found, expected);
      CAPTURE(op);
      REQUIRE(found == expected);
      ++sum.all;
      if (found == tensor_id::none) continue;
      w.roll.one_in(3) ? w.use(found) : w.roll.one_in(10) ? void() : w.leave_or_return(found);
    }
  }
  sum.asked += fast.evaluations();
}

}  // namespace

TEST_CASE_TEMPLATE("the victim is the plain scan's, where answers are kept", H, base, lru, greedy,
                   dtr, msps, joint, weights_of_table, scores_of_table) {
  searches large, small;
  for (std::uint64_t seed = 0; seed < seeds(40); ++seed) {
    CAPTURE(seed);
    if (seed % 8 == 0) play<H>(seed, 1200 + seed * 40, 800, seed % 16 == 8, large);
    play<H>(seed, 30 + seed * 10, 150, seed % 2 == 1, small);
  }
  std::printf("%llu searches among many, asked %llu times and %llu\n",
              static_cast<unsigned long long>(large.all),
              static_cast<unsigned long long>(large.asked),
              static_cast<unsigned long long>(large.asked_plainly));
  CHECK(large.asked < large.asked_plainly / 4);
}

namespace {

/// Of `n` tensors that nothing happens to but that they are used, leave and come back: how often
/// the Filter asked in so many searches.
template <class H>
std::uint64_t asked_of(std::size_t n, int searches) {
  world w(n);
  w.g.cached_closure = detail::filter<H>::keeps_costs;
  for (std::size_t i = 0; i < n; ++i) w.add(false), w.advance(1);
  const H h = heuristic_of<H>(w);
  detail::filter<H> f;
  for (int i = 0; i < searches; ++i) {
    w.advance(1);
    const tensor_id t = f.select(h, w.seen(), w.g, w.now, w.list,
                                 [](tensor_id) { return detail::permission::yes; });
    REQUIRE(t != tensor_id::none);
    w.use(t), w.use(w.any());
  }
  return f.evaluations();
}

}  // namespace

TEST_CASE("asked once about every tensor, however many searches there are") {
  for (const std::size_t n : {500u, 1500u, 6000u})
    for (const int searches : {100, 3000}) {
      CHECK(asked_of<base>(n, searches) == n);
      CHECK(asked_of<lru>(n, searches) == n);
      CHECK(asked_of<greedy>(n, searches) == n);
    }
}

TEST_CASE("candidates: what was parked is asked about again once all of it may have a way out") {
  detail::graph g;
  detail::candidate_list list;
  list.cover(8);
  std::vector<tensor_id> all;
  for (int i = 0; i < 3; ++i) {
    all.push_back(g.add_tensor(64_B, 64_B));
    g[all.back()].where = residency::resident;
    list.enlist(g, all.back());
  }
  list.park(all[0]);
  list.park(all[2]);
  CHECK(list.all().size() == 1);
  list.enlist(g, all[0]);  // it is in a set, so nothing happens
  CHECK(list.all().size() == 1);
}
