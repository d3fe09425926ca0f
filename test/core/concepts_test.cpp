// The concepts: for each the least that passes, and one near miss per atom. And what every shipped
// policy promises, on random programs.
// ctest-labels: slow
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "delta/engine/manager_of.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "lifo_prefetch.hpp"
#include "more_heuristics.hpp"
#include "random_program.hpp"

using namespace delta;
using namespace delta::test;

namespace {

// --- heuristics
// -----------------------------------------------------------------------------------

struct scores {
  double score(const context&, tensor_id) const { return 0; }
};
struct weighs {
  float weight(const context&, tensor_id) const { return 1; }
};
struct scores_anything {
  auto score(const auto& c, auto t) const { return c.bytes(t); }
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
class scores_in_private {
  double score(const context&, tensor_id) const { return 0; }
};
static_assert(detail::has_score<scores> && !detail::has_weight<scores> && Heuristic<scores>);
static_assert(detail::has_weight<weighs> && !detail::has_score<weighs> && Heuristic<weighs>);
static_assert(Heuristic<scores_anything>);
static_assert(!detail::has_score_or_weight<scores_unconst> &&
              !detail::has_score_or_weight<scores_words>);
static_assert(!detail::has_score_or_weight<scores_operators> &&
              !detail::has_score_or_weight<weighs_nothing>);
static_assert(!detail::has_score_or_weight<scores_in_private> && !detail::has_score_or_weight<int>);
static_assert(!Heuristic<scores_unconst> && !Heuristic<weighs_nothing> && !Heuristic<int>);

// What would be passed over in silence if only what is right were looked at.
struct scores_and_weighs : scores, weighs {};
struct scores_and_weighs_wrongly : scores, weighs_nothing {};
struct weighs_and_scores_wrongly : weighs, scores_words {};
static_assert(!detail::has_one_form<scores_and_weighs> && !Heuristic<scores_and_weighs>);
static_assert(!detail::weight_row::right<scores_and_weighs_wrongly>);
static_assert(!detail::score_row::right<weighs_and_scores_wrongly>);
static_assert(!Heuristic<scores_and_weighs_wrongly> && !Heuristic<weighs_and_scores_wrongly>);

struct depends_on_bytes : scores {
  static constexpr quantity depends_on = quantity::bytes | quantity::swap_cost;
};
struct depends_on_a_number : scores {
  static constexpr int depends_on = 1;
};
struct depends_on_the_object : scores {
  quantity depends_on = quantity::bytes;
};
static_assert(detail::value_of_depends_on<scores>() == quantity::everything);

// Data and several members together; what nobody derives from; what derives from a wrong one.
struct later_by_number : scores {
  static constexpr int later_if_dearer = 1;
};
struct names final : scores {
  tensor_id victim(const context&, const auto&) const { return tensor_id::none; }
};
struct names_by_number final : scores {
  int victim(const auto&, const auto&) const { return 0; }
};
struct names_by_number_polymorphically : scores {
  virtual ~names_by_number_polymorphically() = default;
  int victim(const context&, bool (&)(tensor_id)) const { return 0; }
};
struct inherits_later : later_by_number {};
static_assert(!detail::later_if_dearer_row::right<later_by_number> &&
              !detail::later_if_dearer_row::right<inherits_later>);
static_assert(!detail::value_of_later_if_dearer<later_by_number>() && !Heuristic<later_by_number>);
static_assert(Heuristic<names> && detail::has_victim<names>);
static_assert(!Heuristic<names_by_number> && !Heuristic<names_by_number_polymorphically>);
static_assert(Heuristic<depends_on_bytes>);
static_assert(covers(detail::value_of_depends_on<depends_on_bytes>(), quantity::swap_cost));
static_assert(!covers(detail::value_of_depends_on<depends_on_bytes>(), quantity::recompute_cost));
static_assert(covers(quantity::everything, quantity::neighbourhood_cost));
static_assert(!detail::depends_on_row::right<depends_on_a_number>);
static_assert(!detail::depends_on_row::right<depends_on_the_object>);
static_assert(!Heuristic<depends_on_a_number> && !Heuristic<depends_on_the_object>);

// --- deciders
// -------------------------------------------------------------------------------------

struct judges {
  action decide(const context&, tensor_id) { return action::keep; }
};
struct judges_by_number {
  int decide(const context&, tensor_id) { return 0; }
};
struct judges_alone {
  action decide(tensor_id) { return action::keep; }
};
static_assert(Decider<judges> && !detail::has_restore<judges>);
static_assert(detail::value_of_evicts<judges>() && detail::value_of_offloads<judges>());
static_assert(!detail::has_decide<judges_by_number> && !Decider<judges_by_number>);
static_assert(!detail::has_decide<judges_alone> && !Decider<judges_alone> && !Decider<scores>);

struct restores : judges {
  restoration restore(const context&, tensor_id) { return restoration::reload; }
  static constexpr bool evicts = false;
  static constexpr bool offloads = false;
};
struct restores_wrongly : judges {
  action restore(const context&, tensor_id) { return action::keep; }
};
struct restores_any_context_wrongly : judges {
  int restore(const auto&, tensor_id) { return 0; }
};
struct restores_two_ways_wrongly : judges {
  bool restore(const context&, tensor_id) { return true; }
  bool restore(const context&) { return true; }
};
struct keeps_by_number : judges {
  int may_keep() const { return 0; }
};
struct keeps_nothing : judges {
  static constexpr bool may_keep() { return false; }
};
struct evicts_by_number : judges {
  static constexpr int evicts = 0;
};
struct evicts_by_question : judges {
  bool evicts() const { return false; }
};
struct offloads_in_the_object : judges {
  bool offloads = false;
};
static_assert(detail::has_restore<restores> && Decider<restores>);
static_assert(!detail::value_of_evicts<restores>() && !detail::value_of_offloads<restores>());
static_assert(!detail::restore_row::right<restores_wrongly> && !Decider<restores_wrongly>);
static_assert(!detail::restore_row::right<restores_any_context_wrongly>);
static_assert(!detail::restore_row::right<restores_two_ways_wrongly>);
static_assert(!detail::may_keep_row::right<keeps_by_number> && !Decider<keeps_by_number>);
static_assert(detail::may_answer_keep(judges()) && !detail::may_answer_keep(keeps_nothing()) &&
              Decider<keeps_nothing>);
static_assert(!detail::evicts_row::right<evicts_by_number> && !Decider<evicts_by_number>);
static_assert(!detail::evicts_row::right<evicts_by_question> && !Decider<evicts_by_question>);
static_assert(!detail::offloads_row::right<offloads_in_the_object> &&
              !Decider<offloads_in_the_object>);

// --- prefetchers
// ----------------------------------------------------------------------------------

struct names_one {
  tensor_id next(const context&) { return tensor_id::none; }
};
struct names_a_number {
  std::uint32_t next(const context&) { return 0; }
};
struct names_of_nothing {
  tensor_id next() { return tensor_id::none; }
};
struct starts_in_words : names_one {
  const char* early_release_bytes(const context&) { return ""; }
};
struct wastes_silently : names_one {
  void wasted() {}
};
static_assert(Prefetcher<names_one> && !detail::has_early_release_bytes<names_one> &&
              !detail::has_wasted<names_one>);
static_assert(!detail::has_next<names_a_number> && !Prefetcher<names_a_number>);
static_assert(!detail::has_next<names_of_nothing> && !Prefetcher<names_of_nothing>);
static_assert(detail::has_early_release_bytes<fifo_prefetch> && detail::has_wasted<fifo_prefetch>);
static_assert(detail::has_end_of_operator<fifo_prefetch> &&
              !detail::has_end_of_step<fifo_prefetch>);
static_assert(!detail::early_release_bytes_row::right<starts_in_words> &&
              !Prefetcher<starts_in_words>);
static_assert(!detail::wasted_row::right<wastes_silently> && !Prefetcher<wastes_silently>);

// --- what all three may have
// ----------------------------------------------------------------------

struct ends_right {
  void end_of_operator(const context&) {}
  void end_of_step(const context&) {}
};
struct ends_operators_wrongly {
  void end_of_operator(tensor_id) {}
};
struct ends_steps_wrongly {
  void end_of_step() {}
};
template <class Role, class Ends>
struct with : Role, Ends {};
static_assert(Heuristic<with<scores, ends_right>> &&
              detail::has_end_of_step<with<scores, ends_right>>);
static_assert(Decider<with<judges, ends_right>> && Prefetcher<with<names_one, ends_right>>);
static_assert(!detail::end_of_operator_row::right<ends_operators_wrongly>);
static_assert(!detail::end_of_step_row::right<ends_steps_wrongly>);
static_assert(!Heuristic<with<scores, ends_operators_wrongly>>);
static_assert(!Heuristic<with<scores, ends_steps_wrongly>>);
static_assert(!Decider<with<judges, ends_operators_wrongly>>);
static_assert(!Decider<with<judges, ends_steps_wrongly>>);
static_assert(!Prefetcher<with<names_one, ends_operators_wrongly>>);
static_assert(!Prefetcher<with<names_one, ends_steps_wrongly>>);

// --- what can't be seen: a detected member that is private or constrained away, or overloads that
// all take something else. It counts as absent.

class restores_in_private : public judges {
  int restore(const context&, tensor_id) { return 0; }
};
template <bool Has>
struct restores_maybe : judges {
  restoration restore(const context&, tensor_id)
    requires Has
  {
    return restoration::reload;
  }
};
struct restores_other_things : judges {
  int restore(const char*) { return 0; }
  int restore(const char*, int) { return 0; }
};
static_assert(Decider<restores_in_private> && !detail::has_restore<restores_in_private>);
static_assert(detail::has_restore<restores_maybe<true>>);
static_assert(Decider<restores_maybe<false>> && !detail::has_restore<restores_maybe<false>>);
static_assert(Decider<restores_other_things>);

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
using whole = least<lack::nothing>;
static_assert(Storage<whole> && !detail::has_holes<whole> && !detail::has_data<whole>);
static_assert(!detail::has_hold<whole> && !detail::has_native_stream<whole> &&
              !Storage<const whole>);
static_assert(!detail::has_allocate<least<lack::allocate>> && !Storage<least<lack::allocate>>);
static_assert(!detail::has_free_block<least<lack::free_block>> &&
              !Storage<least<lack::free_block>>);
static_assert(!detail::has_free_slab<least<lack::free_slab>> && !Storage<least<lack::free_slab>>);
static_assert(!detail::has_copy_out<least<lack::copy_out>> && !Storage<least<lack::copy_out>>);
static_assert(!detail::has_copy_in<least<lack::copy_in>> && !Storage<least<lack::copy_in>>);
static_assert(!detail::has_land<least<lack::land>> && !Storage<least<lack::land>>);
static_assert(!detail::has_begin_operator<least<lack::begin>> && !Storage<least<lack::begin>>);
static_assert(!detail::has_end_operator<least<lack::end>> && !Storage<least<lack::end>>);
static_assert(!detail::has_reached<least<lack::reached>> && !Storage<least<lack::reached>>);
static_assert(!detail::has_wait<least<lack::wait>> && !Storage<least<lack::wait>>);
static_assert(!detail::has_elapsed<least<lack::elapsed>> && !Storage<least<lack::elapsed>>);
static_assert(!detail::has_now<least<lack::now>> && !Storage<least<lack::now>>);
static_assert(!detail::has_rate<least<lack::rate>> && !Storage<least<lack::rate>>);
static_assert(!detail::has_latency<least<lack::latency>> && !Storage<least<lack::latency>>);
static_assert(!detail::has_backlog<least<lack::backlog>> && !Storage<least<lack::backlog>>);
static_assert(!detail::has_capacity<least<lack::capacity>> && !Storage<least<lack::capacity>>);
static_assert(!detail::has_used<least<lack::used>> && !Storage<least<lack::used>>);
static_assert(!detail::has_host_capacity<least<lack::host_capacity>> &&
              !Storage<least<lack::host_capacity>>);
static_assert(!detail::has_host_used<least<lack::host_used>> && !Storage<least<lack::host_used>>);
static_assert(!detail::has_rounded<least<lack::rounded>> && !Storage<least<lack::rounded>>);

struct has_all : whole {
  std::byte* data(const block&);
  void hold(const block&);
  void unhold(const block&);
  void* native_stream();
  bytes largest_hole() const;
  std::optional<bytes> bytes_to_move(bytes);
  double move_rate() const;
  void walk_blocks(auto&&);
  double burden(direction) const;
  std::optional<nanoseconds> alone(stamp);
};
static_assert(detail::has_burdens<has_all> && !detail::has_burdens<whole>);
static_assert(Storage<has_all> && detail::has_holes<has_all> && detail::has_data<has_all>);
static_assert(detail::has_hold<has_all> && detail::has_native_stream<has_all>);
struct reads_only : whole {
  const std::byte* data(const block&);
};
struct holds_for_ever : whole {
  void hold(const block&);
};
struct unholds_rows : whole {
  void hold(const block&);
  void unhold(std::uint32_t row, bool);
};
struct numbers_its_stream : whole {
  int native_stream();
};
struct shows_one_hole : whole {
  bytes largest_hole();
};
struct moves_by_numbers : has_all {
  std::uint64_t bytes_to_move(std::uint64_t);
};
struct tells_one_burden : whole {
  double burden(direction) const;
};
struct tells_a_count_alone : has_all {
  std::int64_t alone(stamp);
};
static_assert(!detail::burdens_row::right<tells_one_burden> && !Storage<tells_one_burden>);
static_assert(!detail::alone_row::right<tells_a_count_alone> && !Storage<tells_a_count_alone>);
static_assert(!detail::data_row::right<reads_only> && !Storage<reads_only>);
static_assert(!detail::holds_row::right<holds_for_ever> && !Storage<holds_for_ever>);
static_assert(!detail::unhold_row::right<unholds_rows> && !Storage<unholds_rows>);
static_assert(!detail::native_stream_row::right<numbers_its_stream> &&
              !Storage<numbers_its_stream>);
static_assert(!detail::holes_row::right<shows_one_hole> && !Storage<shows_one_hole>);
static_assert(!detail::bytes_to_move_row::right<moves_by_numbers> && !Storage<moves_by_numbers>);

// --- explain_...: of a model nothing but true (the sentences: test/compile_fail)
// --------------------

static_assert(explain_heuristic<scores>() && explain_heuristic<weighs>());
static_assert(explain_heuristic<scores_anything>() && explain_heuristic<depends_on_bytes>());
static_assert(explain_heuristic<base>() && explain_heuristic<lru>() && explain_heuristic<greedy>());
static_assert(explain_heuristic<dtr>() && explain_heuristic<msps>() && explain_heuristic<joint>());
static_assert(explain_decider<judges>() && explain_decider<restores>());
static_assert(explain_decider<paper_director>() && explain_decider<cheaper>());
static_assert(explain_decider<evict_only>() && explain_decider<offload_only>());
static_assert(explain_decider<never_release>());
static_assert(explain_prefetcher<names_one>() && explain_prefetcher<no_prefetch>());
static_assert(explain_prefetcher<fifo_prefetch>() && explain_prefetcher<lifo_prefetch>());
static_assert(explain_storage<simulated>());

// --- contracts: spies between the manager and a shipped policy
// -------------------------------------

struct findings {
  std::uint64_t asked = 0, wrong = 0;
  void expect(bool right) { ++asked, wrong += !right; }
};

// All three roles of a policy are spied upon at once, and chosen at run time, so that managers,
// which are dear to compile, are compiled once for all of it; but what a decider promises is part
// of its type.

/// Asks everything twice, and checks that the question makes sense.
class heuristic_spy {
 public:
  template <Heuristic H>
  heuristic_spy(findings& found, H inner)
      : found_(&found), score_([&found, inner](const context& c, tensor_id t) {
          found.expect(weight_is_right(inner, c, t));
          return detail::score_of(inner, c, t);
        }) {}
  double score(const context& c, tensor_id t) const {
    const double s = score_(c, t), again = score_(c, t);
    found_->expect(s == again && !std::isnan(s));
    found_->expect(c.where(t) == residency::resident && c.bytes(t) > 0);
    return s;
  }

 private:
  template <Heuristic H>
  static bool weight_is_right(const H& h, const context& c, tensor_id t) {
    if constexpr (detail::has_weight<H>)
      return h.weight(c, t) >= 0;
    else
      return true;
  }
  findings* found_;
  std::function<double(const context&, tensor_id)> score_;
};
template <bool Evicts, bool Offloads>
class decider_spy {
 public:
  static constexpr bool evicts = Evicts;
  static constexpr bool offloads = Offloads;
  template <Decider D>
  decider_spy(findings& found, D inner)
      : found_(&found),
        decide_([inner](const context& c, tensor_id t) mutable { return inner.decide(c, t); }),
        restore_([inner](const context& c, tensor_id t) mutable {
          return detail::restoration_of(inner, c, t);
        }) {}
  action decide(const context& c, tensor_id t) {
    found_->expect(c.where(t) == residency::resident);
    found_->expect(c.is_released(t) || c.is_clean(t) || c.can_evict(t) || c.can_offload(t));
    const action a = decide_(c, t);
    found_->expect(a == decide_(c, t));
    found_->expect((a != action::evict || evicts) && (a != action::offload || offloads));
    return a;
  }
  restoration restore(const context& c, tensor_id t) {
    found_->expect(c.where(t) == residency::host && c.can_recompute(t));
    return restore_(c, t);
  }

 private:
  findings* found_;
  std::function<action(const context&, tensor_id)> decide_;
  std::function<restoration(const context&, tensor_id)> restore_;
};
/// What a prefetcher has that is detected is called, or stands for its default.
class prefetcher_spy {
 public:
  template <Prefetcher P>
  prefetcher_spy(findings& found, P inner)
      : found_(&found), of_(std::make_shared<held<P>>(inner)) {}
  tensor_id next(const context& c) {
    const tensor_id t = of_->next(c);
    const auto list = c.offloaded();
    found_->expect(t == tensor_id::none || std::find(list.begin(), list.end(), t) != list.end());
    for (const tensor_id x : list) found_->expect(c.where(x) == residency::host);
    return t;
  }
  double early_release_bytes(const context& c) const {
    const double n = of_->early_release_bytes(c);
    found_->expect(n >= 0 && n <= c.budget());
    return n;
  }
  void wasted(const context& c, tensor_id t) { of_->wasted(c, t); }
  void end_of_operator(const context& c) { of_->end_of_operator(c); }

 private:
  struct face {
    virtual ~face() = default;
    virtual tensor_id next(const context&) = 0;
    virtual double early_release_bytes(const context&) = 0;
    virtual void wasted(const context&, tensor_id) = 0;
    virtual void end_of_operator(const context&) = 0;
  };
  template <class P>
  struct held final : face {
    explicit held(P p) : inner(p) {}
    tensor_id next(const context& c) override { return inner.next(c); }
    double early_release_bytes(const context& c) override {
      if constexpr (detail::has_early_release_bytes<P>)
        return inner.early_release_bytes(c);
      else
        return 0;
    }
    void wasted(const context& c, tensor_id t) override {
      if constexpr (detail::has_wasted<P>) inner.wasted(c, t);
    }
    void end_of_operator(const context& c) override {
      if constexpr (detail::has_end_of_operator<P>) inner.end_of_operator(c);
    }
    P inner;
  };
  findings* found_;
  std::shared_ptr<face> of_;
};

/// What was found of the three roles of a policy.
struct all_findings {
  findings heuristic, decider, prefetcher;
};
/// Plays random programs, each under a policy of its own: prefetchers have a state.
template <Heuristic H, Decider D, Prefetcher P>
all_findings observe(H h, D d, P p) {
  all_findings found;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const program it = random_program(seed);
    simulated storage({.capacity = bytes{largest_footprint(it).count * 5 / 4},
                       .host_capacity = 600_B,
                       .rate_out = 2e9,
                       .rate_in = 2e9});
    policy<heuristic_spy, decider_spy<detail::value_of_evicts<D>(), detail::value_of_offloads<D>()>,
           prefetcher_spy>
        spied{{found.heuristic, h}, {found.decider, d}, {found.prefetcher, p}};
    const auto m = make_manager(std::move(spied), over(storage));
    try {
      run_program(*m, it, run_now{}, [] {});
    } catch (const budget_exceeded&) {
    }
  }
  // Whichever the test is about.
  CHECK(found.heuristic.wrong == 0);
  CHECK(found.decider.wrong == 0);
  CHECK(found.prefetcher.wrong == 0);
  return found;
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("heuristics answer alike when asked twice, with numbers", H, heuristics) {
  CHECK(observe(H{}, cheaper{}, lifo_prefetch{}).heuristic.asked > 0);
}
TEST_CASE_TEMPLATE_INVOKE(heuristics, base, lru, greedy, dtr, msps, joint, cheapest_way_root);

TEST_CASE_TEMPLATE_DEFINE("weights do not depend on the time", H, weights) {
  detail::graph g;
  detail::machine_state now;
  const tensor_id v = g.add_tensor(10_B, 10_B), y = g.add_tensor(20_B, 20_B);
  g[v].where = g[y].where = residency::resident;
  const std::array in{v}, out{y};
  g[g.add_record(in, out)].cost = nanoseconds{7};
  now.recompute_cap = 1;
  const context c{g, now};
  const H h;
  now.now = 1, now.clock = nanoseconds{1};
  const double early = h.weight(c, y);
  now.now = 1000, now.clock = nanoseconds{1000};
  CHECK(h.weight(c, y) == early);
  CHECK(early > 0);
}
TEST_CASE_TEMPLATE_INVOKE(weights, base, lru, dtr, joint, cheapest_way_root);

TEST_CASE_TEMPLATE_DEFINE("deciders are asked what makes sense, and keep their word", D, deciders) {
  const findings f = observe(lru{}, D{}, lifo_prefetch{}).decider;
  CHECK((f.asked > 0 || (!detail::value_of_evicts<D>() && !detail::value_of_offloads<D>())));
}
TEST_CASE_TEMPLATE_INVOKE(deciders, paper_director, cheaper, evict_only, offload_only,
                          never_release);

TEST_CASE_TEMPLATE_DEFINE("prefetchers name what is on the host", P, prefetchers) {
  CHECK(observe(lru{}, offload_only{}, P{}).prefetcher.asked > 0);
}
TEST_CASE_TEMPLATE_INVOKE(prefetchers, no_prefetch, fifo_prefetch, lifo_prefetch);
