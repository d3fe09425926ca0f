// delta: a policy that follows scripts of residency: who leaves when, which way, and who comes
// back.
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

/// Follows scripts, as a policy: all three roles. What a script wants away leaves when the operator
/// that used it last has ended; what it wants back begins to come back when the script says. Both
/// are soft: where the step goes another way than its record, what should be away leaves first when
/// memory is short, then what `online` would choose.
class script_follower {
 public:
  static constexpr bool learns = true;
  static constexpr bool releases_with_room = false;  ///< a plan lets nothing leave if all fits
  using script = std::shared_ptr<const residency_script>;

  /// The script for steps of its shape, in place of the one before. O(scripts).
  void give(script s) {
    const std::uint32_t ends = ends_of(s->shape());
    forget(s->shape());
    if (scripts_.size() == history::most_records) scripts_.erase(scripts_.begin());
    scripts_.push_back({std::move(s), ends});
  }
  /// No script any longer for steps like that record. O(record + scripts).
  void forget(const step_record& step) { forget(residency_script::shape_of(step)); }
  /// True if there is one for steps like that record. O(record + scripts).
  [[nodiscard]] bool has_script_for(const step_record& step) const noexcept {
    return script_for(step) != nullptr;
  }
  /// One that follows the same scripts in a rehearsal, from its beginning.
  [[nodiscard]] script_follower in_rehearsal() const {
    script_follower f;
    f.scripts_ = scripts_, f.rehearsed_ = true;
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
    if (script_ != nullptr)
      for (kept_script& k : scripts_)
        if (k.is.get() == script_) ++k.ends;
    script_ = nullptr;
    return std::exchange(left_, false);
  }

  // --- Heuristic
  // ------------------------------------------------------------------------------------

  /// First what the script wants away by now; then as `cheapest_way_root` has it, what is needed
  /// soon last. O(log absences).
  double score(const context& c, tensor_id t) const {
    if (due(c, t) != nullptr) return -1;
    return 1.0 / (cheapest_way_root{}.weight(c, t) * c.staleness(t));
  }

  /// What leaves behind the operator that has ended, in the script's order. O(that).
  tensor_id victim(const context& c) const {
    const residency_script* const s = followed(c);
    if (s == nullptr || s != script_ || position(c) == 0) return tensor_id::none;
    for (const std::uint32_t a : s->leaving(position(c) - 1))
      if (const tensor_id t = due_of(c, s->absences()[a]); t != tensor_id::none) return t;
    return tensor_id::none;
  }

  // --- Decider
  // --------------------------------------------------------------------------------------

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

  // --- Prefetcher
  // -----------------------------------------------------------------------------------

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

 private:
  using at = residency_script::position;

  void forget(std::uint64_t shape) {
    std::erase_if(scripts_, [&](const kept_script& k) { return k.shape() == shape; });
    under_ = found_under_ = 0, found_ = nullptr, script_ = nullptr;
  }

  // False if the step may yet turn out to be a training step that begins as an evaluation: what is
  // not used again, and dropped, would have to be computed again then. Until a few evaluations in a
  // row have come to their ends. Rehearsals are of steps that are what they seem.
  [[nodiscard]] bool is_trusted(const context& c) const noexcept {
    const residency_script* const s = followed(c);
    return rehearsed_ || s == nullptr || !s->keeps_unused() || ends_of(s->shape()) >= enough_ends;
  }
  // The step has turned out to be another one than its script is for.
  void distrust() noexcept {
    for (kept_script& k : scripts_)
      if (k.is.get() == script_) k.ends = 0;
    script_ = nullptr;
  }
  [[nodiscard]] std::uint32_t ends_of(std::uint64_t shape) const noexcept {
    const auto found = std::ranges::find(scripts_, shape, &kept_script::shape);
    return found == scripts_.end() ? 0 : found->ends;
  }
  // True if kernels hide no copy: each waits for the other.
  static bool hides_nothing(const context& c, direction d) noexcept { return c.burden(d) >= 1; }
  static at position(const context& c) noexcept { return static_cast<at>(c.past().position()); }
  [[nodiscard]] const residency_script* script_for(const step_record& step) const noexcept {
    const std::uint64_t shape = residency_script::shape_of(step);
    const auto found = std::ranges::find(scripts_, shape, &kept_script::shape);
    return found == scripts_.end() ? nullptr : found->is.get();
  }
  // None where it was left, and where the step turns out to have other sizes than the record.
  [[nodiscard]] const residency_script* followed(const context& c) const noexcept {
    const history& past = c.past();
    if (left_) return nullptr;
    if (std::exchange(found_under_, past.forecasts()) != past.forecasts())
      found_ = past.follows() ? script_for(past.followed()) : nullptr;
    const double scale = past.size_scale();
    return scale < smallest || scale > largest ? nullptr : found_;
  }
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

  struct kept_script {
    script is;
    std::uint32_t ends = 0;  // of steps in a row that followed it so far
    [[nodiscard]] std::uint64_t shape() const noexcept { return is->shape(); }
  };
  std::vector<kept_script> scripts_;
  bool rehearsed_ = false;  // nothing is planned
  bool takes_part_ = false;
  bool left_ = false;

  static constexpr std::uint32_t none = step_record::none;
  static constexpr std::uint32_t enough_ends = 3;
  static constexpr at far = 256;  // how long before its time a copy in may begin
  // Times the sizes of a record: what is larger has no room in its plan, what is far smaller needs
  // none.
  static constexpr double smallest = 0.9, largest = 1.01;
  struct copied_early {
    at begins;    // by the script
    double size;  // bytes
  };

  // Of the step under way.
  mutable std::uint64_t found_under_ = 0;  // the forecasts for which `found_` is the script
  mutable const residency_script* found_ = nullptr;
  std::uint64_t under_ = 0;                   // the forecasts that hold
  const residency_script* script_ = nullptr;  // that is followed
  std::uint32_t met_ = none;                  // the position up to which `tensors_` is filled in
  std::vector<tensor_id> tensors_;            // by storage of the followed record
  std::vector<copied_early> early_;
  at out_done_ = 0;  // copies out that begin before it have been named
  std::size_t out_next_ = 0, in_next_ = 0;
};

}  // namespace delta::detail
