// delta: what a policy may see. One concrete class, so that the concepts check against the real
// thing. All quantities are doubles: bytes and nanoseconds; "can't" is infinity.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

#include "delta/detail/tensors/closure_walk.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/id_set.hpp"
#include "delta/history.hpp"
#include "delta/machine_state.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta {

/// What can't be done costs this much: infinity, which compares as one would wish.
inline constexpr double never = std::numeric_limits<double>::infinity();

namespace detail {
/// How long ago, in ns, at least 1.
constexpr double staleness(double now, double last_use) noexcept {
  const double s = now - last_use;
  return s > 1.0 ? s : 1.0;
}
class next_step;
/// What a context shows beside the tensors and the machine's state; the lists outlive it.
struct context_parts {
  static inline const history nothing_known{};
  static inline const ended_operator nothing_ended{};
  static inline const id_set nobody{};
  const history* past = &nothing_known;
  const ended_operator* ended = &nothing_ended;
  const id_set* candidates = &nobody;
  std::span<const tensor_id> offloaded{};
  // Where a policy learns, at the end of a step: copies under way, per direction as queued; the
  // device's memory by address (empty: not known); bytes per second that move in it (0: no time).
  std::span<const queued_copy> copies{};
  std::span<const layout_extent> layout{};
  double move_rate = 0;
};
}  // namespace detail

/// Read-only view of the tensors for heuristics, deciders and prefetchers. Cheap to copy; valid
/// during the call that it is given to. A policy may query the tensor that it is given, and those
/// of `offloaded` and `candidates`. Nothing throws or uses the heap; O(1) unless said otherwise.
/// Walks leave marks in the records, so two threads can't share a graph.
class context {
 public:
  /// Made by the manager; both outlive it.
  context(const detail::graph& g, const detail::machine_state& c,
          const detail::context_parts& shown = {}) noexcept
      : pricing_{&g, &c}, shown_(shown) {}
  /// The same for the Filter: costs of closures may be lower bounds.
  context(const context& c, detail::cost_query& asked) noexcept : context(c) {
    pricing_.asked = &asked;
  }

  /// m: the bytes that leave when it does, rounded as the storage counts (equation 1).
  [[nodiscard]] double bytes(tensor_id t) const noexcept {
    return static_cast<double>(at(t).footprint.count);
  }
  /// s: ns since an operator touched it, at least 1, by time as in DTR (repairs P-16). Where the
  /// storage's clock stands still, as no cost is known, it counts operators (P-17).
  [[nodiscard]] double staleness(tensor_id t) const noexcept {
    return detail::staleness(clock(), pricing_.tensors->last_use(t));
  }
  /// c_r, in ns: its operator and every operator that must run before it because an input is gone;
  /// an ancestor on the host counts as its reload (or its operator, where that is cheaper and its
  /// inputs are here). Infinite where it can't be recomputed. A walk stops after 1,024 records,
  /// with a lower bound (repairs P-12). Exact up to `enough`, else any cost over it. O(closure), or
  /// what of it costs `enough`.
  [[nodiscard]] double recompute_cost(tensor_id t, double enough = never) const noexcept {
    return can_recompute(t) ? pricing_.cost(t, detail::closure::ancestors, enough) : never;
  }
  /// DTR's evicted neighbourhood, in ns: recompute_cost plus the cost of the descendants whose
  /// bytes are gone (Kirisame et al. 2020). One limit of 1,024 records for both. O(closure).
  [[nodiscard]] double neighbourhood_cost(tensor_id t) const noexcept {
    return can_recompute(t) ? pricing_.cost(t, detail::closure::neighbourhood, never) : never;
  }
  /// One copy of it, in ns, without waiting for the queue: latency + m / rate (repairs P-14).
  [[nodiscard]] double copy_cost(tensor_id t, direction d) const noexcept {
    return latency(d) + 1e9 * bytes(t) / rate(d);
  }
  /// c_s, in ns: a copy out (0 if clean) and in; infinite: not possible (repairs P-14, P-16).
  [[nodiscard]] double swap_cost(tensor_id t) const noexcept {
    if (!can_offload(t)) return never;
    return (is_clean(t) ? 0.0 : copy_cost(t, direction::out)) + copy_cost(t, direction::in);
  }
  /// c_s and the wait for the copy-out queue: what of a swap nothing hides when it starts now.
  [[nodiscard]] double exposed_swap_cost(tensor_id t) const noexcept {
    return swap_cost(t) + (is_clean(t) ? 0.0 : backlog(direction::out));
  }
  /// ns to reload it from now, with the wait for the copy-in queue; infinite without a host copy.
  [[nodiscard]] double reload_cost(tensor_id t) const noexcept {
    return at(t).host ? detail::closure_walk::reload(at(t), *pricing_.now) : never;
  }
  /// ns to get it back if it left the cheaper way; 0 if nobody wants it back. Recomputing counts
  /// where it has a producer, even if a pin or the decider forbids to evict. O(closure).
  [[nodiscard]] double release_cost(tensor_id t) const noexcept {
    if (is_released(t)) return 0.0;
    const double swap = exposed_swap_cost(t);
    return std::min(recompute_cost(t, swap), swap);
  }

  /// How long a copy queued now would wait before it starts, in ns.
  [[nodiscard]] double backlog(direction d) const noexcept { return of(pricing_.now->backlog, d); }
  /// Bytes per second in that direction, as the storage measures or assumes it; without latency.
  [[nodiscard]] double rate(direction d) const noexcept { return of(pricing_.now->rate, d); }
  /// ns of every copy in that direction, before its first byte.
  [[nodiscard]] double latency(direction d) const noexcept { return of(pricing_.now->latency, d); }
  /// ns that kernels lose per ns of copies that way, as measured: 0 (or not known) to 1.
  [[nodiscard]] double burden(direction d) const noexcept { return of(pricing_.now->burden, d); }
  /// Bytes of the host budget that are not taken.
  [[nodiscard]] double host_free() const noexcept { return count(pricing_.now->host_free); }

  /// True if a valid copy of it is on the host. A resident tensor can leave without a copy then.
  [[nodiscard]] bool is_clean(tensor_id t) const noexcept {
    return bool(at(t).host) && !at(t).copying;
  }
  /// True if it is resident, and being copied to the host: it can leave when that is done.
  [[nodiscard]] bool is_copying(tensor_id t) const noexcept { return at(t).copying; }
  /// The program dropped it, no restore waits for it, and it can be made again: it leaves for free.
  [[nodiscard]] bool is_released(tensor_id t) const noexcept {
    const detail::tensor_record& r = at(t);
    return r.references == 0 && r.restore_references == 0 && r.producer != operator_id::none;
  }
  /// True if it could be computed again, whatever the policy thinks of that.
  [[nodiscard]] bool can_recompute(tensor_id t) const noexcept {
    return at(t).producer != operator_id::none;
  }
  /// True if its bytes may be dropped: it has a producer (P-3), not replayed too often in this step
  /// while the program holds it (P-26); is not persistent; and neither pin nor decider forbids it.
  [[nodiscard]] bool can_evict(tensor_id t) const noexcept {
    const detail::tensor_record& r = at(t);
    return pricing_.now->may_evict && r.producer != operator_id::none && !r.persistent &&
           !covers(r.pinned, pin::evict) &&
           (r.references == 0 ||
            (*pricing_.tensors)[r.producer].replays < pricing_.now->recompute_cap);
  }
  /// True if it may go to the host: neither pin nor decider forbids it, and it has a copy there or
  /// the host as many bytes left (P-16). These may lie in pieces: the storage has the last word.
  [[nodiscard]] bool can_offload(tensor_id t) const noexcept {
    const detail::tensor_record& r = at(t);
    return pricing_.now->may_offload && !covers(r.pinned, pin::offload) &&
           (r.host || r.footprint <= pricing_.now->host_free);
  }
  /// Name of the operator that made it, with or without records; "" if from outside the step.
  [[nodiscard]] std::string_view made_by(tensor_id t) const noexcept {
    return at(t).persistent ? std::string_view() : std::string_view(at(t).label);
  }
  /// True while an operator or a view uses it and may write it: it neither leaves nor is copied.
  [[nodiscard]] bool is_held(tensor_id t) const noexcept { return at(t).locks > 0; }
  /// Where its bytes are now.
  [[nodiscard]] residency where(tensor_id t) const noexcept { return at(t).where; }

  /// The tick.
  [[nodiscard]] tick now() const noexcept { return pricing_.now->now; }
  /// True if the program has said that the backward pass has begun (manager::backward).
  [[nodiscard]] bool backward() const noexcept { return pricing_.now->backward; }
  /// ns by the clock that staleness is reckoned by: their difference is when a tensor was used.
  [[nodiscard]] double clock() const noexcept {
    return static_cast<double>(pricing_.now->clock.count());
  }
  /// Bytes of the budget.
  [[nodiscard]] double budget() const noexcept { return count(pricing_.now->budget); }
  /// Bytes taken of it, copies under way included, but not what is cached.
  [[nodiscard]] double used() const noexcept { return count(pricing_.now->used); }
  /// Bytes that will be free when the copies out under way are done.
  [[nodiscard]] double leaving() const noexcept { return count(pricing_.now->leaving); }
  /// Bytes that the coming operator is likely to ask for.
  [[nodiscard]] double coming_need() const noexcept { return count(pricing_.now->coming_need); }
  /// Tensors on the host alone, in the order in which they were offloaded: the paper's queue
  /// (Algorithm 4). The list changes when the manager goes on.
  [[nodiscard]] std::span<const tensor_id> offloaded() const noexcept { return shown_.offloaded; }
  /// The steps that were seen. Empty where no role declares `learns`.
  [[nodiscard]] const history& past() const noexcept { return *shown_.past; }
  /// When a tensor will be used next, by that.
  [[nodiscard]] forecast next_use(tensor_id t) const noexcept { return shown_.past->next_use(t); }
  /// The operator that has just ended, while nobody waits: what prefetchers are asked after, and
  /// what leaves early then. Nameless, and without tensors, when room is made for an operator.
  [[nodiscard]] const ended_operator& ended() const noexcept { return *shown_.ended; }
  /// Resident tensors that may be asked to leave, by id.
  [[nodiscard]] const detail::id_set& candidates() const noexcept { return *shown_.candidates; }

 private:
  friend class detail::next_step;  // it looks at all of it
  static double of(const std::array<double, 2>& by_direction, direction d) noexcept {
    return by_direction[static_cast<std::size_t>(d)];
  }
  static double count(delta::bytes b) noexcept { return static_cast<double>(b.count); }
  const detail::tensor_record& at(tensor_id t) const noexcept { return (*pricing_.tensors)[t]; }

  detail::closure_pricing pricing_;  // the tensors and the machine's state
  detail::context_parts shown_;
};

}  // namespace delta
