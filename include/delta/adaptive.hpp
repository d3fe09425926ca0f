// delta: the adaptive policies: which of several decides in each step. They are rehearsed on the
// step that was seen, those near the best are tried, and the one that was measured to be the
// fastest stays. The default has three to choose from, `auto` ten.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
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

/// What steps took under each policy, by kind of step: as measured, and as rehearsed. For
/// selectors. Times are in ns; 0 stands for what is not known.
class step_results {
 public:
  static constexpr std::size_t most = 10;            ///< policies
  static constexpr std::size_t most_outcomes = 256;  ///< steps that are kept for reports

  /// The last step, which `variant` decided. The first of its kind tells nothing of a policy, as
  /// its kernels are cold. `thrashed`: the policies (bits) that were replaced in it, as
  /// recomputation thrashed; then its time tells nothing either. False: none has ended since the
  /// last call. O(kinds).
  bool note(const history& past, std::uint32_t variant, std::uint32_t thrashed = 0) {
    if (past.steps() == steps_) return false;
    steps_ = past.steps();
    const step_record& last = past.last();
    kind_ = find(last);
    kind& k = kinds_[kind_];
    k.thrashed |= thrashed;
    for (std::uint32_t v = 0; v < most; ++v)
      if ((thrashed >> v & 1) != 0) k.measured[v] = {}, k.rehearsed[v] = never;
    if (!(last.time > 0)) return true;
    const double was_expected = variant == k.decides ? k.expected : 0.0;
    if (outcomes_.size() == most_outcomes) outcomes_.erase(outcomes_.begin());
    outcomes_.push_back({was_expected / last.time, past.last_took() / last.time, variant});
    if (thrashed != 0) return true;
    if (k.seen > 1) k.measured[variant % most].add(past.last_took());
    // As overheads, since the operators may have been warmer than those that were rehearsed.
    const double rehearsed = k.rehearsed[variant % most];
    if (rehearsed > 0 && rehearsed < never && k.time > 0)
      k.correction = past.last_took() / last.time * k.time / rehearsed;
    return true;
  }
  /// Warm steps like the last one: what the last three took under that policy, the middle one (of
  /// two the shorter). One step that was disturbed changes nothing.
  [[nodiscard]] double measured(std::uint32_t variant) const noexcept {
    return kinds_.empty() ? 0.0 : kinds_[kind_].measured[variant % most].middle();
  }
  /// As rehearsed last; infinite: it does not come to its end, or is far behind the best.
  [[nodiscard]] double rehearsed(std::uint32_t variant) const noexcept {
    return kinds_.empty() ? 0.0 : kinds_[kind_].rehearsed[variant % most];
  }
  void rehearsed(std::uint32_t variant, double took) noexcept {
    kinds_[kind_].rehearsed[variant % most] = took;
  }
  /// Measured over rehearsed, of the last step for which both are known; else 1.
  [[nodiscard]] double correction() const noexcept {
    return kinds_.empty() ? 1.0 : kinds_[kind_].correction;
  }
  /// Did recomputation thrash under that policy, in a step like the last one?
  [[nodiscard]] bool thrashes(std::uint32_t variant) const noexcept {
    return !kinds_.empty() && (kinds_[kind_].thrashed >> variant % most & 1) != 0;
  }
  /// The machine has changed: nothing is measured but what the last step took, under that policy,
  /// and no policy is known to thrash; of a step in which some were replaced only that is kept.
  void start_anew(std::uint32_t variant, double took, std::uint32_t thrashed) noexcept {
    kind& k = kinds_[kind_];
    k.thrashed = thrashed;
    k.measured = {};
    if (thrashed == 0) k.measured[variant % most].add(took);
  }
  /// What follows is asked and told of steps of that key (history::coming), where one was seen;
  /// else still of those like the last one. False: there was none. O(kinds).
  bool turn_to(std::uint64_t key) noexcept {
    const auto at = std::ranges::find(kinds_, key, &kind::key);
    if (at != kinds_.end()) kind_ = static_cast<std::size_t>(at - kinds_.begin());
    return at != kinds_.end();
  }
  /// Are the policies to be rehearsed before the next step of this kind?
  [[nodiscard]] bool stale() const noexcept { return !kinds_.empty() && kinds_[kind_].stale; }
  void stale(bool yes) noexcept { kinds_[kind_].stale = yes; }
  /// How many steps like the last one were seen, that one included.
  [[nodiscard]] std::uint64_t seen() const noexcept {
    return kinds_.empty() ? 0 : kinds_[kind_].seen;
  }
  /// The operators' time when the policies were rehearsed.
  [[nodiscard]] double rehearsed_for() const noexcept {
    return kinds_.empty() ? 0 : kinds_[kind_].time;
  }
  void rehearsed_for(double time) noexcept { kinds_[kind_].time = time; }
  /// What decides in steps like the last one from now on, and what the next is expected to take.
  void decide(std::uint32_t variant, double expected) noexcept {
    kinds_[kind_].decides = variant, kinds_[kind_].expected = expected;
  }
  [[nodiscard]] std::uint32_t chosen() const noexcept {
    return kinds_.empty() ? 0 : kinds_[kind_].decides;
  }
  [[nodiscard]] double expected() const noexcept {
    return kinds_.empty() ? 0 : kinds_[kind_].expected;
  }
  /// Steps of all kinds in order, the last `most_outcomes`.
  [[nodiscard]] const std::vector<step_outcome>& outcomes() const noexcept { return outcomes_; }

 private:
  // The last three times.
  struct times {
    std::array<double, 3> last{};
    std::uint32_t count = 0;
    void add(double t) noexcept { last[count++ % 3] = t; }
    [[nodiscard]] double middle() const noexcept {
      if (count < 3)
        return count == 0 ? 0.0 : *std::min_element(last.begin(), last.begin() + count);
      return std::max(std::min(last[0], last[1]), std::min(std::max(last[0], last[1]), last[2]));
    }
  };
  struct kind {
    std::uint64_t key = 0, seen = 0;
    std::array<times, most> measured{};
    std::array<double, most> rehearsed{};
    std::uint32_t decides = 0;
    std::uint32_t thrashed = 0;  // bits
    bool stale = false;
    double time = 0;      // of the operators, when it was rehearsed
    double expected = 0;  // of the next step
    double correction = 1;
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
  std::vector<step_outcome> outcomes_;
  std::size_t kind_ = 0;
  std::uint64_t steps_ = 0;  // that were noted
};

namespace detail {

using taught = policy<exposed_cost, least_exposed, timely>;
using untaught = policy<joint_root, cheaper, no_prefetch>;

/// What `adaptive` chooses from. The first is what decides while nothing is known; the last where
/// copies do not pay.
struct taught_or_not {
  static constexpr std::array<std::string_view, 3> names{"online", "learned", "dtr"};
  template <Selector S>
  static auto make(S selector) {
    return switching(std::move(selector), untaught{}, taught{},
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

/// Rehearses the policies of `C` on the step that was seen, gives those near the best a step each,
/// and keeps what was measured to be best:
///
///   rehearsed    after the first step of a kind; after the second, as the first one's times may be
///                far off; when the operators' times have changed by `drift`; when one thrashed
///   tried        the best rehearsed first. Then, as long as the best measured step took longer
///                than another policy's rehearsal, that one; what was rehearsed `near` behind the
///                best only where that has not come true. Where rehearsals do, nothing is left to
///                try.
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
    if (changed) results_.start_anew(c.variant(), c.past().last_took(), thrashed);
    if (before == 0 || changed || results_.seen() == 2 || thrashed != 0) results_.stale(true);
    // By turns: the next one may be of another kind, which is rehearsed from where it begins.
    const step_record& next = c.past().follows() ? c.past().followed() : c.past().last();
    if (!results_.turn_to(next.operations.empty() ? 0 : next.operations.back().prefix)) return 0;
    const bool anew = next.time > 0 && results_.stale();
    if (anew) rehearse_all(c, next), results_.stale(false);
    const std::uint32_t v = next.time > 0 ? best(c.variant()) : 1;
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
  // ns. The rehearsal of the very step, as far as rehearsals came true; else what it took before.
  [[nodiscard]] double expected_of(std::uint32_t v, bool anew) const noexcept {
    const double r = results_.rehearsed(v), m = results_.measured(v);
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
  return detail::taught_or_not::make(rehearsing<detail::taught_or_not>{});
}
/// The best of ten policies by rehearsal ("auto" for with_preset).
inline auto automatic() {
  return detail::ten_policies::make(rehearsing<detail::ten_policies>{});
}

/// What a manager has learned, for reports.
struct learning_report {
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
[[nodiscard]] learning_report learning_report_of(const Manager& m) {
  learning_report l;
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
    l.outcomes = m.heuristic().selector.results().outcomes();
    const step_results& results = m.heuristic().selector.results();
    const step_record& next = past.follows() ? past.followed() : past.last();
    if (m.variant() == results.chosen() && next.time > 0)
      l.expected = results.expected() / next.time;
  }
  return l;
}

}  // namespace delta
