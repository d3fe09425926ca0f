// delta: updates in place. A mutation makes a new version of a tensor; what was computed from the
// old one can't be computed again (repairs P-19). The order is: scope, bring, renew, run.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "delta/detail/tensors/graph.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Guards updates in place: `operator_run` uses it for every operator that has any, and for
/// acquiring to write. `Restorer` brings tensors back and locks them, as `restorer` does.
///
///   y = f(w)          y is evicted meanwhile: f and w could make it again
///   update w          from now on they could not: y comes back first, and the record of f goes
template <class Table, class Restorer>
class update_guard {
 public:
  update_guard(Table& table, Restorer& r) : table_(&table), restorer_(&r) {}

  /// Before an update: what is evicted and depends on the old version comes back, one by one. While
  /// this lives no dependent is evicted: bringing one back may need room, and another that left for
  /// it would be lost. They may be offloaded. O(dependents), and what bringing them takes.
  class scope {
   public:
    scope(update_guard& v, std::span<const tensor_id> updates, const char* name) : owner_(v) {
      graph& g = v.table_->tensors;
      v.dependents_.clear();
      v.kept_pinned_.clear();
      for (const tensor_id t : updates)
        g.for_each_dependent(t, v.walk_, [&](tensor_id d) {
          (covers(g[d].pinned, pin::evict) ? v.kept_pinned_ : v.dependents_).push_back(d);
        });
      // Those that the program has pinned come last: they stay pinned afterwards.
      v.to_unpin_ = v.dependents_.size();
      v.dependents_.insert(v.dependents_.end(), v.kept_pinned_.begin(), v.kept_pinned_.end());
      for (std::size_t i = 0; i < v.to_unpin_; ++i) {
        pin& p = g[v.dependents_[i]].pinned;
        p = p | pin::evict;
      }
      try {
        // All are pinned by now. One by one, and unlocked again: together they need not fit.
        for (const tensor_id d : v.dependents_) {
          if (g[d].where != residency::evicted) continue;
          const std::array<tensor_id, 1> one{d};
          v.restorer_->bring(one, {}, name);
          v.restorer_->unlock(one);
        }
      } catch (...) {
        end();
        throw;
      }
    }
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;
    ~scope() { end(); }

   private:
    void end() noexcept {
      // Only the evict pin was set here, and only on tensors that had none.
      for (const tensor_id d : std::span(owner_.dependents_).first(owner_.to_unpin_)) {
        pin& p = owner_.table_->tensors[d].pinned;
        p = p & pin::offload;
        owner_.table_->refile(d);
      }
      owner_.dependents_.clear();
    }
    update_guard& owner_;
  };

  /// The new version: nothing can be recomputed from the old one, nor this one by its producer;
  /// host copies are stale. Updated tensors are resident and locked by then. Never undone.
  void renew(std::span<const tensor_id> updates) {
    for (const tensor_id t : updates) {
      table_->forget_records_around(t);
      table_->forget_host_copy(t);
    }
  }

 private:
  Table* table_;
  Restorer* restorer_;
  std::vector<tensor_id> dependents_;   // of the update at hand: those to be unpinned first
  std::vector<tensor_id> kept_pinned_;  // of those, they that the program has pinned
  std::size_t to_unpin_ = 0;
  std::vector<operator_id> walk_;
};

}  // namespace delta::detail
