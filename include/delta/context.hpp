// delta: what a policy may see. One concrete class, so that the concepts check against the real
// thing. All quantities are doubles: bytes and nanoseconds; "can't" is infinity.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/id_set.hpp"
#include "delta/history.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta {

/// What can't be done costs this much: infinity, which compares as one would wish.
inline constexpr double never = std::numeric_limits<double>::infinity();

/// The state of the machine, refreshed by the manager before it asks a policy
/// (`residency_table::refresh_conditions`).
struct conditions {
  tick now = 0;             ///< the operator at hand, or the last one
  nanoseconds clock{};      ///< the storage's, but at least 1 ns passes with every operator
  bool backward = false;    ///< between manager::backward() and end_of_step()
  bool may_evict = true;    ///< the decider's traits
  bool may_offload = true;  ///< likewise
  bytes budget{}, used{};   ///< used: both ends of copies in flight, but not what is cached
  bytes leaving{};          ///< of used: blocks that are free when their copy out is done
  bytes host_free{};        ///< of the host budget, in however many pieces
  nanoseconds ahead{};      ///< by which `clock` is ahead of the storage's
  bytes coming_need{};      ///< what the last operator had to allocate: a guess at the next one's
  std::array<double, 2> rate{1, 1};  ///< bytes per second, by direction
  std::array<double, 2> latency{};   ///< ns per copy
  std::array<double, 2> backlog{};   ///< ns until a copy queued now would start
  std::array<double, 2> burden{};    ///< ns that compute loses by one of copying beside it
  std::uint32_t variant = 0;         ///< of several policies the one that decides (switching.hpp)
  std::uint32_t recompute_cap = 0;   ///< replays of one operator per step (repairs P-26)
};

/// A copy under way; `tensor` is none where nobody will use what it copies.
struct queued_copy {
  tensor_id tensor = tensor_id::none;
  bytes size{};
  direction way = direction::out;
};

/// A stretch of the device's memory, of those that tile it: a tensor's bytes, or with
/// tensor_id::none bytes that are free, or of no tensor.
struct memory_stretch {
  tensor_id tensor = tensor_id::none;
  bytes size{};
};

/// An operator of the program that has just ended. Of its tensors those may have gone that the
/// program has dropped meanwhile: what is a candidate may be asked about.
struct ended_operator {
  std::string_view name;
  std::span<const tensor_id> inputs, updates, outputs;
};

/// How closely the costs of closures are told (`context::set_question`). Who compares many tensors
/// need not know them exactly: a lower bound parts most from the best.
struct question {
  tensor_id deepen = tensor_id::none;  ///< of this one four times as many records as before
  bool bounded = false;                ///< told: some answer since was a lower bound
};

/// Read-only view of the tensors for heuristics, deciders and prefetchers. Cheap to make and to
/// copy; valid during the call that it is given to. A policy may ask about the tensor that it is
/// asked about, and about those of `offloaded`.
///
/// Nothing here throws or uses the heap. O(1) unless it says otherwise. Walks leave marks in the
/// records, so two threads can't share a graph.
class context {
 public:
  /// Made by the manager; both outlive it.
  context(const graph& g, const conditions& c) noexcept : graph_(&g), conditions_(&c) {}

  /// m: the bytes that leave when it does, rounded as the storage counts (equation 1).
  [[nodiscard]] double bytes(tensor_id t) const noexcept {
    return static_cast<double>(at(t).footprint.count);
  }
  /// s: ns since an operator touched it, at least one (repairs P-16). Time rather than ticks, as
  /// DTR has it: an operator that takes long makes everything else older. Where the storage's clock
  /// stands still, as no cost is known, it counts operators (P-17).
  [[nodiscard]] double staleness(tensor_id t) const noexcept {
    const double s = static_cast<double>(conditions_->clock.count()) - graph_->last_use(t);
    return s > 1.0 ? s : 1.0;
  }
  /// c_r, in ns: its operator and every operator that must run before it because an input is gone;
  /// an ancestor on the host counts as its reload (or its own operator, where that is cheaper and
  /// its inputs are here). Infinite where it can't be recomputed. The walk stops after 1,024
  /// records and then gives what it has: a lower bound (repairs P-12). Who need not know more than
  /// whether it is over `enough` says so: then it is exact up to that, and else any cost over it.
  /// O(closure), or what of it costs `enough`.
  [[nodiscard]] double recompute_cost(tensor_id t, double enough = never) const noexcept {
    return can_recompute(t) ? closure_cost(t, closure::ancestors, no_position, enough) : never;
  }
  /// The same as it will be when `t` is used next, by that forecast: what the program will have
  /// dropped by then, and what it has dropped already, counts as gone; dropped sources stay. As of
  /// now where the forecast is not `known`. What several read is paid by all of them: an ancestor's
  /// cost is divided by the most uses that, by the record, a dropped tensor on the way to it has.
  /// O(closure).
  [[nodiscard]] double recompute_cost_by(tensor_id t, const forecast& use,
                                         double enough = never) const noexcept {
    if (!can_recompute(t)) return never;
    const bool known = use.what == forecast::kind::known;
    return closure_cost(t, closure::later, known ? use.position : no_position, enough);
  }
  /// Is anything to be recomputed from `t`: missing, made from it directly or through what is
  /// missing too, and of use to the program again? Then `t` has its price, though the program
  /// itself may never use it. Follows 16 records at most, and says yes where there are more.
  /// O(readers).
  [[nodiscard]] bool recomputes_others(tensor_id t) const noexcept {
    std::array<operator_id, 16> found;  // of these an output is missing
    std::size_t count = 0;
    const auto add_readers = [&](tensor_id from) {
      for (const operator_id o : graph_->readers(from)) {
        const std::span<const operator_id> known = std::span(found).first(count);
        if (std::ranges::find(known, o) != known.end() ||
            std::ranges::none_of(graph_->outputs(o), [&](tensor_id out) { return missing(out); }))
          continue;
        if (count == found.size()) return false;
        found[count++] = o;
      }
      return true;
    };
    if (!add_readers(t)) return true;
    for (std::size_t i = 0; i < count; ++i)
      for (const tensor_id out : graph_->outputs(found[i])) {
        if (!missing(out)) continue;
        const bool used = at(out).references > 0 && next_use(out).what != forecast::kind::never;
        if (used || !add_readers(out)) return true;
      }
    return false;
  }
  /// DTR's evicted neighbourhood, in ns: recompute_cost plus the cost of the descendants whose
  /// bytes are gone (Kirisame et al. 2020). One limit of 1,024 records for both. O(closure).
  [[nodiscard]] double neighbourhood_cost(tensor_id t) const noexcept {
    return can_recompute(t) ? closure_cost(t, closure::neighbourhood, no_position, never) : never;
  }
  /// One copy of it, in ns, without waiting for the queue: latency + m / rate (repairs P-14).
  [[nodiscard]] double copy_cost(tensor_id t, direction d) const noexcept {
    const auto i = static_cast<std::size_t>(d);
    return conditions_->latency[i] + 1e9 * bytes(t) / conditions_->rate[i];
  }
  /// c_s, in ns: out and in again; out is 0 when a clean host copy exists. Infinite where it can't
  /// be offloaded (repairs P-14, P-16).
  [[nodiscard]] double swap_cost(tensor_id t) const noexcept {
    if (!can_offload(t)) return never;
    return (is_clean(t) ? 0.0 : copy_cost(t, direction::out)) + copy_cost(t, direction::in);
  }
  /// c_s and the wait for the copy-out queue: what of a swap nothing hides when it starts now.
  [[nodiscard]] double exposed_swap_cost(tensor_id t) const noexcept {
    return swap_cost(t) + (is_clean(t) ? 0.0 : backlog(direction::out));
  }
  /// What bringing it back from the host costs from now, in ns, the wait for the copy-in queue
  /// included; infinite without a host copy.
  [[nodiscard]] double reload_cost(tensor_id t) const noexcept {
    return at(t).host ? backlog(direction::in) + copy_cost(t, direction::in) : never;
  }
  /// What getting it back would cost if it left the cheaper way, in ns; 0 if nobody wants it back.
  /// The way by recomputing counts where a producer is there, whether or not a pin or the decider
  /// forbids to evict. O(closure).
  [[nodiscard]] double release_cost(tensor_id t) const noexcept {
    if (is_released(t)) return 0.0;
    const double swap = exposed_swap_cost(t);
    return std::min(recompute_cost(t, swap), swap);
  }

  /// How long a copy queued now would wait before it starts, in ns.
  [[nodiscard]] double backlog(direction d) const noexcept {
    return conditions_->backlog[static_cast<std::size_t>(d)];
  }
  /// Bytes per second in that direction, as the storage measures or assumes it; without latency.
  [[nodiscard]] double rate(direction d) const noexcept {
    return conditions_->rate[static_cast<std::size_t>(d)];
  }
  /// ns of every copy in that direction, before its first byte.
  [[nodiscard]] double latency(direction d) const noexcept {
    return conditions_->latency[static_cast<std::size_t>(d)];
  }
  /// What kernels lose by copies that way beside them, in ns per ns of copying, as the storage
  /// measures it; 0: nothing, or it is not known. 1: as if compute did the copying.
  [[nodiscard]] double burden(direction d) const noexcept {
    return conditions_->burden[static_cast<std::size_t>(d)];
  }
  /// Bytes of the host budget that are not taken.
  [[nodiscard]] double host_free() const noexcept { return count(conditions_->host_free); }
  /// Of several policies the one that decides in this step (switching.hpp).
  [[nodiscard]] std::uint32_t variant() const noexcept { return conditions_->variant; }

  /// Is a valid copy of it on the host? Of a resident tensor: it can leave without a copy.
  [[nodiscard]] bool is_clean(tensor_id t) const noexcept {
    return bool(at(t).host) && !at(t).copying;
  }
  /// Is it resident, and being copied to the host? It can leave when that is done.
  [[nodiscard]] bool is_copying(tensor_id t) const noexcept { return at(t).copying; }
  /// The program has dropped it, no restore under way waits for it, and it can be made again:
  /// letting it go costs nothing.
  [[nodiscard]] bool is_released(tensor_id t) const noexcept {
    const tensor& r = at(t);
    return r.references == 0 && r.wanted == 0 && r.producer != operator_id::none;
  }
  /// Could it be computed again, whatever the policy thinks of that?
  [[nodiscard]] bool can_recompute(tensor_id t) const noexcept {
    return at(t).producer != operator_id::none;
  }
  /// May its bytes be dropped? Not without a producer (repairs P-3), not of a persistent tensor,
  /// not against its pin or the decider's own word; and not when its operator was replayed too
  /// often in this step while the program holds it (P-26).
  [[nodiscard]] bool can_evict(tensor_id t) const noexcept {
    const tensor& r = at(t);
    return conditions_->may_evict && r.producer != operator_id::none && !r.persistent &&
           !covers(r.pinned, pin::evict) &&
           (r.references == 0 || (*graph_)[r.producer].replays < conditions_->recompute_cap);
  }
  /// May it go to the host? Not against its pin or the decider's word, and only where a copy is
  /// there already or the host has as many bytes left (P-16). They may lie in pieces: the storage
  /// has the last word.
  [[nodiscard]] bool can_offload(tensor_id t) const noexcept {
    const tensor& r = at(t);
    return conditions_->may_offload && !covers(r.pinned, pin::offload) &&
           (r.host || r.footprint <= conditions_->host_free);
  }
  /// The name of the operator that made it; "" of what came from outside the step. Known of every
  /// policy, with or without records.
  [[nodiscard]] std::string_view made_by(tensor_id t) const noexcept {
    return at(t).persistent ? std::string_view() : std::string_view(at(t).label);
  }
  /// Where its bytes are now.
  [[nodiscard]] residency where(tensor_id t) const noexcept { return at(t).where; }
  /// Which ways out are forbidden to it.
  [[nodiscard]] pin pins(tensor_id t) const noexcept { return at(t).pinned; }
  /// Came it back early, and was not used yet?
  [[nodiscard]] bool is_fresh(tensor_id t) const noexcept { return at(t).fresh; }
  /// When an operator touched it, by `clock`.
  [[nodiscard]] double last_use(tensor_id t) const noexcept { return graph_->last_use(t); }

  /// The tick, and whether the program has said that the backward pass has begun
  /// (manager::backward).
  [[nodiscard]] tick now() const noexcept { return conditions_->now; }
  [[nodiscard]] bool backward() const noexcept { return conditions_->backward; }
  /// ns by the clock that staleness is reckoned by: their difference is when a tensor was used.
  [[nodiscard]] double clock() const noexcept {
    return static_cast<double>(conditions_->clock.count());
  }
  /// ns by which that clock is ahead of the storage's: operators that took no time.
  [[nodiscard]] double ahead() const noexcept {
    return static_cast<double>(conditions_->ahead.count());
  }
  /// Bytes: the budget, what is taken of it (copies under way included, but not what is cached),
  /// what will be free when the copies out under way are done, and what the coming operator is
  /// likely to ask for.
  [[nodiscard]] double budget() const noexcept { return count(conditions_->budget); }
  [[nodiscard]] double used() const noexcept { return count(conditions_->used); }
  [[nodiscard]] double leaving() const noexcept { return count(conditions_->leaving); }
  [[nodiscard]] double coming_need() const noexcept { return count(conditions_->coming_need); }
  /// Tensors on the host alone, in the order in which they were offloaded: the paper's queue
  /// (Algorithm 4). The list changes when the manager goes on.
  [[nodiscard]] std::span<const tensor_id> offloaded() const noexcept { return offloaded_; }
  /// The manager's, before it asks.
  void set_offloaded(std::span<const tensor_id> list) noexcept { offloaded_ = list; }
  /// At the end of a step, for those who choose what decides in the next: the copies under way, of
  /// each direction in the order in which they were queued. Else empty.
  [[nodiscard]] std::span<const queued_copy> copies() const noexcept { return copies_; }
  /// The manager's, before it asks.
  void set_copies(std::span<const queued_copy> list) noexcept { copies_ = list; }
  /// Also filled at the end of a step only: the device's memory in address order, and how many
  /// bytes per second move within it (0: moving takes no time). Empty where the storage does not
  /// show it, or has no places.
  [[nodiscard]] std::span<const memory_stretch> layout() const noexcept { return layout_; }
  [[nodiscard]] double move_rate() const noexcept { return move_rate_; }
  /// The manager's, before it asks.
  void set_layout(std::span<const memory_stretch> list, double move_rate) noexcept {
    layout_ = list, move_rate_ = move_rate;
  }
  /// The steps that were seen. Empty where no role declares `learns`.
  [[nodiscard]] const history& past() const noexcept { return *past_; }
  /// When a tensor will be used next, by that.
  [[nodiscard]] forecast next_use(tensor_id t) const noexcept { return past_->next_use(t); }
  /// The operator that has just ended, while nobody waits: what prefetchers are asked after, and
  /// what leaves early then. Nameless, and without tensors, when room is made for an operator.
  [[nodiscard]] const ended_operator& ended() const noexcept { return *ended_; }
  /// The manager's, before it asks.
  void set_ended(const ended_operator& o) noexcept { ended_ = &o; }
  /// The Filter's, before it asks: costs of closures may be lower bounds from now on; null: no.
  void set_question(question* q) noexcept { question_ = q; }
  /// Resident tensors that may be asked to leave, by id.
  [[nodiscard]] const detail::id_set& candidates() const noexcept { return *candidates_; }
  /// The manager's, before it asks.
  void set_past(const history& h, const detail::id_set& candidates) noexcept {
    past_ = &h, candidates_ = &candidates;
  }

 private:
  // Bounds the time of a question, and its table to four kilobytes of stack.
  static constexpr std::size_t walk_limit = 1024;
  static constexpr std::uint8_t first_reach = 1, deepest = 5;
  static_assert(walk_limit == std::size_t{1} << (2 * deepest));
  static constexpr std::uint32_t no_position = step_record::none;

  static double count(delta::bytes b) noexcept { return static_cast<double>(b.count); }
  const tensor& at(tensor_id t) const noexcept { return (*graph_)[t]; }

  // Nowhere: evicted or dead.
  [[nodiscard]] bool missing(tensor_id t) const noexcept {
    return !on_device(at(t).where) && at(t).where != residency::host;
  }
  /// Does a plan reload this host ancestor rather than recompute it?
  [[nodiscard]] bool reloads(tensor_id t) const noexcept {
    const tensor& r = at(t);
    if (r.producer == operator_id::none) return true;
    const operator_record& o = (*graph_)[r.producer];
    return static_cast<double>(o.cost.count()) >= reload_cost(t) ||
           std::ranges::any_of(graph_->inputs(r.producer),
                               [&](tensor_id i) { return !on_device(at(i).where); });
  }

  // Gone by the operator at `position`: by the program, which has dropped it or will have.
  [[nodiscard]] bool dropped_by(tensor_id t, std::uint32_t position) const noexcept {
    const tensor& r = at(t);
    return position != no_position && r.producer != operator_id::none &&
           (r.references == 0 || past_->dies_before(t, position));
  }

  /// The cost of a closure, as far as it is asked for; kept where the graph does so. Of one that
  /// meets a tensor on the host a lower bound is kept: its price changes with the queue.
  double closure_cost(tensor_id t, closure what, std::uint32_t position,
                      double enough) const noexcept {
    const tensor& r = at(t);
    const bool keep = graph_->keeps == what;
    std::size_t most = walk_limit;
    if (keep) {
      if (what == closure::later) {
        graph_->forecasts_are(past_->forecasts());
        if (graph_->kept_for(t) != position)
          r.cost = tensor::unknown, graph_->keep_for(t, position);
      }
      const bool known = r.cost >= 0;
      if (known && (r.reach == tensor::all_of_it || r.cost > enough)) return r.cost;
      if (question_ != nullptr) {
        if (known && question_->deepen != t) return question_->bounded = true, r.cost;
        // Four records tell most of what is short.
        r.reach = known ? std::min(static_cast<std::uint8_t>(r.reach + 1), deepest) : first_reach;
        most = std::size_t{1} << (2 * r.reach);
      }
    }
    const walked w = walk(t, what, position, keep, most, enough);
    if (keep) {
      const bool exact = w.complete && !w.through_host;
      r.cost = w.records;
      if (exact)
        r.reach = tensor::all_of_it;
      else if (question_ == nullptr)
        r.reach = w.complete ? deepest : first_reach;
    }
    if (!w.complete && question_ != nullptr && w.records <= enough) question_->bounded = true;
    return w.records + w.reloads;
  }
  struct walked {
    double records = 0, reloads = 0;  // what was computed again for its host ancestors among these
    bool complete = true, through_host = false;
  };
  /// Sums the costs of the closure, each operator and each reload once: of at most so many records,
  /// until they cost more than `enough`. `keep`: the records that count must say so when they
  /// change (`detail::closure_watch`).
  walked walk(tensor_id t, closure what, std::uint32_t position, bool keep, std::size_t most,
              double enough) const noexcept {
    std::array<operator_id, walk_limit> found;      // in the order of the walk
    std::array<std::uint32_t, walk_limit> sharing;  // of each: by how many its cost is shared
    std::size_t count = 0;
    std::uint32_t share = 1;
    const std::uint32_t mark = graph_->next_mark();
    walked sum;
    const auto add = [&](operator_id o, double& to) {
      // At the limit the walk goes on over what it has found, and finds nothing more.
      if (o == operator_id::none) return;
      const operator_record& r = (*graph_)[o];
      if (r.mark == mark) return;
      if (count == most || sum.records > enough) {
        // The longest walk is as good as it gets.
        if (most < walk_limit || count < most) sum.complete = false;
        return;
      }
      r.mark = mark;
      sharing[count] = share;
      found[count++] = o;
      to += static_cast<double>(r.cost.count()) / share;
    };
    const auto visit = [&](operator_id o) { add(o, sum.records); };
    visit(at(t).producer);
    for (std::size_t i = 0; i < count && sum.complete; ++i)
      for (const tensor_id in : graph_->inputs(found[i])) {
        const tensor& r = at(in);
        const bool dropped = what == closure::later && dropped_by(in, position);
        if (dropped || missing(in)) {
          // Not multiplied along a chain: whoever shares the end of it shares all of it.
          share = dropped ? std::max(sharing[i], past_->uses_of(in)) : sharing[i];
          visit(r.producer);
          share = 1;
          continue;
        }
        // A tensor on the host has two prices, and `reloads` says which: its operator, like what is
        // missing, or one copy. The copy is marked on the tensor, as it is no record.
        if (r.where != residency::host) continue;
        sum.through_host = true;
        // Whether it is reloaded depends on what its producer reads.
        if (keep && r.producer != operator_id::none) (*graph_)[r.producer].swept_down = false;
        if (!reloads(in))
          add(r.producer, sum.reloads);
        else if (std::exchange(r.mark, mark) != mark)
          sum.reloads += reload_cost(in);
      }
    const bool exact = sum.complete && !sum.through_host;
    if (keep)
      for (std::size_t i = 0; i < count; ++i) {
        const operator_record& r = (*graph_)[found[i]];
        r.swept_down = false;
        if (exact || what == closure::neighbourhood) r.grown_down = false;
      }
    if (what == closure::neighbourhood) {
      const std::size_t ancestors = count;
      // The ancestors are not expanded downwards: their other descendants are not t's.
      std::size_t i = count;
      for (const operator_id c : graph_->readers(t)) visit_missing_outputs(c, visit);
      for (; i < count && sum.complete; ++i)
        for (const tensor_id out : graph_->outputs(found[i]))
          if (missing(out))
            for (const operator_id c : graph_->readers(out)) visit_missing_outputs(c, visit);
      if (keep)
        for (i = ancestors; i < count; ++i)
          (*graph_)[found[i]].swept_up = (*graph_)[found[i]].grown_up = false;
    }
    graph_->note_walk(count);
    return sum;
  }
  // A reader counts when some output of it is gone that somebody may ask for: the program, or who
  // computes what the program holds from it.
  template <class Visit>
  void visit_missing_outputs(operator_id c, const Visit& visit) const noexcept {
    if (std::ranges::any_of(graph_->outputs(c), [&](tensor_id o) {
          return missing(o) && (at(o).references > 0 || at(o).edges != tensor::nowhere);
        }))
      visit(c);
  }
  const graph* graph_;
  const conditions* conditions_;
  std::span<const tensor_id> offloaded_;
  std::span<const queued_copy> copies_;
  std::span<const memory_stretch> layout_;
  double move_rate_ = 0;
  static inline const ended_operator nothing_ended{};
  const ended_operator* ended_ = &nothing_ended;
  static inline const history nothing_known{};
  static inline const detail::id_set nobody{};
  const history* past_ = &nothing_known;
  const detail::id_set* candidates_ = &nobody;
  question* question_ = nullptr;
};

}  // namespace delta
