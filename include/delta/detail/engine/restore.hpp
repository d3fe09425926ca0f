// delta: restoring. Brings the inputs of an operator together on the device: by a plan whose peak
// is known before it runs, else by an exact search where the closure is small, else on demand.
// Three ways, as each fails where another does not:
//
//   way         memory                               time                     fails
//   plan        the closure's peak, known before     each operator once       too much at once
//   search      any budget for which one exists      2^14 sets at most        over 14 tensors
//   on demand   one operator's inputs and outputs    10 x records at most     goes in circles
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/detail/engine/kernel_launch.hpp"
#include "delta/detail/engine/restore_plan.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/error.hpp"

namespace delta::detail {

/// Carries out plans (repairs P-6, P-11, P-13). For `operator_run`, before every operator, and
/// `versions`. It runs within one entry point of the manager and keeps nothing from one call to the
/// next but buffers.
template <class Reclaimer>
class restorer {
 public:
  restorer(residency_table<typename Reclaimer::storage_type>& l, Reclaimer& r,
           launcher<Reclaimer>& k)
      : table_(&l), reclaimer_(&r), launcher_(&k) {}

  /// Makes all of `targets` resident and locks each once (a tensor named twice: twice). `tail`:
  /// what the caller will allocate beside them. Throws budget_exceeded or thrash; nothing stays
  /// locked. Where nothing is missing, as mostly: O(targets + copies under way).
  void bring(std::span<const tensor_id> targets, bytes tail, const char* operation) {
    for (const tensor_id t : targets) table_->claim(t);
    if (std::none_of(targets.begin(), targets.end(), [&](tensor_id t) { return missing(t); }))
      return lock(targets);
    // From here on policies are asked.
    table_->refresh_conditions();
    for (;;) {
      if (by_plan(targets, tail, operation)) return;
      // A plan that does not fit may still be carried out in another order.
      if constexpr (!offloads<typename Reclaimer::decider_type>())
        if (by_search(targets, tail, operation)) return;
      try {
        on_demand(targets, operation);
        return lock(targets);
      } catch (const thrash&) {
        // What was brought stays where it is, and nothing is locked: another policy may go on.
        if (!reclaimer_->replace_policy()) throw;
      } catch (const budget_exceeded&) {
        if (!reclaimer_->policy_replaced() || !reclaimer_->replace_policy()) throw;
      }
    }
  }

  /// Each tensor once per mention. What `bring` has locked, its caller unlocks. O(list).
  void lock(std::span<const tensor_id> list) {
    for (const tensor_id t : list) table_->lock(t);
  }
  void unlock(std::span<const tensor_id> list) {
    for (const tensor_id t : list) table_->unlock(t);
  }

 private:
  // Settled before: what is offloading or reloading has become resident.
  [[nodiscard]] bool missing(tensor_id t) const {
    return table_->tensors[t].where != residency::resident;
  }
  [[nodiscard]] auto rounded() const {
    return [this](bytes n) { return table_->storage().rounded(n); };
  }
  // On demand: the tensor can be used at once, as the storage orders the operator behind the copy.
  void reload(tensor_id t, const char* operation) {
    reclaimer_->make(table_->tensors[t].footprint, operation, table_->tensors[t].size);
    reclaimer_->bring_back(t,
                           reclaimer_->obtain(table_->tensors[t].size, reclaimer_->lifetime_of(t)),
                           event_kind::reload);
  }
  // A replay brought back more than anybody waits for: what the program has dropped is set aside. A
  // copy of the list, as that may recycle the record itself.
  void drop_unneeded(operator_id o) {
    const auto made = table_->tensors.outputs(o);
    spared_.assign(made.begin(), made.end());
    for (const tensor_id t : spared_)
      if (const tensor& r = table_->tensors[t];
          r.in_use && r.references == 0 && r.locks == 0 && r.wanted == 0)
        table_->cache(t);
  }

  // The report of a restore that failed: with as much more as its plan lacked, it would have gone.
  // Less may do, too; but nothing less is known to.
  [[nodiscard]] memory_report report_shortage(bytes need, const char* operation) {
    memory_report r = reclaimer_->report(need, operation);
    r.smallest_budget = std::max(r.smallest_budget, r.capacity + shortage_);
    return r;
  }

  // The closure as a whole. False: its peak does not fit, or it came to that on the way. What it
  // has brought by then, and the program holds, stays.
  bool by_plan(std::span<const tensor_id> targets, bytes tail, const char* operation) {
    graph& g = table_->tensors;
    plan& p = planner_.closure(
        g, targets, tail, [&](tensor_id t) { return reclaimer_->reloads(t); }, rounded());
    // Locked first, so that making room does not release what the plan counts as here.
    for (plan::row& r : p.rows)
      if (on_device(g[r.tensor].where))
        table_->claim(r.tensor), table_->lock(r.tensor), r.locked = true;
    // Whatever happens: no lock of the plan and no row of it may stay behind.
    const auto let_go = [&] {
      for (plan::row& r : p.rows)
        if (std::exchange(r.locked, false)) table_->unlock_restored(r.tensor);
      planner_.forget(g);
    };
    try {
      shortage_ = {};
      // What is locked now is not reachable, so nothing of the plan is counted twice.
      if (p.peak > table_->free_bytes())
        shortage_ = saturating_sub(p.peak, reclaimer_->reachable());
      if (shortage_.count > 0) return let_go(), false;
      // What the plan has brought stays until its last reader; what nobody reads is not in it.
      const auto hold = [&](tensor_id t) {
        if (g[t].planned == tensor::nowhere) return;
        plan::row& r = p.rows[g[t].planned];
        if (r.uses > 0 && !std::exchange(r.locked, true)) table_->lock(t);
      };
      for (const plan_step& s : p.steps) {
        if (s.what == plan_step::kind::reload) {
          reload(s.tensor, operation);
          hold(s.tensor);
          continue;
        }
        // The inputs are locked, by the plan: making room for the replay can't take them.
        launcher_->replay(s.op);
        for (const tensor_id t : g.outputs(s.op)) hold(t);
        // A copy: dropping what is unneeded may recycle the record.
        const auto read = g.inputs(s.op);
        used_.assign(read.begin(), read.end());
        drop_unneeded(s.op);
        for (const tensor_id t : used_) {
          plan::row& r = p.rows[g[t].planned];
          if (--r.uses == 0 && std::exchange(r.locked, false)) table_->unlock_restored(t);
        }
      }
      lock(targets);
    } catch (const budget_exceeded&) {
      return let_go(), false;  // copies or holes stood in the way: on demand needs less at once
    } catch (...) {
      let_go();
      throw;
    }
    let_go();
    return true;
  }

  // Each once: what the makers of these read and nobody makes.
  std::vector<tensor_id> sources_of(const std::vector<tensor_id>& made) const {
    const graph& g = table_->tensors;
    std::vector<tensor_id> sources;
    for (const tensor_id t : made)
      for (const tensor_id in : g.inputs(g[t].producer))
        if (g[in].producer == operator_id::none) sources.push_back(in);
    std::ranges::sort(sources);
    sources.erase(std::ranges::unique(sources).begin(), sources.end());
    return sources;
  }

  // The cheapest schedule of a small closure; true when it ran. Throws budget_exceeded when it
  // proves that there is none. Only for deciders that never offload: the host would be another
  // place for every tensor, 3^n states.
  bool by_search(std::span<const tensor_id> targets, bytes tail, const char* operation) {
    graph& g = table_->tensors;
    const auto small = search_.closure(g, targets);
    if (!small) return false;
    // Locked while the search counts and runs: what it plans with must not leave behind its back.
    const std::vector<tensor_id> ours(small->begin(), small->end());
    for (const tensor_id t : ours)
      if (on_device(g[t].where)) table_->lock(t);
    // And what it reads: a source that nobody else needs may be given up when room is short.
    const std::vector<tensor_id> sources = sources_of(ours);
    lock(sources);
    // Its own tensors are locked, so they are added: the search may evict them.
    bytes available = reclaimer_->reachable();
    for (const tensor_id t : ours)
      if (on_device(g[t].where)) available += g[t].footprint;
    const auto let_go = [&] {
      for (const tensor_id t : ours)
        if (g[t].in_use && g[t].locks > 0 && on_device(g[t].where)) table_->unlock_restored(t);
      for (const tensor_id t : sources) table_->unlock_restored(t);
    };
    const context c = reclaimer_->view();
    const auto steps = search_.schedule(
        g, targets, available, tail,
        // One lock is this search's own; more are somebody else's.
        [&](tensor_id t) { return g[t].locks <= 1 && (g[t].references == 0 || c.can_evict(t)); },
        rounded());
    try {
      if (!steps) throw budget_exceeded(report_shortage(tail, operation));
      for (const plan_step& s : *steps) {
        if (s.what == plan_step::kind::evict) {
          // Not `unlock`, which would put it among the candidates, or free its bytes if it was
          // dropped.
          --g[s.tensor].locks;
          table_->evict(s.tensor);
          continue;
        }
        // What the replay brings back is locked if the search reckons with it; else it goes again,
        // as its bytes were counted for the time of the replay only.
        before_.clear();
        for (const tensor_id t : g.outputs(s.op)) before_.push_back(on_device(g[t].where));
        launcher_->replay(s.op);
        for (std::size_t i = 0; i < before_.size(); ++i)
          if (const tensor_id t = g.outputs(s.op)[i]; !before_[i])
            std::find(ours.begin(), ours.end(), t) != ours.end() ? table_->lock(t)
                                                                 : table_->cache(t);
      }
      lock(targets);
    } catch (...) {
      let_go();
      throw;
    }
    let_go();
    return true;
  }

  // Depth first with an explicit stack, one operator's footprint at a time. What waits for a
  // sibling stays if it can, and may be taken if it must (to the host where possible), so that a
  // chain never locks more than one operator's inputs. A cap on replays bounds it: in a budget too
  // small two siblings can take each other away for ever (P-26). Nothing stays locked at its end.
  void on_demand(std::span<const tensor_id> targets, const char* operation) {
    graph& g = table_->tensors;
    // The operator that asked is at the bottom: it has no record yet, so none stands for it.
    frames_.assign(1, operator_id::none);
    const auto inputs = [&](operator_id o) -> std::span<const tensor_id> {
      return o == operator_id::none ? targets : g.inputs(o);
    };
    // `wanted` says "a restore waits for this": such a tensor is asked to leave last, and does not
    // count as dropped, but it is not locked.
    const auto want = [&](operator_id o) {
      for (const tensor_id t : inputs(o)) {
        ++g[t].wanted, g.reweigh(t);
        if (g[t].cached) table_->refile(t);
      }
    };
    // A copy of the list: setting aside may recycle the record.
    const auto unwant = [&](operator_id o) {
      wanted_.assign(inputs(o).begin(), inputs(o).end());
      for (const tensor_id t : wanted_) --g[t].wanted, g.reweigh(t);
      for (const tensor_id t : wanted_)
        if (g[t].in_use && g[t].wanted == 0 && g[t].references == 0 && g[t].locks == 0 &&
            std::find(targets.begin(), targets.end(), t) == targets.end())
          table_->cache(t);
    };
    std::uint64_t replays = 0;
    const std::uint64_t cap = 10 * (g.live_records() + 1);
    want(operator_id::none);
    try {
      for (;;) {
        const operator_id o = frames_.back();
        const auto ins = inputs(o);
        for (const tensor_id t : ins) table_->claim(t);
        // One that can only be recomputed goes deeper; those on the host wait until all others are
        // here.
        auto next = std::find_if(ins.begin(), ins.end(), [&](tensor_id t) {
          return missing(t) && g[t].where != residency::host;
        });
        if (next != ins.end()) {
          frames_.push_back(g[*next].producer);
          want(frames_.back());
          continue;
        }
        // Here all inputs are on the device or on the host: lock those, fetch these, run, go up.
        guard here(*this, ins);  // locks those that are here; reloads the others one by one
        for (const tensor_id t : ins)
          if (missing(t)) reload(t, operation), here.add(t);
        if (o == operator_id::none) break;
        // The cap is ten times what a restore takes that makes everything once.
        if (++replays > cap) throw thrash(report_shortage({}, operation), replays, cap);
        launcher_->replay(o);
        // Unlocked first: `unwant` lets go of what nobody needs any more, and passes over what is
        // locked.
        here.release();
        drop_unneeded(o);
        unwant(o);
        frames_.pop_back();
      }
    } catch (...) {
      while (!frames_.empty()) {
        unwant(frames_.back());
        frames_.pop_back();
      }
      throw;
    }
    // The caller locks the targets next; until then nothing may free them.
    for (const tensor_id t : targets) --g[t].wanted, g.reweigh(t);
    frames_.clear();
  }

  // Locks on an operator's inputs while they gather; released by whatever ends the scope.
  class guard {
   public:
    guard(restorer& r, std::span<const tensor_id> list) : owner_(&r) {
      r.gathered_.clear();
      for (const tensor_id t : list)
        if (!r.missing(t)) add(t);
    }
    ~guard() { release(); }
    guard(const guard&) = delete;
    guard& operator=(const guard&) = delete;
    // Each mention is one lock, as everywhere.
    void add(tensor_id t) {
      owner_->table_->lock(t);
      owner_->gathered_.push_back(t);
    }
    void release() {
      while (!owner_->gathered_.empty()) {
        const tensor_id t = owner_->gathered_.back();
        owner_->gathered_.pop_back();
        owner_->table_->unlock_restored(t);
      }
    }

   private:
    restorer* owner_;
  };

  residency_table<typename Reclaimer::storage_type>* table_;
  Reclaimer* reclaimer_;
  launcher<Reclaimer>* launcher_;
  planner planner_;
  exact_search search_;
  std::vector<operator_id> frames_;  // on demand: who waits for whom, the asker first
  // Lists of one step each, kept for their memory. Two that live at once are two members.
  std::vector<tensor_id> used_, wanted_, gathered_, spared_;
  std::vector<bool> before_;
  bytes shortage_{};  // of the last plan, beyond what could be made free
};

}  // namespace delta::detail
