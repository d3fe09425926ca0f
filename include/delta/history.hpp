// delta: the steps that a manager has seen, and forecasts from them: when each tensor will be used
// next, how long operators take, when memory will be shortest. The step under way is recorded
// (detail/history/step_log.hpp), kept when it ends (kept_steps.hpp), and follows the record that it
// agrees with (step_matcher.hpp); what that says of a tensor is a forecast. The manager writes it
// (step_recorder.hpp) where a role declares `learns` (concepts.hpp); policies read it through their
// context. Else every forecast is unknown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "delta/detail/history/kept_steps.hpp"
#include "delta/detail/history/step_log.hpp"
#include "delta/detail/history/step_matcher.hpp"
#include "delta/step.hpp"
#include "delta/units.hpp"

namespace delta {

namespace detail {
class step_recorder;
}

/// When a tensor will be used next.
struct forecast {
  enum class kind : std::uint8_t {
    unknown,  ///< no record is followed, or its forecast was wrong
    never,    ///< not again: it will be dropped
    known
  };
  kind what = kind::unknown;
  std::uint32_t position = 0;  ///< if known: the operator; past the step's last: of the next step
  double in = 0;               ///< if known: ns of operators until then
};

/// The steps that were seen, and where the one under way stands.
class history {
 public:
  /// As many different steps are kept; the least recently used goes first.
  static constexpr std::size_t most_records = detail::kept_steps::most;

  // --- what policies ask ------------------------------------------------------------------------

  /// True if the step under way agrees with one that was seen. Else what is below is unknown, or 0.
  [[nodiscard]] bool follows() const noexcept { return matcher_.follows(); }
  /// The record that it follows.
  [[nodiscard]] const step_record& followed() const noexcept { return matcher_.followed(); }

  /// When `t` will be used next, the operator at hand not counted. Amortised O(1).
  [[nodiscard]] forecast next_use(tensor_id t) const noexcept {
    if (!follows() || !log_.knows(t)) return {};
    const row& r = log_.of(t);
    const step_record& e = followed();
    const std::uint32_t done = position();
    if (r.step != log_.step()) {  // not touched in this step
      return is_due(r) ? known(r.again) : forecast{};
    }
    const std::uint32_t twin = matcher_.twin(r.local);
    if (twin == none) return {};
    if (const std::uint32_t next = matcher_.next_use(twin); next != none) return known(next);
    // What should be gone by now and is not is no longer what it was.
    const step_record::storage& s = e.storages[twin];
    if (s.died != none)
      return {done <= s.died + 1 ? forecast::kind::never : forecast::kind::unknown, 0, 0};
    return s.again == none ? forecast{} : known(e.length() + s.again);
  }
  /// Which storage of the followed record `t` stands for; step_record::none: none, or not touched
  /// yet in this step. O(1).
  [[nodiscard]] std::uint32_t storage_of(tensor_id t) const noexcept {
    if (!follows() || !log_.knows(t) || !log_.touched(t)) return none;
    return matcher_.twin(log_.of(t).local);
  }
  /// The same, also before the step has touched it, as far as it is expected there, and after the
  /// program has dropped it. O(1).
  [[nodiscard]] std::uint32_t stands_for(tensor_id t) const noexcept {
    if (!follows() || !log_.knows(t)) return none;
    const row& r = log_.of(t);
    if (log_.touched(t)) return matcher_.twin(r.local);
    if (r.gone_under == forecasts()) return r.gone_as;
    return is_due(r) ? r.again_as : none;
  }
  /// Which forecasts hold: another number with every record that is followed, and every step.
  [[nodiscard]] std::uint64_t forecasts() const noexcept { return matcher_.forecasts(); }
  /// What the operator after this one takes, in ns; 0 at the step's end.
  [[nodiscard]] double coming_cost() const noexcept {
    if (!follows() || position() >= followed().length()) return 0;
    return followed().operations[position()].cost * matcher_.time_scale();
  }
  /// Operators of the step under way that have begun, but for the one at hand.
  [[nodiscard]] std::uint32_t operators() const noexcept {
    return log_.record().length() - (matcher_.running() ? 1u : 0u);
  }
  /// How many times as large the step's tensors are as that record's. 1: it follows none.
  [[nodiscard]] double size_scale() const noexcept {
    return follows() ? matcher_.size_scale() : 1.0;
  }
  /// The operator of the followed record that comes next.
  [[nodiscard]] std::uint32_t position() const noexcept { return matcher_.done(); }

  // --- what reports ask -------------------------------------------------------------------------

  /// Steps that ended.
  [[nodiscard]] std::uint64_t steps() const noexcept { return log_.step() - 1; }
  /// The record of the last of them, once there was one.
  [[nodiscard]] const step_record& last() const noexcept { return matcher_.kept[last_].step; }
  /// When the step under way began, in ns by the storage's clock.
  [[nodiscard]] double began() const noexcept { return static_cast<double>(began_.count()); }
  /// What that step took, in ns by the storage's clock: operators, replays and waits.
  [[nodiscard]] double last_took() const noexcept { return took_; }
  /// Steps that are kept.
  [[nodiscard]] std::size_t records() const noexcept { return matcher_.kept.size(); }
  /// The memory of all that is here, in bytes. O(records).
  [[nodiscard]] std::size_t footprint() const noexcept {
    return log_.footprint() + matcher_.footprint();
  }
  /// Times that a step stopped agreeing with what it followed, and there was no other to take up.
  [[nodiscard]] std::uint64_t divergences() const noexcept { return matcher_.divergences(); }

  /// Between steps: calls `visit(t)` for every tensor that the program held when the last one
  /// ended, and holds still, in the order of that step. O(its storages).
  template <class Visit>
  void for_each_held(const Visit& visit) const {
    for (std::uint32_t l = 0; last_ != none && l < last().storages.size(); ++l)
      if (const tensor_id t = last().storages[l].tensor; was_before(t, l)) visit(t);
  }
  /// The step that is expected next; and the one expected behind a step. Of a history that follows.
  [[nodiscard]] const step_record& behind() const noexcept { return matcher_.behind(); }

 private:
  friend class detail::step_recorder;
  static constexpr std::uint32_t none = step_record::none;
  using row = detail::step_log::row;

  // Of what this step has not touched: its first use, as foretold, is yet to come.
  [[nodiscard]] bool is_due(const row& r) const noexcept {
    return r.again_step == log_.step() && r.again != none && r.again >= position() &&
           followed().structure() == coming_;
  }
  // The tensor was that storage of the step before, and the program holds it still.
  [[nodiscard]] bool was_before(tensor_id t, std::uint32_t storage) const noexcept {
    return log_.knows(t) && log_.of(t).before_step == log_.step() && log_.of(t).before == storage;
  }
  [[nodiscard]] forecast known(std::uint32_t position) const noexcept {
    return {forecast::kind::known, position, matcher_.time_until(position)};
  }

  detail::step_log log_;
  detail::step_matcher matcher_;
  std::uint64_t live_ = 0;
  std::uint64_t coming_ = 0;  // the key of the step for which `row::again` holds
  std::uint32_t last_ = none;
  nanoseconds began_{};  // the step under way
  double took_ = 0;      // the last one
};

}  // namespace delta
