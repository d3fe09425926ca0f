// delta: the adaptive policies: which of several decides in each step. They are rehearsed on the
// step that was seen, those near the best are tried, and the one that was measured to be the
// fastest stays. The default has three to choose from, `auto` ten.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/heuristic.hpp"
#include "delta/learned.hpp"
#include "delta/prefetcher.hpp"
#include "delta/rehearsal.hpp"
#include "delta/step_results.hpp"
#include "delta/switching.hpp"

namespace delta {

namespace detail {

using by_forecasts = policy<exposed_cost, least_exposed, timely>;
using by_costs = policy<joint_root, cheaper, no_prefetch>;

/// What `adaptive` chooses from. The first is what decides while nothing is known; the last where
/// copies do not pay.
struct learned_or_not {
  static constexpr std::array<std::string_view, 3> names{"online", "learned", "dtr"};
  template <Selector S>
  static auto make(S selector) {
    return switching(std::move(selector), by_costs{}, by_forecasts{},
                     policy<dtr, evict_only, no_prefetch>{});
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
    std::array<by_forecasts, many> of;
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
    return switching(std::move(selector), by_costs{}, row, policy<dtr, evict_only, no_prefetch>{});
  }
};

}  // namespace detail

/// Rehearses the policies of `C` on the step that was seen, gives those near the best a step each,
/// and keeps what was measured to be best:
///
///   rehearsed    after the first step of a kind; after the second, as the first one's times may be
///                far off; when the operators' times have changed by `drift`; when one thrashed
///   tried        the best rehearsed first. Then, as long as the best measured step took longer
///                than another policy's rehearsal, that one; what was rehearsed `near` behind the
///                best only where that has not come true. Where rehearsals do, nothing is left to
///                try. Once more, where it was slow because its operators were: by `patience`
///                slower than they are now, and with them as fast as now it would be the best.
///                Only once, and for two steps, as its copies may be what slows them down.
///   kept         the best measured, until another one's measured time is shorter by `patience`
///   replaced     at once, by the best of the others, where recomputation thrashes under it
///
/// `C::names` are the policies' names, `C::make(selector)` makes them, as `switching` does.
template <class C>
struct rehearsing {
  static constexpr auto names = C::names;
  static_assert(names.size() <= step_results::most);

  double drift = 0.1;      ///< of the operators' time
  double near = 0.1;       ///< part of the best rehearsed time
  double patience = 0.02;  ///< part of a step's time

  std::uint32_t choose(const context& c) {
    const std::uint32_t thrashed = std::exchange(thrashed_, 0u);
    if (!results_.note(c.past(), c.variant(), thrashed)) return c.variant();
    const double time = c.past().last().time, before = results_.rehearsed_for();
    const bool changed = before > 0 && std::abs(time - before) > drift * before;
    if (changed) results_.start_anew(c.variant(), c.past().last_took(), time, thrashed);
    if (before == 0 || changed || results_.seen() == 2 || thrashed != 0) results_.stale(true);
    // By turns: the next one may be of another kind, which is rehearsed from where it begins.
    const step_record& next = c.past().follows() ? c.past().followed() : c.past().last();
    if (!results_.turn_to(next.structure())) return 0;
    const bool anew = next.time > 0 && results_.stale();
    if (anew) rehearse_all(c, next), results_.stale(false);
    const std::uint32_t v = next.time > 0 ? next_of(c.variant()) : 1;
    results_.decide(v, expected_of(v, anew));
    return v;
  }
  /// Recomputation thrashes under the one that decides: the best measured of the others goes on;
  /// where none was, the best rehearsed. Each is replaced once in a step, and does not decide again
  /// before the operators' times have changed.
  std::uint32_t instead(const context& c) {
    thrashed_ |= 1u << c.variant();
    std::uint32_t next = c.variant();
    const auto rank = [&](std::uint32_t v) {
      const double m = results_.measured(v), r = results_.rehearsed(v);
      return std::tuple(results_.thrashes(v), !(m > 0), m > 0 ? m : r > 0 ? r : never);
    };
    for (std::uint32_t v = 0; v < many; ++v)
      if ((thrashed_ >> v & 1) == 0 && (next == c.variant() || rank(v) < rank(next))) next = v;
    return next;
  }
  /// What was measured, rehearsed and chosen, for reports.
  [[nodiscard]] const step_results& results() const noexcept { return results_; }
  /// How often the policies were rehearsed.
  [[nodiscard]] std::uint64_t rehearsals() const noexcept { return rehearsals_; }

 private:
  static constexpr auto many = static_cast<std::uint32_t>(names.size());

  void rehearse_all(const context& c, const step_record& step) {
    ++rehearsals_;
    results_.rehearsed_for(step.time);
    const coming_step next(c, step);
    // What is worse than this is of no use: a step that was measured, or `near` behind the best.
    const std::uint32_t fastest = best_measured();
    const double known = fastest < many ? results_.measured(fastest) : 0.0;
    double least = never;
    for (std::uint32_t i = 0; i < many; ++i) {
      // What decides now first: its correction is needed, and the others stop where they are worse.
      const std::uint32_t v = (c.variant() + i) % many;
      const double limit = std::max(known, (1 + near) * least);
      const double took =
          results_.thrashes(v) ? never : rehearse(next, C::make(always{v}), v, limit);
      results_.rehearsed(v, took);
      least = std::min(least, took);
    }
  }
  // `many`: nothing was measured.
  [[nodiscard]] std::uint32_t best_measured() const noexcept {
    std::uint32_t best = many;
    for (std::uint32_t v = 0; v < many; ++v)
      if (const double m = results_.measured(v);
          m > 0 && (best == many || m < results_.measured(best)))
        best = v;
    return best;
  }
  // What shall decide in the next step of this kind. `last`: what has just decided, which comes to
  // an end, where no rehearsal does.
  [[nodiscard]] std::uint32_t best(std::uint32_t last) const noexcept {
    std::uint32_t rehearsed = results_.rehearsed(0) < never ? 0 : last, untried = many;
    for (std::uint32_t v = 0; v < many; ++v) {
      const double r = results_.rehearsed(v);
      if (r < results_.rehearsed(rehearsed)) rehearsed = v;
      if (results_.measured(v) == 0 && (untried == many || r < results_.rehearsed(untried)))
        untried = v;
    }
    const std::uint32_t measured = best_measured();
    if (measured == many) return rehearsed;
    // A rehearsal may be too good to be true, as it knows no disturbance; so what it says of the
    // others counts as long as the best measured step was no better than that.
    const double least = results_.measured(measured);
    if (untried != many && results_.rehearsed(untried) * (1 + patience) < least) return untried;
    const std::uint32_t now = results_.chosen();
    const bool stays =
        results_.measured(now) > 0 && results_.measured(now) <= (1 + patience) * least;
    return stays ? now : measured;
  }
  // That, or what gets a second try instead, or has begun one. What was never measured comes first.
  [[nodiscard]] std::uint32_t next_of(std::uint32_t last) noexcept {
    if (results_.trying_again()) return results_.chosen();
    const std::uint32_t first = best(last);
    std::uint32_t again = first;
    for (std::uint32_t v = 0; v < many; ++v)
      if (results_.slowdown(v) > 1 + patience && !results_.tried_again(v) &&
          measured_now(v) < measured_now(again))
        again = v;
    if (again != first) results_.try_again();
    return again;
  }
  // ns. What was measured, with operators as fast as they are now.
  [[nodiscard]] double measured_now(std::uint32_t v) const noexcept {
    return results_.measured(v) / results_.slowdown(v);
  }
  // ns. The rehearsal of the very step, as far as rehearsals came true; else what was measured.
  [[nodiscard]] double expected_of(std::uint32_t v, bool anew) const noexcept {
    const double r = results_.rehearsed(v), m = measured_now(v);
    if (r > 0 && r < never && (anew || m == 0)) return r * results_.correction();
    return m;
  }

  step_results results_;
  std::uint64_t rehearsals_ = 0;
  std::uint32_t thrashed_ = 0;  // in the step under way: bits
};

/// The default of the tools: the first step as `online`; then as that, `learned` or `dtr`,
/// whichever a rehearsal of the step that was seen, and then the steps themselves, say is fastest.
inline auto adaptive() {
  return detail::learned_or_not::make(rehearsing<detail::learned_or_not>{});
}
/// The best of ten policies by rehearsal ("auto" for with_preset).
inline auto automatic() {
  return detail::ten_policies::make(rehearsing<detail::ten_policies>{});
}

}  // namespace delta
