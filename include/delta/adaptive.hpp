// delta: who decides when. The default: `online` until a step was seen, `learned` from then on, and
// back to what was better if that was slower. Or the best of several, by trying them on the step
// that was seen.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/heuristic.hpp"
#include "delta/learned.hpp"
#include "delta/prefetcher.hpp"
#include "delta/rehearsal.hpp"
#include "delta/switching.hpp"

namespace delta {

/// A step's time over its operators' time, each counted once: as the selector predicted it when it
/// chose who decides, and as it came out.
struct step_outcome {
  double predicted = 0;       ///< 0: nothing was
  double measured = 0;        ///< 0: not known
  std::uint32_t variant = 0;  ///< who decided
};

/// Overheads (time / time of the operators) as measured, by kind of step and policy. For selectors.
class step_results {
 public:
  /// The last step, which `variant` decided. False: none has ended since the last call. O(kinds).
  bool note(const history& past, std::uint32_t variant) {
    if (past.steps() == steps_) return false;
    steps_ = past.steps();
    kind_ = find(past.last());
    if (past.last().time > 0)
      kinds_[kind_].measured[variant % most] = past.last_took() / past.last().time;
    return true;
  }
  /// Of steps like the last one; 0: not measured.
  [[nodiscard]] double measured(std::uint32_t variant) const noexcept {
    return kinds_.empty() ? 0.0 : kinds_[kind_].measured[variant % most];
  }
  /// How many steps like the last one were measured, that one included.
  [[nodiscard]] std::uint64_t seen() const noexcept {
    return kinds_.empty() ? 0 : kinds_[kind_].seen;
  }
  /// What the selector keeps of it.
  std::uint32_t chosen() const noexcept { return kinds_.empty() ? 0 : kinds_[kind_].chosen; }
  double chosen_for() const noexcept { return kinds_.empty() ? 0 : kinds_[kind_].time; }
  double expected() const noexcept { return kinds_.empty() ? 0 : kinds_[kind_].expected; }
  void choose(std::uint32_t variant, double time, double expected) noexcept {
    kinds_[kind_].chosen = variant, kinds_[kind_].time = time, kinds_[kind_].expected = expected;
  }
  /// What decides in steps like the last one from now on; and in those of that key
  /// (history::coming): the first policy where none was seen. O(kinds).
  void decide(std::uint32_t variant) noexcept { kinds_[kind_].decides = variant; }
  [[nodiscard]] std::uint32_t decides(std::uint64_t key) const noexcept {
    const auto at = std::ranges::find(kinds_, key, &kind::key);
    return at == kinds_.end() ? 0 : at->decides;
  }
  static constexpr std::size_t most = 10;  ///< policies

 private:
  struct kind {
    std::uint64_t key = 0, seen = 0;
    std::array<double, most> measured{};
    std::uint32_t chosen = 0, decides = 0;
    double time = 0;      // of the operators, when it was chosen
    double expected = 0;  // overhead, then
  };
  // By structure: a batch of another size is a step of the same kind.
  std::size_t find(const step_record& s) {
    const std::uint64_t key = s.operations.empty() ? 0 : s.operations.back().prefix;
    if (std::ranges::find(kinds_, key, &kind::key) == kinds_.end()) {
      if (kinds_.size() == history::most_records) kinds_.erase(kinds_.begin());
      kinds_.push_back({.key = key});
    }
    const auto at = std::ranges::find(kinds_, key, &kind::key);
    ++at->seen;
    return static_cast<std::size_t>(at - kinds_.begin());
  }
  std::vector<kind> kinds_;
  std::size_t kind_ = 0;
  std::uint64_t steps_ = 0;  // that were noted
};

namespace detail {

using taught = policy<exposed_cost, least_exposed, timely>;
using untaught = policy<joint_root, cheaper, no_prefetch>;

/// What `adaptive` chooses from. The first is what decides while nothing is known.
struct taught_or_not {
  static constexpr std::array<std::string_view, 2> names{"online", "learned"};
  template <Selector S>
  static auto make(S selector) {
    return switching(std::move(selector), untaught{}, taught{});
  }
};

/// What `auto` chooses from: for most budgets the second, but no one setting is the best for all.
struct ten_policies {
  static constexpr std::array<std::string_view, 10> names{"online",
                                                          "learned",
                                                          "learned (far)",
                                                          "learned (near)",
                                                          "learned (eager)",
                                                          "learned (shy)",
                                                          "learned (half the copy rate)",
                                                          "learned (nothing hidden)",
                                                          "learned (recomputing only)",
                                                          "dtr"};
  template <Selector S>
  static auto make(S selector) {
    // Of one type, so that they are compiled once: the second name's to the last but one's.
    constexpr std::size_t many = names.size() - 2;
    std::array<taught, many> of;
    enum : std::size_t { plain, far, near, eager, shy, half, unhidden, no_swaps };
    of[far].heuristic.distance = 0.5;
    of[near].heuristic.distance = 0.1;
    of[eager].heuristic.distance = 0.25;
    of[eager].prefetcher.reserve = 0.25;
    of[shy].prefetcher.reserve = 1;
    const auto set = [&](std::size_t which, const auto& change) {
      change(of[which].heuristic), change(of[which].decider), change(of[which].prefetcher);
    };
    set(half, [](exposure& e) { e.planned_rate = 0.5; });
    set(unhidden, [](exposure& e) { e.hidden = 0; });
    set(no_swaps, [](exposure& e) { e.swaps = false; });
    policy<heuristics_of<exposed_cost, many>, deciders_of<least_exposed, many>,
           prefetchers_of<timely, many>>
        row;
    row.heuristic.first = row.decider.first = row.prefetcher.first = 1;
    for (std::size_t i = 0; i < many; ++i) {
      row.heuristic.each[i] = of[i].heuristic;
      row.decider.each[i] = of[i].decider;
      row.prefetcher.each[i] = of[i].prefetcher;
    }
    return switching(std::move(selector), untaught{}, row, policy<dtr, evict_only, no_prefetch>{});
  }
};

}  // namespace detail

/// Tries the policies of `C` on the step that was seen, and takes the best: after the first step of
/// a kind; after the second, as the first one's times may be far off, and it was decided otherwise;
/// and when the operators' times have changed by `drift`. Never what was measured to be slower than
/// another by `patience`. `C::names` are the policies' names, `C::make(selector)` makes them, as
/// `switching` does.
template <class C>
struct rehearsing {
  static constexpr auto names = C::names;
  static_assert(names.size() <= step_results::most);

  double drift = 0.1;      ///< of the operators' time
  double patience = 0.02;  ///< likewise

  std::uint32_t choose(const context& c) {
    if (!results_.note(c.past(), c.variant())) return c.variant();
    const double time = c.past().last().time, before = results_.chosen_for();
    if (before == 0 || results_.seen() == 2 || std::abs(time - before) > drift * before)
      rehearse_all(c);
    std::uint32_t best = results_.chosen();
    for (std::uint32_t v = 0; v < names.size(); ++v)
      if (results_.measured(best) > 0 && results_.measured(v) > 0 &&
          results_.measured(v) + patience < results_.measured(best))
        best = v;
    results_.decide(best);
    // By turns: the next one may be of another kind.
    return results_.decides(c.past().coming());
  }
  /// What was measured and chosen, for reports.
  [[nodiscard]] const step_results& results() const noexcept { return results_; }
  /// How often the policies were tried.
  [[nodiscard]] std::uint64_t rehearsals() const noexcept { return rehearsals_; }

 private:
  // Bytes of the host that a step which begins with everything on the device has besides.
  static double on_host(const context& c) noexcept {
    double sum = 0;
    for (const tensor_id t : c.offloaded()) sum += c.bytes(t);
    for (const tensor_id t : c.candidates())
      if (c.is_clean(t) || c.is_copying(t)) sum += c.bytes(t);
    return sum;
  }
  void rehearse_all(const context& c) {
    ++rehearsals_;
    const step_record& step = c.past().last();
    if (!(step.time > 0)) return results_.choose(1, step.time, 0);  // nothing to compare by
    const auto whole = [](double x) { return bytes{static_cast<std::uint64_t>(std::max(x, 0.0))}; };
    const simulated_options machine{
        .capacity = whole(c.budget()),
        .host_capacity = whole(c.host_free() + on_host(c)),
        .rate_out = c.rate(direction::out),
        .rate_in = c.rate(direction::in),
        .latency = nanoseconds{static_cast<std::int64_t>(c.latency(direction::out))},
        .burden_out = c.burden(direction::out),
        .burden_in = c.burden(direction::in)};
    // What decides now is known better than by rehearsal, and left only for a clear gain.
    const std::uint32_t now = results_.seen() > 1 ? c.variant() : 0;
    std::uint32_t best = now;
    double least = results_.measured(now);
    for (std::uint32_t v = 1; v < names.size(); ++v) {
      if (v == now) continue;
      const double gain = best == now && now > 0 ? patience : 0.002;
      const double limit = least > 0 ? (least - gain) * step.time : never;
      const double took = rehearse(step, C::make(always{v}), v, machine, limit);
      if (took < limit) best = v, least = took / step.time;
    }
    results_.choose(best, step.time, least);
  }
  step_results results_;
  std::uint64_t rehearsals_ = 0;
};

/// The default of the tools: the first step as `online`, then as `learned`, where a rehearsal of
/// the step that was seen says that this is faster.
inline auto adaptive() {
  return detail::taught_or_not::make(rehearsing<detail::taught_or_not>{});
}
/// The best of ten policies by rehearsal ("auto" for with_preset).
inline auto auto_choice() {
  return detail::ten_policies::make(rehearsing<detail::ten_policies>{});
}

/// What a manager has learned, for reports.
struct lesson {
  std::uint64_t steps = 0;      ///< that ended
  std::uint64_t kinds = 0;      ///< of them, that are kept
  std::uint32_t operators = 0;  ///< of the last one
  bytes peak{};                 ///< the most that the program held in it: what it takes unmanaged
  std::string_view policy;      ///< what decides in the next one like it; empty: there is no choice
  double expected = 0;          ///< its time / the operators' time, as rehearsed; 0: it was not
  double measured = 0;          ///< the same of the last one, as measured
  std::uint64_t divergences = 0;  ///< steps that turned out to be none that was seen
  std::size_t memory = 0;         ///< bytes that the history takes
  /// The policies that there are to choose from, by variant; empty: there is no choice.
  std::span<const std::string_view> policies{};
  /// The steps that ended, in order, as far back as the selector keeps them.
  std::vector<step_outcome> outcomes{};
};

/// What `m` has learned; nothing where its policy does not. O(kinds + outcomes that are kept).
template <class Manager>
[[nodiscard]] lesson lesson_of(const Manager& m) {
  lesson l;
  const history& past = m.past();
  l.steps = past.steps();
  if (l.steps == 0) return l;
  l.kinds = past.records();
  l.operators = past.last().length();
  l.peak = bytes{past.last().peak};
  l.measured = past.last().time > 0 ? past.last_took() / past.last().time : 0;
  l.divergences = past.divergences();
  l.memory = past.footprint();
  if constexpr (requires { m.heuristic().selector.results(); }) {
    l.policies = std::remove_cvref_t<decltype(m.heuristic().selector)>::names;
    l.policy = l.policies[m.variant()];
    if constexpr (requires { m.heuristic().selector.results().outcomes(); })
      for (const step_outcome& o : m.heuristic().selector.results().outcomes())
        l.outcomes.push_back(o);
    if (m.variant() == m.heuristic().selector.results().chosen())
      l.expected = m.heuristic().selector.results().expected();
  }
  return l;
}

}  // namespace delta
