// delta: a policy that follows scripts of residency: who leaves when, which way, who comes back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/detail/planning/residency_script.hpp"
#include "delta/heuristic.hpp"

namespace delta::detail {

/// Follows scripts, as a policy. What a script wants away leaves behind the operator that used it
/// last; what it wants back starts back when the script says. Both are soft: where a step departs
/// from its record, what should be away leaves first when memory is short, then `online`'s choice.
class script_follower {
 public:
  static constexpr bool learns = true;
  static constexpr bool releases_with_room = false;  ///< a plan lets nothing leave if all fits
  using script = std::shared_ptr<const residency_script>;

  /// What is known of steps of one shape: their script, and how those came out that followed it.
  /// Times in ns beyond the operators; infinite: not known.
  struct kind {
    std::uint64_t shape = 0;  ///< residency_script::shape_of
    script plan{};            ///< null: there is none
    bool left = false;        ///< it is not followed, and no other one is made
    std::uint32_t ends = 0;   ///< of steps in a row that followed it so far
    double promised = never;  ///< what such a step takes under it
    /// ns from its beginning, as it was rehearsed: when so many operators had ended.
    std::vector<double> ended_at{};
    double under = never;    ///< the same, as measured last
    double without = never;  ///< and without: measured last; the first as rehearsed
    double balance = 0;      ///< ns that it has saved, less what it has cost steps of other kinds
    double budget = 0, time = 0;         ///< bytes, and ns of the operators, for which it was made
    double effort = 0;                   ///< ns of each search for it
    double cost = 0;                     ///< ns of all of it
    bool fresh = false;                  ///< no step has ended under it
    bool stale = false;                  ///< another one may be better: something has changed
    std::uint32_t late = 0, behind = 0;  ///< steps in a row
    std::uint32_t times_left = 0;
    [[nodiscard]] bool follows() const noexcept { return plan != nullptr && !left; }
  };
  /// What is known of steps like that record; null: nothing. O(record + kinds).
  [[nodiscard]] const kind* known(const step_record& step) const noexcept {
    return of_shape(residency_script::shape_of(step));
  }
  /// The same, or a new kind; of too many the oldest is forgotten. O(record + kinds).
  kind& met(const step_record& step) {
    const std::uint64_t shape = residency_script::shape_of(step);
    if (const kind* const k = of_shape(shape))
      return kinds_[static_cast<std::size_t>(k - kinds_.data())];
    if (kinds_.size() == history::most_records) kinds_.erase(kinds_.begin());
    look_again();
    return kinds_.emplace_back(kind{.shape = shape});
  }
  /// All kinds that are known, the oldest first.
  [[nodiscard]] std::vector<kind>& kinds() noexcept { return kinds_; }
  /// The script that steps of that kind follow from now on; null: none. O(1).
  void give(kind& k, script s) {
    k.plan = std::move(s);
    look_again();
  }
  /// False: steps of that kind follow their script again. O(1).
  void set_left(kind& k, bool left) noexcept {
    k.left = left;
    look_again();
  }
  /// One that follows the same scripts in a rehearsal, from its beginning.
  [[nodiscard]] script_follower in_rehearsal() const {
    script_follower f;
    f.kinds_ = kinds_, f.rehearsed_ = true;
    return f;
  }
  [[nodiscard]] bool rehearses() const noexcept { return rehearsed_; }
  /// True if a script was followed since that was asked last.
  [[nodiscard]] bool takes_part() noexcept { return std::exchange(takes_part_, false); }
  /// No script is followed in the rest of the step.
  void leave_script() noexcept { left_ = true; }
  [[nodiscard]] bool left() const noexcept { return left_; }
  /// The step has ended. True if its script was left.
  bool take_scripts_up() noexcept {
    if (kind* const k = kind_of(script_)) ++k->ends, led_by_ = script_;
    script_ = nullptr;
    return std::exchange(left_, false);
  }
  /// Whose script the ended step followed last, if only in part; null: nobody's. O(kinds).
  [[nodiscard]] kind* led_by() noexcept { return kind_of(std::exchange(led_by_, nullptr)); }

  // --- Heuristic ---

  static constexpr bool later_if_dearer = cheapest_way_root::later_if_dearer;
  static constexpr quantity depends_on = cheapest_way_root::depends_on;
  /// As `online` has it, for what no script wants away. O(closure).
  double weight(const context& c, tensor_id t) const noexcept {
    return cheapest_way_root{}.weight(c, t);
  }
  /// Who leaves before all others: what leaves behind the operator that has ended, in the script's
  /// order; then what is to be away by now. O(that), or O(candidates log absences).
  template <class MayLeave>
  tensor_id victim(const context& c, const MayLeave& may_leave) const {
    const residency_script* const s = followed(c);
    if (s == nullptr) return tensor_id::none;
    if (s == script_ && position(c) > 0)
      for (const std::uint32_t a : s->leaving(position(c) - 1))
        if (const tensor_id t = due_of(c, s->absences()[a]); t != tensor_id::none && may_leave(t))
          return t;
    for (const tensor_id t : c.candidates())
      if (!c.is_released(t) && due(c, t) != nullptr && may_leave(t)) return t;
    return tensor_id::none;
  }

  // --- Decider ---

  action decide(const context& c, tensor_id t) const {
    const auto* const a = due(c, t);
    if (a == nullptr || (a->for_good && !is_trusted(c))) return cheaper{}.decide(c, t);
    return a->copied ? action::offload : action::evict;
  }
  static constexpr bool may_keep() noexcept { return false; }
  /// True if a dropped tensor, which was computed again, is to stay for another recomputation.
  [[nodiscard]] bool keeps_dropped(const context& c, tensor_id t) const {
    const residency_script* const s = followed(c);
    return s != nullptr && s->stays(c.past().stands_for(t), position(c));
  }

  // --- Prefetcher ---

  /// Of what the operator that has ended used last, or what is to leave behind it. O(that).
  double early_release_bytes(const context& c) {
    const residency_script* const s = meet(c);
    if (s == nullptr || position(c) == 0) return 0;
    double sum = 0;
    for (const std::uint32_t a : s->leaving(position(c) - 1)) {
      const tensor_id t = due_of(c, s->absences()[a]);
      if (t != tensor_id::none && (c.can_offload(t) || c.can_evict(t))) sum += c.bytes(t);
    }
    return sum;
  }
  /// What is to be copied out by now, and to leave later.
  tensor_id copy_ahead(const context& c) {
    const residency_script* const s = meet(c);
    if (s == nullptr || hides_nothing(c, direction::out)) return tensor_id::none;
    for (; out_done_ < position(c); ++out_done_, out_next_ = 0) {
      const auto list = s->copied_out(out_done_);
      while (out_next_ < list.size()) {
        const tensor_id t = tensor_of(c, s->absences()[list[out_next_++]].storage);
        if (t != tensor_id::none && c.candidates().contains(t) && !c.is_held(t) && !c.is_clean(t) &&
            !c.is_copying(t) && c.can_offload(t))
          return t;
      }
    }
    return tensor_id::none;
  }
  /// What is to come back by now, if there is room for it.
  tensor_id next(const context& c) {
    const residency_script* const s = meet(c);
    if (s == nullptr || hides_nothing(c, direction::in)) return tensor_id::none;
    const auto all = s->coming();
    while (in_next_ < all.size()) {
      const residency_script::absence& a = s->absences()[all[in_next_]];
      const at begins = s->in_step(a.in_from);
      const tensor_id t = tensor_of(c, a.storage);
      const bool waits = t != tensor_id::none && c.where(t) == residency::host;
      if (begins > position(c) && !(waits && early(c, *s, t, begins))) break;
      if (waits) {
        if (c.used() + c.bytes(t) > c.budget()) break;
        if (begins > position(c)) early_.push_back({begins, c.bytes(t)});
        return t;
      }
      ++in_next_;
    }
    return tensor_id::none;
  }

 protected:
  // None where it was left, and where the step turns out to have other sizes than the record.
  [[nodiscard]] const residency_script* followed(const context& c) const noexcept {
    const history& past = c.past();
    const double scale = past.size_scale();
    if (left_ || scale < smallest || scale > largest) return nullptr;
    const kind* const k = kind_under_way(past);
    return k == nullptr ? nullptr : k->plan.get();
  }
  // The kind of step that is followed, if it has a script; null: it has none.
  [[nodiscard]] const kind* kind_under_way(const history& past) const noexcept {
    if (std::exchange(found_under_, past.forecasts()) != past.forecasts())
      found_ = past.follows() ? known(past.followed()) : nullptr;
    return found_ != nullptr && found_->follows() ? found_ : nullptr;
  }

 private:
  using at = residency_script::position;

  // Another script may hold from now on.
  void look_again() noexcept { under_ = found_under_ = 0, found_ = nullptr, script_ = nullptr; }
  [[nodiscard]] const kind* of_shape(std::uint64_t shape) const noexcept {
    const auto found = std::ranges::find(kinds_, shape, &kind::shape);
    return found == kinds_.end() ? nullptr : &*found;
  }
  [[nodiscard]] kind* kind_of(const residency_script* s) noexcept {
    const auto found =
        std::ranges::find_if(kinds_, [&](const kind& k) { return k.plan.get() == s; });
    return s == nullptr || found == kinds_.end() ? nullptr : &*found;
  }

  // False if the step may yet turn out to be a training step that begins as an evaluation: what is
  // not used again, and dropped, would have to be computed again then. Until a few evaluations in a
  // row have come to their ends. Rehearsals are of steps that are what they seem.
  [[nodiscard]] bool is_trusted(const context& c) const noexcept {
    const residency_script* const s = followed(c);
    if (rehearsed_ || s == nullptr || !s->keeps_unused()) return true;
    const kind* const k = of_shape(s->shape());
    return k != nullptr && k->ends >= enough_ends;
  }
  // The step has turned out to be another one than its script is for.
  void distrust() noexcept {
    if (kind* const k = kind_of(script_)) k->ends = 0;
    led_by_ = std::exchange(script_, nullptr);
  }
  // True if kernels hide no copy: each waits for the other.
  static bool hides_nothing(const context& c, direction d) noexcept { return c.burden(d) >= 1; }
  static at position(const context& c) noexcept { return static_cast<at>(c.past().position()); }
  // The absence in which it is to be now; null: none, or it is to come back.
  [[nodiscard]] const residency_script::absence* due(const context& c, tensor_id t) const noexcept {
    const residency_script* const s = followed(c);
    if (s == nullptr) return nullptr;
    const std::uint32_t which = c.past().stands_for(t);
    if (which == step_record::none) return nullptr;
    const auto [a, shift] = s->at(which, position(c));
    const bool back = a != nullptr && a->copied && a->in_from <= position(c) + shift;
    return back ? nullptr : a;
  }
  // The candidate that is to be in that absence now; none.
  [[nodiscard]] tensor_id due_of(const context& c,
                                 const residency_script::absence& a) const noexcept {
    const tensor_id t = tensor_of(c, a.storage);
    const bool leaves = t != tensor_id::none && c.candidates().contains(t) && due(c, t) != nullptr;
    return leaves ? t : tensor_id::none;
  }
  // The script that is followed; what the operator that has ended touched plays its storages.
  const residency_script* meet(const context& c) {
    const residency_script* const s = followed(c);
    if (s != script_ && script_ != nullptr) distrust();
    if (s == nullptr) return nullptr;
    const history& past = c.past();
    if (std::exchange(under_, past.forecasts()) != past.forecasts() || script_ != s) {
      script_ = s, takes_part_ = true;
      out_done_ = position(c) > 0 ? position(c) - 1 : 0, out_next_ = in_next_ = 0;
      tensors_.assign(past.followed().storages.size(), tensor_id::none);
      for (const tensor_id t : c.offloaded()) plays(past, t);
      for (const tensor_id t : c.candidates()) plays(past, t);
      met_ = none, early_.clear();
    }
    if (std::exchange(met_, past.position()) != past.position()) {
      const ended_operator& o = c.ended();
      for (const auto& list : {o.inputs, o.updates, o.outputs})
        for (const tensor_id t : list) plays(past, t);
    }
    return s;
  }
  // May its copy in begin before its time? If the lane is idle, and it fits beside all that the
  // plan holds until then. O(positions until then), up to `far`.
  bool early(const context& c, const residency_script& s, tensor_id t, at begins) {
    if (c.backlog(direction::in) > 0 || begins > position(c) + far) return false;
    std::erase_if(early_, [&](const copied_early& x) { return x.begins <= position(c); });
    double room = c.budget() - c.bytes(t);
    for (const copied_early& x : early_) room -= x.size;
    for (at p = position(c); p < begins; ++p)
      if (s.held(p) > room) return false;
    return true;
  }
  void plays(const history& past, tensor_id t) {
    if (const std::uint32_t s = past.stands_for(t); s < tensors_.size()) tensors_[s] = t;
  }
  [[nodiscard]] tensor_id tensor_of(const context& c, std::uint32_t s) const noexcept {
    const tensor_id t = s < tensors_.size() ? tensors_[s] : tensor_id::none;
    return t != tensor_id::none && c.past().stands_for(t) == s ? t : tensor_id::none;
  }

  std::vector<kind> kinds_;
  bool rehearsed_ = false;  // nothing is planned
  bool takes_part_ = false;
  bool left_ = false;

  static constexpr std::uint32_t none = step_record::none;
  static constexpr std::uint32_t enough_ends = 3;
  static constexpr at far = 256;  // how long before its time a copy in may begin
  // Times a record's sizes: what is larger has no room in its plan, what is far smaller needs none.
  static constexpr double smallest = 0.9, largest = 1.01;
  struct copied_early {
    at begins;    // by the script
    double size;  // bytes
  };

  // Of the step under way.
  mutable std::uint64_t found_under_ = 0;  // the forecasts for which `found_` is the kind
  mutable const kind* found_ = nullptr;
  std::uint64_t under_ = 0;                   // the forecasts that hold
  const residency_script* script_ = nullptr;  // that is followed
  const residency_script* led_by_ = nullptr;  // that was followed last, in the step that has ended
  std::uint32_t met_ = none;                  // the position up to which `tensors_` is filled in
  std::vector<tensor_id> tensors_;            // by storage of the followed record
  std::vector<copied_early> early_;
  at out_done_ = 0;  // copies out that begin before it have been named
  std::size_t out_next_ = 0, in_next_ = 0;
};

}  // namespace delta::detail
