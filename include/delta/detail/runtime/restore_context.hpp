// delta: what both ways of restoring share: locks on lists of tensors, a reload on demand, and the
// outputs of a replay that nobody asked for.
#pragma once

#include <span>
#include <vector>

#include "delta/detail/tensors/records.hpp"
#include "delta/error.hpp"
#include "delta/observer.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// The table, the reclaimer and the launcher (`Kernels`) as a restore uses them.
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

}  // namespace delta::detail
