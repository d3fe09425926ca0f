// delta: step times per policy and kind of step, measured and rehearsed, for selectors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/history.hpp"
#include "delta/step.hpp"

namespace delta {

/// A step's time over its operators' time, each counted once: as the selector predicted it when it
/// chose who decides, and as it came out.
struct step_outcome {
  double predicted = 0;       ///< 0: nothing was
  double measured = 0;        ///< 0: not known
  std::uint32_t variant = 0;  ///< who decided
};

/// What steps took under each policy, by kind of step (`step_record::structure`: a batch of another
/// size is a step of the same kind): as measured, and as rehearsed. For selectors. Answers are
/// about one kind, that of the last step noted or that of `turn_to`. Times are in ns; 0 stands for
/// what is not known.
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
    const bool undisturbed = last.time > 0 && thrashed == 0;
    const std::uint64_t sizes = last.operations.back().exact;
    if (!undisturbed || sizes != k.sizes) k.operators = {};
    if (!undisturbed) k.tries_again = 0;
    k.sizes = sizes;
    k.thrashed |= thrashed;
    for (std::uint32_t v = 0; v < most; ++v)
      if ((thrashed >> v & 1) != 0) k.measured[v] = {}, k.rehearsed[v] = never;
    if (!(last.time > 0)) return true;
    const double was_expected = variant == k.decides ? k.expected : 0.0;
    if (outcomes_.size() == most_outcomes) outcomes_.erase(outcomes_.begin());
    outcomes_.push_back({was_expected / last.time, past.last_took() / last.time, variant});
    if (thrashed != 0) return true;
    if (k.tries_again > 0 && variant == k.decides) {
      if (k.tries_again-- == 2) k.measured[variant % most] = {};
      k.tried_again |= 1u << variant % most;
    }
    if (k.seen > 1) k.add(variant, past.last_took(), last.time);
    // As overheads, since the operators may have been warmer than those that were rehearsed.
    const double rehearsed = k.rehearsed[variant % most];
    if (rehearsed > 0 && rehearsed < never && k.time > 0)
      k.correction = past.last_took() / last.time * k.time / rehearsed;
    return true;
  }
  /// Warm steps of the kind: what the last three took under that policy, the middle one (of
  /// two the shorter). One step that was disturbed changes nothing.
  [[nodiscard]] double measured(std::uint32_t variant) const noexcept {
    return kinds_.empty() ? 0.0 : kinds_[kind_].measured[variant % most].middle().took;
  }
  /// By how much the operators were slower in that step than they are now: their time then over
  /// the middle one of the last three steps', whoever decided in these. 1 where it is one of the
  /// three, where these or it had other sizes, and where one of the three thrashed.
  [[nodiscard]] double slowdown(std::uint32_t variant) const noexcept {
    if (kinds_.empty()) return 1;
    const kind& k = kinds_[kind_];
    const sample then = k.measured[variant % most].middle();
    const bool comparable =
        then.took > 0 && then.sizes == k.sizes && k.operators.count >= 3 && k.seen >= then.step + 3;
    return comparable ? then.operators / k.operators.middle().took : 1;
  }
  /// Was that policy given a second try, since the machine has changed last?
  [[nodiscard]] bool tried_again(std::uint32_t variant) const noexcept {
    return !kinds_.empty() && (kinds_[kind_].tried_again >> variant % most & 1) != 0;
  }
  /// As rehearsed last; infinite: it does not come to its end, or is far behind the best.
  [[nodiscard]] double rehearsed(std::uint32_t variant) const noexcept {
    return kinds_.empty() ? 0.0 : kinds_[kind_].rehearsed[variant % most];
  }
  void rehearsed(std::uint32_t variant, double took) noexcept {
    kinds_[kind_].rehearsed[variant % most] = took;
  }
  /// Measured over rehearsed, of the last step of the kind for which both are known; else 1.
  [[nodiscard]] double correction() const noexcept {
    return kinds_.empty() ? 1.0 : kinds_[kind_].correction;
  }
  /// Did recomputation thrash under that policy, in a step of the kind?
  [[nodiscard]] bool thrashes(std::uint32_t variant) const noexcept {
    return !kinds_.empty() && (kinds_[kind_].thrashed >> variant % most & 1) != 0;
  }
  /// The machine has changed: nothing is measured but what the last step took, under that policy,
  /// and no policy is known to thrash or was tried again; of a step in which some were replaced
  /// only that is kept. `operators`: their time in the last step.
  void start_anew(std::uint32_t variant, double took, double operators,
                  std::uint32_t thrashed) noexcept {
    kind& k = kinds_[kind_];
    k.thrashed = thrashed, k.tried_again = 0;
    k.measured = {}, k.operators = {}, k.tries_again = 0;
    if (thrashed == 0) k.add(variant, took, operators);
  }
  /// The kind is that one from now on, where such a step was seen; else it stays. False: there was
  /// none. O(kinds).
  bool turn_to(std::uint64_t key) noexcept {
    const auto at = std::ranges::find(kinds_, key, &kind::key);
    if (at != kinds_.end()) kind_ = static_cast<std::size_t>(at - kinds_.begin());
    return at != kinds_.end();
  }
  /// Are the policies to be rehearsed before the next step of this kind?
  [[nodiscard]] bool stale() const noexcept { return !kinds_.empty() && kinds_[kind_].stale; }
  void stale(bool yes) noexcept { kinds_[kind_].stale = yes; }
  /// How many steps of the kind were seen.
  [[nodiscard]] std::uint64_t seen() const noexcept {
    return kinds_.empty() ? 0 : kinds_[kind_].seen;
  }
  /// The operators' time when the policies were rehearsed.
  [[nodiscard]] double rehearsed_for() const noexcept {
    return kinds_.empty() ? 0 : kinds_[kind_].time;
  }
  void rehearsed_for(double time) noexcept { kinds_[kind_].time = time; }
  /// What decides in steps of the kind from now on, and what the next is expected to take.
  void decide(std::uint32_t variant, double expected) noexcept {
    kinds_[kind_].decides = variant, kinds_[kind_].expected = expected;
  }
  /// The next two steps that it decides are its second try: their times replace what was measured
  /// of it. Two, as the first step of a policy also brings everything to where it has it.
  void try_again() noexcept { kinds_[kind_].tries_again = 2; }
  [[nodiscard]] bool trying_again() const noexcept {
    return !kinds_.empty() && kinds_[kind_].tries_again > 0;
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
  // What a step took, and its operators, each counted once.
  struct sample {
    double took = 0, operators = 0;
    std::uint64_t step = 0;   // of the kind
    std::uint64_t sizes = 0;  // its key: of steps with the same sizes
  };
  // The last three, and the middle one by what they took: of two the shorter.
  struct samples {
    std::array<sample, 3> last{};
    std::uint32_t count = 0;
    void add(const sample& s) noexcept { last[count++ % 3] = s; }
    [[nodiscard]] sample middle() const noexcept {
      const auto shorter = [](const sample& a, const sample& b) { return b.took < a.took ? b : a; };
      const auto longer = [](const sample& a, const sample& b) { return b.took < a.took ? a : b; };
      if (count < 3) return count == 2 ? shorter(last[0], last[1]) : last[0];
      return longer(shorter(last[0], last[1]), shorter(longer(last[0], last[1]), last[2]));
    }
  };
  struct kind {
    std::uint64_t key = 0, seen = 0;
    std::array<samples, most> measured{};
    samples operators{};  // `took` is their time: of steps in a row with the same sizes
    std::array<double, most> rehearsed{};
    std::uint32_t decides = 0;
    std::uint32_t thrashed = 0, tried_again = 0;  // bits
    std::uint32_t tries_again = 0;                // steps that are left of a second try
    std::uint64_t sizes = 0;                      // of the last step
    bool stale = false;
    double time = 0;      // of the operators, when it was rehearsed
    double expected = 0;  // of the next step
    double correction = 1;
    // The last step, where it was warm and nothing thrashed.
    void add(std::uint32_t variant, double took, double operators_took) noexcept {
      measured[variant % most].add({took, operators_took, seen, sizes});
      operators.add({.took = operators_took});
    }
  };
  // Found or made, and counted.
  std::size_t find(const step_record& s) {
    const std::uint64_t key = s.structure();
    auto at = std::ranges::find(kinds_, key, &kind::key);
    if (at == kinds_.end()) {
      if (kinds_.size() == history::most_records) kinds_.erase(kinds_.begin());
      at = kinds_.insert(kinds_.end(), kind{.key = key});
    }
    ++at->seen;
    return static_cast<std::size_t>(at - kinds_.begin());
  }
  std::vector<kind> kinds_;
  std::vector<step_outcome> outcomes_;
  std::size_t kind_ = 0;
  std::uint64_t steps_ = 0;  // that were noted
};

}  // namespace delta
