// delta: writes the history of steps that policies read (history.hpp), from what tensors, operators
// and ends of steps are told.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "delta/detail/tensors/records.hpp"
#include "delta/history.hpp"
#include "delta/kernel.hpp"
#include "delta/step.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// The history as its owner has it: with functions that write it.
class written_history : public history {
 public:
  /// A tensor appears, of that many rounded bytes; or the program holds it no more. Amortised O(1).
  void created(tensor_id t, bytes size) {
    if (!log_.knows(t)) log_.cover(t);
    live_ += size.count;
  }
  void dropped(tensor_id t, bytes size, bool pinned = false) {
    changed(step_record::change::kind::dropped, t, size, pinned);
    live_ -= size.count;
    if (row& r = log_.of(t); log_.touched(t))
      r.gone_under = forecasts(), r.gone_as = matcher_.twin(r.local);
    log_.dropped(t);
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
      r.again = last().uses[x.first_use], r.again_step = log_.step(), r.again_as = l;
    }
    matcher_.follow(last_, 0);
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
    matcher_.begin(log_.record(), log_.prefix());
  }
  /// The operator was given up: it leaves no trace. (But of a record that was taken up for it, as
  /// that begins as the step did so far.) O(storages).
  void abort_operator() noexcept {
    const std::uint32_t storages = log_.abort([&](tensor_id t) {
      if (const row& r = log_.of(t); r.before_step == log_.step())
        matcher_.kept[last_].step.storages[r.before].again = r.again;
    });
    matcher_.abort(storages);
  }
  /// It has made these. `workspace` is rounded; `cost`, in ns, is what is known by now, negative:
  /// nothing; then it is what the step before has, or `guess`.
  template <class SizeOf>
  void end(std::span<const tensor_id> made, bytes workspace, trait traits, double cost,
           const SizeOf& size_of, double guess = 0, std::span<const replaced_input> replaced = {}) {
    matcher_.end();
    const std::uint32_t here = log_.record().length() - 1;
    log_.end(made, workspace, traits, cost >= 0 ? cost : matcher_.cost_of(here, guess),
             live_ + workspace.count, size_of, replaced);
    matcher_.compare(log_.record());
  }
  /// What an operator of this step took, in ns: the first piece of it, or one more.
  void measured(std::uint32_t position, double cost, bool first) noexcept {
    log_.measured(position, cost, first);
  }
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
  }

 private:
  // The step that has ended goes to the records, with what comes after one like it.
  void keep_step(std::uint64_t structure) {
    kept_steps& kept = matcher_.kept;
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
      r.again = last().storages[l].again, r.again_as = none;
      r.before_step = r.again_step = log_.step();
    }
    // What the step that is expected used itself, it will use there again.
    for (std::uint32_t s = 0; s < next.storages.size(); ++s) {
      const step_record::storage& x = next.storages[s];
      if (!next.was_there(s)) continue;
      // What the last step has made and left is what it left to this one.
      if (x.was < ids.size() && coming_ == last().structure())
        if (row& left = log_.of(ids[x.was]);
            left.before_step == log_.step() && left.before == x.was)
          left.again_as = s;
      if (!log_.knows(x.tensor)) continue;
      row& r = log_.of(x.tensor);
      if (r.before_step != log_.step()) continue;
      const step_record::storage& mine = last().storages[r.before];
      if (mine.size == x.size && mine.pinned == x.pinned)
        r.again = x.uses > 0 ? next.uses[x.first_use] : none, r.again_as = s;
    }
  }
  // Keeps a step of another history, all of whose operators are nameless.
  void learn(const step_record& step) {
    before_.clear();
    log_.copy(step);
    last_ = matcher_.kept.keep(log_.record());
    log_.clear();
  }
};

}  // namespace delta::detail
