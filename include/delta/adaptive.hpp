// delta: the adaptive policy, which chooses among several. It simulates each on the steps that were
// recorded, uses the fastest, and keeps the one that is fastest when measured.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>

#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/detail/learning/rehearsal.hpp"
#include "delta/detail/learning/step_results.hpp"
#include "delta/heuristic.hpp"
#include "delta/planned.hpp"
#include "delta/prefetcher.hpp"
#include "delta/switching.hpp"

namespace delta {

namespace detail {

using by_costs = policy<cheapest_way_root, cheaper, no_prefetch>;

/// What `adaptive` chooses from. The first decides while nothing is known; the last is fastest
/// where copies do not pay.
struct planned_or_not {
  static constexpr std::array<std::string_view, 3> names{"online", "planned", "dtr"};
  template <Selector S>
  static auto make(S selector) {
    return switching(std::move(selector), by_costs{}, planned{},
                     policy<dtr, evict_only, no_prefetch>{});
  }
};

/// Several policies as they are to decide in a rehearsal: `one` of `C` always, knowing what they
/// know.
template <class C, class Policies>
auto for_rehearsal(const Policies& policies, std::uint32_t one) {
  const auto rehearsed = []<class P>(const P& p) -> P {
    if constexpr (requires { p.rehearsed(); })
      return p.rehearsed();
    else
      return p;
  };
  auto all = C::make(always{one});
  all.all = std::apply([&](const auto&... p) { return Policies(rehearsed(p)...); }, policies);
  return all;
}

/// Rehearses the policies of `C` on the steps that were seen, lets the best one decide, and keeps
/// what was measured to be best. One policy is chosen for all kinds of steps, by their total time:
/// what it leaves on the device and the host in one kind affects the next.
///
///   rehearsed    a step and the one behind it, from where it begins, under each policy: when its
///                kind was seen once; when it was seen twice, as the first one's times may be far
///                off; when another kind comes behind it than was thought; when the operators'
///                times have changed by `drift`; when a policy thrashed
///   chosen       the best by time: as measured, else as rehearsed. Of two that were measured
///                another one only where it is better by `patience`
///   excepted     kinds in which the chosen policy is behind the first by `behind`: there the first
///                decides, as it does in kinds that were not seen
///   tried again  once, who was slow because its operators were, and with operators as fast as they
///                are now would be the best
///   replaced     in the midst of a step: where the step turns out to be of another kind, by who
///                decides in that; by the first where recomputation thrashes, room runs out, or the
///                step has taken `regress` times what it should by then. The policy does not decide
///                in that kind again before the operators' times have changed
///
/// The first policy has to be one that needs no steps to learn from and fails nowhere where another
/// one runs. `C::names` are the policies' names, `C::make(selector)` makes them, as `switching`
/// does.
template <class C>
struct rehearsing {
  static constexpr auto names = C::names;
  static_assert(names.size() <= step_kind::most);

  double drift = 0.1;      ///< of the operators' time
  double patience = 0.02;  ///< part of a round's time
  double behind = 0.1;     ///< part of a step's time
  double regress = 1.5;    ///< times what a step should have taken

  std::uint32_t choose(const context& c) { return choose(c, C::make(always{}).all); }
  /// The same where they may know something of the steps already.
  template <class Policies>
  std::uint32_t choose(const context& c, const Policies& policies) {
    const history& past = c.past();
    if (past.steps() == steps_) return c.variant();
    steps_ = past.steps();
    note(c);
    // The step that has ended may come again when it is not expected.
    const step_record& next = past.follows() ? past.followed() : past.last();
    for (const step_record* s : {&next, &past.last()}) {
      step_kind* const k = results_.find(*s);
      if (k == nullptr || !(s->time > 0)) continue;
      // Once more, when it is known that another one comes behind it.
      const bool other = s == &next && past.follows() && past.behind().structure() != k->behind();
      if (k->stale() || (other && k->rehearsals() < most_rehearsals))
        rehearse_all(c, *s, *k, policies);
    }
    chosen_ = best();
    return begin(past, results_.find(next));
  }
  std::uint32_t replacement(const context& c, bool thrashes) {
    const std::uint32_t v = thrashes ? replacement(c) : revised(c);
    whole_ = whole_ && v == c.variant();
    return v;
  }
  /// What was measured and rehearsed, for reports.
  [[nodiscard]] const step_results& results() const noexcept { return results_; }
  /// How often the policies were rehearsed.
  [[nodiscard]] std::uint64_t rehearsals() const noexcept { return rehearsals_; }
  /// What the next step will take, in ns, if it is one like that; 0: not known.
  [[nodiscard]] double expected(const step_record& s) const noexcept {
    const step_kind* const k = results_.find(s);
    return k == nullptr ? 0.0 : k->time(decides_in(k, chosen_));
  }

 private:
  static constexpr std::uint32_t most_rehearsals = 4;  // of a kind, as the one behind it is another
  static constexpr double hopeless = 1e30;             // ns
  static constexpr double slack = 0.1;      // of a step's time, before it may be found too slow
  static constexpr double certain = 0.003;  // of a round's time: a rehearsal's gain that counts
  static constexpr auto many = static_cast<std::uint32_t>(names.size());

  // The step that has ended.
  void note(const context& c) {
    const history& past = c.past();
    const step_record& last = past.last();
    const std::uint32_t thrashed = std::exchange(thrashed_, 0u);
    const bool whole = std::exchange(whole_, true), late = late_ != 0;
    const std::uint32_t v = late ? std::exchange(late_, 0u) : c.variant();
    // As it has decided before, too, what it found was of its own making.
    const bool settled = last_ == v;
    last_ = whole ? v : many;
    const double was_expected = whole && last.time > 0 ? expected(last) : 0.0;
    step_kind& k = results_.met(last);
    k.count(last, thrashed);
    const double before = k.rehearsed_for(last);
    const bool changed = before > 0 && std::abs(last.time - before) > drift * before;
    if (changed) k.start_anew(thrashed);
    if (before == 0 || changed || k.seen() == 2 || thrashed != 0) k.make_stale();
    if (!(last.time > 0)) return;
    results_.came_out({was_expected / last.time, past.last_took() / last.time, v});
    // Of another kind than was thought, it was not late.
    if (late && late_for_.distance(last) < step_kind::near) k.give_up(v);
    // The first of its kind tells nothing, as its kernels are cold.
    if (!late && whole && thrashed == 0 && k.seen() > 1)
      k.measure(v, past.last_took(), last.time, settled);
  }
  template <class Policies>
  void rehearse_all(const context& c, const step_record& step, step_kind& kind,
                    const Policies& policies) {
    ++rehearsals_;
    const next_step coming(c, step);
    kind.rehearse_for(step, coming.next());
    step_kind* const after = coming.next() != nullptr ? results_.find(*coming.next()) : nullptr;
    double least = never;
    for (std::uint32_t i = 0; i < many; ++i) {
      // What decides now first; the others stop where they are far worse.
      const std::uint32_t v = (c.variant() + i) % many;
      if (kind.thrashes(v)) continue;
      const std::array<double, 2> both =
          rehearse_both(coming, for_rehearsal<C>(policies, v), v, 2 * least);
      const auto [first, second] = both;
      least = std::min(least, std::max(first, second));
      // The second step begins as the policy has left it: that is what counts in the long run.
      if (after == &kind) {
        kind.rehearse(v, mean_of_few(both));
      } else {
        kind.rehearse(v, first);
        if (after != nullptr && first < never) {
          const double r = after->rehearsed(v);
          after->rehearse(v, r > 0 ? (r + second) / 2 : second);
        }
      }
    }
  }
  // Who decides, if the kinds come as they did.
  std::uint32_t best() {
    std::array<double, many> sums{};
    for (const step_kind& k : results_.kinds())
      for (std::uint32_t v = 0; v < many; ++v) {
        const std::uint32_t who = decides_in(&k, v);
        // What a rehearsal did not bring to its end may yet run; what thrashed has not.
        const double t = k.thrashes(who) ? never : std::min(k.time(who), hopeless);
        sums[v] += t > 0 ? k.weight() * t : 0.0;
      }
    // Measured times wander; rehearsed ones do not.
    const auto tried = [&](std::uint32_t v) {
      return std::ranges::any_of(results_.kinds(),
                                 [&](const step_kind& k) { return k.measured(v) > 0; });
    };
    std::uint32_t least = chosen_;
    for (std::uint32_t v = 0; v < many; ++v) {
      const double margin = tried(v) && tried(chosen_) ? patience : certain;
      if (sums[v] * (1 + margin) < sums[chosen_] && sums[v] < sums[least]) least = v;
    }
    if (least != chosen_)
      for (step_kind& k : results_.kinds())
        if (k.slowdown(least) > 1 + patience && !k.tried_again(least)) k.try_again(least);
    return least;
  }
  // In a kind that is not known yet: the first.
  [[nodiscard]] std::uint32_t decides_in(const step_kind* k, std::uint32_t chosen) const noexcept {
    if (k == nullptr) return 0;
    const double t = k->time(chosen), first = k->time(0);
    if (k->thrashes(0) && !k->thrashes(chosen)) return chosen;
    const bool known = t > 0 && t < never;
    return known && (first == 0 || t <= (1 + behind) * first) ? chosen : 0;
  }
  std::uint32_t replacement(const context& c) {
    const std::uint32_t gone = thrashed_ | 1u << c.variant();
    for (std::uint32_t v = 0; v < many; ++v)
      if ((gone >> v & 1) == 0) return thrashed_ = gone, v;
    return c.variant();
  }
  std::uint32_t revised(const context& c) {
    const history& past = c.past();
    if (thrashed_ != 0) return c.variant();
    if (past.forecasts() != forecasts_)
      return begin(past, past.follows() ? results_.find(past.followed()) : nullptr);
    // Of another size than the step that is followed it is not known what it should take.
    if (c.variant() == 0 || !(should_ > 0) || std::abs(past.size_scale() - 1) > step_kind::near)
      return c.variant();
    const step_record& step = past.followed();
    const std::uint32_t at = past.position();
    const double part = at < step.length() ? step.operations[at].start / step.time : 1.0;
    if (c.clock() - past.began() <= should_ * (regress * part + slack)) return c.variant();
    late_ = c.variant(), late_for_ = step_kind(step);
    return 0;
  }
  // A step that follows such a kind from now on: who decides in it.
  std::uint32_t begin(const history& past, const step_kind* k) {
    forecasts_ = past.forecasts();
    const std::uint32_t v = decides_in(k, chosen_);
    const double first = k != nullptr ? k->time(0) : 0.0;
    const bool timed = k != nullptr && past.follows() && past.followed().time > 0;
    should_ = !timed ? 0.0 : first > 0 && first < never ? first : k->time(v);
    return v;
  }

  step_results results_;
  std::uint64_t rehearsals_ = 0, steps_ = 0;
  std::uint32_t chosen_ = 0;
  std::uint32_t last_ = 0;  // who decided all of the last step; else `many`
  // Of the step under way.
  std::uint32_t thrashed_ = 0;   // bits
  std::uint32_t late_ = 0;       // who was too slow; 0: nobody
  step_kind late_for_;           // the kind that the step was thought to be of then
  bool whole_ = true;            // one has decided it all so far
  double should_ = 0;            // ns: what it should take; 0: not known
  std::uint64_t forecasts_ = 0;  // that the choice was made by
};

}  // namespace detail

/// The default of the tools: the first step as `online`; then as that, `planned` or `dtr`,
/// whichever a rehearsal of the step that was seen, and then the steps themselves, say is fastest.
inline auto adaptive() {
  return detail::planned_or_not::make(detail::rehearsing<detail::planned_or_not>{});
}

}  // namespace delta
