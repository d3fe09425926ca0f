// delta: an operator between begin and end, whose outputs are allocated one by one while the
// program runs it itself.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "delta/detail/engine/operator_frame.hpp"
#include "delta/error.hpp"
#include "delta/kernel.hpp"

namespace delta::detail {

/// A stored kernel whose operator asked for several pieces of scratch: a replay allocates them as
/// one block, and the kernel sees them one by one, as it did the first time.
template <class Kernel>
class split_scratch {
 public:
  /// `ends`: where each piece ends in the block, rising.
  split_scratch(std::vector<bytes> ends, Kernel&& body)
      : ends_(std::move(ends)), body_(std::forward<Kernel>(body)) {
    places_.resize(ends_.size());
  }
  void operator()(call& c) {
    std::byte* const block = c.workspace();
    for (std::size_t i = 0; i < places_.size(); ++i)
      places_[i] = block == nullptr ? nullptr : block + (i == 0 ? 0 : ends_[i - 1].count);
    call split = c.with_workspaces(places_);
    body_(split);
  }

 private:
  std::vector<bytes> ends_;
  std::vector<std::byte*> places_;
  std::decay_t<Kernel> body_;
};
template <class Kernel>
split_scratch(std::vector<bytes>, Kernel&&) -> split_scratch<Kernel>;

/// The open operator, of which there is at most one. The storage's bracket is closed while memory
/// is allocated and opened again behind it: nothing is allocated or released within a bracket. A
/// block whose address the caller has seen is held where it is; until then it may be moved like any
/// other.
template <class Reclaimer>
class open_operator {
  using frame_type = operator_frame<Reclaimer>;

 public:
  explicit open_operator(frame_type& f) : frame_(&f) {}

  [[nodiscard]] bool is_open() const noexcept { return open_; }
  [[nodiscard]] std::size_t outputs() const noexcept { return outputs_.size(); }
  /// What it has allocated so far, rounded. O(pieces of scratch).
  [[nodiscard]] bytes held_bytes() const {
    return frame_->table.storage().rounded(scratch_bytes()) + made_;
  }

  /// Begins: inputs together, tick taken, bracket open. If the outputs and the workspace that `op`
  /// lists do not fit, nothing is open afterwards.
  void open(const operation_span& op) {
    sizes_.clear(), outputs_.clear(), pieces_.clear(), scratch_.clear(), scratch_sizes_.clear();
    made_ = {};
    typename frame_type::gathering inputs(*frame_, op, false);
    traits_ = op.traits, cost_ = op.cost;
    frame_->check.before(as_it_is(), traits_);
    open_bracket();
    // From here on `finish` lets the inputs go.
    inputs.stay();
    open_ = true;
    try {
      for (const bytes size : op.outputs) add_output(size);
      if (op.workspace.count > 0) add_workspace(op.workspace);
    } catch (const error&) {
      abort();
      throw;
    }
  }
  /// Room for `need` more bytes, within the open operator or outside.
  void make_room(bytes need) {
    expect(need, {});
    pausing([&] { frame_->reclaimer.make(need, open_ ? frame_->name() : "make_room"); });
  }
  /// One more output; its place in the order of the outputs.
  std::size_t add_output(bytes size) {
    pausing([&] {
      sizes_.reserve(sizes_.size() + 1);
      outputs_.reserve(outputs_.size() + 1);
      outputs_.push_back(obtain(size));
      sizes_.push_back(size);
      made_ += frame_->table.storage().rounded(size);
    });
    return sizes_.size() - 1;
  }
  /// One more piece of scratch; its place among them.
  std::size_t add_workspace(bytes size) {
    pausing([&] {
      scratch_sizes_.reserve(scratch_sizes_.size() + 1);
      scratch_.reserve(scratch_.size() + 1);
      scratch_.push_back(obtain(size));
      scratch_sizes_.push_back(size);
      // A replay has all of it in one piece.
      expect({}, frame_->table.storage().rounded(scratch_bytes()));
    });
    return scratch_.size() - 1;
  }
  /// Everything by address. What is shown for the first time is held from now on.
  [[nodiscard]] call view() {
    const auto touched = frame_->touched();
    for (; seen_inputs_ < touched.size(); ++seen_inputs_)
      frame_->kernels.hold(touched[seen_inputs_]);
    for (; seen_outputs_ < outputs_.size(); ++seen_outputs_)
      frame_->kernels.hold(outputs_[seen_outputs_]);
    for (; seen_scratch_ < scratch_.size(); ++seen_scratch_)
      frame_->kernels.hold(scratch_[seen_scratch_]);
    return frame_->kernels.view(as_it_is());
  }

  /// Ends it: its outputs become tensors, made by `body` when they are needed again. The record
  /// gets the stamps of all pieces: its cost is their sum.
  template <class F>
  void close(std::span<tensor_id> ids, F&& body) {
    const workload w = as_it_is();
    // What may throw while the operator can still be given up comes first.
    kernel stored;
    const bool kept = frame_->kernels.worth_recording(w.inputs, w.updates, ids.size(), traits_);
    if constexpr (frame_type::may_check)
      if (frame_->check.enabled()) check(w, body);
    if (kept)
      stored = scratch_.size() <= 1 ? kernel(std::forward<F>(body))
                                    : kernel(split_scratch(scratch_ends(), std::forward<F>(body)));
    pieces_.reserve(pieces_.size() + 1);
    close_bracket(cost_);
    unhold();
    frame_->table.now.coming_need = held_bytes();
    frame_->admit(sizes_, outputs_, ids, frame_->name());
    if (stored)
      frame_->kernels.record(w, ids, std::move(stored), scratch_bytes(), traits_, frame_->name(),
                             cost_, pieces_);
    frame_->note_end(ids, scratch_bytes(), traits_, cost_, pieces_);
    finish();
  }
  /// Gives it up: no outputs, and no number. What it updated in place is as it was left, and
  /// nothing depends on the old version any more.
  void abort() {
    if (bracket_) close_bracket({});
    unhold();
    // `gathering` had taken the number, and no longer gives it back since `stay`.
    frame_->take_number_back();
    finish();
  }
  /// Frees what an operator that never ended holds. For the end of the manager, where it must not
  /// throw: the blocks go back even if the storage fails.
  void let_go() noexcept {
    if (!open_) return;
    try {
      if (bracket_) close_bracket({});
    } catch (...) {  // NOLINT(bugprone-empty-catch): the bracket is closed, all the same
    }
    unhold();
    release_made();
  }

 private:
  // By reference: where it fails, the caller still has its kernel, and the operator is open.
  template <class F>
  void check(const workload& w, F& body) {
    const auto again = [&body](call& c) { body(c); };
    kernel checked =
        scratch_.size() <= 1 ? kernel(again) : kernel(split_scratch(scratch_ends(), again));
    pausing(
        [&] { frame_->check.after(w, checked, sizes_, scratch_bytes(), frame_->name(), cost_); });
  }
  [[nodiscard]] workload as_it_is() noexcept {
    return {frame_->reads(), frame_->updates(), outputs_, scratch_, frame_->table.now.now};
  }
  block obtain(bytes size) {
    const bytes rounded = frame_->table.storage().rounded(size);
    expect(rounded, rounded);
    frame_->reclaimer.make(rounded, frame_->name(), size);
    return frame_->reclaimer.obtain(size, lifetime::transient);
  }
  // Before anything is done for it, so that an error can name a budget.
  void expect(bytes need, bytes largest) {
    if (open_)
      frame_->reclaimer.expect({.touched = frame_->footprint(),
                                .made = held_bytes(),
                                .need = need,
                                .largest = largest,
                                .replayed = true});
    else
      frame_->reclaimer.expect({.need = need});
  }
  // All scratch, as one block that holds a replay's. One piece counts as it was asked for.
  [[nodiscard]] bytes scratch_bytes() const {
    if (scratch_sizes_.size() == 1) return scratch_sizes_.front();
    bytes all;
    for (const bytes size : scratch_sizes_) all += frame_->table.storage().rounded(size);
    return all;
  }
  // Where each piece ends in that block.
  [[nodiscard]] std::vector<bytes> scratch_ends() const {
    std::vector<bytes> ends;
    ends.reserve(scratch_sizes_.size());
    bytes end;
    for (const bytes size : scratch_sizes_)
      ends.push_back(end += frame_->table.storage().rounded(size));
    return ends;
  }
  // Closes the bracket, if there is one, for as long as `f` takes. After a typed error, and after
  // what a kernel has thrown that `f` ran, it is open again, as the operator is; after any other
  // the manager is poisoned.
  template <class F>
  void pausing(const F& f) {
    if (!open_) return f();
    pieces_.reserve(pieces_.size() + 1);
    close_bracket({});
    try {
      f();
    } catch (const error&) {
      open_bracket();
      throw;
    } catch (...) {
      if (frame_->kernels.kernel_failed()) frame_->kernels.clean_up([&] { open_bracket(); });
      throw;
    }
    open_bracket();
  }
  void open_bracket() {
    frame_->kernels.open(as_it_is());
    bracket_ = true;
  }
  void close_bracket(nanoseconds cost) {
    bracket_ = false;
    pieces_.push_back(frame_->kernels.close(cost));
  }
  // In the order of `view`, backwards; each only as far as it was shown.
  void unhold() {
    const auto touched = frame_->touched();
    for (; seen_inputs_ > 0; --seen_inputs_) frame_->kernels.unhold(touched[seen_inputs_ - 1]);
    for (; seen_outputs_ > 0; --seen_outputs_) frame_->kernels.unhold(outputs_[seen_outputs_ - 1]);
    for (; seen_scratch_ > 0; --seen_scratch_) frame_->kernels.unhold(scratch_[seen_scratch_ - 1]);
  }
  void finish() {
    open_ = false;
    // After an end only the workspace is left; after an abort the outputs, too.
    release_made();
    frame_->leave();
  }
  // What no tensor has taken: everything after an abort, the scratch after a close.
  void release_made() noexcept {
    for (block& b : outputs_)
      if (b) frame_->table.storage().free(std::move(b));
    for (block& b : scratch_)
      if (b) frame_->table.storage().free(std::move(b));
    outputs_.clear(), scratch_.clear();
  }

  frame_type* frame_;
  bool open_ = false, bracket_ = false;  // it has begun; the storage's bracket is open now
  std::vector<bytes> sizes_;
  std::vector<block> outputs_;
  bytes made_;  // of the outputs, rounded
  std::vector<bytes> scratch_sizes_;
  std::vector<block> scratch_;
  std::size_t seen_inputs_ = 0, seen_outputs_ = 0, seen_scratch_ = 0;  // shown to the caller
  std::vector<stamp> pieces_;  // of the brackets so far, in order
  trait traits_ = trait::pure;
  nanoseconds cost_{};
};

}  // namespace delta::detail
