// delta: restores a closure as a whole, by a plan whose peak is known before it begins. Nothing
// recurses (repairs P-13): a chain of evicted tensors may be longer than a thread's stack.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/records.hpp"
#include "delta/error.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// One step of a plan: replay an operator or reload a tensor.
struct plan_step {
  enum class kind : std::uint8_t { replay, reload } what;
  operator_id op = operator_id::none;  ///< of a replay
  tensor_id tensor = tensor_id::none;  ///< of a reload
};

/// A topological closure of what is missing: every operator once, inputs before consumers,
/// temporaries dropped at their last use. Where x is here, a and b are evicted, c is on the host,
/// and an operator reads b and c:
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
  std::vector<row> rows;         ///< `tensor_record::planned` is an index into it
  bytes peak{};  ///< the most that the plan adds to what is on the device when it starts

  void clear() noexcept { steps.clear(), rows.clear(), peak = {}; }
};

/// Builds closures. Keeps its buffers: one plan at a time.
class planner {
 public:
  /// The closure that makes all `targets` resident. `reload(t)`: a tensor on the host is reloaded,
  /// else recomputed; `rounded(bytes)` is the storage's; `tail`: allocated once all targets are
  /// there. Valid until the next call; the caller `forget`s the rows. O(closure).
  template <class Reload, class Rounded>
  plan& closure(graph& g, std::span<const tensor_id> targets, bytes tail, const Reload& reload,
                const Rounded& rounded) {
    plan_.clear();
    order(g, targets, reload);
    // Rows count uses: a tensor is locked when it comes, and let go after its last reader.
    const auto use = [&](tensor_id t) {
      tensor_record& r = g[t];
      if (r.planned == tensor_record::nowhere) {
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
    for (const plan::row& r : plan_.rows) g[r.tensor].planned = tensor_record::nowhere;
    plan_.clear();
  }

 private:
  // Post-order over what is missing, with an explicit stack: a tensor stays on it until its inputs
  // are in the plan. What is in the plan is marked in the planner's own table, as `reload` walks
  // the graph and overwrites its marks. One operator brings all of its outputs.
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
      const tensor_record& r = g[t];
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

  // Finds the peak of what the plan adds, by its use counts. What is on the device is not counted,
  // as it is locked or may be released. `tail` comes on top of what is there at the end.
  template <class Rounded>
  void measure(graph& g, bytes tail, const Rounded& rounded) {
    left_.clear();
    for (const plan::row& r : plan_.rows) left_.push_back(r.uses);
    bytes live{};
    const auto came = [&](tensor_id t) {  // stays while the plan reads it
      if (g[t].planned != tensor_record::nowhere && left_[g[t].planned] > 0 &&
          !on_device(g[t].where))
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
      // After its last reader what was missing gives its bytes back; what was here never counted.
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

/// Carries out `planner`'s plan (repairs P-6, P-11, P-13). `Means` is a restore_context.
template <class Means>
class restore_by_plan {
 public:
  explicit restore_by_plan(Means& m) : means_(&m) {}

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

  Means* means_;
  planner planner_;
  std::vector<tensor_id> used_;  // kept for its memory
};

}  // namespace delta::detail
