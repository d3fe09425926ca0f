// delta: the learned policy: what leaves, how, and what comes back early, by what the steps before
// taught (history.hpp). Each of its three roles can be composed with others. Where nothing is known
// they answer much as the preset `online` does.
//
//   stall_per_byte  Heuristic: the cheaper way out, per byte, and by how soon it is needed
//   least_stall     Decider: the cheaper way out
//   just_in_time    Prefetcher: back just before it is used; out, without leaving, before the peak
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "delta/concepts.hpp"
#include "delta/context.hpp"

namespace delta {

namespace detail {

/// The stall that a swap causes: what of its copies nothing hides, by the forecast; in ns. A base
/// of the three roles, which must agree on it.
struct stall_model {
  double hidden = 0.9;  ///< part of the time until the next use that hides copies in
  bool swaps = true;    ///< false: as if nothing could be offloaded

  /// The wait that a reload of `t` will cause. What is due before it must come in first, and
  /// nothing comes in while memory is at its fullest; so it may begin at the step's peak, or now if
  /// that is over, with the queue of all that is on the host. At most one copy. And of what is
  /// hidden, what it costs the operators that hide it. O(log step).
  [[nodiscard]] double reload(const context& c, tensor_id t, const forecast& f) const noexcept {
    const double copy = c.copy_cost(t, direction::in);
    if (f.what != forecast::kind::known) return c.backlog(direction::in) + copy;
    const history& past = c.past();
    const double window = std::max(0.0, f.in - past.time_until_peak());
    const double queue = 1e9 * (past.due_before(f.position) + c.bytes(t)) / c.rate(direction::in);
    const double exposed = std::clamp(queue - hidden * window, 0.0, copy);
    const double b = c.burden(direction::in);
    return b > 0 ? exposed + b * (copy - exposed) : exposed;
  }
  /// The same, and twice the time until its bytes are free: the operator that needs them waits, and
  /// so does whoever copies out next. A copy that is under way is nearly over; a clean tensor has
  /// none to wait for. What the compute lane does of a copy itself is no such wait. O(log step).
  [[nodiscard]] double swap(const context& c, tensor_id t, const forecast& f) const noexcept {
    if (!swaps || !c.can_offload(t)) return never;
    const double queue = c.backlog(direction::out);
    const double out = c.is_clean(t) ? 0.0 : c.is_copying(t) ? queue : copy_out(c, t, queue);
    return out + reload(c, t, f);
  }
  /// What a copy out costs that waits for the queue first. Between its two prices: twice the wait
  /// where nobody loses anything by the copy itself; what it costs the kernels where they do it.
  [[nodiscard]] static double copy_out(const context& c, tensor_id t, double queue) noexcept {
    const double copy = c.copy_cost(t, direction::out), b = c.burden(direction::out);
    const double waits = 2.0 * (queue + copy);
    return b > 0 ? (1.0 - b) * waits + b * copy : waits;
  }
  /// The cheaper way out; 0 if nobody will want it back: neither the program, nor who recomputes
  /// something else from it. O(closure).
  [[nodiscard]] double cost(const context& c, tensor_id t, const forecast& f) const noexcept {
    if (c.is_released(t)) return 0.0;
    if (f.what == forecast::kind::never && !c.recomputes_others(t)) return 0.0;
    const double way_out = swap(c, t, f);
    return std::min(c.recompute_cost_by(t, f, way_out), way_out);
  }
};

}  // namespace detail

/// cost / (m d^x): d is the time until the next use, or the staleness where that is not known, in
/// ns. (Whether anything is recomputed from a tensor that is not used again is no quantity that is
/// watched: the answer drifts, and is asked once more before the tensor leaves.) The cube root is a
/// compromise: with d itself, as in Belady's rule, what is far but dear goes
/// too early, and without it what is cheap but needed at once. O(closure).
struct stall_per_byte : detail::stall_model {
  static constexpr bool learns = true;
  static constexpr bool drifts = true, later_if_dearer = true;
  static constexpr quantity depends_on = quantity::bytes | quantity::later_recompute_cost |
                                         quantity::copy_cost | quantity::exposed_swap_cost |
                                         quantity::staleness | quantity::next_use;
  double distance = 1.0 / 3;  ///< x

  double score(const context& c, tensor_id t) const noexcept {
    const forecast f = c.next_use(t);
    const double d = f.what == forecast::kind::known ? std::max(f.in, 1.0) : c.staleness(t);
    return cost(c, t, f) / (c.bytes(t) * std::pow(d, distance));
  }
};

/// The cheaper of recomputing and of what a swap exposes; ties evict. How it comes back is left to
/// the default: the cheaper then. O(closure).
struct least_stall : detail::stall_model {
  static constexpr bool learns = true;
  action decide(const context& c, tensor_id t) const {
    const forecast f = c.next_use(t);
    const double way_out = swap(c, t, f);
    return c.recompute_cost_by(t, f, way_out) <= way_out ? action::evict : action::offload;
  }
  static constexpr bool may_keep() noexcept { return false; }
  /// Where the program will hold more, until `t` is used, than is free behind the copies under way,
  /// `t` has to go all the same: waiting would only put that off. Else the cheaper. O(operators
  /// until then).
  bool rather_wait(const context& c, tensor_id t, double wait) const {
    const forecast f = c.next_use(t);
    const double room = c.budget() - c.used() + c.leaving();
    if (f.what == forecast::kind::known && c.past().growth(f.position) > room) return false;
    return wait <= cost(c, t, f);
  }
  double release_cost(const context& c, tensor_id t) const { return cost(c, t, c.next_use(t)); }
};

/// What the two copy lanes do while nobody waits. Both are kept busy with what the coming
/// operator can hide and no more: a long queue would only take memory, or delay what cannot wait.
struct just_in_time : detail::stall_model {
  static constexpr bool learns = true;
  bool prefetches = true;  ///< false: everything comes back on demand
  bool cleans = true;      ///< false: nothing is copied out before it has to leave
  double reserve = 0.5;  ///< part of the evicted bytes due before it that a reload leaves room for

  /// What is due first, if it fits beside what the program will hold and recompute until then: to
  /// the bytes in use come those by which the program grows, and of what was evicted that part
  /// which is back at once (the rest will have gone again). O(operators until then).
  tensor_id next(const context& c) const noexcept {
    const history& past = c.past();
    if (!prefetches || !hides(c, direction::in) || c.backlog(direction::in) > past.coming_cost())
      return tensor_id::none;
    const tensor_id t = past.first_due();
    if (t == tensor_id::none) return t;
    const std::uint32_t at = c.next_use(t).position;
    const double room = c.budget() - c.used() - c.bytes(t);
    if (room < 0) return tensor_id::none;
    const double coming = past.growth(at) + reserve * past.evicted_before(at);
    return coming <= room ? t : tensor_id::none;
  }
  /// While the step's peak is ahead and over the budget: what will not be used before it, and is
  /// dearest to recompute for its size and for how long it will be away. Candidates are ranked once
  /// for several copies. O(1) amortised over the copies, O(candidates) for a ranking.
  tensor_id copy_ahead(const context& c) noexcept {
    const history& past = c.past();
    if (!cleans || !swaps || !hides(c, direction::out) || !past.before_peak() ||
        past.peak() <= c.budget() || c.backlog(direction::out) > past.coming_cost())
      return tensor_id::none;
    for (int tries = 0; tries < 2; ++tries) {
      while (ranked_ > 0)
        if (const tensor_id t = ranking_[--ranked_].tensor; gain(c, t) > 0) return t;
      // Not every time: a ranking asks all candidates.
      if (past.position() < again_at_) break;
      again_at_ = past.position() + rank(c) / asked_per_operator;
    }
    return tensor_id::none;
  }
  void end_of_step(const context&) noexcept { ranked_ = 0, again_at_ = 0; }

 private:
  static constexpr std::size_t at_once = 32;
  static constexpr std::uint32_t asked_per_operator = 16;

  struct ranked {
    tensor_id tensor;
    double gain;
  };
  // Where compute does the copying, a copy is as dear early as late.
  static bool hides(const context& c, direction d) noexcept { return c.burden(d) < 1; }
  // Too small to be worth a copy's latency, relative to the peak.
  static double least_size(const history& past) noexcept {
    return std::clamp(past.peak() / 8192, 4096.0, 262144.0);
  }
  // ns saved per byte, times how long it is away; 0: not to be copied.
  [[nodiscard]] double gain(const context& c, tensor_id t) const noexcept {
    const history& past = c.past();
    if (!c.candidates().contains(t) || c.bytes(t) < least_size(past) || c.is_clean(t) ||
        c.is_copying(t) || !c.can_offload(t))
      return 0;
    const forecast f = c.next_use(t);
    if (f.what != forecast::kind::known || f.position <= past.followed().peak_at) return 0;
    const double b = c.burden(direction::out);
    const double out = b > 0 ? b * c.copy_cost(t, direction::out) : 0.0;
    return (c.recompute_cost_by(t, f) - reload(c, t, f) - out) / c.bytes(t) * f.in;
  }
  // The best `at_once`, the best last; of equal ones the lower id. Gives how many were asked.
  std::uint32_t rank(const context& c) noexcept {
    std::uint32_t asked = 0;
    for (const tensor_id t : c.candidates()) {
      ++asked;
      const double g = gain(c, t);
      if (!(g > 0) || (ranked_ == at_once && g <= ranking_[0].gain)) continue;
      std::size_t at = ranked_ < at_once ? ranked_++ : 0;
      for (; at > 0; --at)
        ranking_[at] = ranking_[at - 1];  // room is left: it is made at the front
      for (; at + 1 < ranked_ && ranking_[at + 1].gain < g; ++at) ranking_[at] = ranking_[at + 1];
      ranking_[at] = {t, g};
    }
    return asked;
  }

  std::array<ranked, at_once> ranking_{};
  std::size_t ranked_ = 0;
  std::uint32_t again_at_ = 0;
};

static_assert(Heuristic<stall_per_byte> && Decider<least_stall> && Prefetcher<just_in_time>);

}  // namespace delta
