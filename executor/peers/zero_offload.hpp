// delta executor: ZeRO-Offload (Ren et al. 2021): optimizer state and gradients are on the host
// until their update.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/decider.hpp"
#include "delta/manager.hpp"
#include "delta/step.hpp"
#include "peers/parts.hpp"

namespace delta::executor {

/// Which operators of a step are the optimizer's, and what they work on beside the parameters: told
/// by what the step does, not by names.
///
///   parameter    a source that outlives the step, is read first, and changed in place later
///   state        such a source, too, but changed before it is read, and first touched behind the
///                last operator that reads a parameter before the first change of one. (The running
///                mean of a batch norm is changed in the forward pass, so it is none.)
///   optimizer's  behind that operator: what changes a parameter or a state
///   gradient     what else those read, if the step has made or changed it
class optimizer_operands {
 public:
  /// By the last step. O(step), O(1) where it was the same before.
  void learn(const context& c) {
    if (c.past().steps() == 0) return;
    const step_record& step = c.past().last();
    const std::uint64_t key = step.operations.back().exact;
    if (std::exchange(key_, key) == key) return;
    const std::vector<role> roles = parameters(step);
    const std::uint32_t behind = last_read_before_changes(step, roles);
    updates_.assign(step.length(), false);
    operand_.assign(step.storages.size(), false);
    if (behind == step_record::none) return;
    for (std::size_t s = 0; s < operand_.size(); ++s) {
      const step_record::storage& x = step.storages[s];
      operand_[s] =
          roles[s] == role::changed && stays(x) && x.uses > 0 && step.uses[x.first_use] > behind;
    }
    for (std::uint32_t i = behind + 1; i < step.length(); ++i)
      updates_[i] = std::ranges::any_of(changed(step, step.operations[i]), [&](std::uint32_t s) {
        return roles[s] == role::parameter || operand_[s];
      });
    for (std::uint32_t i = behind + 1; i < step.length(); ++i) {
      if (!updates_[i]) continue;
      for (const std::uint32_t s : step.touched(step.operations[i])) {
        const bool from_here = step.storages[s].born != step_record::none;
        if (roles[s] != role::parameter && !step.storages[s].pinned &&
            (from_here || roles[s] == role::changed))
          operand_[s] = true;
      }
    }
  }
  /// Is `t` state or a gradient, and for an operator of the optimizer's next? `at`: that operator
  /// by position, beyond the step's length the next step's; `none`: it is not. O(1).
  [[nodiscard]] std::uint32_t awaited_at(const context& c, tensor_id t) const noexcept {
    const history& past = c.past();
    if (!past.follows() || past.followed().operations.back().exact != key_) return none;
    const forecast f = c.next_use(t);
    if (f.what != forecast::kind::known) return none;
    const std::size_t length = updates_.size();
    const std::size_t at = f.position < length ? f.position : f.position - length;
    if (at >= length || !updates_[at]) return none;
    // What was not touched yet in this step, and comes from outside it, is state: parameters are
    // read before they are changed.
    const std::uint32_t s = past.storage_of(t);
    const bool is = s < operand_.size() ? bool{operand_[s]} : c.made_by(t).empty();
    return is ? f.position : none;
  }
  /// The same, and neither the coming operator uses it nor the one behind that. O(1).
  [[nodiscard]] bool leaves(const context& c, tensor_id t) const noexcept {
    const std::uint32_t at = awaited_at(c, t);
    return at != none && at > c.past().position() + 1;
  }

  static constexpr std::uint32_t none = step_record::none;

 private:
  enum class role : std::uint8_t { untouched, read, parameter, changed };

  static std::span<const std::uint32_t> changed(const step_record& step,
                                                const step_record::operation& o) noexcept {
    return step.touched(o).subspan(o.inputs);
  }
  // A source that the program keeps; in the first step it was made within the step.
  static bool stays(const step_record::storage& x) noexcept {
    return x.born == none && x.died == none && !x.dropped && !x.pinned;
  }
  static std::vector<role> parameters(const step_record& step) {
    std::vector<role> roles(step.storages.size(), role::untouched);
    for (const step_record::operation& o : step.operations) {
      for (const std::uint32_t s : changed(step, o)) {
        const bool read_first = roles[s] == role::read || roles[s] == role::parameter;
        const bool parameter = read_first && stays(step.storages[s]);
        roles[s] = parameter ? role::parameter : role::changed;
      }
      for (const std::uint32_t s : step.touched(o).first(o.inputs))
        if (roles[s] == role::untouched) roles[s] = role::read;
    }
    return roles;
  }
  // Of the operators before the first that changes a parameter, the last that reads one.
  static std::uint32_t last_read_before_changes(const step_record& step,
                                                const std::vector<role>& roles) {
    const auto parameter = [&](std::uint32_t s) { return roles[s] == role::parameter; };
    std::uint32_t last = none;
    for (std::uint32_t i = 0; i < step.length(); ++i) {
      const step_record::operation& o = step.operations[i];
      if (std::ranges::any_of(changed(step, o), parameter)) return last;
      if (std::ranges::any_of(step.touched(o), parameter)) last = i;
    }
    return none;  // there is no parameter
  }

  std::uint64_t key_ = 0;      // of the step that it was learnt from
  std::vector<bool> updates_;  // by operator of it
  std::vector<bool> operand_;  // by storage of it
};

/// ZeRO-Offload (Ren et al. 2021, "ZeRO-Offload: Democratizing Billion-Scale Model Training"):
/// optimizer state is on the host, and gradients go there as they are made. There the update itself
/// runs on the CPU; here it runs on the device, so its operands are copied in for it, and what it
/// has changed is copied out again. Parameters stay, as published. What else is in the way goes to
/// the host, the least recently used first; there nothing else moves. The first step is watched:
/// swaps on demand alone. It knows the optimizer of one kind of step at a time.
struct zero_offload_policy : offload_only {
  static constexpr bool learns = true;

  /// The optimizer's operands first, then the least recently used. O(1).
  double score(const context& c, tensor_id t) const noexcept {
    return first_or_stale(c, t, operands_.leaves(c, t));
  }
  /// Out when their operator has ended, and what the step before has left here after the first
  /// one. O(touched).
  double early_release_bytes(const context& c) const {
    return bytes_to_leave(c, [&](tensor_id t) { return operands_.leaves(c, t); });
  }
  /// Back one operator before the update's, if they fit: the first that is due. O(offloaded).
  tensor_id next(const context& c) const noexcept {
    tensor_id first = tensor_id::none;
    std::uint32_t at = c.past().position() + 2;
    for (const tensor_id t : c.offloaded())
      if (const std::uint32_t due = operands_.awaited_at(c, t); due < at) first = t, at = due;
    return first != tensor_id::none && fits_early(c, first) ? first : tensor_id::none;
  }
  void end_of_step(const context& c) { operands_.learn(c); }

 private:
  optimizer_operands operands_;
};
inline zero_offload_policy zero_offload() {
  return {};
}

}  // namespace delta::executor
