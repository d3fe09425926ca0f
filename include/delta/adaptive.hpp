// delta: who decides when. The default: `online` until a step was seen, `learned` from then on, and
// back to what was better if that was slower. Or the best of several, by trying them on the step
// that was seen.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
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

/// Overheads (time / time of the operators) as measured, by kind of step and policy. For selectors.
class step_results {
 public:
  /// The last step, which `variant` decided. O(kinds).
  void note(const history& past, std::uint32_t variant) {
    kind_ = find(past.last());
    if (past.last().time > 0)
      kinds_[kind_].measured[variant % most] = past.last_took() / past.last().time;
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
  static constexpr std::size_t most = 10;  ///< policies

 private:
  struct kind {
    std::uint64_t key = 0, seen = 0;
    std::array<double, most> measured{};
    std::uint32_t chosen = 0;
    double time = 0;      // of the operators, when it was chosen
    double expected = 0;  // overhead, then
  };
  // By structure: a batch of another size is a step of the same kind.
  std::size_t find(const step_record& s) {
    const std::uint64_t key = s.operations.empty() ? 0 : s.operations.back().prefix;
    const auto at = std::ranges::find(kinds_, key, &kind::key);
    const auto i = static_cast<std::size_t>(at - kinds_.begin());
    if (at == kinds_.end()) {
      if (kinds_.size() == history::most_records) kinds_.erase(kinds_.begin());
      kinds_.push_back({.key = key});
    }
    const std::size_t place = std::min(i, kinds_.size() - 1);
    ++kinds_[place].seen;
    return place;
  }
  std::vector<kind> kinds_;
  std::size_t kind_ = 0;
};

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
};

/// The second policy from the second step on, unless it was measured to be slower than the first by
/// more than `patience`; then the first again, and another try after twice as many steps each time.
struct guarded {
  double patience = 0.02;  ///< of the operators' time

  std::uint32_t choose(const context& c) {
    results_.note(c.past(), c.variant());
    const double first = results_.measured(0), second = results_.measured(1);
    const bool slower = first > 0 && second > first + patience;
    if (slower && c.variant() == 1)
      pause_ = std::min<std::uint32_t>(2 * pause_ + 4, 256), left_ = pause_;
    if (left_ > 0 && --left_ > 0) return 0;
    return 1;
  }
  static constexpr std::array<std::string_view, 2> names{"online", "learned"};
  /// What was measured, for reports.
  [[nodiscard]] const step_results& results() const noexcept { return results_; }

 private:
  step_results results_;
  std::uint32_t pause_ = 0, left_ = 0;
};

/// The default of the tools: `online`, then `learned`.
inline auto adaptive() {
  return switching(guarded{}, policy<joint_root, cheaper, no_prefetch>{},
                   policy<exposed_cost, least_exposed, timely>{});
}

namespace detail {

/// The candidates of `auto_choice`, with whichever selector: the first is what the first step runs.
template <Selector S>
auto candidates(S selector) {
  using taught = policy<exposed_cost, least_exposed, timely>;
  const auto all = [](auto change) {
    taught p;
    change(p.heuristic), change(p.decider), change(p.prefetcher);
    return p;
  };
  taught eager, shy, near, far;
  eager.prefetcher.reserve = 0.25, eager.heuristic.distance = 0.25;
  shy.prefetcher.reserve = 1;
  near.heuristic.distance = 0.1;
  far.heuristic.distance = 0.5;
  return switching(
      std::move(selector), policy<joint_root, cheaper, no_prefetch>{}, taught{}, far, near, eager, shy,
      all([](exposure& e) { e.planned_rate = 0.5; }),  // as if copies were half as fast
      all([](exposure& e) { e.hidden = 0; }),          // as if nothing hid them
      all([](exposure& e) { e.swaps = false; }),       // recomputing only
      policy<dtr, evict_only, no_prefetch>{});
}

}  // namespace detail

/// Tries all candidates on the step that was seen, and takes the best. Again after the third step
/// of its kind, as the times of the first may be far off, and when the operators' times have
/// changed by a tenth. A choice that turns out slower than another one was measured to be is given
/// up.
struct rehearsing {
  double drift = 0.1;
  double patience = 0.02;

  std::uint32_t choose(const context& c) {
    results_.note(c.past(), c.variant());
    const history& past = c.past();
    const double time = past.last().time, known = results_.chosen_for();
    const bool again = known == 0 || results_.seen() == 3 || std::abs(time - known) > drift * known;
    if (again) rehearse_all(c);
    std::uint32_t best = results_.chosen();
    for (std::uint32_t v = 0; v < step_results::most; ++v)
      if (results_.measured(best) > 0 && results_.measured(v) > 0 &&
          results_.measured(v) + patience < results_.measured(best))
        best = v;
    return best;
  }
  static constexpr std::array<std::string_view, step_results::most> names{
      "online",
      "learned",
      "learned, far",
      "learned, near",
      "learned, eager",
      "learned, shy",
      "learned at half the copy rate",
      "learned, nothing hidden",
      "learned, recomputing",
      "dtr"};
  [[nodiscard]] const step_results& results() const noexcept { return results_; }
  /// How often all were tried.
  [[nodiscard]] std::uint64_t rehearsals() const noexcept { return rehearsals_; }

 private:
  void rehearse_all(const context& c) {
    ++rehearsals_;
    const step_record& step = c.past().last();
    const auto whole = [](double x) { return bytes{static_cast<std::uint64_t>(std::max(x, 0.0))}; };
    const simulated_options machine{
        .capacity = whole(c.budget()),
        .host_capacity = whole(c.host_free()),
        .rate_out = c.rate(direction::out),
        .rate_in = c.rate(direction::in),
        .latency = nanoseconds{static_cast<std::int64_t>(c.latency(direction::out))}};
    std::uint32_t best = 1;
    double least = never;
    for (std::uint32_t i = 1; i <= step_results::most; ++i) {
      const std::uint32_t v = i % step_results::most;  // the first policy last
      auto p = detail::candidates(always{v});
      const double took = rehearse(step, std::move(p), v, machine, least);
      // A little better is no better: the rehearsal is not the machine.
      if (took < 0.998 * least) best = v, least = took;
    }
    results_.choose(best, step.time, step.time > 0 ? least / step.time : 0);
  }
  step_results results_;
  std::uint64_t rehearsals_ = 0;
};

/// What `m` has learned; nothing where its policy does not. O(kinds).
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
    l.policy = std::remove_cvref_t<decltype(m.heuristic().selector)>::names[m.variant()];
    if (m.variant() == m.heuristic().selector.results().chosen())
      l.expected = m.heuristic().selector.results().expected();
  }
  return l;
}

/// The best of several policies by rehearsal ("auto" for with_preset).
inline auto auto_choice() {
  return detail::candidates(rehearsing{});
}

}  // namespace delta
