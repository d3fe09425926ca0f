// delta: restoring. Brings the inputs of an operator together on the device: by a plan whose peak
// is known before it runs, else on demand. Each way fails where the other does not:
//   way         memory                               time                     fails
//   plan        the closure's peak, known before     each operator once       too much at once
//   on demand   one operator's inputs and outputs    10 x records at most     goes in circles
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/runtime/kernel_launch.hpp"
#include "delta/detail/runtime/restore_by_plan.hpp"
#include "delta/detail/runtime/restore_on_demand.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/records.hpp"
#include "delta/error.hpp"
#include "delta/observer.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// What both ways share: the table, the reclaimer and the launcher (`Kernels`).
template <class Reclaimer, class Kernels>
class restore_context {
 public:
  using table_type = typename Reclaimer::table_type;

  restore_context(table_type& t, Reclaimer& r, Kernels& k) : table(t), reclaimer(r), kernels(k) {}
  restore_context(const restore_context&) = delete;
  restore_context& operator=(const restore_context&) = delete;

  table_type& table;
  Reclaimer& reclaimer;
  Kernels& kernels;
  /// Of the last plan: what it adds at most to what is on the device.
  bytes peak{};

  /// A tensor that is listed twice is locked twice. O(list).
  void lock(std::span<const tensor_id> list) {
    for (const tensor_id t : list) table.lock(t);
  }
  void unlock(std::span<const tensor_id> list) {
    for (const tensor_id t : list) table.unlock(t);
  }
  /// Not on the device. Of a tensor that was claimed (`residency_table::claim`), so that one whose
  /// copy is under way is resident.
  [[nodiscard]] bool missing(tensor_id t) const {
    return table.tensors[t].where != residency::resident;
  }
  [[nodiscard]] auto rounded() const {
    return [this](bytes n) { return table.storage().rounded(n); };
  }
  /// Brings it back from the host. It can be used at once, as the storage orders the operator
  /// behind the copy. Throws budget_exceeded.
  void reload(tensor_id t, const char* operation) {
    const bytes size = table.tensors[t].size;
    reclaimer.make(table.tensors[t].footprint, operation);
    reclaimer.bring_back(t, reclaimer.obtain(size, table.tensors[t].expected()),
                         event_kind::reload);
  }
  /// After a replay: its outputs that nobody needs are cached. O(outputs).
  void drop_unneeded(operator_id o) {
    // A copy of the list, as caching may recycle the record itself.
    const auto made = table.tensors.outputs(o);
    made_.assign(made.begin(), made.end());
    for (const tensor_id t : made_) table.cache_unneeded(t);
  }
  /// The report of a restore that failed: its need is what a plan that makes everything once takes.
  [[nodiscard]] memory_report report(const char* operation) {
    return reclaimer.report(peak, operation, shortage::restoring);
  }

 private:
  std::vector<tensor_id> made_;  // kept for its memory
};

/// Bounds from below of what it takes to bring tensors together, whatever leaves and in whatever
/// order: each operator needs its inputs and outputs at once; and where nothing comes back from the
/// host, the last of its inputs that is made is made beside all others.
template <class Reclaimer, class Means>
class restore_limits {
 public:
  explicit restore_limits(Means& m) : means_(&m) {}

  /// Could `targets` be here together, beside them `beside` more bytes, and each operator run that
  /// has to for it, if all left that ever can? If not, nothing helps: throws budget_exceeded.
  /// O(tensors + edges of the closure, by the inputs of an operator).
  void check(std::span<const tensor_id> targets, bytes beside, const char* operation) {
    graph& g = means_->table.tensors;
    find_stuck();
    check_one(targets, {}, beside, operation);
    const std::uint32_t mark = g.next_mark();
    closure_.clear();
    const auto deeper = [&](std::span<const tensor_id> list) {
      for (const tensor_id t : list) {
        if (!missing(g[t])) continue;
        const operator_id o = g[t].producer;
        if (std::exchange(g[o].mark, mark) != mark) closure_.push_back(o);
      }
    };
    deeper(targets);
    for (std::size_t i = 0; i < closure_.size(); ++i) deeper(g.inputs(closure_[i]));
    for (const operator_id o : closure_)
      check_one(g.inputs(o), g.outputs(o), rounded(g[o].workspace), g[o].name);
    check_last(targets, operation);
    for (const operator_id o : closure_) check_last(g.inputs(o), operation);
  }

 private:
  [[nodiscard]] bytes rounded(bytes n) const { return means_->table.storage().rounded(n); }
  [[nodiscard]] bool offloads(const tensor_record& r) const {
    const auto& table = means_->table;
    return Reclaimer::offloads && table.storage().host_capacity() >= r.footprint &&
           !covers(r.pinned, pin::offload);
  }
  // On the device, and there it stays.
  [[nodiscard]] bool stays(const tensor_record& r) const {
    const bool goes = Reclaimer::evicts && r.recomputable() && !covers(r.pinned, pin::evict);
    // What the program has dropped can be given up, as a last resort.
    const bool needed = r.references > 0 && (r.pinned == pin::both || (!offloads(r) && !goes));
    return r.in_use && on_device(r.where) && (r.locks > 0 || needed);
  }
  void find_stuck() {
    const graph& g = means_->table.tensors;
    stuck_ = means_->reclaimer.bounds().foreign();
    for (std::uint32_t i = 0; i < g.tensor_slots(); ++i)
      if (const tensor_record& r = g[static_cast<tensor_id>(i)]; stays(r)) stuck_ += r.footprint;
  }
  // Of lists together, each tensor once, and without what is stuck.
  [[nodiscard]] bytes footprint(std::initializer_list<std::span<const tensor_id>> lists) const {
    return means_->table.tensors.footprint(lists,
                                           [&](const tensor_record& r) { return !stays(r); });
  }
  [[nodiscard]] bool fits(bytes need) const {
    return stuck_ + need <= means_->table.storage().capacity();
  }
  void check_one(std::span<const tensor_id> in, std::span<const tensor_id> out, bytes more,
                 const char* name) {
    const bytes need = more + footprint({in, out});
    if (!fits(need)) throw budget_exceeded(means_->reclaimer.report(need, name, shortage::room));
  }
  // When the last of these is made again, the others are here: whichever it is, that must fit.
  void check_last(std::span<const tensor_id> together, const char* operation) {
    const graph& g = means_->table.tensors;
    const bytes all = footprint({together});
    bool any = false;
    for (const tensor_id t : together) {
      if (offloads(g[t]) || g[t].where == residency::host) return;  // it may come by a copy
      any = any || means_->missing(t);
      const operator_id o = g[t].producer;
      if (o == operator_id::none) continue;
      const bytes scratch = rounded(g[o].workspace);
      // Mostly it fits even where what both have is counted twice: that takes less to find out.
      if (fits(all + footprint({g.inputs(o), g.outputs(o)}) + scratch) ||
          fits(footprint({together, g.inputs(o), g.outputs(o)}) + scratch))
        return;
    }
    if (any) throw budget_exceeded(means_->report(operation));
  }

  Means* means_;
  bytes stuck_{};
  std::vector<operator_id> closure_;  // kept for its memory
};

/// Brings back what is missing (repairs P-6, P-11, P-13), for `operator_run` before every operator,
/// and for `update_guard`. Keeps nothing from one call to the next but buffers.
template <class Reclaimer>
class restorer {
  using means = restore_context<Reclaimer, launcher<Reclaimer>>;

 public:
  restorer(typename Reclaimer::table_type& table, Reclaimer& r, launcher<Reclaimer>& k)
      : means_(table, r, k), limits_(means_), by_plan_(means_), on_demand_(means_) {}

  /// Makes all of `targets` resident and locks each, once per mention. `tail`: bytes that the
  /// caller then allocates at once; `later`: one by one; `unlisted()`: its other bytes, asked once
  /// where no plan fits. Throws budget_exceeded or thrash; nothing stays locked. Where nothing is
  /// missing, as mostly: O(targets + copies under way).
  template <class F = bytes (*)()>
  void bring(std::span<const tensor_id> targets, bytes tail, const char* operation,
             bytes later = {}, const F& unlisted = nothing_more) {
    for (const tensor_id t : targets) means_.table.claim(t);
    if (std::none_of(targets.begin(), targets.end(),
                     [&](tensor_id t) { return means_.missing(t); }))
      return means_.lock(targets);
    // From here on policies are asked.
    means_.table.refresh_machine_state();
    for (bool first = true;; first = false) {
      if (by_plan_.run(targets, tail + later, operation)) return;
      if (first) limits_.check(targets, tail + later + unlisted(), operation);
      try {
        on_demand_.run(targets, operation);
        return means_.lock(targets);
      } catch (restore_anew) {
        // What was brought stays where it is, and nothing is locked.
        means_.reclaimer.clear_host();
      }
    }
  }
  /// What `bring` has locked, its caller unlocks. O(list).
  void unlock(std::span<const tensor_id> list) { means_.unlock(list); }

 private:
  static bytes nothing_more() { return {}; }

  means means_;
  restore_limits<Reclaimer, means> limits_;
  restore_by_plan<means> by_plan_;
  restore_on_demand<means> on_demand_;
};

}  // namespace delta::detail
