// The concepts: for each the least that passes, and one near miss per atom. And what every shipped
// policy promises, on random programs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "random_program.hpp"

using namespace delta;
using namespace delta::test;

namespace {

// --- heuristics, deciders, prefetchers
// ------------------------------------------------------------

struct scores {
  double score(const context&, tensor_id) const { return 0; }
};
struct weighs {
  float weight(const context&, tensor_id) const { return 1; }
};
struct scores_unconst {
  double score(const context&, tensor_id) { return 0; }
};
struct scores_words {
  const char* score(const context&, tensor_id) const { return ""; }
};
struct scores_operators {
  double score(const context&, operator_id) const { return 0; }
};
struct weighs_nothing {
  void weight(const context&, tensor_id) const {}
};
static_assert(scores_tensor<scores> && !weighs_tensor<scores> && Heuristic<scores>);
static_assert(weighs_tensor<weighs> && !scores_tensor<weighs> && Heuristic<weighs>);
static_assert(!Heuristic<scores_unconst> && !Heuristic<scores_words>);
static_assert(!Heuristic<scores_operators> && !Heuristic<weighs_nothing> && !Heuristic<int>);

struct judges {
  action judge(const context&, tensor_id) { return action::keep; }
};
struct judges_by_number {
  int judge(const context&, tensor_id) { return 0; }
};
struct judges_alone {
  action judge(tensor_id) { return action::keep; }
};
static_assert(Decider<judges> && !chooses_restoration<judges> && !weighs_waiting<judges>);
static_assert(evicts<judges>() && offloads<judges>());
static_assert(!Decider<judges_by_number> && !Decider<judges_alone> && !Decider<scores>);
struct restores : judges {
  restoration restore(const context&, tensor_id) { return restoration::reload; }
  bool rather_wait(const context&, tensor_id, double) { return true; }
};
struct restores_wrongly : judges {
  action restore(const context&, tensor_id) { return action::keep; }
  int rather_wait(const context&, tensor_id, double) { return 1; }
};
static_assert(chooses_restoration<restores> && weighs_waiting<restores>);
static_assert(!chooses_restoration<restores_wrongly> && !weighs_waiting<restores_wrongly>);

struct names_one {
  tensor_id next(const context&) { return tensor_id::none; }
};
struct names_a_number {
  std::uint32_t next(const context&) { return 0; }
};
struct names_of_nothing {
  tensor_id next() { return tensor_id::none; }
};
static_assert(Prefetcher<names_one> && !starts_early<names_one> && !learns_of_waste<names_one>);
static_assert(!Prefetcher<names_a_number> && !Prefetcher<names_of_nothing>);
static_assert(starts_early<fifo_prefetch> && learns_of_waste<fifo_prefetch>);
static_assert(follows_operators<fifo_prefetch> && !follows_steps<fifo_prefetch>);

// --- storages
// -------------------------------------------------------------------------------------

enum class lack : std::uint8_t {
  nothing,
  allocate,
  free_block,
  free_slab,
  copy_out,
  copy_in,
  land,
  begin,
  end,
  reached,
  wait,
  elapsed,
  now,
  rate,
  latency,
  backlog,
  capacity,
  used,
  host_capacity,
  host_used,
  rounded
};
/// The least that is a Storage, less one member.
template <lack Less>
struct least {
  std::optional<block> allocate(bytes, lifetime)
    requires(Less != lack::allocate);
  void free(block&&)
    requires(Less != lack::free_block);
  void free(slab&&)
    requires(Less != lack::free_slab);
  std::optional<transfer> copy_out(block&)
    requires(Less != lack::copy_out);
  transfer copy_in(slab&&, block&&)
    requires(Less != lack::copy_in);
  std::pair<block, slab> land(transfer&&)
    requires(Less != lack::land);
  void begin_operator(std::span<const block* const>, std::span<const block* const>)
    requires(Less != lack::begin);
  stamp end_operator(nanoseconds)
    requires(Less != lack::end);
  bool reached(stamp)
    requires(Less != lack::reached);
  void wait(stamp)
    requires(Less != lack::wait);
  std::optional<nanoseconds> elapsed(stamp)
    requires(Less != lack::elapsed);
  nanoseconds now() const
    requires(Less != lack::now);
  double rate(direction) const
    requires(Less != lack::rate);
  nanoseconds latency(direction) const
    requires(Less != lack::latency);
  nanoseconds backlog(direction) const
    requires(Less != lack::backlog);
  bytes capacity() const
    requires(Less != lack::capacity);
  bytes used() const
    requires(Less != lack::used);
  bytes host_capacity() const
    requires(Less != lack::host_capacity);
  bytes host_used() const
    requires(Less != lack::host_used);
  bytes rounded(bytes) const
    requires(Less != lack::rounded);
};
static_assert(Storage<least<lack::nothing>> && !shows_its_holes<least<lack::nothing>>);
static_assert(!allocates_blocks<least<lack::allocate>> && !Storage<least<lack::allocate>>);
static_assert(!frees_memory<least<lack::free_block>> && !frees_memory<least<lack::free_slab>>);
static_assert(!Storage<least<lack::free_block>> && !Storage<least<lack::free_slab>>);
static_assert(!copies_out<least<lack::copy_out>> && !Storage<least<lack::copy_out>>);
static_assert(!copies_in<least<lack::copy_in>> && !Storage<least<lack::copy_in>>);
static_assert(!lands_transfers<least<lack::land>> && !Storage<least<lack::land>>);
static_assert(!brackets_operators<least<lack::begin>> && !brackets_operators<least<lack::end>>);
static_assert(!Storage<least<lack::begin>> && !Storage<least<lack::end>>);
static_assert(!orders_by_stamps<least<lack::reached>> && !Storage<least<lack::reached>>);
static_assert(!orders_by_stamps<least<lack::wait>> && !Storage<least<lack::wait>>);
static_assert(!orders_by_stamps<least<lack::elapsed>> && !Storage<least<lack::elapsed>>);
static_assert(!tells_time_and_rates<least<lack::now>> && !Storage<least<lack::now>>);
static_assert(!tells_time_and_rates<least<lack::rate>> && !Storage<least<lack::rate>>);
static_assert(!tells_time_and_rates<least<lack::latency>> && !Storage<least<lack::latency>>);
static_assert(!tells_time_and_rates<least<lack::backlog>> && !Storage<least<lack::backlog>>);
static_assert(!accounts_bytes<least<lack::capacity>> && !Storage<least<lack::capacity>>);
static_assert(!accounts_bytes<least<lack::used>> && !Storage<least<lack::used>>);
static_assert(!accounts_bytes<least<lack::host_capacity>> && !Storage<least<lack::host_capacity>>);
static_assert(!accounts_bytes<least<lack::host_used>> && !Storage<least<lack::host_used>>);
static_assert(!accounts_bytes<least<lack::rounded>> && !Storage<least<lack::rounded>>);

// --- contracts: spies between the manager and a shipped policy
// ---------------------------------------

struct findings {
  std::uint64_t asked = 0, wrong = 0;
  void expect(bool right) { ++asked, wrong += !right; }
};

/// Asks everything twice, and checks that the question makes sense.
template <Heuristic H>
struct heuristic_spy {
  findings* found;
  H inner{};
  double score(const context& c, tensor_id t) const {
    const double s = score_of(inner, c, t), again = score_of(inner, c, t);
    found->expect(s == again && !std::isnan(s));
    found->expect(c.where(t) == residency::resident && c.bytes(t) > 0);
    if constexpr (weighs_tensor<H>) found->expect(inner.weight(c, t) >= 0);
    return s;
  }
};
template <Decider D>
struct decider_spy {
  static constexpr bool evicts = delta::evicts<D>();
  static constexpr bool offloads = delta::offloads<D>();
  findings* found;
  D inner{};
  action judge(const context& c, tensor_id t) {
    found->expect(c.where(t) == residency::resident);
    found->expect(c.is_released(t) || c.is_clean(t) || c.can_evict(t) || c.can_offload(t));
    const action a = inner.judge(c, t);
    found->expect(a == inner.judge(c, t));
    found->expect((a != action::evict || evicts) && (a != action::offload || offloads));
    return a;
  }
  restoration restore(const context& c, tensor_id t)
    requires chooses_restoration<D>
  {
    found->expect(c.where(t) == residency::host && c.can_recompute(t));
    return inner.restore(c, t);
  }
};
template <Prefetcher P>
struct prefetcher_spy {
  findings* found;
  P inner{};
  tensor_id next(const context& c) {
    const tensor_id t = inner.next(c);
    const auto list = c.offloaded();
    found->expect(t == tensor_id::none || std::find(list.begin(), list.end(), t) != list.end());
    for (const tensor_id x : list) found->expect(c.where(x) == residency::host);
    return t;
  }
  double ahead(const context& c) const
    requires starts_early<P>
  {
    const double n = inner.ahead(c);
    found->expect(n >= 0 && n <= c.budget());
    return n;
  }
  void wasted(const context& c, tensor_id t)
    requires learns_of_waste<P>
  {
    inner.wasted(c, t);
  }
  void end_of_operator(const context& c)
    requires follows_operators<P>
  {
    inner.end_of_operator(c);
  }
};

template <class H, class D, class P>
void observe(H h, D d, P p) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const program it = random_program(seed);
    simulated storage({.capacity = bytes{largest_footprint(it).count * 5 / 4},
                       .host_capacity = 600_B,
                       .rate_out = 2e9,
                       .rate_in = 2e9});
    manager m{h, d, p, storage};
    try {
      run_program(m, it, run_now{}, [] {});
    } catch (const budget_exceeded&) {
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("heuristics answer alike when asked twice, with numbers", H, heuristics) {
  findings f;
  observe(heuristic_spy<H>{&f}, cheaper{}, lifo_prefetch{});
  CHECK(f.asked > 0);
  CHECK(f.wrong == 0);
}
TEST_CASE_TEMPLATE_INVOKE(heuristics, base, lru, greedy, dtr, msps, joint);

TEST_CASE_TEMPLATE_DEFINE("weights do not depend on the time", H, weights) {
  graph g;
  conditions now;
  const tensor_id v = g.add_tensor(10_B, 10_B), y = g.add_tensor(20_B, 20_B);
  g[v].where = g[y].where = residency::resident;
  const operator_id o = g.add_record();
  g[o].inputs = {v}, g[o].outputs = {y};
  g[o].cost = nanoseconds{7};
  g.connect(o);
  now.recompute_cap = 1;
  const context c{g, now};
  const H h;
  now.now = 1;
  const double early = h.weight(c, y);
  now.now = 1000;
  CHECK(h.weight(c, y) == early);
  CHECK(early > 0);
}
TEST_CASE_TEMPLATE_INVOKE(weights, base, lru, dtr, joint);

TEST_CASE_TEMPLATE_DEFINE("deciders are asked what makes sense, and keep their word", D, deciders) {
  findings f;
  observe(lru{}, decider_spy<D>{&f}, lifo_prefetch{});
  CHECK((f.asked > 0 || (!evicts<D>() && !offloads<D>())));
  CHECK(f.wrong == 0);
}
TEST_CASE_TEMPLATE_INVOKE(deciders, paper_ratio, cheaper, evict_only, offload_only, never_release);

TEST_CASE_TEMPLATE_DEFINE("prefetchers name what is on the host", P, prefetchers) {
  findings f;
  observe(lru{}, offload_only{}, prefetcher_spy<P>{&f});
  CHECK(f.asked > 0);
  CHECK(f.wrong == 0);
}
TEST_CASE_TEMPLATE_INVOKE(prefetchers, no_prefetch, fifo_prefetch, lifo_prefetch);
