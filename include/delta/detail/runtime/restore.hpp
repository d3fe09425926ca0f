// delta: restoring. Brings the inputs of an operator together on the device: by a plan whose peak
// is known before it runs, else on demand. Two ways, as each fails where the other does not:
//
//   way         memory                               time                     fails
//   plan        the closure's peak, known before     each operator once       too much at once
//   on demand   one operator's inputs and outputs    10 x records at most     goes in circles
#pragma once

#include <algorithm>
#include <span>

#include "delta/detail/runtime/kernel_launch.hpp"
#include "delta/detail/runtime/restore_by_plan.hpp"
#include "delta/detail/runtime/restore_context.hpp"
#include "delta/detail/runtime/restore_limits.hpp"
#include "delta/detail/runtime/restore_on_demand.hpp"
#include "delta/error.hpp"

namespace delta::detail {

/// Brings back what is missing (repairs P-6, P-11, P-13). Used by `operator_run` before every
/// operator, and by `update_guard`. It runs within one entry point of the manager and keeps nothing
/// from one call to the next but buffers.
template <class Reclaimer>
class restorer {
 public:
  restorer(typename Reclaimer::table_type& table, Reclaimer& r, launcher<Reclaimer>& k)
      : means_(table, r, k), limits_(means_), by_plan_(means_), on_demand_(means_) {}

  /// Makes all of `targets` resident and locks each once (a tensor named twice: twice). `tail`:
  /// bytes that the caller then allocates at once; `later`: bytes that it allocates one by one;
  /// `unlisted()`: its other bytes, asked once where no plan fits. Throws budget_exceeded or
  /// thrash; nothing stays locked. Where nothing is missing, as mostly: O(targets + copies under
  /// way).
  void bring(std::span<const tensor_id> targets, bytes tail, const char* operation) {
    bring(targets, tail, operation, {}, [] { return bytes{}; });
  }
  template <class F>
  void bring(std::span<const tensor_id> targets, bytes tail, const char* operation, bytes later,
             const F& unlisted) {
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
      } catch (const thrash&) {
        // What was brought stays where it is, and nothing is locked: another policy may go on.
        if (!means_.reclaimer.replace_policy()) throw;
      } catch (const budget_exceeded&) {
        if (!means_.reclaimer.policy().was_replaced() || !means_.reclaimer.replace_policy()) throw;
      }
    }
  }
  /// What `bring` has locked, its caller unlocks. O(list).
  void unlock(std::span<const tensor_id> list) { means_.unlock(list); }

 private:
  restore_context<Reclaimer> means_;
  restore_limits<Reclaimer> limits_;
  restore_by_plan<Reclaimer> by_plan_;
  restore_on_demand<Reclaimer> on_demand_;
};

}  // namespace delta::detail
