// delta: the cheapest schedule that brings a few missing tensors together within given bytes, by
// trying all sets of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/engine/restore_plan.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta::detail {

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
    find_moves(g, rounded);
    mask start = 0, goal = 0;
    for (const tensor_id t : tensors_)
      if (on_device(g[t].where)) start |= bit(t);
    for (const tensor_id t : targets) goal |= bit(t);
    frontier sets{std::vector<origin>(std::size_t{1} << tensors_.size()), {}};
    sets.reach(start, 0, start, {});
    while (!sets.open.empty()) {
      const auto [cost, at] = sets.open.top();
      sets.open.pop();
      // An older, dearer entry of the heap: its set was reached more cheaply since.
      if (cost != sets.best[at].cost) continue;
      const std::uint64_t here = held(g, at);
      // Dijkstra: the first set that has all targets, and room for the tail, is a cheapest one.
      if ((at & goal) == goal && here + tail.count <= available.count) return sets.path(start, at);
      // Evicting costs nothing now: what it costs shows in the replays that it makes necessary.
      for (std::size_t i = 0; i < tensors_.size(); ++i)
        if ((at >> i & 1u) != 0 && may_go(tensors_[i]))
          sets.reach(at & ~(mask{1} << i), cost, at,
                     {plan_step::kind::evict, operator_id::none, tensors_[i]});
      for (const move& m : moves_)
        if ((at & m.needs) == m.needs && (at & m.gives) != m.gives &&
            here + m.bytes <= available.count)
          sets.reach(at | m.gives, cost + m.cost, at,
                     {plan_step::kind::replay, m.op, tensor_id::none});
    }
    return std::nullopt;
  }

 private:
  /// A set of tensors: the position in the list is the bit.
  using mask = std::uint32_t;
  /// An operator as a move between sets: it needs some bits, sets others, and takes bytes while it
  /// runs.
  struct move {
    operator_id op;
    mask needs, gives;
    std::uint64_t bytes;
    std::int64_t cost;
  };
  /// How a set was reached most cheaply: the way back is the schedule.
  struct origin {
    std::int64_t cost = -1;
    mask before = 0;
    plan_step step{};
  };
  /// The sets that were reached, and the heap of those whose moves are still to be tried.
  struct frontier {
    using entry = std::pair<std::int64_t, mask>;
    std::vector<origin> best;
    std::priority_queue<entry, std::vector<entry>, std::greater<>> open;

    // A dearer way to a set that is known is dropped; a cheaper one replaces it, and its old entry
    // in the heap goes stale.
    void reach(mask to, std::int64_t cost, mask from, plan_step step) {
      if (best[to].cost >= 0 && best[to].cost <= cost) return;
      best[to] = {cost, from, step};
      open.emplace(cost, to);
    }
    // From the end to the start, turned round.
    [[nodiscard]] std::vector<plan_step> path(mask start, mask at) const {
      std::vector<plan_step> steps;
      for (; at != start; at = best[at].before) steps.push_back(best[at].step);
      std::reverse(steps.begin(), steps.end());
      return steps;
    }
  };

  [[nodiscard]] mask bit(tensor_id t) const {
    const auto at = std::find(tensors_.begin(), tensors_.end(), t);
    return at == tensors_.end() ? 0u : mask{1} << (at - tensors_.begin());
  }
  [[nodiscard]] std::uint64_t held(const graph& g, mask m) const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if ((m >> i & 1u) != 0) sum += g[tensors_[i]].footprint.count;
    return sum;
  }
  // One move per operator, however many of its outputs matter. A cost of at least 1 ns, so that
  // needless replays are not free.
  template <class Rounded>
  void find_moves(const graph& g, const Rounded& rounded) {
    moves_.clear();
    for (const tensor_id t : tensors_) {
      const operator_id o = g[t].producer;
      if (std::any_of(moves_.begin(), moves_.end(), [&](const move& m) { return m.op == o; }))
        continue;
      move m{o, 0, 0, replay_need(g, o, rounded(g[o].workspace)).count,
             std::max<std::int64_t>(g[o].cost.count(), 1)};
      for (const tensor_id in : g.inputs(o)) m.needs |= bit(in);
      for (const tensor_id out : g.outputs(o)) m.gives |= bit(out);
      moves_.push_back(m);
    }
  }
  std::vector<tensor_id> tensors_;
  std::vector<move> moves_;
};

}  // namespace delta::detail
