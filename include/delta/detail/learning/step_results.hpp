// delta: step times per policy and kind of step, measured and rehearsed, for selectors.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "delta/context.hpp"
#include "delta/history.hpp"
#include "delta/learning_report.hpp"
#include "delta/step.hpp"

namespace delta::detail {

/// What steps of one kind took under each policy. Times are in ns; 0 stands for what is not known.
class step_kind {
 public:
  static constexpr std::size_t most = 3;  ///< policies

  step_kind() = default;  ///< of no step
  /// The kind of that step: its operators, and its size.
  explicit step_kind(const step_record& s) noexcept : structure_(s.structure()), peak_(s.peak) {}
  /// How far that step is from this kind. Below `near`: it is one of them. Infinite: it has other
  /// operators.
  static constexpr double near = 0.1;
  [[nodiscard]] double distance(const step_record& s) const noexcept {
    if (s.structure() != structure_) return never;
    const auto a = static_cast<double>(peak_), b = static_cast<double>(s.peak);
    return std::abs(a - b) / std::max(b, 1.0);
  }

  // --- what is known ----------------------------------------------------------------------------

  /// What the next step takes under that policy: as measured, else as rehearsed; infinite: it does
  /// not come to its end.
  [[nodiscard]] double time(std::uint32_t v) const noexcept {
    if (thrashes(v)) return never;
    const double m = measured(v);
    if (!(m > 0) && unsettled_[v].count > 1) return unsettled_[v].middle().took;
    return m > 0 ? m / (tried_again(v) ? 1.0 : slowdown(v)) : rehearsed_[v] * correction_;
  }
  /// The middle one of the last three such steps that the policy decided, as it had decided the one
  /// before; of two the shorter. One step that was disturbed changes nothing.
  [[nodiscard]] double measured(std::uint32_t v) const noexcept {
    return measured_[v].middle().took;
  }
  /// As rehearsed last; infinite: it does not come to its end, or is far behind the best.
  [[nodiscard]] double rehearsed(std::uint32_t v) const noexcept { return rehearsed_[v]; }
  /// By how much the operators were slower when that was measured than they are now: their time
  /// then over the middle one of the last three steps', whoever decided in these. 1 where it is one
  /// of the three, and where these or it had other sizes.
  [[nodiscard]] double slowdown(std::uint32_t v) const noexcept {
    const sample then = measured_[v].middle();
    const bool comparable =
        then.took > 0 && then.sizes == sizes_ && operators_.count >= 3 && seen_ >= then.step + 3;
    return comparable ? then.operators / operators_.middle().took : 1;
  }
  /// True if recomputation thrashed under that policy.
  [[nodiscard]] bool thrashes(std::uint32_t v) const noexcept { return (thrashed_ >> v & 1) != 0; }
  /// True if it was given a second try, since the machine has changed last.
  [[nodiscard]] bool tried_again(std::uint32_t v) const noexcept {
    return (tried_again_ >> v & 1) != 0 && (trying_ >> v & 1) == 0;
  }
  /// How many steps were seen.
  [[nodiscard]] std::uint64_t seen() const noexcept { return seen_; }
  /// How many of the last steps were of this kind; each counts less than the one behind it.
  [[nodiscard]] double weight() const noexcept { return weight_; }
  /// The operators' time when the policies were rehearsed, for a step of that size; 0: they were
  /// not.
  [[nodiscard]] double rehearsed_for(const step_record& s) const noexcept {
    return time_ * static_cast<double>(s.peak) / std::max(static_cast<double>(peak_), 1.0);
  }
  /// True if they are to be rehearsed again.
  [[nodiscard]] bool stale() const noexcept { return stale_; }

  // --- what selectors tell ----------------------------------------------------------------------

  /// A step of any kind has ended: of another one; and of this one. `thrashed`: the policies (bits)
  /// that were replaced in it. The times of what did are no longer known.
  void pass() noexcept { weight_ *= 0.93; }
  void count(const step_record& s, std::uint32_t thrashed) noexcept {
    ++seen_, weight_ += 1;
    const std::uint64_t sizes = s.operations.back().exact;
    if (!(s.time > 0) || thrashed != 0 || sizes != sizes_) operators_ = {};
    sizes_ = sizes, thrashed_ |= thrashed;
    for (std::uint32_t v = 0; v < most; ++v)
      if ((thrashed >> v & 1) != 0) measured_[v] = {}, rehearsed_[v] = never;
  }
  /// A step of the kind took that, and its operators that, and the policy decided all of it.
  /// `settled`: it had decided the step before, too.
  void measure(std::uint32_t v, double took, double operators_took, bool settled) noexcept {
    if (!settled) return unsettled_[v].add({took, operators_took, seen_, sizes_});
    if ((trying_ >> v & 1) != 0) measured_[v] = {}, trying_ &= ~(1u << v);
    measured_[v].add({took, operators_took, seen_, sizes_});
    operators_.add({.took = operators_took});
    if (time_ > 0) correction_ = operators_took / time_;
  }
  /// A rehearsal under that policy took that.
  void rehearse(std::uint32_t v, double took) noexcept { rehearsed_[v] = took; }
  /// The policies are rehearsed for that step, and the one behind it; null: none is known.
  void rehearse_for(const step_record& s, const step_record* behind) noexcept {
    time_ = s.time, peak_ = s.peak, stale_ = false, correction_ = 1;
    behind_ = behind != nullptr ? behind->structure() : 0;
    ++rehearsals_;
  }
  /// The structure of the step behind it, then; 0: none was known. How often they were rehearsed.
  [[nodiscard]] std::uint64_t behind() const noexcept { return behind_; }
  [[nodiscard]] std::uint32_t rehearsals() const noexcept { return rehearsals_; }
  /// A step took too long under that policy: it does not decide in this kind again.
  void give_up(std::uint32_t v) noexcept { thrashed_ |= 1u << v; }
  /// The policies are to be rehearsed again.
  void make_stale() noexcept { stale_ = true; }
  /// The machine has changed: nothing is measured, and no policy is known to thrash but those of
  /// the last step, or was tried again.
  void start_anew(std::uint32_t thrashed) noexcept {
    thrashed_ = thrashed, tried_again_ = trying_ = 0, measured_ = unsettled_ = {}, operators_ = {};
  }
  /// It decides once more, as its operators were slow when it was measured: what it takes then
  /// replaces that.
  void try_again(std::uint32_t v) noexcept { tried_again_ |= 1u << v, trying_ |= 1u << v; }

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
  std::uint64_t structure_ = 0, peak_ = 0;
  std::uint64_t seen_ = 0;
  double weight_ = 0;
  std::array<samples, most> measured_{}, unsettled_{};
  samples operators_{};  // `took` is their time: of steps in a row with the same sizes
  std::array<double, most> rehearsed_{};
  std::uint32_t thrashed_ = 0, tried_again_ = 0, trying_ = 0;  // bits
  std::uint64_t sizes_ = 0;                                    // of the last step
  bool stale_ = false;
  std::uint64_t behind_ = 0;
  std::uint32_t rehearsals_ = 0;
  double time_ = 0;  // of the operators, when it was rehearsed
  double correction_ = 1;
};

/// The kinds of steps that were seen, and how the last ones came out. Kinds are told apart by their
/// operators, and by sizes over a tenth apart.
class step_results {
 public:
  static constexpr std::size_t most_outcomes = 256;  ///< steps that are kept for reports

  /// The kind of such a step; null: none was seen. O(kinds).
  [[nodiscard]] step_kind* find(const step_record& s) noexcept { return nearest(kinds_, s); }
  [[nodiscard]] const step_kind* find(const step_record& s) const noexcept {
    return nearest(kinds_, s);
  }
  [[nodiscard]] std::span<step_kind> kinds() noexcept { return kinds_; }
  [[nodiscard]] std::span<const step_kind> kinds() const noexcept { return kinds_; }
  /// The kind of a step that has ended, found or made: where there are too many, the one that is
  /// met least makes room. Valid until the next call. O(kinds).
  step_kind& met(const step_record& s) {
    for (step_kind& k : kinds_) k.pass();
    if (step_kind* const k = find(s)) return *k;
    if (kinds_.size() == history::most_records)
      kinds_.erase(std::ranges::min_element(kinds_, {}, &step_kind::weight));
    return kinds_.emplace_back(s);
  }
  /// Steps of all kinds in order, the last `most_outcomes`.
  [[nodiscard]] const std::vector<learning_report::outcome>& outcomes() const noexcept {
    return outcomes_;
  }
  void came_out(const learning_report::outcome& o) {
    if (outcomes_.size() == most_outcomes) outcomes_.erase(outcomes_.begin());
    outcomes_.push_back(o);
  }

 private:
  template <class Kinds>
  static auto nearest(Kinds& kinds, const step_record& s) noexcept -> decltype(kinds.data()) {
    auto* best = kinds.empty() ? nullptr : &kinds.front();
    for (auto& k : kinds)
      if (k.distance(s) < best->distance(s)) best = &k;
    return best != nullptr && best->distance(s) < step_kind::near ? best : nullptr;
  }

  std::vector<step_kind> kinds_;
  std::vector<learning_report::outcome> outcomes_;
};

}  // namespace delta::detail
