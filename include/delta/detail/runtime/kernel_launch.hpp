// delta: runs kernels, the first time and again: the blocks that they write, the records from which
// they are replayed, and their costs. First runs and replays take the same way
// (kernel_bracket.hpp), so that a replay can't differ from its first run. A cost starts as the
// program's prior, or as a guess by the bytes touched (guessed_costs.hpp), until the storage's
// measured one is known: at once, or before a later operator. A replay measures anew: c_r is what
// the operator took last (repairs P-12, P-16).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/history/pending_times.hpp"
#include "delta/detail/runtime/guessed_costs.hpp"
#include "delta/detail/runtime/kernel_bracket.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/kernel.hpp"

namespace delta::detail {

/// Fills a list of blocks: those of the largest size first, while the holes are at their largest.
/// `size_of(i)`: of the block `i`; `obtain(size)` gives one.
template <class Size, class Obtain>
void obtain_largest_first(std::span<block> list, const Size& size_of, const Obtain& obtain) {
  bytes most{};
  for (std::size_t i = 0; i < list.size(); ++i) most = std::max(most, size_of(i));
  for (const bool now : {true, false})
    for (std::size_t i = 0; i < list.size(); ++i)
      if ((size_of(i) == most) == now) list[i] = obtain(size_of(i));
}

/// Runs kernels for `operator_run` (the first time) and `restorer` (again).
template <class Reclaimer>
class launcher : public kernel_bracket<typename Reclaimer::table_type> {
  using table_type = typename Reclaimer::table_type;
  using storage_type = typename Reclaimer::storage_type;

 public:
  launcher(table_type& table, Reclaimer& r)
      : kernel_bracket<table_type>(table), table_(&table), reclaimer_(&r) {}

  /// Outputs and workspace of one operator, for which `reclaimer::make` has made room. What is not
  /// taken goes back. The launcher lends its list, which keeps its capacity: one at a time, so a
  /// replay must be over before the operator that asked for it allocates.
  class allocation {
   public:
    /// `size_of(i)` is the size of output `i`. Throws budget_exceeded where free bytes lie in
    /// pieces that can't be joined; then all that it had goes back.
    template <class Size>
    allocation(launcher& l, std::size_t outputs, const Size& size_of, bytes scratch)
        : owner_(&l), outputs_(outputs) {
      try {
        l.blocks_.resize(outputs + (scratch.count > 0));
        obtain_largest_first(
            l.blocks_, [&](std::size_t i) { return i < outputs ? size_of(i) : scratch; },
            [&](bytes n) { return l.reclaimer_->obtain(n, lifetime::transient); });
      } catch (...) {
        give_back();
        throw;
      }
    }
    allocation(const allocation&) = delete;
    allocation& operator=(const allocation&) = delete;
    ~allocation() { give_back(); }
    /// Frees what no tensor has taken: moved-from blocks are empty.
    void give_back() {
      for (block& b : owner_->blocks_)
        if (b) owner_->table_->storage().free(std::move(b));
      owner_->blocks_.clear();
    }
    [[nodiscard]] std::span<block> outputs() const noexcept {
      return std::span(owner_->blocks_).first(outputs_);
    }
    /// The scratch as a list: of one, or of none.
    [[nodiscard]] std::span<const block> workspaces() const noexcept {
      return std::span(owner_->blocks_).subspan(outputs_);
    }

   private:
    launcher* owner_;
    std::size_t outputs_;
  };

  /// Keeps a block where it is, for those who hold its address; and lets it go.
  void hold(const block& b) {
    if constexpr (has_hold<storage_type>) table_->storage().hold(b);
    if (may_fragment(table_->storage())) reclaimer_->bounds().hold();
  }
  void unhold(const block& b) {
    if constexpr (has_hold<storage_type>) table_->storage().unhold(b);
    if (may_fragment(table_->storage())) reclaimer_->bounds().unhold();
  }
  /// The same of a tensor's.
  void hold(tensor_id t) {
    hold(table_->tensors[t].device);
    ++table_->tensors[t].holds;
  }
  void unhold(tensor_id t) {
    unhold(table_->tensors[t].device);
    --table_->tensors[t].holds;
  }

  // --- records and replays ----------------------------------------------------------------------

  /// True if it may be replayed, and somebody may ask for it.
  [[nodiscard]] static bool worth_recording(std::span<const tensor_id> inputs,
                                            std::span<const tensor_id> updates, std::size_t outputs,
                                            trait traits) noexcept {
    return Reclaimer::evicts && outputs > 0 && may_be_replayed(inputs, updates, traits);
  }
  /// A record from which `ids` can be made again. `pieces`: stamps of the work that made them, one
  /// per bracket. Until their times are learned `prior` stands in, or a guess if there is none.
  void record(const workload& w, std::span<const tensor_id> ids, kernel&& body, bytes workspace,
              trait traits, const char* name, nanoseconds prior, std::span<const stamp> pieces) {
    const operator_id o = table_->tensors.add_record(w.inputs, ids, w.updates);
    operator_record& r = table_->tensors[o];
    r.replay = std::move(body);
    r.workspace = workspace;
    r.sequence = w.sequence;
    r.traits = traits;
    r.name = name;
    r.guessed = prior.count() == 0 && !table_->cost_of(pieces.front());
    r.cost = r.guessed ? guess_cost(*table_, w.inputs, w.updates, ids, workspace) : prior;
    // The first piece replaces the prior, the others add to it.
    bool first = true;
    for (const stamp done : pieces) {
      if (const auto took = table_->cost_of(done)) {
        r.cost = first ? *took : r.cost + *took;
        r.guessed = r.guessed && !first;
      } else {
        pending_.add(done, {o, r.sequence, first, false});
      }
      first = false;
    }
    if (r.guessed) guesses_.guessed(table_->counts, pieces.front());
  }
  /// Takes note of operators whose time is known by now, so that c_r is a measured cost (P-12).
  /// A storage that never knows keeps the prior, or the guess, and the observer is told so once. A
  /// record may have gone, or be another's by now: its number tells. Amortised O(1) per operator.
  void learn_costs(bool step_ends = false) {
    const auto cost_of = [&](stamp s) { return table_->cost_of(s); };
    pending_.poll(cost_of, [&](const unmeasured& u, nanoseconds took) {
      if (u.again) table_->counts.recompute_time += took;
      operator_record& r = table_->tensors[u.op];
      const bool here = r.in_use && r.sequence == u.sequence;
      guesses_.measured(table_->counts, here && r.guessed);
      if (!here) return;
      r.guessed = false;
      table_->set_cost(u.op, u.first ? took : r.cost + took);
    });
    table_->steps.poll_times(cost_of);
    if (guesses_.warns(table_->storage(), table_->counts, cost_of, step_ends)) {
      reclaimer_->events().tell(event_kind::costs_unknown, "");
    }
  }
  /// At the end of a step: all records go.
  void forget_costs() {
    learn_costs(true);
    pending_.clear();
  }

  /// Runs a recorded operator again. Its inputs must be resident and locked. All outputs that were
  /// missing come back; those that were not get scratch, as a kernel writes all of them. Makes room
  /// by itself. Throws budget_exceeded, or what the kernel throws; then nothing came back.
  void replay(operator_id o) {
    graph& g = table_->tensors;
    operator_record& r = g[o];
    const auto outputs = g.outputs(o);
    // For scratch, too: an output that is here already is written once more, beside itself.
    reclaimer_->make(replay_need(g, o, table_->storage().rounded(r.workspace)), r.name);
    allocation fresh(
        *this, outputs.size(), [&](std::size_t i) { return g[outputs[i]].size; }, r.workspace);
    // The same number as the first time, so random kernels draw the same.
    const workload again{g.inputs(o),        g.updates(o), fresh.outputs(),
                         fresh.workspaces(), r.sequence,   true};
    // A storage in virtual time goes on by what it is told: as at first, so not by a guess.
    const stamp done = this->launch(r.replay, again, r.guessed ? nanoseconds{} : r.cost);
    if (const auto took = table_->cost_of(done)) {
      guesses_.measured(table_->counts, r.guessed);
      r.guessed = false;
      table_->set_cost(o, *took);
      table_->counts.recompute_time += *took;
    } else {
      pending_.add(done, {o, r.sequence, true, true});
    }
    if (r.replays < std::numeric_limits<std::uint16_t>::max()) ++r.replays;
    ++table_->counts.recomputes;
    reclaimer_->events().work(event_kind::recompute, r.name, outputs, done);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      // The scratch goes back with `fresh`.
      if (!on_device(g[outputs[i]].where))
        table_->recomputed(outputs[i], std::move(fresh.outputs()[i]));
  }

 private:
  // Work of a record whose time is not known yet.
  struct unmeasured {
    operator_id op;
    std::uint64_t sequence;
    bool first;  ///< of several pieces of work
    bool again;  ///< a replay
  };

  table_type* table_;
  Reclaimer* reclaimer_;
  std::vector<block> blocks_;  // lent to the allocation at hand
  pending_times<unmeasured> pending_;
  guess_watch guesses_;
};

}  // namespace delta::detail
