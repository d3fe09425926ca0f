// delta: writes the history of steps. The runtime tells the recorder of every tensor, operator and
// end of a step; policies read the history. The runtime asks only whether an unmarked step begins.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "delta/detail/history/pending_times.hpp"
#include "delta/detail/tensors/records.hpp"
#include "delta/history.hpp"
#include "delta/kernel.hpp"
#include "delta/step.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Notices that a step begins, in a program that never marks the end of one: its first operator
/// comes again on the same parameters, and next to nothing made since is left. (The cell of a
/// recurrent network comes again, too, but what the cells before it made is still there.)
class step_detector {
 public:
  /// The program marks its steps: from now on nothing is noticed.
  void mark() noexcept { marked_ = true; }
  /// Bytes of an operator's output that came, or that the program dropped.
  void made(bytes n) noexcept {
    held_ += n.count;
    most_ = std::max(most_, held_);
  }
  void dropped(bytes n) noexcept { held_ -= std::min(held_, n.count); }

  /// An operator begins; `is_source(t)`: nothing made it. Does a step begin with it? The first one
  /// of all is remembered, and is no news. O(touched).
  template <class IsSource>
  bool begins(std::string_view name, std::span<const tensor_id> touched,
              const IsSource& is_source) {
    if (marked_) return false;
    if (operators_++ == 0) {
      name_.assign(name.begin(), name.end());
      touched_.assign(touched.begin(), touched.end());
      for (tensor_id& t : touched_)
        if (!is_source(t)) t = tensor_id::none;
      return false;
    }
    const bool emptied = most_ > 0 && held_ <= most_ / share;
    if (operators_ - 1 < shortest || !emptied || !same(name, touched)) return false;
    operators_ = 1;
    most_ = held_;
    return true;
  }

 private:
  static constexpr std::uint64_t shortest = 8;  // operators of a step
  static constexpr std::uint64_t share = 10;    // of the most that was held, which may be left

  // A batch may be another tensor in each step; one of the sources at least is a parameter.
  [[nodiscard]] bool same(std::string_view name, std::span<const tensor_id> touched) const {
    if (touched.size() != touched_.size() || !std::ranges::equal(name, name_)) return false;
    for (std::size_t i = 0; i < touched.size(); ++i)
      if (touched_[i] != tensor_id::none && touched[i] == touched_[i]) return true;
    return false;
  }

  std::vector<char> name_;
  std::vector<tensor_id> touched_;  // by the first operator; none: what another operator had made
  std::uint64_t operators_ = 0, held_ = 0, most_ = 0;
  bool marked_ = false;
};

/// The history of a policy that learns, and its writing. `tensors[t]` is a tensor's record.
class step_recorder : public history {
 public:
  static constexpr bool enabled = true;
  /// What was recorded.
  [[nodiscard]] const history& past() const noexcept { return *this; }

  // --- tensors ----------------------------------------------------------------------------------

  /// A tensor appears, of `size` rounded bytes: a source, or an output. Amortised O(1).
  void created(tensor_id t, bytes size, bool source, bool pinned) {
    log_.cover(t);
    live_ += size.count;
    if (source)
      log_.changed(step_record::change::kind::created, t, size, pinned);
    else
      detector_.made(size);
  }
  /// The program has dropped it.
  void dropped(tensor_id t, const tensor_record& r) {
    log_.changed(step_record::change::kind::dropped, t, r.footprint, r.pinned == pin::both);
    live_ -= r.footprint.count;
    if (row& x = log_.of(t); log_.touched(t))
      x.gone_under = forecasts(), x.gone_as = matcher_.twin(x.local);
    log_.dropped(t);
    if (!r.persistent) detector_.dropped(r.footprint);
  }
  /// The host has acquired it.
  void acquired(tensor_id t, const tensor_record& r, access how) {
    using change = step_record::change::kind;
    log_.changed(how == access::write ? change::written : change::read, t, r.footprint,
                 r.pinned == pin::both);
  }

  // --- operators --------------------------------------------------------------------------------

  /// Does this operator begin a step that is not marked? Then the engine ends the last. O(touched).
  template <class Tensors>
  [[nodiscard]] bool begins_step(std::string_view name, std::span<const tensor_id> touched,
                                 const Tensors& tensors) {
    return detector_.begins(name, touched,
                            [&](tensor_id t) { return tensors[t].producer == operator_id::none; });
  }
  /// It begins, at `clock`; the first of all begins a step. O(touched), but for one that differs.
  template <class Tensors>
  void begin(std::string_view name, std::span<const tensor_id> touched, std::size_t inputs,
             nanoseconds clock, const Tensors& tensors) {
    if (log_.step() == 1 && log_.record().operations.empty()) began_ = clock;
    const std::uint32_t here = log_.record().length();
    log_.begin(
        name, touched, inputs, [&](tensor_id t) { return tensors[t].footprint; },
        [&](tensor_id t) { return tensors[t].pinned == pin::both; },
        [&](tensor_id t) {
          if (const row& r = log_.of(t); r.before_step == log_.step())
            matcher_.kept[last_].step.storages[r.before].again = here;
        });
    matcher_.begin(log_.record(), log_.prefix());
  }
  /// It was given up; only a record taken up for it stays. O(storages of the step).
  void abort() noexcept {
    const std::uint32_t storages = log_.abort([&](tensor_id t) {
      if (const row& r = log_.of(t); r.before_step == log_.step())
        matcher_.kept[last_].step.storages[r.before].again = r.again;
    });
    matcher_.abort(storages);
  }
  /// It has made these. Its time is the sum over `pieces` if `cost_of` knows all of them; until
  /// then `prior`, or what it took in the step before, or `guess()`. `workspace` is rounded.
  template <class Guess, class Tensors, class CostOf>
  void end(std::span<const tensor_id> made, bytes workspace, trait traits, nanoseconds prior,
           const Guess& guess, std::span<const stamp> pieces, const Tensors& tensors,
           const CostOf& cost_of, std::span<const replaced_input> replaced) {
    nanoseconds cost{};
    bool known = true;
    for (const stamp s : pieces)
      if (const auto took = cost_of(s))
        cost += *took;
      else
        known = false;
    const std::uint32_t position = operators();
    if (!known) cost = prior;
    const bool nothing = !known && prior.count() == 0;
    end(made, workspace, traits, nothing ? -1.0 : static_cast<double>(cost.count()), tensors,
        nothing ? static_cast<double>(guess().count()) : 0.0, replaced);
    bool first = true;
    if (!known)
      for (const stamp s : pieces) untimed_.add(s, {position, std::exchange(first, false)});
  }
  /// The same of a cost in ns; negative: it is what the step before has, or `guess`.
  template <class Tensors>
  void end(std::span<const tensor_id> made, bytes workspace, trait traits, double cost,
           const Tensors& tensors, double guess = 0,
           std::span<const replaced_input> replaced = {}) {
    matcher_.end();
    const std::uint32_t here = log_.record().length() - 1;
    log_.end(
        made, workspace, traits, cost >= 0 ? cost : matcher_.cost_of(here, guess),
        live_ + workspace.count, [&](tensor_id t) { return tensors[t].footprint; }, replaced);
    matcher_.compare(log_.record());
  }
  /// What an operator of this step took, in ns: the first piece of it, or one more.
  void measured(std::uint32_t position, double cost, bool first) noexcept {
    log_.measured(position, cost, first);
  }
  /// Takes note of times that are known by now.
  template <class CostOf>
  void poll_times(const CostOf& cost_of) {
    untimed_.poll(cost_of, [&](const piece& p, nanoseconds took) {
      measured(p.position, static_cast<double>(took.count()), p.first);
    });
  }

  // --- steps ------------------------------------------------------------------------------------

  /// The program says where its steps end: the detector need not look for it.
  void mark() noexcept { detector_.mark(); }
  /// Before a step ends: notes the times known by now; the next step counts its operators anew.
  template <class CostOf>
  void forget_times(const CostOf& cost_of) {
    poll_times(cost_of);
    untimed_.clear();
  }
  /// The step ends, with what the program holds then, which takes memory untouched, too: it is
  /// kept, and the next one begins. O(step + tensors).
  template <class Tensors>
  void end_of_step(nanoseconds clock, const Tensors& tensors) {
    step_record& now = log_.record();
    if (now.operations.empty()) return void(began_ = clock);
    took_ = static_cast<double>((clock - std::exchange(began_, clock)).count());
    // What lives and was not used in this step is not expected in the next one like it.
    if (last_ != none)
      for (std::uint32_t l = 0; l < last().storages.size(); ++l) {
        step_record::storage& s = matcher_.kept[last_].step.storages[l];
        if (was_before(s.tensor, l) && !log_.touched(s.tensor)) s.again = none;
      }
    // What is known of the step behind one like this.
    for (std::uint32_t l = 0; follows() && l < now.storages.size(); ++l)
      if (const std::uint32_t twin = matcher_.twin(l); twin != none)
        now.storages[l].again = followed().storages[twin].again;
    log_.enter_untouched([&](const auto& visit) {
      for (std::uint32_t i = 0; i < tensors.tensor_slots(); ++i) {
        const auto t = static_cast<tensor_id>(i);
        if (tensors[t].in_use && tensors[t].references > 0)
          visit(t, tensors[t].footprint, tensors[t].pinned == pin::both);
      }
    });
    const std::uint64_t structure = now.structure();
    if (follows() && followed().structure() == structure) log_.note_origins(followed());
    now.finish();
    keep_step(structure);
    log_.clear();
    matcher_.end_of_step();
    matcher_.follow(matcher_.kept.next(), 0);
  }
  /// The next step's time begins: what was done since the end of the last counts to no step.
  void resume(nanoseconds clock) noexcept { began_ = clock; }
  /// A step of another history, whose names are not known here: it is followed by one whose
  /// operators have none (""). `here`: by its storages, those from outside it that are here, and
  /// expected. `next`: the step behind it, if that is another one.
  void preload(const step_record& step, std::span<const tensor_id> here = {},
               const step_record* next = nullptr) {
    detector_.mark();
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

 private:
  struct piece {
    std::uint32_t position;  ///< of the step's operator
    bool first;              ///< of several pieces of it
  };
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
    const auto& made = last().storages;
    for (std::uint32_t l = 0; l < made.size(); ++l) {
      row& r = log_.of(made[l].tensor);
      // Dropped ones are left out; the id may be another's by now.
      if (r.step != log_.step() - 1 || r.local != l) continue;
      r.before = l;
      r.again = made[l].again, r.again_as = none;
      r.before_step = r.again_step = log_.step();
    }
    // What the step that is expected used itself, it will use there again.
    for (std::uint32_t s = 0; s < next.storages.size(); ++s) {
      const step_record::storage& x = next.storages[s];
      if (!next.was_there(s)) continue;
      // What the last step has made and left is what it left to this one.
      if (x.was < made.size() && coming_ == last().structure())
        if (const tensor_id t = made[x.was].tensor; was_before(t, x.was)) log_.of(t).again_as = s;
      if (!log_.knows(x.tensor)) continue;
      row& r = log_.of(x.tensor);
      if (r.before_step != log_.step()) continue;
      const step_record::storage& mine = made[r.before];
      if (mine.size == x.size && mine.pinned == x.pinned)
        r.again = x.uses > 0 ? next.uses[x.first_use] : none, r.again_as = s;
    }
  }
  // Keeps a step of another history, all of whose operators are nameless.
  void learn(const step_record& step) {
    log_.copy(step);
    last_ = matcher_.kept.keep(log_.record());
    log_.clear();
  }

  step_detector detector_;
  pending_times<piece> untimed_;
};

/// The same interface where no policy learns: empty, so that nothing is left in the code.
class no_recorder {
 public:
  static constexpr bool enabled = false;
  [[nodiscard]] static const history& past() noexcept { return empty; }

  void created(tensor_id, bytes, bool, bool) const noexcept {}
  void dropped(tensor_id, const tensor_record&) const noexcept {}
  void acquired(tensor_id, const tensor_record&, access) const noexcept {}
  void abort() const noexcept {}
  template <class CostOf>
  void poll_times(const CostOf&) const noexcept {}
  void preload(const step_record&, std::span<const tensor_id>, const step_record*) const noexcept {}

 private:
  static inline const history empty{};
};

}  // namespace delta::detail
