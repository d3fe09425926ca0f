// delta: restores a closure as a whole, by a plan whose peak is known before it begins.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "delta/detail/runtime/restore_context.hpp"
#include "delta/detail/runtime/restore_plan.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/error.hpp"

namespace delta::detail {

/// Carries out `planner`'s plan (repairs P-6, P-11, P-13).
template <class Reclaimer>
class restore_by_plan {
 public:
  explicit restore_by_plan(restore_context<Reclaimer>& m) : means_(&m) {}

  /// Makes all of `targets` resident and locks each. False: the plan's peak does not fit, or it
  /// came to that on the way; what it has brought by then, and the program holds, stays.
  bool run(std::span<const tensor_id> targets, bytes tail, const char* operation) {
    auto& table = means_->table;
    graph& g = table.tensors;
    plan& p = planner_.closure(
        g, targets, tail, [&](tensor_id t) { return means_->reclaimer.reloads(t); },
        means_->rounded());
    // Locked first, so that making room does not release what the plan counts as here.
    for (plan::row& r : p.rows)
      if (on_device(g[r.tensor].where))
        table.claim(r.tensor), table.lock(r.tensor), r.locked = true;
    // Whatever happens: no lock of the plan and no row of it may stay behind.
    const auto let_go = [&] {
      for (plan::row& r : p.rows)
        if (std::exchange(r.locked, false)) table.unlock_restored(r.tensor);
      planner_.forget(g);
    };
    bool done = false;
    try {
      if (fits(p)) {
        for (const plan_step& s : p.steps) take(p, s, operation);
        means_->lock(targets);
        done = true;
      }
    } catch (const budget_exceeded&) {
      // Copies or holes stood in the way: on demand needs less at once.
    } catch (...) {
      let_go();
      throw;
    }
    let_go();
    return done;
  }

 private:
  // What is locked now is not reachable, so nothing of the plan is counted twice.
  bool fits(const plan& p) {
    means_->peak = p.peak;
    return p.peak <= means_->table.free_bytes() || p.peak <= means_->reclaimer.reachable();
  }
  void take(plan& p, const plan_step& s, const char* operation) {
    auto& table = means_->table;
    graph& g = table.tensors;
    if (s.what == plan_step::kind::reload) {
      means_->reload(s.tensor, operation);
      hold(p, s.tensor);
      return;
    }
    // The inputs are locked, by the plan: making room for the replay can't take them.
    means_->kernels.replay(s.op);
    for (const tensor_id t : g.outputs(s.op)) hold(p, t);
    // A copy: dropping what is unneeded may recycle the record.
    const auto read = g.inputs(s.op);
    used_.assign(read.begin(), read.end());
    means_->drop_unneeded(s.op);
    for (const tensor_id t : used_) {
      plan::row& r = p.rows[g[t].planned];
      if (--r.uses == 0 && std::exchange(r.locked, false)) table.unlock_restored(t);
    }
  }
  // What the plan has brought stays until its last reader; what nobody reads is not in it.
  void hold(plan& p, tensor_id t) {
    const auto row = means_->table.tensors[t].planned;
    if (row == tensor_record::nowhere) return;
    plan::row& r = p.rows[row];
    if (r.uses > 0 && !std::exchange(r.locked, true)) means_->table.lock(t);
  }

  restore_context<Reclaimer>* means_;
  planner planner_;
  std::vector<tensor_id> used_;  // kept for its memory
};

}  // namespace delta::detail
