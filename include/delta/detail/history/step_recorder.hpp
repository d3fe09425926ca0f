// delta: writes the history of steps. The runtime tells the recorder of every tensor, operator and
// end of a step; policies read the history that comes of it. The runtime itself uses one answer of
// the recorder: that an operator begins a step which the program has not marked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "delta/detail/history/pending_times.hpp"
#include "delta/detail/history/written_history.hpp"
#include "delta/detail/tensors/records.hpp"
#include "delta/history.hpp"
#include "delta/kernel.hpp"
#include "delta/step.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Notices that a step begins, in a program that has never marked the end of one: its first
/// operator comes again, on the same parameters, and next to nothing of what operators have made
/// since is left. The second condition tells it from the cell of a recurrent network, which comes
/// again in the middle of a step, when what the cells before it made is still there.
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

/// Writes the history, where a policy learns. Where `tensors` is handed over, `tensors[t]` is the
/// tensor's record.
class step_recorder {
 public:
  static constexpr bool enabled = true;
  /// What was recorded.
  [[nodiscard]] const history& past() const noexcept { return past_; }

  // --- tensors ----------------------------------------------------------------------------------

  /// A tensor appears: a source, or what an operator has made. Amortised O(1).
  void created(tensor_id t, bytes size, bool source, bool pinned) {
    past_.created(t, size);
    if (source)
      past_.changed(step_record::change::kind::created, t, size, pinned);
    else
      detector_.made(size);
  }
  /// The program has dropped it.
  void dropped(tensor_id t, const tensor_record& r) {
    past_.dropped(t, r.footprint, r.pinned == pin::both);
    if (!r.persistent) detector_.dropped(r.footprint);
  }
  /// The host has acquired it.
  void acquired(tensor_id t, const tensor_record& r, access how) {
    using change = step_record::change::kind;
    past_.changed(how == access::write ? change::written : change::read, t, r.footprint,
                  r.pinned == pin::both);
  }

  // --- operators --------------------------------------------------------------------------------

  /// An operator is about to begin: does a step begin with it that the program has not marked? Then
  /// the engine ends the one before. O(touched).
  template <class Tensors>
  [[nodiscard]] bool begins_step(std::string_view name, std::span<const tensor_id> touched,
                                 const Tensors& tensors) {
    return detector_.begins(name, touched,
                            [&](tensor_id t) { return tensors[t].producer == operator_id::none; });
  }
  /// It begins, at `clock`. O(touched).
  template <class Tensors>
  void begin(std::string_view name, std::span<const tensor_id> touched, std::size_t inputs,
             nanoseconds clock, const Tensors& tensors) {
    past_.starts(clock);
    past_.begin(
        name, touched, inputs, [&](tensor_id t) { return tensors[t].footprint; },
        [&](tensor_id t) { return tensors[t].pinned == pin::both; });
  }
  /// It was given up. O(storages of the step).
  void abort() noexcept { past_.abort_operator(); }
  /// It has made these. Its time is the sum over `pieces`, where `cost_of` knows all of them by
  /// now; else until then `prior`, what the program said, or what it took in the step before, or
  /// `guess()`. `workspace` is rounded.
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
    const std::uint32_t position = past_.operators();
    if (!known) cost = prior;
    const bool nothing = !known && prior.count() == 0;
    past_.end(
        made, workspace, traits, nothing ? -1.0 : static_cast<double>(cost.count()),
        [&](tensor_id t) { return tensors[t].footprint; },
        nothing ? static_cast<double>(guess().count()) : 0.0, replaced);
    bool first = true;
    if (!known)
      for (const stamp s : pieces) untimed_.add(s, {position, std::exchange(first, false)});
  }
  /// Takes note of times that are known by now.
  template <class CostOf>
  void poll_times(const CostOf& cost_of) {
    untimed_.poll(cost_of, [&](const piece& p, nanoseconds took) {
      past_.measured(p.position, static_cast<double>(took.count()), p.first);
    });
  }

  // --- steps ------------------------------------------------------------------------------------

  /// The program says where its steps end: the detector need not look for it.
  void mark() noexcept { detector_.mark(); }
  /// Before a step ends: takes note of the times that are known by now, and waits for no others, as
  /// the next step counts its operators anew.
  template <class CostOf>
  void forget_times(const CostOf& cost_of) {
    poll_times(cost_of);
    untimed_.clear();
  }
  /// The step ends, with what the program holds then. O(step + tensors).
  template <class Tensors>
  void end_of_step(nanoseconds clock, const Tensors& tensors) {
    past_.end_of_step(clock, [&](const auto& visit) {
      for (std::uint32_t i = 0; i < tensors.tensor_slots(); ++i) {
        const auto t = static_cast<tensor_id>(i);
        if (tensors[t].in_use && tensors[t].references > 0)
          visit(t, tensors[t].footprint, tensors[t].pinned == pin::both);
      }
    });
  }
  /// The next step's time begins: what was done since the end of the last counts to no step.
  void resume(nanoseconds clock) noexcept { past_.resumes(clock); }
  /// As history::preload.
  void preload(const step_record& step, std::span<const tensor_id> here, const step_record* next) {
    detector_.mark();
    past_.preload(step, here, next);
  }

 private:
  struct piece {
    std::uint32_t position;  ///< of the step's operator
    bool first;              ///< of several pieces of it
  };
  written_history past_;
  step_detector detector_;
  pending_times<piece> untimed_;
};

/// The same door where no policy learns: what is told is not looked at, nothing is kept, and
/// nothing of it is left in the code.
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
