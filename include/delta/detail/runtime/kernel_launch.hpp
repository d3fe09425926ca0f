// delta: running kernels, the first time and again: blocks for what they write, the storage's
// bracket around them, the records from which they are replayed, and what they were found to cost.
// The first run and a replay take the same way, or a replay could differ from the run it repeats.
//
// A cost starts as what the program said (its prior), or where it said nothing, as a guess by the
// bytes that the operator touches (guessed_costs.hpp). It is replaced by what the storage measured,
// when that is known: at once, or before one of the next operators. A replay measures anew. So c_r
// is what the operator took last (repairs P-12, P-16).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/detail/history/pending_times.hpp"
#include "delta/detail/runtime/guessed_costs.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/kernel.hpp"

namespace delta::detail {

/// An input whose block an output has taken over: its bytes are in that output's block, until the
/// kernel writes them.
struct replaced_input {
  tensor_id tensor;
  std::size_t output;  ///< its place
};

/// What a kernel is run on. Inputs and updates are resident and locked; outputs and workspace are
/// blocks that no tensor has yet.
struct workload {
  std::span<const tensor_id> inputs, updates;
  std::span<const block> outputs;
  std::span<const block> workspaces;  ///< a block that names nothing counts as none
  std::uint64_t sequence = 0;         ///< the operator's tick when it first ran
  bool replaying = false;             ///< updates are not touched, and their addresses are null
  std::span<const replaced_input> replaced = {};  ///< by tensor
};

/// Runs kernels for `operator_run` (the first time) and `restorer` (again). Lists are kept between
/// calls: in the long run no heap is used, which matters where operators take microseconds.
template <class Reclaimer>
class launcher {
  using table_type = typename Reclaimer::table_type;
  using storage_type = typename Reclaimer::storage_type;

 public:
  launcher(table_type& table, Reclaimer& r) : table_(&table), reclaimer_(&r) {}

  /// Outputs and workspace of one operator, for which `reclaimer::make` has made room. What is not
  /// taken goes back. The launcher lends its list, which keeps its capacity: one at a time, so a
  /// replay must be over before the operator that asked for it allocates.
  class allocation {
   public:
    /// `size_of(x)` is the size of the output that `x` of the list stands for. Throws
    /// budget_exceeded where free bytes lie in pieces that can't be joined; then all that it had
    /// goes back.
    template <class List, class Size>
    allocation(launcher& l, const List& list, const Size& size_of, bytes scratch)
        : outputs(l.blocks_), owner_(&l) {
      try {
        // The largest first, while the holes are at their largest.
        bytes most = scratch;
        for (const auto& x : list) {
          most = std::max(most, size_of(x));
          outputs.emplace_back();
        }
        const auto obtain = [&](block& b, bytes n) {
          if (!b) b = l.reclaimer_->obtain(n, lifetime::transient);
        };
        for (const bool largest : {true, false}) {
          auto b = outputs.begin();
          for (const auto& x : list) {
            if (!largest || size_of(x) == most) obtain(*b, size_of(x));
            ++b;
          }
          if (scratch.count > 0 && (!largest || scratch == most)) obtain(workspace, scratch);
        }
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
      for (block& b : outputs)
        if (b) owner_->table_->storage().free(std::move(b));
      outputs.clear();
      if (workspace) owner_->table_->storage().free(std::move(workspace));
    }
    /// The scratch as a list: of one, or of none.
    [[nodiscard]] std::span<const block> workspaces() const noexcept {
      return {&workspace, workspace ? 1U : 0U};
    }
    std::vector<block>& outputs;  ///< in the order of the list
    block workspace;              ///< names nothing when there is none

   private:
    launcher* owner_;
  };

  // --- the bracket ------------------------------------------------------------------------------

  /// Orders the compute lane behind whoever uses these bytes. Until `close` nothing is allocated,
  /// so that nothing moves under a kernel, unless the storage says that it may be. Updates are
  /// written; a replay leaves them out, as they have happened.
  void open(const workload& w) {
    // The storage orders by block, so it must know all of them, and how each is used.
    reads_.clear(), writes_.clear();
    for (const tensor_id t : w.inputs) reads_.push_back(&block_of(w, t));
    for (const block& b : w.outputs) writes_.push_back(&b);
    if (!w.replaying)
      for (const tensor_id t : w.updates) writes_.push_back(&table_->tensors[t].device);
    for (const block& b : w.workspaces)
      if (b) writes_.push_back(&b);
    begin(reads_, writes_);
  }
  /// What the kernel sees. Valid until the next call of this: the addresses are in a list that is
  /// kept.
  [[nodiscard]] call view(const workload& w) {
    // One list for all of them, filled before it is viewed: growing would move it.
    pointers_.clear();
    for (const tensor_id t : w.inputs) pointers_.push_back(address(block_of(w, t)));
    for (const block& b : w.outputs) pointers_.push_back(address(b));
    for (const tensor_id t : w.updates)
      pointers_.push_back(w.replaying ? nullptr : address(table_->tensors[t].device));
    // A workspace of no bytes was not asked for: the kernel gets null.
    for (const block& b : w.workspaces) pointers_.push_back(b ? address(b) : nullptr);
    return divided(pointers_, {w.inputs.size(), w.outputs.size(), w.updates.size()}, w.sequence,
                   w.replaying);
  }
  /// Ends the bracket. `cost` is for storages in virtual time, which advance by it.
  stamp close(nanoseconds cost) {
    in_bracket_ = false;
    try {
      const stamp done = table_->storage().end_operator(cost);
      if (!late_frees_.empty()) order_late_frees();
      free_late();
      return done;
    } catch (...) {
      free_late();
      throw;
    }
  }
  /// Frees a block that the program's own kernels may still use, launched whenever: who gets the
  /// bytes next comes behind them. While a bracket is open that is when it closes.
  void free_behind_launches(block&& b) noexcept {
    // Nothing that was launched is under way, but for the kernel that this may be called from.
    if (!in_bracket_ && may_allocate_in_operator(table_->storage()))
      return table_->storage().free(std::move(b));
    late_frees_.push_back(std::move(b));  // covered
    if (in_bracket_) return;
    try {
      order_late_frees();
    } catch (...) {  // NOLINT(bugprone-empty-catch): a device that fails says so at the next call
    }
    free_late();
  }
  /// The number of the bracket that is open; 0: none is.
  [[nodiscard]] std::uint64_t bracket() const noexcept { return in_bracket_ ? brackets_ : 0; }
  /// That block can be freed so from now on. Throws std::bad_alloc.
  void cover_late_frees(const block& b) {
    const std::size_t rows = b.index() + std::size_t{1};
    if (late_frees_.capacity() < rows) late_frees_.reserve(2 * rows);
  }
  /// Whoever uses that block next comes behind what was launched so far.
  void order_behind_launches(const block& b) {
    if (may_allocate_in_operator(table_->storage())) return;
    const block* const one = &b;
    begin({}, std::span(&one, 1));
    close({});
  }

  /// Runs a kernel between open and close. An exception from it leaves the bracket closed, and is
  /// marked as the kernel's: the manager is not poisoned by it. The stamp says when it is done.
  template <class Kernel>
  stamp launch(Kernel& body, const workload& w, nanoseconds cost) {
    open(w);
    call c = view(w);
    return finish(body, c, cost);
  }
  /// How many addresses of each kind there are in a list of inputs, outputs, updates and
  /// workspaces.
  struct kinds {
    std::size_t inputs, outputs, updates;
  };
  /// Runs a kernel on blocks of the caller's own, as a replay.
  template <class Kernel>
  stamp launch_on(Kernel& body, std::span<const block* const> reads,
                  std::span<const block* const> writes, call::addresses all, const kinds& n,
                  std::uint64_t sequence, nanoseconds cost) {
    begin(reads, writes);
    call c = divided(all, n, sequence, true);
    return finish(body, c, cost);
  }
  /// True if the exception under way is a kernel's. An exception can't say by itself whose it is.
  [[nodiscard]] bool kernel_failed() const noexcept { return kernel_failed_; }
  void forget_failure() noexcept { kernel_failed_ = false; }
  /// Behind a failure: if `f` throws, too, that is what counts.
  template <class F>
  void clean_up(const F& f) {
    try {
      f();
    } catch (...) {
      forget_failure();
      throw;
    }
  }

  /// Where a block's bytes are now; null where the storage keeps none.
  [[nodiscard]] std::byte* address(const block& b) {
    if constexpr (has_data<storage_type>)
      return table_->storage().data(b);
    else
      return nullptr;
  }
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

  /// True if a replay makes the same outputs: not from an input that the operator itself changed,
  /// nor of an update that would happen twice (P-19, P-23).
  [[nodiscard]] static bool may_be_replayed(std::span<const tensor_id> inputs,
                                            std::span<const tensor_id> updates,
                                            trait traits) noexcept {
    if (has(traits, trait::never_replay)) return false;
    // In place: only if a replay may leave the update out, and reads nothing that it has changed.
    if (updates.empty()) return true;
    return has(traits, trait::effect_once) &&
           std::find_first_of(inputs.begin(), inputs.end(), updates.begin(), updates.end()) ==
               inputs.end();
  }
  /// True if, beside that, somebody may ask for it.
  [[nodiscard]] static bool worth_recording(std::span<const tensor_id> inputs,
                                            std::span<const tensor_id> updates, std::size_t outputs,
                                            trait traits) noexcept {
    return value_of_evicts<typename Reclaimer::decider_type>() && outputs > 0 &&
           may_be_replayed(inputs, updates, traits);
  }
  /// A record from which `ids` can be made again. `pieces`: the stamps of the work that made them,
  /// one per bracket. What their times are is learned now or later; until then `prior` stands in,
  /// what the program said, or where it said nothing, a guess.
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
        *this, outputs, [&](tensor_id t) { return g[t].size; }, r.workspace);
    // The same number as the first time, so random kernels draw the same.
    const workload again{g.inputs(o),        g.updates(o), fresh.outputs,
                         fresh.workspaces(), r.sequence,   true};
    // A storage in virtual time goes on by what it is told: as at first, so not by a guess.
    const stamp done = launch(r.replay, again, r.guessed ? nanoseconds{} : r.cost);
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
        table_->recomputed(outputs[i], std::move(fresh.outputs[i]));
  }

 private:
  // Where an input's bytes are.
  [[nodiscard]] const block& block_of(const workload& w, tensor_id t) const {
    const block& own = table_->tensors[t].device;
    if (own || w.replaced.empty()) return own;
    const auto r = std::ranges::lower_bound(w.replaced, t, {}, &replaced_input::tensor);
    return r != w.replaced.end() && r->tensor == t ? w.outputs[r->output] : own;
  }
  void begin(std::span<const block* const> reads, std::span<const block* const> writes) {
    table_->storage().begin_operator(reads, writes);
    in_bracket_ = true;
    ++brackets_;
  }
  // The compute lane is serial: an empty bracket that writes them ends behind all launched work.
  void order_late_frees() {
    writes_.clear();
    for (const block& b : late_frees_) writes_.push_back(&b);
    table_->storage().begin_operator({}, writes_);
    table_->storage().end_operator({});
  }
  void free_late() {
    for (block& b : late_frees_) table_->storage().free(std::move(b));
    late_frees_.clear();
  }
  // A list of all addresses as a kernel sees it.
  [[nodiscard]] call divided(call::addresses all, const kinds& n, std::uint64_t sequence,
                             bool replaying) {
    void* stream = nullptr;
    if constexpr (has_native_stream<storage_type>) stream = table_->storage().native_stream();
    const std::size_t written = n.inputs + n.outputs;
    return {all.first(n.inputs),
            all.subspan(n.inputs, n.outputs),
            all.subspan(written, n.updates),
            all.subspan(written + n.updates),
            stream,
            sequence,
            replaying};
  }
  // Runs it in the bracket that is open, and ends that.
  template <class Kernel>
  stamp finish(Kernel& body, call& c, nanoseconds cost) {
    try {
      body(c);
    } catch (...) {
      close({});
      // Only now: if the storage fails while it closes, that is what counts.
      kernel_failed_ = true;
      throw;
    }
    return close(cost);
  }
  // Work of a record whose time is not known yet.
  struct unmeasured {
    operator_id op;
    std::uint64_t sequence;
    bool first;  ///< of several pieces of work
    bool again;  ///< a replay
  };

  table_type* table_;
  Reclaimer* reclaimer_;
  std::vector<block> blocks_;      // lent to the allocation at hand
  std::vector<block> late_frees_;  // of the program's, until the bracket closes
  bool in_bracket_ = false;
  std::uint64_t brackets_ = 0;  // begun
  std::vector<const block*> reads_, writes_;
  std::vector<std::byte*> pointers_;
  pending_times<unmeasured> pending_;
  guess_watch guesses_;
  bool kernel_failed_ = false;
};

}  // namespace delta::detail
