// delta: the steps that a manager has seen, and forecasts from them. A training step repeats, so
// the one before tells when each tensor will be used next, how long operators take, and when memory
// will be shortest.
//
//   recorded     the step under way, operator by operator (detail/history/step_log.hpp); kept when
//                it ends (kept_steps.hpp)
//   followed     the record that the step under way has agreed with so far, if there is one
//                (step_matcher.hpp)
//   forecast     what the followed record says of a tensor: here
//
// The manager writes it (detail/history/step_recorder.hpp), policies read it through their context.
// It is written only where a role declares `learns` (concepts.hpp); else every forecast is unknown.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "delta/detail/history/due_times.hpp"
#include "delta/detail/history/kept_steps.hpp"
#include "delta/detail/history/step_log.hpp"
#include "delta/detail/history/step_matcher.hpp"
#include "delta/step.hpp"
#include "delta/units.hpp"

namespace delta {

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
  /// As many operators in a row a step may have more, or less, than the record that it follows.
  static constexpr std::uint32_t most_differing = detail::step_matcher::most_differing;

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
      const bool due = r.again_step == log_.step() && r.again != none && r.again >= done &&
                       e.structure() == coming_;
      return due ? known(r.again) : forecast{};
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
  /// Will the program have dropped `t` before that operator begins, by the followed record? Later
  /// ones are the next step's. O(1).
  [[nodiscard]] bool dies_before(tensor_id t, std::uint32_t position) const noexcept {
    const std::uint32_t s = position == none ? none : storage_of(t);
    return s != none && followed().storages[s].died < position;
  }
  /// How many operators of the step touch `t`, by the followed record; 1 where that is not known.
  /// The same before and after the program drops it. O(1).
  [[nodiscard]] std::uint32_t uses_of(tensor_id t) const noexcept {
    if (!follows() || !log_.knows(t)) return 1;
    const row& r = log_.of(t);
    const std::uint32_t s = log_.touched(t)               ? matcher_.twin(r.local)
                            : r.gone_under == forecasts() ? r.gone_as
                                                          : none;
    return s == none ? 1 : std::max(followed().storages[s].uses, 1u);
  }
  /// Which forecasts hold: another number with every record that is followed, and every step.
  [[nodiscard]] std::uint64_t forecasts() const noexcept { return matcher_.forecasts(); }
  /// ns of operators from now to the beginning of that one. O(1).
  [[nodiscard]] double time_until(std::uint32_t position) const noexcept {
    return follows() ? matcher_.time_until(position) : 0.0;
  }
  /// ns of operators until the program holds most; 0 when that is over. O(1).
  [[nodiscard]] double time_until_peak() const noexcept {
    return before_peak() ? time_until(followed().peak_at) : 0.0;
  }
  /// True if that is still to come. O(1).
  [[nodiscard]] bool before_peak() const noexcept {
    return follows() && position() <= followed().peak_at;
  }
  /// The most that the program will hold in this step, in bytes.
  [[nodiscard]] double peak() const noexcept {
    return follows() ? static_cast<double>(followed().peak) * matcher_.size_scale() : 0.0;
  }
  /// How much more than now the program will hold at most until that operator is done, in bytes; 0
  /// if no more. O(operators until then).
  [[nodiscard]] double growth(std::uint32_t until) const noexcept {
    if (!follows()) return 0;
    const step_record& e = followed();
    std::uint64_t most = 0;
    for (std::uint32_t i = position(); i < e.length() && i <= until; ++i)
      most = std::max(most, e.operations[i].live);
    return std::max(0.0, static_cast<double>(most) * matcher_.size_scale() - live());
  }
  /// What the operator after this one takes, in ns; 0 at the step's end.
  [[nodiscard]] double coming_cost() const noexcept {
    if (!follows() || position() >= followed().length()) return 0;
    return followed().operations[position()].cost * matcher_.time_scale();
  }
  /// Bytes on the host alone that are due before that operator. O(log step).
  [[nodiscard]] double due_before(std::uint32_t position) const noexcept {
    return static_cast<double>(away_.due_before(position));
  }
  /// The same, of what was evicted.
  [[nodiscard]] double evicted_before(std::uint32_t position) const noexcept {
    return static_cast<double>(away_.evicted_before(position));
  }
  /// The tensor on the host that is used first, of several the one that left last; none. O(log
  /// step).
  [[nodiscard]] tensor_id first_due() const noexcept { return away_.first_due(); }
  /// Operators of the step under way that have begun, but for the one at hand.
  [[nodiscard]] std::uint32_t operators() const noexcept {
    return log_.record().length() - (matcher_.running() ? 1u : 0u);
  }
  /// Bytes that the program holds.
  [[nodiscard]] double live() const noexcept { return static_cast<double>(live_); }
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
  /// The key of the step that is expected next: of its last operator,
  /// `step_record::operation::prefix`.
  [[nodiscard]] std::uint64_t coming() const noexcept { return coming_; }
  /// Steps that are kept.
  [[nodiscard]] std::size_t records() const noexcept { return matcher_.kept.size(); }
  /// The memory of all that is here, in bytes. O(records).
  [[nodiscard]] std::size_t footprint() const noexcept {
    return log_.footprint() + matcher_.footprint() + away_.footprint() +
           before_.capacity() * sizeof(tensor_id);
  }
  /// Times that a step stopped agreeing with what it followed and another record was taken.
  [[nodiscard]] std::uint64_t switches() const noexcept { return matcher_.switches(); }
  /// Times that there was none to take.
  [[nodiscard]] std::uint64_t divergences() const noexcept { return matcher_.divergences(); }

  /// Between steps: calls `visit(t)` for every tensor that the program held when the last one
  /// ended, and holds still, in the order of that step. O(its storages).
  template <class Visit>
  void for_each_held(const Visit& visit) const {
    for (std::uint32_t l = 0; l < before_.size(); ++l)
      if (const row& r = log_.of(before_[l]); r.before_step == log_.step() && r.before == l)
        visit(before_[l]);
  }
  /// The step that is expected next; and the one expected behind a step. Of a history that follows.
  [[nodiscard]] const step_record& behind() const noexcept { return matcher_.behind(); }

  // --- what the manager tells -------------------------------------------------------------------

  /// A tensor appears, of that many rounded bytes; or the program holds it no more. Amortised O(1).
  void created(tensor_id t, bytes size) {
    if (!log_.knows(t)) {
      log_.cover(t);
      away_.cover(log_.tensors());
    }
    live_ += size.count;
  }
  void dropped(tensor_id t, bytes size, bool pinned = false) {
    changed(step_record::change::kind::dropped, t, size, pinned);
    live_ -= size.count;
    if (row& r = log_.of(t); log_.touched(t))
      r.gone_under = forecasts(), r.gone_as = matcher_.twin(r.local);
    log_.dropped(t);
    away_.forget(t);
  }
  /// Between operators the program did that to a tensor; of a source, `created` first. Amortised
  /// O(1).
  void changed(step_record::change::kind what, tensor_id t, bytes size, bool pinned) {
    log_.changed(what, t, size, pinned);
  }
  /// A step of another history, whose names are not known here: it is followed by one whose
  /// operators have none (""). `here`: by its storages, those from outside it that are here, and
  /// expected. `next`: the step behind it, if that is another one.
  void preload(const step_record& step, std::span<const tensor_id> here = {},
               const step_record* next = nullptr) {
    if (step.operations.empty()) return;
    const bool another = next != nullptr && !next->operations.empty();
    if (another) learn(*next);
    const std::uint32_t behind = last_;
    learn(step);
    coming_ = last().structure();
    matcher_.kept.expect(last_, another ? behind : last_);
    log_.count_step();
    for (std::uint32_t l = 0; l < std::min(here.size(), step.storages.size()); ++l) {
      const step_record::storage& x = last().storages[l];
      if (!log_.knows(here[l]) || x.born != none || x.uses == 0) continue;
      row& r = log_.of(here[l]);
      r.again = last().uses[x.first_use], r.again_step = log_.step();
    }
    matcher_.follow(last_, 0);
    refile();
  }
  /// The step that follows begins now: what was done since the end of the last one is nobody's
  /// time.
  void resumes(nanoseconds clock) noexcept { began_ = clock; }
  /// An operator is about to begin: with the first of all begins the first step, whatever took time
  /// before.
  void starts(nanoseconds clock) noexcept {
    if (log_.step() == 1 && log_.record().operations.empty()) began_ = clock;
  }
  /// An operator begins. `size_of(t)`: rounded bytes; `pinned(t)`: both ways. O(touched), but for
  /// one that differs.
  template <class SizeOf, class Pinned>
  void begin(std::string_view name, std::span<const tensor_id> touched, std::size_t inputs,
             const SizeOf& size_of, const Pinned& pinned) {
    const std::uint32_t here = log_.record().length();
    log_.begin(name, touched, inputs, size_of, pinned, [&](tensor_id t) {
      if (const row& r = log_.of(t); r.before_step == log_.step())
        matcher_.kept[last_].step.storages[r.before].again = here;
    });
    matcher_.begin(log_.record(), log_.prefix(), [this] { refile(); });
  }
  /// The operator was given up: it leaves no trace. (But of a record that was taken up for it, as
  /// that begins as the step did so far.) O(storages).
  void abort_operator() noexcept {
    const std::uint32_t storages = log_.abort([&](tensor_id t) {
      if (const row& r = log_.of(t); r.before_step == log_.step())
        matcher_.kept[last_].step.storages[r.before].again = r.again;
    });
    matcher_.abort(storages, [this] { refile(); });
  }
  /// It has made these. `workspace` is rounded; `cost`, in ns, is what is known by now, negative:
  /// nothing; then it is what the step before has, or `guess`.
  template <class SizeOf>
  void end(std::span<const tensor_id> made, bytes workspace, trait traits, double cost,
           const SizeOf& size_of, double guess = 0) {
    matcher_.end();
    const std::uint32_t here = log_.record().length() - 1;
    log_.end(made, workspace, traits, cost >= 0 ? cost : matcher_.cost_of(here, guess),
             live_ + workspace.count, size_of);
    matcher_.compare(log_.record(), [this] { refile(); });
  }
  /// What an operator of this step took, in ns: the first piece of it, or one more.
  void measured(std::uint32_t position, double cost, bool first) noexcept {
    log_.measured(position, cost, first);
  }
  /// A tensor's bytes are on the host alone from now on, or evicted; or on the device again, or of
  /// no use to anybody. O(log step).
  void moved_out(tensor_id t, bytes size, bool to_host) {
    away_.remove(t);
    away_.add(t, size, to_host, due(t));
  }
  void moved_in(tensor_id t) noexcept { away_.remove(t); }
  /// The step has ended: it is kept, and the next one begins. `living(visit)` calls
  /// `visit(t, size, pinned)` for every tensor that the program holds: one that the step did not
  /// touch takes memory, too. O(step + tensors).
  void end_of_step(nanoseconds clock) {
    end_of_step(clock, [](const auto&) {});
  }
  template <class Living>
  void end_of_step(nanoseconds clock, const Living& living) {
    step_record& now = log_.record();
    if (now.operations.empty()) return void(began_ = clock);
    took_ = static_cast<double>((clock - std::exchange(began_, clock)).count());
    // What lives and was not used in this step is not expected in the next one like it.
    for (std::uint32_t l = 0; l < before_.size(); ++l) {
      const row& r = log_.of(before_[l]);
      if (r.before_step == log_.step() && r.before == l && !log_.touched(before_[l]))
        matcher_.kept[last_].step.storages[l].again = none;
    }
    // What is known of the step behind one like this.
    for (std::uint32_t l = 0; follows() && l < now.storages.size(); ++l)
      if (const std::uint32_t twin = matcher_.twin(l); twin != none)
        now.storages[l].again = followed().storages[twin].again;
    log_.enter_untouched(living);
    const std::uint64_t structure = now.structure();
    if (follows() && followed().structure() == structure) log_.note_origins(followed());
    now.finish();
    keep_step(structure);
    log_.clear(before_);
    matcher_.end_of_step();
    matcher_.follow(matcher_.kept.next(), 0);
    refile();
  }

 private:
  static constexpr std::uint32_t none = step_record::none;
  using row = detail::step_log::row;

  // The step that has ended goes to the records, with what comes after one like it.
  void keep_step(std::uint64_t structure) {
    detail::kept_steps& kept = matcher_.kept;
    step_record& now = log_.record();
    if (follows()) kept.agreed(matcher_.number());
    // A step of a new kind: the same again, presumably.
    if (!follows() || followed().structure() != structure)
      for (step_record::storage& s : now.storages)
        if (s.born == none && s.again == none && s.uses > 0) s.again = now.uses[s.first_use];
    last_ = kept.keep(now);
    const step_record& next = kept[kept.next()].step;
    coming_ = next.structure();
    log_.count_step();
    const auto ids = log_.ids();
    for (std::uint32_t l = 0; l < ids.size(); ++l) {
      row& r = log_.of(ids[l]);
      // Dropped ones are left out; the id may be another's by now.
      if (r.step != log_.step() - 1 || r.local != l) continue;
      r.before = l;
      r.again = last().storages[l].again;
      r.before_step = r.again_step = log_.step();
    }
    // What the step that is expected used itself, it will use there again.
    for (std::uint32_t s = 0; s < next.storages.size(); ++s) {
      const step_record::storage& x = next.storages[s];
      if (!next.was_there(s) || !log_.knows(x.tensor)) continue;
      row& r = log_.of(x.tensor);
      if (r.before_step != log_.step()) continue;
      const step_record::storage& mine = last().storages[r.before];
      if (mine.size == x.size && mine.pinned == x.pinned)
        r.again = x.uses > 0 ? next.uses[x.first_use] : none;
    }
  }
  // Keeps a step of another history, all of whose operators are nameless.
  void learn(const step_record& step) {
    before_.clear();
    log_.copy(step);
    last_ = matcher_.kept.keep(log_.record());
    log_.clear();
  }
  [[nodiscard]] forecast known(std::uint32_t position) const noexcept {
    return {forecast::kind::known, position, time_until(position)};
  }
  // By other forecasts than before. For positions of the step, and of the one after it.
  void refile() {
    away_.reset(follows() ? std::size_t{followed().length()} + behind().length() : 0,
                [&](tensor_id t) { return due(t); });
  }
  [[nodiscard]] std::uint32_t due(tensor_id t) const noexcept {
    const forecast f = next_use(t);
    return f.what == forecast::kind::known ? f.position : none;
  }

  detail::step_log log_;
  detail::step_matcher matcher_;
  detail::due_times away_;
  std::vector<tensor_id> before_;  // by storage of the step before
  std::uint64_t live_ = 0;
  std::uint64_t coming_ = 0;  // the key of the step for which `row::again` holds
  std::uint32_t last_ = none;
  nanoseconds began_{};  // the step under way
  double took_ = 0;      // the last one
};

}  // namespace delta
