// delta: restores a small closure by the cheapest schedule that fits, or proves that there is none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "delta/context.hpp"
#include "delta/detail/engine/exact_search.hpp"
#include "delta/detail/engine/restore_means.hpp"
#include "delta/detail/engine/restore_plan.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/error.hpp"

namespace delta::detail {

/// Carries out `exact_search`'s schedule. Only for deciders that never offload: the host would be
/// another place for every tensor, 3^n states.
template <class Reclaimer>
class restore_by_search {
 public:
  explicit restore_by_search(restore_means<Reclaimer>& m) : means_(&m) {}

  /// Makes all of `targets` resident and locks each. False: the closure is too large to search.
  /// Throws budget_exceeded when it proves that nothing fits.
  bool run(std::span<const tensor_id> targets, bytes tail, const char* operation) {
    graph& g = means_->table.tensors;
    const auto small = search_.closure(g, targets);
    if (!small) return false;
    // Locked while the search counts and runs: what it plans with must not leave behind its back.
    ours_.assign(small->begin(), small->end());
    for (const tensor_id t : ours_)
      if (on_device(g[t].where)) means_->table.lock(t);
    // And what it reads: a source that nobody else needs may be given up when room is short.
    find_sources();
    means_->lock(sources_);
    const auto steps = schedule(targets, tail);
    try {
      if (!steps) throw budget_exceeded(means_->report(operation));
      for (const plan_step& s : *steps) take(s);
      means_->lock(targets);
    } catch (...) {
      let_go();
      throw;
    }
    let_go();
    return true;
  }

 private:
  // Each once: what the makers of ours read and nobody makes.
  void find_sources() {
    const graph& g = means_->table.tensors;
    sources_.clear();
    for (const tensor_id t : ours_)
      for (const tensor_id in : g.inputs(g[t].producer))
        if (g[in].producer == operator_id::none) sources_.push_back(in);
    std::ranges::sort(sources_);
    sources_.erase(std::ranges::unique(sources_).begin(), sources_.end());
  }
  auto schedule(std::span<const tensor_id> targets, bytes tail) {
    graph& g = means_->table.tensors;
    // Its own tensors are locked, so they are added: the search may evict them.
    bytes available = means_->reclaimer.reachable();
    for (const tensor_id t : ours_)
      if (on_device(g[t].where)) available += g[t].footprint;
    const context c = means_->reclaimer.view();
    // One lock is this search's own; more are somebody else's.
    const auto may_go = [&](tensor_id t) {
      return g[t].locks <= 1 && (g[t].references == 0 || c.can_evict(t));
    };
    return search_.schedule(g, targets, available, tail, may_go, means_->rounded());
  }
  void take(const plan_step& s) {
    auto& table = means_->table;
    graph& g = table.tensors;
    if (s.what == plan_step::kind::evict) {
      table.evict_locked(s.tensor);
      return;
    }
    // What the replay brings back is locked if the search reckons with it; else it goes again, as
    // its bytes were counted for the time of the replay only.
    before_.clear();
    for (const tensor_id t : g.outputs(s.op)) before_.push_back(on_device(g[t].where));
    means_->kernels.replay(s.op);
    for (std::size_t i = 0; i < before_.size(); ++i)
      if (const tensor_id t = g.outputs(s.op)[i]; !before_[i])
        std::find(ours_.begin(), ours_.end(), t) != ours_.end() ? table.lock(t) : table.cache(t);
  }
  void let_go() {
    auto& table = means_->table;
    const graph& g = table.tensors;
    for (const tensor_id t : ours_)
      if (g[t].in_use && g[t].locks > 0 && on_device(g[t].where)) table.unlock_restored(t);
    for (const tensor_id t : sources_) table.unlock_restored(t);
  }

  restore_means<Reclaimer>* means_;
  exact_search search_;
  std::vector<tensor_id> ours_, sources_;  // of the closure: its tensors, and what it reads
  std::vector<bool> before_;               // which outputs were here before a replay
};

}  // namespace delta::detail
