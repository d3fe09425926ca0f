// delta: making room. The loop of Algorithm 1 (lines 11 to 19) around Filter and Director, with the
// exit that the paper's has not (repairs P-4). Three callers: operators and restores need bytes
// (`make`, then `obtain` for each block), and while nobody waits prefetchers are asked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/engine/event_sink.hpp"
#include "delta/detail/engine/window.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/detail/victims/victim_search.hpp"
#include "delta/error.hpp"
#include "delta/observer.hpp"

namespace delta::detail {

/// Releases tensors until a reservation fits. Every step of a reservation frees bytes, passes a
/// candidate over, or ends one of finitely many copies, so it ends. The only place that asks a
/// policy; what an answer can't do is put right here, so that no Decider can lose bytes (P-3).
template <Heuristic H, Decider D, Prefetcher P, Storage S, Observer O>
class reclaimer {
 public:
  using storage_type = S;
  using decider_type = D;

  reclaimer(residency_table<S>& l, H h, D d, P p, O o)
      : table_(&l),
        filter_(std::move(h)),
        decider_(std::move(d)),
        prefetcher_(std::move(p)),
        events_(l, std::move(o)) {
    l.now.may_evict = evicts<D>();
    l.now.may_offload = offloads<D>();
    l.learns = learns<H>() || learns<D>() || learns<P>();
    l.tensors.keeps = filter<H>::keeps_costs;
    if constexpr (selects_variant<H>) l.tensors.keeps = filter_.heuristic().keeps(0);
  }

  /// Makes `need` bytes free. `piece`: the largest block among them; in a step that is known, what
  /// has to leave leaves as neighbours that make room for it in one piece. Otherwise, and for the
  /// rest, the bytes are free in however many pieces. Throws budget_exceeded, and then nothing more
  /// can leave. Each call is a reservation of its own: what the Decider has kept is judged anew.
  /// O(candidates) per tensor released, O(blocks) per window of neighbours.
  void make(bytes need, const char* operation, bytes piece = {}) {
    ++reservation_;
    operation_ = operation;
    table_->harvest();
    while (table_->free_bytes() < need)
      if (!release_neighbours(need, piece) && !drop_cached()) release_something(need);
  }

  /// A block of `n` bytes, which `make` has made room for. Where free bytes lie scattered, the
  /// cheaper of moving blocks together and releasing a window of neighbours; where copies under way
  /// are between the holes, waits for them; releases more only then.
  block obtain(bytes n, lifetime l) {
    for (;;) {
      if constexpr (shows_its_holes<S>) clear_window(n);
      if (auto b = table_->storage().allocate(n, l)) return std::move(*b);
      if (!table_->wait_for_copy() && !table_->wait_for_landings() && !release_any())
        throw budget_exceeded(report(n, operation_));
    }
  }

  /// The bytes that could be made free with patience; what is locked now is not among them.
  /// O(candidates).
  [[nodiscard]] bytes reachable() {
    table_->harvest();
    table_->refresh_conditions();
    bytes sum = table_->free_bytes() + table_->leaving() + table_->candidates().cached_bytes();
    const context c = view();
    for (const tensor_id t : table_->candidates().all())
      if (table_->tensors[t].locks == 0 && leavable(c, t)) sum += table_->tensors[t].footprint;
    return sum;
  }

  /// The early start and the prefetcher's reloads, after every operator: what nobody waits for
  /// (P-4, P-10). Never throws for lack of memory.
  void while_nobody_waits(const ended_operator& o) {
    ++reservation_;
    ended_ = o;
    table_->harvest();
    table_->refresh_conditions();
    if constexpr (releases_early<P>) {
      const auto staying = [&] {
        return table_->storage().used() - table_->candidates().cached_bytes() - table_->leaving();
      };
      const double target = prefetcher_.early_release_bytes(view());
      for (const bytes before = staying();
           static_cast<double>((before - staying()).count) < target && release_one(tier::idle);) {
      }
    }
    for (;;) {
      const context c = view();
      const tensor_id t = prefetcher_.next(c);
      // A tensor that is not on the host is no answer; nor is one that does not fit, as asking
      // again would name the same.
      if (t == tensor_id::none || table_->tensors[t].where != residency::host) break;
      const bytes need = table_->tensors[t].footprint;
      if (table_->free_bytes() + table_->candidates().cached_bytes() < need) break;
      while (table_->free_bytes() < need) drop_cached();
      if (!fits_unmoved(table_->tensors[t].size)) break;
      auto b = table_->storage().allocate(table_->tensors[t].size, lifetime_of(t));
      if (!b) break;
      bring_back(t, std::move(*b), event_kind::prefetch);
      table_->refresh_conditions();
    }
    if constexpr (copies_out_ahead<P>) {
      for (;;) {
        const context c = view();
        const tensor_id t = prefetcher_.copy_ahead(c);
        // Nor is one that has a copy already, or is not to have one, an answer.
        if (t == tensor_id::none || table_->tensors[t].where != residency::resident ||
            table_->tensors[t].host || !c.can_offload(t))
          break;
        const auto done = table_->copy_ahead(t);
        if (!done) break;
        events_.copy(event_kind::copy_out, operation_, t, *done);
        table_->refresh_conditions();
      }
    }
    events_.flush();
    const context c = view();
    if constexpr (follows_operators<P>) prefetcher_.end_of_operator(c);
    if constexpr (follows_operators<H>) filter_.heuristic().end_of_operator(c);
    if constexpr (follows_operators<D>) decider_.end_of_operator(c);
    ended_ = {};
  }
  void end_of_step() {
    replaced_ = 0;
    table_->refresh_conditions();
    context c = view();
    if constexpr (selects_variant<H>) c.set_copies(table_->queued_copies());
    if constexpr (selects_variant<H> && shows_its_holes<S>)
      c.set_layout(table_->layout(), table_->storage().move_rate());
    if constexpr (follows_steps<P>) prefetcher_.end_of_step(c);
    if constexpr (follows_steps<H>) filter_.heuristic().end_of_step(c);
    if constexpr (follows_steps<D>) decider_.end_of_step(c);
    if constexpr (selects_variant<H>) decide_by(filter_.heuristic().select(c));
  }
  /// Of several policies this one decides from now on. O(1), O(tensors) where it keeps the costs of
  /// other closures.
  void decide_by(std::uint32_t variant) {
    table_->now.variant = variant;
    if constexpr (selects_variant<H>) {
      graph& g = table_->tensors;
      const closure wanted = filter_.heuristic().keeps(variant);
      if (std::exchange(g.keeps, wanted) == wanted) return;
      for (std::uint32_t i = 0; i < g.tensor_slots(); ++i)
        g[static_cast<tensor_id>(i)].cost = tensor::unknown;
    }
  }

  /// Recomputation thrashes: of several policies, does another one decide from now on? At most as
  /// often in a step as there may be policies. It may recompute each operator as often as the one
  /// before it. O(tensors + records).
  bool replace_policy() {
    if constexpr (replaces_variant<H>) {
      if (replaced_ == most_replaced) return false;
      table_->refresh_conditions();
      const std::uint32_t before = table_->now.variant;
      decide_by(filter_.heuristic().instead(view()));
      if (table_->now.variant == before) return false;
      ++replaced_;
      table_->tensors.forget_replays();
      return true;
    } else {
      return false;
    }
  }
  /// Has that happened in this step? Then it may also be short of room by what was done before.
  [[nodiscard]] bool policy_replaced() const noexcept { return replaced_ > 0; }

  /// Should this tensor on the host be reloaded? (Decider::restore; default: the cheaper.)
  [[nodiscard]] bool reloads(tensor_id t) {
    const context c = view();
    if (!c.can_recompute(t)) return true;
    if constexpr (chooses_restoration<D>)
      return decider_.restore(c, t) == restoration::reload;
    else
      return c.reload_cost(t) <= c.recompute_cost(t, c.reload_cost(t));
  }

  [[nodiscard]] context view() const {
    context c(table_->tensors, table_->now);
    c.set_offloaded(table_->offloaded());
    c.set_past(table_->past, table_->candidates().all());
    c.set_ended(ended_);
    return c;
  }
  /// For the manager's figures, and for those who tell.
  [[nodiscard]] std::uint64_t evaluations() const noexcept {
    return filter_.evaluations() + priced_;
  }
  [[nodiscard]] auto& events() noexcept { return events_; }
  [[nodiscard]] const H& heuristic() const noexcept { return filter_.heuristic(); }
  /// Variables lie apart from what comes and goes within a step.
  [[nodiscard]] lifetime lifetime_of(tensor_id t) const {
    return table_->tensors[t].persistent ? lifetime::persistent : lifetime::transient;
  }
  /// Starts the copy in of a tensor on the host: because it is needed, or early.
  void bring_back(tensor_id t, block&& b, event_kind why) {
    const auto draft = events_.returning(view(), t);
    const stamp done = table_->reload(t, std::move(b), why == event_kind::prefetch);
    events_.tell(why, operation_, draft);
    events_.copy(event_kind::copy_in, operation_, t, done);
  }

  /// Who holds the memory, for an error about `need` more bytes. O(tensors).
  [[nodiscard]] memory_report report(bytes need, const char* operation) {
    table_->refresh_conditions();
    const context c = view();
    memory_report r;
    r.requested = need;
    r.capacity = table_->storage().capacity();
    r.used = table_->storage().used();
    r.largest_hole = table_->free_bytes();
    if constexpr (shows_its_holes<S>) r.largest_hole = table_->storage().largest_hole();
    r.host_capacity = table_->storage().host_capacity();
    r.host_used = table_->storage().host_used();
    r.operation = operation;
    bytes tensors_here{};
    for (std::uint32_t i = 0; i < table_->tensors.tensor_slots(); ++i) {
      const auto t = static_cast<tensor_id>(i);
      const tensor& x = table_->tensors[t];
      if (!x.in_use || !on_device(x.where)) continue;
      tensors_here += x.footprint;
      const auto why = why_it_stays(c, t);
      if (!why) continue;
      r.immovable += x.footprint;
      // Insertion into a short sorted list: no heap while an error is made.
      const bool full = r.holders == r.biggest.size();
      if (full && x.size <= r.biggest.back().size) continue;
      r.biggest[full ? r.holders - 1 : r.holders++] = {t, x.size, *why, x.label};
      for (std::size_t k = r.holders; k-- > 1 && r.biggest[k].size > r.biggest[k - 1].size;)
        std::swap(r.biggest[k], r.biggest[k - 1]);
    }
    r.immovable += saturating_sub(r.used, tensors_here);  // workspace, scratch, outputs to come
    r.smallest_budget = std::max(floor_, r.immovable + need);
    return r;
  }
  /// Remembers the largest need seen: every error names at least that.
  void raise_floor(bytes need) noexcept { floor_ = std::max(floor_, need); }

 private:
  /// How badly room is needed: who else may be asked to leave.
  enum class tier : std::uint8_t {
    idle,   ///< what nothing waits for
    fresh,  ///< also what came back early and was not used yet (repairs P-26)
    wanted  ///< also what a restore under way will read: it comes back again
  };

  /// Nothing: it may leave.
  [[nodiscard]] std::optional<obstacle> why_it_stays(const context& c, tensor_id t) const {
    const tensor& x = table_->tensors[t];
    if (x.pinned == pin::both) return obstacle::pinned;
    if (x.locks > 0) return obstacle::locked;
    if (leavable(c, t))
      return x.passed_over == reservation_ ? std::optional(obstacle::decider_keeps) : std::nullopt;
    if (table_->now.may_offload && !covers(x.pinned, pin::offload)) return obstacle::host_full;
    if (covers(x.pinned, pin::evict)) return obstacle::pinned;
    if (x.producer != operator_id::none) return obstacle::recompute_cap;
    return table_->now.may_offload ? obstacle::pinned : obstacle::no_way_out;
  }
  // Is there any way out? Dropped tensors leave whatever their pins say: nothing is lost. A clean
  // one is among those that can be offloaded.
  [[nodiscard]] bool leavable(const context& c, tensor_id t) const {
    return c.is_released(t) || c.can_evict(t) || c.can_offload(t);
  }
  // The Filter's choice among those that may be asked now.
  [[nodiscard]] tensor_id choose(const context& c, tier up_to) {
    return filter_.select(c, table_->tensors, table_->now, table_->candidates(), [&](tensor_id t) {
      const tensor& r = table_->tensors[t];
      const bool asked_now = r.passed_over != reservation_ && (!r.fresh || up_to >= tier::fresh) &&
                             (r.wanted == 0 || up_to >= tier::wanted) && r.locks == 0;
      if (asked_now && leavable(c, t)) return permission::yes;
      // Host room comes and goes; all else that keeps it here is its own affair.
      const bool for_good =
          asked_now && (!table_->now.may_offload || covers(r.pinned, pin::offload));
      return for_good ? permission::not_as_is : permission::not_now;
    });
  }

  /// Lets one tensor go, by the first way that is open to it, or passes it over.
  void release(const context& c, tensor_id t, action a) {
    tensor& r = table_->tensors[t];
    // Nobody wants it back: no decision, and not for the Decider to keep.
    if (c.is_released(t)) return left(c, t), table_->evict(t);
    if (a == action::keep) return void(r.passed_over = reservation_);
    const auto draft = events_.leaving(c, t, filter_.heuristic());
    if (c.is_clean(t) && c.can_offload(t)) {
      left(c, t);
      table_->drop_clean(t);
      events_.tell(event_kind::clean_drop, operation_, draft);
      return;
    }
    // Its block is free no sooner in any other way.
    const bool under_way = r.copying;
    if (under_way && c.can_offload(t)) a = action::offload;
    // The way chosen, else the other one: pins, a full host, no producer. The host may have no hole
    // in spite of enough bytes, which only the storage knows.
    if (a == action::evict && !c.can_evict(t)) a = action::offload;
    if (a == action::offload && c.can_offload(t))
      if (const auto done = table_->offload(t)) {
        left(c, t);
        // A copy is told of once, though what it frees may be wanted back and leave again under it.
        events_.copy(event_kind::copy_out, operation_, t, *done, !under_way);
        events_.tell(event_kind::offload, operation_, draft);
        return;
      }
    if (c.can_evict(t)) {
      left(c, t);
      table_->evict(t);
      events_.tell(event_kind::evict, operation_, draft);
      return;
    }
    r.passed_over = reservation_;
  }
  // Takes note of a release: one in the backward pass, or of what was brought back for nothing.
  void left(const context& c, tensor_id t) {
    tensor& r = table_->tensors[t];
    if (table_->now.backward && !c.is_released(t)) ++table_->counts.backward_releases;
    if (!std::exchange(r.fresh, false)) return;
    if constexpr (learns_of_waste<P>) prefetcher_.wasted(c, t);
  }

  // What was set aside leaves before anybody is asked, the lowest id first. O(1).
  bool drop_cached() {
    const id_set& cached = table_->candidates().cached();
    if (cached.empty()) return false;
    return table_->evict(*cached.begin()), true;
  }
  // One turn of Algorithm 1, lines 12 to 19. False: nobody is left to ask.
  bool release_one(tier up_to) {
    table_->refresh_conditions();
    const context c = view();
    const tensor_id t = choose(c, up_to);
    if (t == tensor_id::none) return false;
    ++table_->counts.decisions;
    action a = decider_.decide(c, t);
    // What a restore waits for goes to the host where it can: recomputing it could go in circles.
    if (a == action::evict && table_->tensors[t].wanted > 0 && c.can_offload(t))
      a = action::offload;
    release(c, t, a);
    return true;
  }

  /// One step towards `need` free bytes.
  void release_something(bytes need) {
    if (table_->leaving().count > 0 && table_->free_bytes() + table_->leaving() >= need) {
      if (!release_instead_of_waiting()) wait();
      return;
    }
    if (!release_any()) throw budget_exceeded(report(need, operation_));
  }
  /// One more tensor on its way, or one copy less under way; false: nothing more can leave. Waiting
  /// comes before what would soon be fetched again, and that before host copies and sources, which
  /// once given up are lost.
  bool release_any() {
    if (drop_cached() || release_one(tier::idle)) return true;
    if (table_->copying()) return wait(), true;
    return release_one(tier::fresh) || release_one(tier::wanted) || reclaim_host() ||
           give_up_a_source();
  }
  void wait() {
    events_.tell(event_kind::wait, operation_);
    table_->wait_for_copy();
    events_.flush();
  }
  /// Copies under way will do; is there something so cheap to let go at once that it beats waiting?
  /// Another copy out would only queue behind them.
  bool release_instead_of_waiting() {
    table_->refresh_conditions();
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
    ++table_->counts.decisions;
    const action a = c.is_released(t) ? action::evict : decider_.decide(c, t);
    if (a == action::keep || (a == action::offload && !c.is_clean(t))) return false;
    release(c, t, a);
    return true;
  }
  /// The host is full and something could leave if it were not: host copies of tensors that are on
  /// the device, in use, are a convenience. O(tensors).
  bool reclaim_host() {
    bool any = false;
    if (!table_->now.may_offload) return false;
    for (std::uint32_t i = 0; i < table_->tensors.tensor_slots(); ++i)
      if (const auto t = static_cast<tensor_id>(i);
          table_->tensors[t].host && table_->tensors[t].where != residency::host) {
        table_->forget_host_copy(t);
        any = true;
      }
    return any;
  }
  /// The last resort: a tensor that the program has dropped, kept because something can only be
  /// recomputed from it, goes when all that hangs on it has its bytes: then nothing is lost but the
  /// chance to evict those.
  bool give_up_a_source() {
    const candidate_list& list = table_->candidates();
    auto lowest =
        tensor_id::none;  // of both sets: who is parked depends on how victims are searched
    for (const id_set* s : {&list.all(), &list.parked()})
      for (const tensor_id t : *s) {
        const tensor& r = table_->tensors[t];
        const bool needed = r.references > 0 || r.locks > 0 || r.wanted > 0;
        if (needed || r.producer != operator_id::none) continue;
        if (!nothing_hangs_on(t)) continue;
        lowest = std::min(lowest, t);
        break;
      }
    if (lowest == tensor_id::none) return false;
    table_->forget_records_around(lowest);
    return true;
  }

  bool nothing_hangs_on(tensor_id t) {
    const graph& g = table_->tensors;
    bool nothing = true;
    g.for_each_dependent(
        t, walk_, [&](tensor_id d) { nothing = nothing && g[d].where != residency::evicted; });
    // A consumer's output that is dropped but locked belongs to a restore under way.
    for (const operator_id o : g.readers(t))
      for (const tensor_id out : g.outputs(o))
        nothing = nothing && (g[out].references > 0 || g[out].locks == 0);
    return nothing;
  }

  /// Releases the window of neighbours that is cheapest to get back, if that is cheaper than moving
  /// what lies between the holes. Nothing where a hole is large enough, which is the usual case.
  /// O(blocks).
  void clear_window(bytes n) {
    S& s = table_->storage();
    const bytes size = s.rounded(n);
    if (s.largest_hole() >= size) return;
    const auto in_the_way = s.bytes_to_move(n);
    // Copies that are in the way can be waited for.
    const auto copies = [&] { return s.backlog(direction::out) + s.backlog(direction::in); };
    const double moving = !in_the_way         ? double(copies().count())
                          : s.move_rate() > 0 ? 1e9 * double(in_the_way->count) / s.move_rate()
                                              : 0.0;
    if (moving <= worth_asking_ns) return;
    table_->refresh_conditions();
    const context c = view();
    const auto leaving =
        cheapest_window(size, moving, [&](tensor_id t) { return cost_to_leave(c, t); });
    if (leaving.empty()) return;
    release_window(leaving);
    while (s.largest_hole() < size && table_->leaving().count > 0) wait();
  }
  // Neighbours in this storage that make a piece of that size, by `cost(tensor)`, under `limit`.
  template <class Cost>
  [[nodiscard]] std::span<const tensor_id> cheapest_window(bytes size, double limit,
                                                           const Cost& cost) {
    return windows_.cheapest(
        size, limit, [&](const auto& visit) { table_->storage().walk_blocks(visit); },
        [&](std::uint32_t row) { return table_->owner(row); }, cost);
  }
  // What it costs to get it back, in ns, where it may leave now.
  [[nodiscard]] double cost_to_leave(const context& c, tensor_id t) const {
    if (is_cached(t)) return 0.0;
    if (!may_go_with_neighbours(c, t)) return never;
    if constexpr (prices_release<D>)
      return decider_.release_cost(c, t);
    else
      return c.release_cost(t);
  }

  /// Memory with places, in a step that was seen: lets those neighbours go that make a piece of
  /// that size and have the lowest scores for their bytes, in place of the lowest scores wherever
  /// they lie. These would leave bytes free all over the memory, and blocks would have to move.
  /// False: moving takes no time, a hole is large enough, copies under way will do, or there is no
  /// such window.
  /// O(blocks), as many answers of the heuristic.
  bool release_neighbours(bytes need, bytes piece) {
    if constexpr (shows_its_holes<S>) {
      if (piece.count == 0 || !table_->learns || !table_->past.follows()) return false;
      S& s = table_->storage();
      const bytes size = s.rounded(piece);
      if (s.largest_hole() >= size || table_->free_bytes() + table_->leaving() >= need)
        return false;
      // Moving takes no time; unless the storage moves nothing, so that no byte can be had by it.
      if (s.move_rate() <= 0 && (s.largest_hole() == bytes{} || s.bytes_to_move(bytes{1})))
        return false;
      table_->refresh_conditions();
      const context c = view();
      // Lower bounds of what closures cost part most windows from the cheapest: those of its
      // tensors are then told exactly, until it is the cheapest by these, too.
      question rough;
      context roughly = c;
      if constexpr (filter<H>::asks_for_bounds) roughly.set_question(&rough);
      std::span<const tensor_id> leaving;
      asked_.clear();
      for (int tries = 0; tries < 4; ++tries) {
        leaving = cheapest_window(size, never, [&](tensor_id t) { return price(roughly, t); });
        // Where a closure meets the host no exact price is kept: the same window is found again.
        if (std::ranges::equal(leaving, asked_)) break;
        asked_.assign(leaving.begin(), leaving.end());
        double bound = 0, exact = 0;
        for (const tensor_id t : leaving) bound += price(roughly, t), exact += price(c, t);
        if (exact <= bound) break;
      }
      release_window(leaving);
      return !leaving.empty();
    } else {
      return false;
    }
  }
  // A score is per byte, whatever the heuristic: of neighbours the sum over bytes is compared.
  [[nodiscard]] double price(const context& c, tensor_id t) {
    if (is_cached(t)) return 0.0;
    if (!may_go_with_neighbours(c, t)) return never;
    if (c.is_released(t)) return 0.0;
    ++priced_;
    return c.bytes(t) * score_of(filter_.heuristic(), c, t);
  }
  [[nodiscard]] bool is_cached(tensor_id t) const {
    return table_->tensors[t].cached && table_->tensors[t].locks == 0;
  }
  [[nodiscard]] bool may_go_with_neighbours(const context& c, tensor_id t) const {
    const tensor& r = table_->tensors[t];
    return r.listed && r.locks == 0 && r.wanted == 0 && !r.fresh && r.passed_over != reservation_ &&
           leavable(c, t);
  }
  // All of a window, each the way that the Decider says.
  void release_window(std::span<const tensor_id> leaving) {
    for (const tensor_id t : leaving) {
      if (is_cached(t)) {
        table_->evict(t);
        continue;
      }
      const context now = view();
      const bool asked = !now.is_released(t);
      table_->counts.decisions += asked;
      release(now, t, asked ? decider_.decide(now, t) : action::evict);
    }
  }
  // Can it be placed without moving others? What nobody waits for is not worth a move.
  [[nodiscard]] bool fits_unmoved(bytes n) const {
    if constexpr (shows_its_holes<S>)
      return table_->storage().largest_hole() >= table_->storage().rounded(n);
    else
      return true;
  }

  static constexpr double worth_asking_ns = 20'000;  ///< what weighing itself may cost

  residency_table<S>* table_;
  // Policies are kept by value: empty ones take no room.
  filter<H> filter_;
  [[no_unique_address]] D decider_;
  [[no_unique_address]] P prefetcher_;
  [[no_unique_address]] event_sink<S, O> events_;
  std::vector<operator_id> walk_;
  window_search windows_;
  std::vector<tensor_id> asked_;  // the window that was asked for its exact price
  ended_operator ended_;          // while nobody waits
  std::uint64_t reservation_ = 0;
  std::uint64_t priced_ = 0;  // answers asked for neighbours
  static constexpr std::uint32_t most_replaced = 16;
  std::uint32_t replaced_ = 0;  // policies, in this step
  bytes floor_{};               // the largest need seen
  const char* operation_ = "";
};

}  // namespace delta::detail
