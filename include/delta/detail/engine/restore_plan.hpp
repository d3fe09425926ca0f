// delta: how missing tensors come back. A plan is made as a whole, with a peak known before it
// runs; nothing recurses (repairs P-13): a chain of evicted tensors may be thousands long, and the
// stack of a thread is not. Nothing here touches bytes.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "delta/detail/tensors/graph.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// One step of a plan: replay an operator, reload a tensor, or let a tensor go. Evictions are steps
/// of the exact search only; plans drop by use counts.
struct plan_step {
  enum class kind : std::uint8_t { replay, reload, evict } what;
  operator_id op = operator_id::none;  ///< of a replay
  tensor_id tensor = tensor_id::none;  ///< of the other two
};

/// A topological closure of what is missing: every operator once, inputs before consumers,
/// temporaries dropped at their last use. Where x is here, a and b are evicted, c is on the host,
/// and an operator reads b and c:
///
///   x -> a -> b      steps: replay a's operator, replay b's, reload c
///   c (host)         rows:  x 1, a 1, b 1, c 1 (uses)
///                    peak:  a + b while b is made, or b + c and what the operator allocates
struct plan {
  /// A tensor that the plan reads; it stays until its last use.
  struct row {
    tensor_id tensor;     ///< missing or here: inputs that are here are locked by the plan, too
    std::uint32_t uses;   ///< left; a target counts one for the operator that asked
    bool locked = false;  ///< by the plan
  };
  std::vector<plan_step> steps;  ///< in order
  std::vector<row> rows;         ///< `tensor::planned` is an index into it
  bytes peak{};  ///< the most that the plan adds to what is on the device when it starts

  void clear() noexcept { steps.clear(), rows.clear(), peak = {}; }
};

/// Builds closures. Keeps its buffers: one plan at a time.
class planner {
 public:
  /// The closure that makes all `targets` resident. `reload(t)` says whether a tensor on the host
  /// is reloaded (else recomputed); `rounded(bytes)` is the storage's; `tail` is what the operator
  /// that asked will allocate once all targets are there. The plan is valid until the next call,
  /// and `tensor::planned` is the caller's to reset (`forget`). O(closure).
  template <class Reload, class Rounded>
  plan& closure(graph& g, std::span<const tensor_id> targets, bytes tail, const Reload& reload,
                const Rounded& rounded) {
    plan_.clear();
    order(g, targets, reload);
    // Rows count uses, so that carrying the plan out can lock a tensor when it comes and let it go
    // after its last reader.
    const auto use = [&](tensor_id t) {
      tensor& r = g[t];
      if (r.planned == tensor::nowhere) {
        r.planned = static_cast<std::uint32_t>(plan_.rows.size());
        plan_.rows.push_back({t, 0});
      }
      ++plan_.rows[r.planned].uses;
    };
    for (const plan_step& s : plan_.steps)
      if (s.what == plan_step::kind::replay)
        for (const tensor_id t : g.inputs(s.op)) use(t);
    for (tensor_id t : targets) use(t);
    measure(g, tail, rounded);
    return plan_;
  }

  /// Ends the plan: the tensors forget their rows. O(rows).
  void forget(graph& g) noexcept {
    for (const plan::row& r : plan_.rows) g[r.tensor].planned = tensor::nowhere;
    plan_.clear();
  }

 private:
  // Post-order over what is missing, with an explicit stack: a tensor stays on it until its inputs
  // are in the plan. What is in the plan already is marked in a table of the planner's own: asking
  // `reload` walks the graph too, and its marks would overwrite these. One operator brings all of
  // its outputs.
  template <class Reload>
  void order(graph& g, std::span<const tensor_id> targets, const Reload& reload) {
    ++round_;
    in_plan_.resize(std::max(in_plan_.size(), g.tensor_slots()), 0);
    const auto here = [&](tensor_id t) {
      return on_device(g[t].where) || in_plan_[index(t)] == round_;
    };
    // Reversed, so that they come off in the operator's order: plans repeat exactly.
    stack_.assign(targets.rbegin(), targets.rend());
    while (!stack_.empty()) {
      const tensor_id t = stack_.back();
      const tensor& r = g[t];
      if (here(t)) {
        stack_.pop_back();
        continue;
      }
      // A reload needs nothing before it, and leaves the stack on the next turn.
      if (r.where == residency::host && (r.producer == operator_id::none || reload(t))) {
        in_plan_[index(t)] = round_;
        plan_.steps.push_back({plan_step::kind::reload, operator_id::none, t});
        continue;
      }
      // Pushed above their reader, they come off before it. Some may be pushed twice, by two
      // readers: the second finds them here.
      assert(r.producer != operator_id::none && "what is missing can be made again");
      const auto inputs = g.inputs(r.producer);
      const std::size_t before = stack_.size();
      for (auto in = inputs.rbegin(); in != inputs.rend(); ++in)
        if (!here(*in)) stack_.push_back(*in);
      if (stack_.size() > before) continue;
      for (const tensor_id out : g.outputs(r.producer)) in_plan_[index(out)] = round_;
      plan_.steps.push_back({plan_step::kind::replay, r.producer, tensor_id::none});
    }
  }

  // Walks the plan with its use counts and finds the peak of what it adds. What is on the device
  // already is not counted, as it is locked or may be released: the caller compares with what can
  // be made free. `tail` comes on top of what is there at the end.
  template <class Rounded>
  void measure(graph& g, bytes tail, const Rounded& rounded) {
    left_.clear();
    for (const plan::row& r : plan_.rows) left_.push_back(r.uses);
    bytes live{};
    const auto came = [&](tensor_id t) {  // stays while the plan reads it
      if (g[t].planned != tensor::nowhere && left_[g[t].planned] > 0 && !on_device(g[t].where))
        live += g[t].footprint;
    };
    for (const plan_step& s : plan_.steps) {
      if (s.what == plan_step::kind::reload) {
        came(s.tensor);
        plan_.peak = std::max(plan_.peak, live);
        continue;
      }
      const operator_record& o = g[s.op];
      // During a replay its inputs and all outputs are there, missing or not: a kernel writes all.
      plan_.peak = std::max(plan_.peak, live + replay_need(g, s.op, rounded(o.workspace)));
      for (const tensor_id t : g.outputs(s.op)) came(t);
      // The last reader is done: what is missing gives its bytes back. What was here before never
      // counted.
      for (const tensor_id t : g.inputs(s.op))
        if (--left_[g[t].planned] == 0 && !on_device(g[t].where)) live -= g[t].footprint;
    }
    plan_.peak = std::max(plan_.peak, live + tail);
  }

  plan plan_;
  std::vector<tensor_id> stack_;
  std::vector<std::uint32_t> left_;
  std::vector<std::uint64_t> in_plan_;  // by tensor: the round that put it there
  std::uint64_t round_ = 0;
};

/// The cheapest schedule of replays and evictions that brings `targets` together within `available`
/// bytes: exact, by Dijkstra's algorithm over the sets of tensors that are here. For closures of at
/// most `limit` tensors; the pebbling problem is too hard beyond. O(2^n n) moves, each with a
/// heap's logarithm.
///
/// Why at all: a plan replays every operator once. Where nothing may be offloaded, a schedule that
/// evicts something and replays it twice may be the only one that fits; or there is none, which
/// then is proved.
class exact_search {
 public:
  static constexpr std::size_t limit = 14;

  /// The tensors that matter: targets and all their ancestors that can be recomputed, here or not.
  /// Nullopt when there are more than `limit`. Valid until the next call.
  std::optional<std::span<const tensor_id>> closure(const graph& g,
                                                    std::span<const tensor_id> targets) {
    tensors_.clear();
    const std::uint32_t mark = g.next_mark();
    const auto visit = [&](tensor_id t) {
      if (g[t].producer != operator_id::none && std::exchange(g[t].mark, mark) != mark)
        tensors_.push_back(t);
    };
    for (tensor_id t : targets) visit(t);
    for (std::size_t i = 0; i < tensors_.size() && tensors_.size() <= limit; ++i)
      for (const tensor_id in : g.inputs(g[tensors_[i]].producer)) visit(in);
    if (tensors_.size() > limit) return std::nullopt;
    return std::span<const tensor_id>(tensors_);
  }

  /// Steps from what is on the device now, for the tensors of the last `closure`; nullopt: there is
  /// no such schedule. `available`: bytes for these tensors, duplicates and workspace; `tail`:
  /// needed beside the targets at the end. `may_go(t)`: t can be evicted. Uses the heap: it is
  /// rare.
  template <class MayGo, class Rounded>
  std::optional<std::vector<plan_step>> schedule(const graph& g, std::span<const tensor_id> targets,
                                                 bytes available, bytes tail, const MayGo& may_go,
                                                 const Rounded& rounded) {
    using mask = std::uint32_t;
    const std::size_t n = tensors_.size();
    // A set of tensors is a mask: the position in the list is the bit.
    const auto bit = [&](tensor_id t) -> mask {
      const auto at = std::find(tensors_.begin(), tensors_.end(), t);
      return at == tensors_.end() ? 0u : mask{1} << (at - tensors_.begin());
    };
    mask start = 0, goal = 0;
    for (std::size_t i = 0; i < n; ++i)
      if (on_device(g[tensors_[i]].where)) start |= mask{1} << i;
    for (tensor_id t : targets) goal |= bit(t);
    // An operator as a move between sets: it needs some bits, sets others, and takes bytes while it
    // runs.
    struct move {
      operator_id op;
      mask needs, gives;
      std::uint64_t bytes;
      std::int64_t cost;
    };
    std::vector<move> moves;
    // One move per operator, however many of its outputs matter. A cost of at least 1 ns, so that
    // needless replays are not free.
    for (tensor_id t : tensors_) {
      const operator_id o = g[t].producer;
      if (std::any_of(moves.begin(), moves.end(), [&](const move& m) { return m.op == o; }))
        continue;
      move m{o, 0, 0, replay_need(g, o, rounded(g[o].workspace)).count,
             std::max<std::int64_t>(g[o].cost.count(), 1)};
      for (const tensor_id in : g.inputs(o)) m.needs |= bit(in);
      for (const tensor_id out : g.outputs(o)) m.gives |= bit(out);
      moves.push_back(m);
    }
    const auto held = [&](mask m) {
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < n; ++i)
        if ((m >> i & 1u) != 0) sum += g[tensors_[i]].footprint.count;
      return sum;
    };
    // How a set was reached most cheaply: the way back is the schedule.
    struct origin {
      std::int64_t cost = -1;
      mask before = 0;
      plan_step step{};
    };
    std::vector<origin> best(std::size_t{1} << n);
    using entry = std::pair<std::int64_t, mask>;
    std::priority_queue<entry, std::vector<entry>, std::greater<>> open;
    // A dearer way to a set that is known is dropped; a cheaper one replaces it, and its old entry
    // in the heap goes stale.
    const auto reach = [&](mask to, std::int64_t cost, mask from, plan_step step) {
      if (best[to].cost >= 0 && best[to].cost <= cost) return;
      best[to] = {cost, from, step};
      open.emplace(cost, to);
    };
    reach(start, 0, start, {});
    while (!open.empty()) {
      const auto [cost, at] = open.top();
      open.pop();
      // An older, dearer entry of the heap: its set was reached more cheaply since.
      if (cost != best[at].cost) continue;
      const std::uint64_t here = held(at);
      // Dijkstra: the first set that has all targets, and room for the tail, is a cheapest one.
      if ((at & goal) == goal && here + tail.count <= available.count) return path(best, start, at);
      // Evicting costs nothing now: what it costs shows in the replays that it makes necessary.
      for (std::size_t i = 0; i < n; ++i)
        if ((at >> i & 1u) != 0 && may_go(tensors_[i]))
          reach(at & ~(mask{1} << i), cost, at,
                {plan_step::kind::evict, operator_id::none, tensors_[i]});
      for (const move& m : moves)
        if ((at & m.needs) == m.needs && (at & m.gives) != m.gives &&
            here + m.bytes <= available.count)
          reach(at | m.gives, cost + m.cost, at, {plan_step::kind::replay, m.op, tensor_id::none});
    }
    return std::nullopt;
  }

 private:
  // From the end to the start, turned round.
  template <class Origins>
  static std::vector<plan_step> path(const Origins& best, std::uint32_t start, std::uint32_t at) {
    std::vector<plan_step> steps;
    for (; at != start; at = best[at].before) steps.push_back(best[at].step);
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  std::vector<tensor_id> tensors_;
};

}  // namespace delta::detail
