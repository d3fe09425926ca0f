// delta: making room. The loop of Algorithm 1 (lines 11 to 19) around Filter and Director, with the
// exit that the paper's has not (repairs P-4).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/error.hpp"
#include "delta/filter.hpp"
#include "delta/ledger.hpp"
#include "delta/observer.hpp"

namespace delta {

/// Releases tensors until a reservation fits. Every step of a reservation frees bytes, passes a
/// candidate over, or ends one of finitely many copies, so it ends.
template <Heuristic H, Decider D, Prefetcher P, Storage S, Observer O>
class room {
 public:
  room(ledger<S>& l, H h, D d, P p, O o)
      : book_(&l),
        filter_(std::move(h)),
        decider_(std::move(d)),
        prefetcher_(std::move(p)),
        observer_(std::move(o)) {
    l.now.may_evict = evicts<D>();
    l.now.may_offload = offloads<D>();
  }

  /// Makes `need` bytes free. Throws budget_exceeded, and then nothing more can leave.
  void make(bytes need, const char* operation) {
    ++reservation_;
    operation_ = operation;
    book_->harvest();
    while (book_->free_bytes() < need) release_something(need);
  }

  /// A block of `n` bytes, which `make` has made room for. Where free bytes lie scattered, the
  /// cheaper of moving blocks together and releasing a window of neighbours; where copies under way
  /// are between the holes, waits for them.
  block obtain(bytes n, lifetime l) {
    for (;;) {
      if constexpr (shows_its_holes<S>) clear_window(n);
      if (auto b = book_->storage().allocate(n, l)) return std::move(*b);
      if (!book_->wait_for_copy() && !book_->wait_for_landings() && !release_any())
        throw budget_exceeded(report(n, operation_));
    }
  }

  /// The bytes that could be made free with patience; what is locked now is not among them.
  [[nodiscard]] bytes reachable() {
    book_->harvest();
    book_->look();
    bytes sum = book_->free_bytes() + book_->leaving();
    const context c = view();
    for (const tensor_id t : book_->candidates())
      if (leavable(c, t)) sum += book_->tensors[t].footprint;
    return sum;
  }

  /// The early start and the prefetcher's reloads: what nobody waits for. Never throws for lack of
  /// memory.
  void while_nobody_waits() {
    ++reservation_;
    book_->harvest();
    book_->look();
    if constexpr (starts_early<P>) {
      const auto staying = [&] { return book_->storage().used() - book_->leaving(); };
      const double target = prefetcher_.ahead(view());
      for (const bytes before = staying();
           static_cast<double>((before - staying()).count) < target && release_one(tier::idle);) {
      }
    }
    for (;;) {
      const context c = view();
      const tensor_id t = prefetcher_.next(c);
      if (t == tensor_id::none || book_->tensors[t].where != residency::host) break;
      if (book_->tensors[t].footprint > book_->free_bytes()) break;
      auto b = book_->storage().allocate(book_->tensors[t].size, lifetime_of(t));
      if (!b) break;
      book_->reload(t, std::move(*b), true);
      tell(happening::prefetch, t);
      book_->look();
    }
    const context c = view();
    if constexpr (follows_operators<P>) prefetcher_.end_of_operator(c);
    if constexpr (follows_operators<H>) filter_.heuristic().end_of_operator(c);
    if constexpr (follows_operators<D>) decider_.end_of_operator(c);
  }
  void end_of_step() {
    const context c = view();
    if constexpr (follows_steps<P>) prefetcher_.end_of_step(c);
    if constexpr (follows_steps<H>) filter_.heuristic().end_of_step(c);
    if constexpr (follows_steps<D>) decider_.end_of_step(c);
  }

  /// Should this tensor on the host be reloaded? (Decider::restore; default: the cheaper.)
  [[nodiscard]] bool reloads(tensor_id t) {
    const context c = view();
    if (!c.can_recompute(t)) return true;
    if constexpr (chooses_restoration<D>)
      return decider_.restore(c, t) == restoration::reload;
    else
      return c.reload_cost(t) <= c.recompute_cost(t);
  }

  [[nodiscard]] context view() const {
    context c(book_->tensors, book_->now);
    c.set_offloaded(book_->offloaded());
    return c;
  }
  [[nodiscard]] std::uint64_t evaluations() const noexcept { return filter_.evaluations(); }
  [[nodiscard]] O& observer() noexcept { return observer_; }
  [[nodiscard]] lifetime lifetime_of(tensor_id t) const {
    return book_->tensors[t].persistent ? lifetime::persistent : lifetime::transient;
  }
  void tell(happening what, tensor_id t) {
    if constexpr (!std::is_same_v<O, no_observer>)
      observer_.on(
          {what, t, operation_, t == tensor_id::none ? bytes{} : book_->tensors[t].size, {}});
  }

  /// Who holds the memory, for an error about `need` more bytes. O(tensors).
  [[nodiscard]] memory_report report(bytes need, const char* operation) {
    book_->look();
    const context c = view();
    memory_report r;
    r.requested = need;
    r.capacity = book_->storage().capacity();
    r.used = book_->storage().used();
    r.host_capacity = book_->storage().host_capacity();
    r.host_used = book_->storage().host_used();
    r.operation = operation;
    bytes tensors_here{};
    for (std::uint32_t i = 0; i < book_->tensors.tensor_slots(); ++i) {
      const auto t = static_cast<tensor_id>(i);
      const tensor& x = book_->tensors[t];
      if (!x.in_use || !on_device(x.where)) continue;
      tensors_here += x.footprint;
      const auto why = why_it_stays(c, t);
      if (!why) continue;
      r.immovable += x.footprint;
      const bool full = r.holders == r.biggest.size();
      if (full && x.size <= r.biggest.back().size) continue;
      r.biggest[full ? r.holders - 1 : r.holders++] = {t, x.size, *why};
      for (std::size_t k = r.holders; k-- > 1 && r.biggest[k].size > r.biggest[k - 1].size;)
        std::swap(r.biggest[k], r.biggest[k - 1]);
    }
    r.immovable += saturating_sub(r.used, tensors_here);  // workspace, scratch, outputs to come
    r.smallest_budget = std::max(floor_, r.immovable + need);
    return r;
  }
  /// Remembers the largest need seen: every error names at least that.
  void raise_floor(bytes need) noexcept { floor_ = std::max(floor_, need); }

  /// Lets one tensor go, by the first way that is open to it.
  bool release(tensor_id t, action a) {
    const context c = view();
    tensor& r = book_->tensors[t];
    if (r.fresh) {
      if constexpr (learns_of_waste<P>) prefetcher_.wasted(c, t);
      r.fresh = false;
    }
    if (c.is_released(t)) return book_->evict(t), true;
    if (a == action::keep) return book_->tensors[t].passed_over = reservation_, true;
    if (book_->now.backward) ++book_->counts.backward_releases;
    if (c.is_clean(t)) {
      tell(happening::clean_drop, t);
      return book_->drop_clean(t), true;
    }
    if (a == action::evict && !c.can_evict(t)) a = action::offload;
    if (a == action::offload && c.can_offload(t) && book_->offload(t)) {
      tell(happening::offload, t);
      return true;
    }
    if (c.can_evict(t)) {
      tell(happening::evict, t);
      return book_->evict(t), true;
    }
    r.passed_over = reservation_;
    return true;
  }

 private:
  /// How badly room is needed: who else may be asked to leave.
  enum class tier : std::uint8_t {
    idle,   ///< what nothing waits for
    fresh,  ///< also what came back early and was not used yet (repairs P-26)
    wanted  ///< also what a restore under way will read: it comes back again
  };

  /// Nothing: it may leave.
  [[nodiscard]] std::optional<obstacle> why_it_stays(const context& c, tensor_id t) const {
    const tensor& x = book_->tensors[t];
    if (x.pinned == pin::both) return obstacle::pinned;
    if (x.locks > 0) return obstacle::locked;
    if (leavable(c, t))
      return x.passed_over == reservation_ ? std::optional(obstacle::decider_keeps) : std::nullopt;
    if (book_->now.may_offload && !covers(x.pinned, pin::offload)) return obstacle::host_full;
    if (covers(x.pinned, pin::evict)) return obstacle::pinned;
    if (x.producer != operator_id::none) return obstacle::recompute_cap;
    return book_->now.may_offload ? obstacle::pinned : obstacle::no_way_out;
  }
  [[nodiscard]] bool leavable(const context& c, tensor_id t) const {
    return c.is_released(t) || c.is_clean(t) || c.can_evict(t) || c.can_offload(t);
  }
  [[nodiscard]] tensor_id choose(const context& c, tier up_to) {
    return filter_.select(c, book_->candidates(), [&](tensor_id t) {
      const tensor& r = book_->tensors[t];
      return r.passed_over != reservation_ && (!r.fresh || up_to >= tier::fresh) &&
             (r.wanted == 0 || up_to >= tier::wanted) && leavable(c, t);
    });
  }

  bool release_one(tier up_to) {
    book_->look();
    const context c = view();
    const tensor_id t = choose(c, up_to);
    if (t == tensor_id::none) return false;
    ++book_->counts.decisions;
    action a = decider_.judge(c, t);
    // What a restore waits for goes to the host where it can: recomputing it could go in circles.
    if (a == action::evict && book_->tensors[t].wanted > 0 && c.can_offload(t)) a = action::offload;
    return release(t, a);
  }

  /// One step towards `need` free bytes.
  void release_something(bytes need) {
    if (book_->leaving().count > 0 && book_->free_bytes() + book_->leaving() >= need) {
      if (!release_instead_of_waiting()) wait();
      return;
    }
    if (!release_any()) throw budget_exceeded(report(need, operation_));
  }
  /// One more tensor on its way, or one copy less under way; false: nothing more can leave.
  bool release_any() {
    if (release_one(tier::idle)) return true;
    if (book_->copying()) return wait(), true;
    return release_one(tier::fresh) || release_one(tier::wanted) || reclaim_host() ||
           give_up_a_source();
  }
  void wait() {
    tell(happening::wait, tensor_id::none);
    book_->wait_for_copy();
  }
  /// Copies under way will do; is there something so cheap to let go at once that it beats waiting?
  bool release_instead_of_waiting() {
    book_->look();
    const context c = view();
    const tensor_id t = choose(c, tier::idle);
    if (t == tensor_id::none) return false;
    const double waiting = c.backlog(direction::out);
    bool rather_wait;
    if constexpr (weighs_waiting<D>)
      rather_wait = decider_.rather_wait(c, t, waiting);
    else
      rather_wait = waiting <= c.release_cost(t);
    if (rather_wait) return false;
    ++book_->counts.decisions;
    const action a = c.is_released(t) ? action::evict : decider_.judge(c, t);
    if (a == action::keep || (a == action::offload && !c.is_clean(t))) return false;
    return release(t, a);
  }
  /// The host is full and something could leave if it were not: host copies of tensors that are on
  /// the device, in use, are a convenience. O(tensors).
  bool reclaim_host() {
    bool any = false;
    if (!book_->now.may_offload) return false;
    for (std::uint32_t i = 0; i < book_->tensors.tensor_slots(); ++i)
      if (const auto t = static_cast<tensor_id>(i);
          book_->tensors[t].host && book_->tensors[t].where != residency::host) {
        book_->forget_host_copy(t);
        any = true;
      }
    return any;
  }
  /// The last resort: a tensor that the program has dropped, kept because something can only be
  /// recomputed from it, goes when all that hangs on it has its bytes.
  bool give_up_a_source() {
    for (const tensor_id t : book_->candidates()) {
      tensor& r = book_->tensors[t];
      if (r.references > 0 || r.producer != operator_id::none || r.wanted > 0) continue;
      if (!nothing_hangs_on(t)) continue;
      book_->sever_around(t);
      return true;
    }
    return false;
  }

 public:
  /// Calls `visit(u)` for every referenced tensor that is computed from `t` directly, or through
  /// tensors that the program has dropped: what could not be computed again without `t`. The same
  /// for the record that made `t`, if there is one: `t` itself and its siblings. O(descendants).
  template <class Visit>
  void for_each_dependent(tensor_id t, const Visit& visit) {
    const graph& g = book_->tensors;
    const std::uint64_t mark = g.next_mark();
    walk_.assign(g[t].consumers.begin(), g[t].consumers.end());
    if (g[t].producer != operator_id::none) walk_.push_back(g[t].producer);
    while (!walk_.empty()) {
      const operator_id o = walk_.back();
      walk_.pop_back();
      if (std::exchange(g[o].mark, mark) == mark) continue;
      for (const tensor_id out : g[o].outputs)
        if (const tensor& r = g[out]; r.references > 0)
          visit(out);
        else
          walk_.insert(walk_.end(), r.consumers.begin(), r.consumers.end());
    }
  }

 private:
  bool nothing_hangs_on(tensor_id t) {
    const graph& g = book_->tensors;
    bool nothing = true;
    for_each_dependent(t,
                       [&](tensor_id d) { nothing = nothing && g[d].where != residency::evicted; });
    // A consumer's output that is dropped but locked belongs to a restore under way.
    for (const operator_id o : g[t].consumers)
      for (const tensor_id out : g[o].outputs)
        nothing = nothing && (g[out].references > 0 || g[out].locks == 0);
    return nothing;
  }

  /// One stretch of the device's memory, in address order: a hole, a tensor that may leave, or
  /// something that stays.
  struct neighbour {
    tensor_id tensor;
    bytes size;
    double cost;  ///< ns to get it back; 0: a hole; infinite: stays
  };

  /// Releases the window of neighbours that is cheapest to get back, if that is cheaper than moving
  /// what lies between the holes (Coop's contiguous release, weighed against compaction).
  /// O(blocks).
  void clear_window(bytes n) {
    S& s = book_->storage();
    const bytes size = s.rounded(n);
    if (s.largest_hole() >= size) return;
    const auto in_the_way = s.bytes_to_move(n);
    const double moving = !in_the_way         ? never
                          : s.move_rate() > 0 ? 1e9 * double(in_the_way->count) / s.move_rate()
                                              : 0.0;
    if (moving <= worth_asking_ns) return;
    book_->look();
    const context c = view();
    strip_.clear();
    s.walk_blocks([&](std::uint32_t row, bytes stretch, bool used) {
      const tensor_id t = used ? book_->owner(row) : tensor_id::none;
      strip_.push_back({t, stretch, used ? cost_to_leave(c, t) : 0.0});
    });
    std::size_t best_first = 0, best_end = 0, first = 0;
    double best = moving, cost = 0;
    bytes sum{};
    for (std::size_t i = 0; i < strip_.size(); ++i) {
      if (strip_[i].cost == never) {
        first = i + 1, cost = 0, sum = {};
        continue;
      }
      cost += strip_[i].cost, sum += strip_[i].size;
      for (; sum - strip_[first].size >= size; ++first)
        cost -= strip_[first].cost, sum -= strip_[first].size;
      if (sum >= size && cost < best) best = cost, best_first = first, best_end = i + 1;
    }
    for (std::size_t i = best_first; i < best_end; ++i)
      if (const tensor_id t = strip_[i].tensor; t != tensor_id::none) {
        ++book_->counts.decisions;
        release(t, decider_.judge(c, t));
      }
    if (best_end > 0)
      while (s.largest_hole() < size && book_->leaving().count > 0) wait();
  }
  [[nodiscard]] double cost_to_leave(const context& c, tensor_id t) const {
    if (t == tensor_id::none) return never;
    const tensor& r = book_->tensors[t];
    const bool may = r.place != tensor::nowhere && r.wanted == 0 && !r.fresh &&
                     r.passed_over != reservation_ && leavable(c, t);
    return may ? c.release_cost(t) : never;
  }

  static constexpr double worth_asking_ns = 20'000;  ///< what weighing itself may cost

  ledger<S>* book_;
  filter<H> filter_;
  [[no_unique_address]] D decider_;
  [[no_unique_address]] P prefetcher_;
  [[no_unique_address]] O observer_;
  std::vector<operator_id> walk_;
  std::vector<neighbour> strip_;
  std::uint64_t reservation_ = 0;
  bytes floor_{};
  const char* operation_ = "";
};

}  // namespace delta
