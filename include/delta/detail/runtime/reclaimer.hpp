// delta: makes room: the loop of Algorithm 1 (lines 11 to 19; docs/paper.md, as are the repairs
// P-n) around Filter and Decider, with an exit that the paper's lacks (P-4).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/history/step_recorder.hpp"
#include "delta/detail/runtime/contiguous_release.hpp"
#include "delta/detail/runtime/event_sink.hpp"
#include "delta/detail/runtime/give_up.hpp"
#include "delta/detail/runtime/roles.hpp"
#include "delta/detail/runtime/shortage_report.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/error.hpp"
#include "delta/observer.hpp"

namespace delta::detail {

/// Releases tensors until a reservation fits; docs/architecture.md says why that ends. Impossible
/// answers of a policy are corrected here, so that no Decider can lose bytes (P-3).
template <Policy P, Storage S, Observer O>
class reclaimer {
 public:
  using storage_type = S;
  using observer_type = O;
  using decider_type = decider_of_type<P>;
  using recorder = std::conditional_t<policy_learns<P>(), step_recorder, no_recorder>;
  using table_type = residency_table<S, recorder>;
  static constexpr bool evicts = value_of_evicts<decider_type>();
  static constexpr bool offloads = value_of_offloads<decider_type>();
  using policy_roles = roles<P>;

  reclaimer(table_type& table, P p, O o)
      : table_(&table), roles_(std::move(p)), events_(table, std::move(o)) {
    table.now.may_evict = evicts, table.now.may_offload = offloads;
    table.tensors.cached_closure = filter<heuristic_of_type<P>>::keeps_costs;
  }

  /// Makes `need` bytes free, in however many pieces. Throws budget_exceeded, and then nothing more
  /// can leave. Each call is a reservation of its own: what the Decider has kept is judged anew.
  /// O(candidates) per tensor released.
  void make(bytes need, const char* operation) {
    ++reservation_;
    operation_ = operation;
    table_->harvest();
    stay_within_own_peak(need);
    while (table_->free_bytes() < need)
      if (!drop_cached()) release_something(need);
  }

  /// True if `make` lets go of what is kept for replays alone, though so much more may fit: the
  /// program by itself would fit, and never took as much. O(1).
  [[nodiscard]] bool rises_above_own_peak(bytes need) const {
    const bytes after = table_->storage().used() + need, budget = table_->storage().capacity();
    const bytes unmanaged_peak = table_->now.unmanaged_peak;
    if (unmanaged_peak > budget || after <= unmanaged_peak) return false;
    const candidate_list& kept = table_->candidates();
    // Who could not go then is asked again when there is another one, or others have to leave.
    const bool stuck = after <= budget && stuck_at_ == kept.ever_retained();
    return !kept.cached().empty() || (!kept.retained().empty() && !stuck);
  }

  /// A block of `n` bytes, which `make` has made room for. Where free bytes lie scattered, the
  /// cheaper of moving blocks together and releasing a window of neighbours; where copies under way
  /// are between the holes, waits for them; releases more only then.
  block obtain(bytes n, lifetime l) {
    for (;;) {
      clear_window(*this, windows_, n);
      if (auto b = table_->storage().allocate(n, l)) return std::move(*b);
      if (!table_->wait_for_copy() && !table_->wait_for_landings() && !release_any())
        throw budget_exceeded(report(n, operation_, shortage::one_piece));
    }
  }

  /// The bytes that would be free after waiting for copies; what is locked now is not among them.
  /// O(candidates).
  [[nodiscard]] bytes reachable() {
    table_->harvest();
    table_->refresh_machine_state();
    bytes sum = table_->free_bytes() + table_->leaving() + table_->candidates().cached_bytes();
    const context c = view();
    for (const tensor_id t : table_->candidates().all())
      if (table_->tensors[t].locks == 0 && may_leave(c, t)) sum += table_->tensors[t].footprint;
    return sum;
  }

  void end_of_step() {
    table_->now.step_over = true, stuck_at_ = 0, copies_only_ = false;
    table_->refresh_machine_state();
    context_parts shown = parts();
    if constexpr (recorder::enabled) {
      shown.copies = table_->queued_copies();
      if constexpr (has_holes<S>)
        shown.layout = table_->layout(), shown.move_rate = table_->storage().move_rate();
    }
    roles_.end_of_step({table_->tensors, table_->now, shown});
  }
  /// Recomputation thrashes: the policy decides otherwise, or else what can leave by a copy does so
  /// for the rest of the step. False: neither is open, and `clear_host` is to be called behind the
  /// restore. O(tensors + records).
  bool go_on() {
    if (decide_otherwise()) return true;
    table_->refresh_machine_state();
    if (copies_only_ || !table_->now.may_offload || table_->now.host_free == bytes{}) return false;
    table_->tensors.forget_replays();
    return copies_only_ = true;
  }
  /// What can only be copied out finds room on the host, where what is there can be computed again.
  /// O(tensors on the host x what make_host_room takes).
  void clear_host() {
    while (make_host_room()) continue;
  }
  /// True if this tensor on the host is to be reloaded (Decider::restore; default: the cheaper).
  [[nodiscard]] bool reloads(tensor_id t) {
    const context c = view();
    return !c.can_recompute(t) || restoration_of(roles_.decider(), c, t) == restoration::reload;
  }

  /// What a policy sees now.
  [[nodiscard]] context view() const { return {table_->tensors, table_->now, parts()}; }
  [[nodiscard]] auto& events() noexcept { return events_; }
  /// Starts the copy in of a tensor on the host: because it is needed, or early.
  void bring_back(tensor_id t, block&& b, event_kind why) {
    const auto draft = events_.returning(view(), t);
    const stamp done = table_->reload(t, std::move(b), why == event_kind::prefetch);
    events_.tell(why, operation_, draft);
    events_.copy(event_kind::copy_in, operation_, t, done);
  }

  /// Who holds the memory, for an error about `need` more bytes. O(tensors + blocks).
  [[nodiscard]] memory_report report(bytes need, const char* operation, shortage what) {
    table_->refresh_machine_state();
    const bool all_go = roles_.lets_all_go();
    memory_report r = shortage_of(*table_, view(), reservation_, need, operation, what, all_go);
    r.copies = offloads;
    name_budget(r, table_->storage(), bounds_, all_go);
    return r;
  }
  /// What a call asks for, before anything is done for it: errors name budgets by that. O(1).
  void expect(const demand& d) { bounds_.note(d, *table_); }
  [[nodiscard]] budget_bounds& bounds() noexcept { return bounds_; }

  // --- for idle work and for releasing neighbours -----------------------------------------------

  [[nodiscard]] table_type& table() noexcept { return *table_; }
  [[nodiscard]] policy_roles& policy() noexcept { return roles_; }
  [[nodiscard]] const policy_roles& policy() const noexcept { return roles_; }
  /// Idle work begins after that operator, which policies see until `end_idle`. What the Decider
  /// has kept may be asked about again.
  void begin_idle(const ended_operator& o) noexcept { ++reservation_, ended_ = o; }
  void end_idle() noexcept { ended_ = {}; }
  /// True if it was passed over in this reservation.
  [[nodiscard]] bool skipped_in(tensor_id t) const noexcept {
    return table_->tensors[t].skipped_in == reservation_;
  }
  /// Releases the Filter's choice of what nothing waits for. False: there is none.
  bool release_idle() { return release_one(tier::idle); }
  /// What is cached leaves before anybody is asked, the lowest id first, but for what the Decider
  /// keeps; `all`: that, too. O(1), and of what is kept.
  bool drop_cached(bool all = false) {
    for (const tensor_id t : table_->candidates().cached())
      if (all || !keeps_dropped(t)) {
        if (!copies_only_ || !offload_cached(t)) table_->evict(t);
        return true;
      }
    return false;
  }
  /// True if the Decider keeps what the program has dropped, or is about to.
  [[nodiscard]] bool keeps_dropped(tensor_id t) const {
    return roles_.keeps_dropped([&] { return view(); }, t);
  }
  /// Lets one tensor go, by the first way that is open to it, or passes it over.
  void release(const context& c, tensor_id t, action a) {
    tensor_record& r = table_->tensors[t];
    // Nobody wants it back: it goes whatever the Decider says.
    const bool released = c.is_released(t);
    if (released && !copies_only_) return left(c, t), table_->evict(t);
    if (a == action::keep && !released) return void(r.skipped_in = reservation_);
    const auto draft = events_.leaving(c, t, roles_.heuristic());
    if (c.is_clean(t) && c.can_offload(t)) {
      left(c, t);
      table_->drop_clean(t);
      return events_.tell(event_kind::clean_drop, operation_, draft);
    }
    // Its block is free no sooner in any other way.
    const bool under_way = r.copying;
    if (under_way && c.can_offload(t)) a = action::offload;
    // The way chosen, else the other one: pins, a full host, no producer. The host may have no hole
    // in spite of enough bytes, which only the storage knows.
    if (a == action::evict && !c.can_evict(t)) a = action::offload;
    if (a == action::offload && !under_way && is_not_worth_a_copy(*table_, t, walk_))
      return left(c, t), bounds_.give_up(*table_, t);
    if (a == action::offload && c.can_offload(t) && offload(c, t))
      return events_.tell(event_kind::offload, operation_, draft);
    if (c.can_evict(t)) {
      left(c, t);
      table_->evict(t);
      return events_.tell(event_kind::evict, operation_, draft);
    }
    r.skipped_in = reservation_;
  }
  /// Waits for a copy under way.
  void wait() {
    events_.tell(event_kind::wait, operation_);
    table_->wait_for_copy();
    events_.flush();
  }
  [[nodiscard]] const char* operation() const noexcept { return operation_; }

 private:
  [[nodiscard]] context_parts parts() const {
    return {.past = &table_->steps.past(),
            .ended = &ended_,
            .candidates = &table_->candidates().all(),
            .offloaded = table_->offloaded()};
  }
  /// How badly room is needed: who else may be asked to leave.
  enum class tier : std::uint8_t {
    idle,   ///< what nothing waits for
    fresh,  ///< also what came back early and was not used yet (repairs P-26)
    wanted  ///< also what a restore under way will read: it comes back again
  };

  // The Filter's choice among those that may be asked now.
  [[nodiscard]] tensor_id choose(const context& c, tier up_to) {
    return roles_.victims.select(
        roles_.heuristic(), c, table_->tensors, table_->now, table_->candidates(),
        [&](tensor_id t) {
          const tensor_record& r = table_->tensors[t];
          const bool asked_now =
              r.skipped_in != reservation_ && (!r.prefetched_unused || up_to >= tier::fresh) &&
              (r.restore_references == 0 || up_to >= tier::wanted) && r.locks == 0;
          if (asked_now && may_leave(c, t)) return permission::yes;
          // Host room comes and goes; all else that keeps it here is its own affair.
          const bool for_good =
              asked_now && (!table_->now.may_offload || covers(r.pinned, pin::offload));
          return for_good ? permission::not_as_is : permission::not_now;
        });
  }

  // False: the host has no hole for it.
  bool offload(const context& c, tensor_id t) {
    const bool under_way = table_->tensors[t].copying;
    const auto done = table_->offload(t);
    if (!done) return false;
    left(c, t);
    // A copy is told of once, though what it frees may be wanted back and leave again under it.
    events_.copy(event_kind::copy_out, operation_, t, *done, !under_way);
    return true;
  }
  bool offload_cached(tensor_id t) {
    const context c = view();
    const auto draft = events_.leaving(c, t, roles_.heuristic());
    if (!c.can_offload(t) || !offload(c, t)) return false;
    events_.tell(event_kind::offload, operation_, draft);
    return true;
  }
  // Takes note of a release: one in the backward pass, or of what was brought back for nothing.
  void left(const context& c, tensor_id t) {
    tensor_record& r = table_->tensors[t];
    if (table_->now.backward && !c.is_released(t)) ++table_->counts.backward_releases;
    if (!std::exchange(r.prefetched_unused, false)) return;
    roles_.wasted(c, t);
  }

  // One turn of Algorithm 1, lines 12 to 19. False: nobody is left to ask. `at_once`: copies under
  // way will do, so only what is cheaper to let go than waiting is released.
  bool release_one(tier up_to, bool at_once = false) {
    table_->refresh_machine_state();
    const context c = view();
    const tensor_id t = choose(c, up_to);
    if (t == tensor_id::none) return false;
    if (at_once && c.backlog(direction::out) <= c.release_cost(t)) return false;
    ++table_->counts.decisions;
    const bool asked = !at_once || !c.is_released(t);
    action a = asked ? roles_.decider().decide(c, t) : action::evict;
    if (at_once && (a == action::keep || (a == action::offload && !c.is_clean(t)))) return false;
    // What a restore waits for goes to the host where it can: recomputing it could go in circles.
    const bool to_host = copies_only_ || table_->tensors[t].restore_references > 0;
    if (a == action::evict && to_host && c.can_offload(t)) a = action::offload;
    release(c, t, a);
    return true;
  }
  /// One step towards `need` free bytes.
  void release_something(bytes need) {
    if (table_->leaving().count > 0 && table_->free_bytes() + table_->leaving() >= need) {
      if (!release_one(tier::idle, true)) wait();
    } else if (!release_any()) {
      throw budget_exceeded(report(need, operation_, shortage::room));
    }
  }
  /// One more tensor on its way, or one copy less; false: nothing more can leave. Waiting comes
  /// before what is soon fetched again, that before host copies and sources, whose loss is final.
  bool release_any() {
    if (drop_cached() || release_one(tier::idle) || drop_cached(true)) return true;
    if (table_->copying()) return wait(), true;
    return release_one(tier::fresh) || make_host_room() || release_one(tier::wanted) ||
           more_host_room(reclaim_host(*table_)) || give_up_source(true) ||
           (decide_otherwise() && (clear_host(), true));
  }
  // True if the policy decides otherwise from now on (Decider::on_thrash); it may recompute each
  // operator as often as before. O(tensors + records).
  bool decide_otherwise() {
    const auto as_of_now = [&] { return table_->refresh_machine_state(), view(); };
    if (!roles_.decide_otherwise(as_of_now)) return false;
    table_->tensors.forget_replays();
    return true;
  }
  // What can only be offloaded should not be stuck for what could be computed again.
  bool make_host_room() { return more_host_room(give_up_on_host(*table_, view(), reservation_)); }
  // Who found no room there may find it now. True if there is more.
  bool more_host_room(bool more) {
    if (more) ++reservation_, table_->refresh_machine_state();
    return more;
  }
  bool give_up_source(bool constants) {
    const tensor_id t = source_to_give_up(*table_, walk_, constants);
    if (t == tensor_id::none) return false;
    return bounds_.give_up(*table_, t), true;
  }
  /// What is kept for replays alone goes before the peak rises above the program's own. Dropped
  /// constants wait for the first step's end: their holes may cost more than they are worth.
  void stay_within_own_peak(bytes need) {
    while (rises_above_own_peak(need))
      if (!drop_cached(true) && !give_up_source(table_->now.step_over))
        return void(stuck_at_ = table_->candidates().ever_retained());
  }
  table_type* table_;
  policy_roles roles_;
  [[no_unique_address]] event_sink<table_type, O> events_;
  window_search windows_;
  std::vector<operator_id> walk_;
  bool copies_only_ = false;    // in this step: recomputation has thrashed
  std::uint64_t stuck_at_ = 0;  // so many had been retained when none of them could go
  ended_operator ended_;        // while nobody waits
  std::uint64_t reservation_ = 0;
  budget_bounds bounds_{evicts, value_of_releases_with_room<prefetcher_of_type<P>>()};
  const char* operation_ = "";
};

}  // namespace delta::detail
