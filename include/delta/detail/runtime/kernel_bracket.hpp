// delta: runs one kernel between a storage's begin_operator and end_operator, the bracket in which
// nothing moves, and frees what the program gave back meanwhile behind it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/tensors/records.hpp"
#include "delta/kernel.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta::detail {

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

/// The bracket of the kernel at hand: one at a time. Lists are kept, to save calls of the heap.
template <class Table>
class kernel_bracket {
 public:
  explicit kernel_bracket(Table& table) : table_(&table) {}

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
  /// What the kernel sees. Valid until the next call, which reuses the list of addresses.
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
  /// Numbers of addresses in a list of inputs, outputs, updates and workspaces.
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
    return answer_or<data_row>(static_cast<std::byte*>(nullptr), table_->storage(), b);
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
    void* const stream =
        answer_or<native_stream_row>(static_cast<void*>(nullptr), table_->storage());
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

  Table* table_;
  std::vector<block> late_frees_;  // of the program's, until the bracket closes
  bool in_bracket_ = false;
  std::uint64_t brackets_ = 0;  // begun
  std::vector<const block*> reads_, writes_;
  std::vector<std::byte*> pointers_;
  bool kernel_failed_ = false;
};

}  // namespace delta::detail
