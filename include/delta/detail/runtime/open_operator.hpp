// delta: an operator between begin and end, whose outputs are allocated one by one while the
// program runs it itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/runtime/kernel_launch.hpp"
#include "delta/detail/runtime/open_blocks.hpp"
#include "delta/detail/runtime/operator_context.hpp"
#include "delta/error.hpp"
#include "delta/kernel.hpp"

namespace delta::detail {

/// The open operator, of which there is at most one. The storage's bracket is closed while memory
/// is allocated, unless the storage allows allocation within it and nothing has to leave. A block
/// whose address the caller has seen is held where it is; until then it may be moved.
template <class Reclaimer>
class open_operator {
  using frame_type = operator_context<Reclaimer>;

 public:
  explicit open_operator(frame_type& f) : frame_(&f), blocks_(f.table, f.kernels) {}

  [[nodiscard]] bool is_open() const noexcept { return open_; }
  [[nodiscard]] std::size_t outputs() const noexcept { return blocks_.count(); }
  /// What it has allocated so far, and what only a replay does, rounded. O(pieces of scratch).
  [[nodiscard]] bytes asked_for() const { return blocks_.held() + blocks_.again(); }

  /// Begins: inputs together, tick taken, bracket open; nothing, if what `op` lists does not fit.
  void open(const operation_span& op) {
    blocks_.clear(), pieces_.clear();
    typename frame_type::operator_inputs inputs(*frame_, op, false);
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
  void make_room(bytes need, const char* operation) {
    expect(need, {});
    pausing([&] { frame_->reclaimer.make(need, open_ ? frame_->name() : operation); });
  }
  /// A block that is none of its own, within it or outside.
  block take_block(bytes n, lifetime expected) {
    auto& storage = frame_->table.storage();
    auto& reclaimer = frame_->reclaimer;
    const char* const who = open_ ? frame_->name() : "take_block";
    const bytes size = rounded(n);
    expect(size, size);
    std::optional<block> b;
    if (!reclaimer.rises_above_own_peak(size)) b = storage.allocate(n, expected);
    if (b) return std::move(*b);
    // Room in one piece, which is there then without moving anything.
    pausing([&] { reclaimer.make(size, who), storage.free(reclaimer.obtain(n, expected)); });
    b = storage.allocate(n, expected);
    // Of a memory that others take from, too, it may be gone again.
    if (!b) throw budget_exceeded(reclaimer.report(size, who, shortage::one_piece));
    return std::move(*b);
  }
  /// One more output; its place in the order of the outputs.
  std::size_t add_output(bytes size) {
    pausing_for(rounded(size), [&] {
      blocks_.reserve(1);
      blocks_.add_output(size, obtain(size));
    });
    return outputs() - 1;
  }
  /// So many more, for which room is made once, or none; the place of the first.
  std::size_t add_outputs(std::span<const bytes> sizes) {
    const std::size_t first = outputs();
    bytes sum, largest;
    for (const bytes size : sizes) {
      sum += rounded(size);
      largest = std::max(largest, size);
    }
    pausing_for(sum, [&] {
      blocks_.reserve(sizes.size());
      expect(sum, rounded(largest));
      frame_->reclaimer.make(sum, frame_->name());
      blocks_.add_outputs(
          sizes, [&](bytes size) { return frame_->reclaimer.obtain(size, lifetime::transient); });
    });
    return first;
  }
  /// One more output, in a block that exists: it stays where it is until the end.
  std::size_t adopt_output(bytes size, block& b) {
    pausing_for({}, [&] {
      blocks_.reserve(1);
      const std::uint32_t row = b.index();
      blocks_.add_in_place(size, std::move(b));
      frame_->taken.hand_over(row);
      expect({}, {}, rounded(size));
    });
    return outputs() - 1;
  }
  /// For each input an output in its block, where its old bytes end; gives the place of the first.
  std::size_t replace(std::span<const tensor_id> inputs) {
    const std::size_t first = outputs();
    pausing_for({}, [&] {
      blocks_.reserve(inputs.size());
      for (const tensor_id t : inputs) {
        tensor_record& r = frame_->table.tensors[t];
        // It was held as what it was, by each mention that was shown.
        for (const tensor_id shown : shown_inputs())
          if (shown == t) frame_->kernels.unhold(t);
        // Until the record that reads it is there, this reference keeps what it is made from.
        ++r.references;
        blocks_.note_replaced(t, r.footprint);
        blocks_.add_in_place(r.size, frame_->table.hand_over(t));
        ++frame_->table.counts.replacements;
        expect({}, {}, r.footprint);
      }
    });
    return first;
  }
  /// Why no output may take that input's block over; null: one may.
  [[nodiscard]] const char* cannot_replace(tensor_id t) const {
    const auto among = [&](auto list) { return std::ranges::count(list, t); };
    if (among(frame_->reads()) == 0) return "replace: it is no input";
    if (among(frame_->updates()) > 0) return "replace: it is updated";
    if (blocks_.is_replaced(t)) return "replace: it is replaced already";
    const tensor_record& r = frame_->table.tensors[t];
    if (!r.recomputable() && (Reclaimer::evicts || r.persistent))
      return "replace: it can't be recomputed; name it in updates";
    // Where nothing ever is, the old version ends here, unless somebody else may ask for it.
    if (!r.recomputable() && r.references > 1 && !r.host)
      return "replace: something else refers to it, and it can't be recomputed; name it in updates";
    if (covers(r.pinned, pin::evict)) return "replace: its pin forbids that it is recomputed";
    return r.holds > among(shown_inputs()) ? "replace: a view holds it" : nullptr;
  }
  /// True if it is one of the operator's own blocks.
  [[nodiscard]] bool has(const block& b) const noexcept { return blocks_.has(b); }
  /// One more piece of scratch; its place among them.
  std::size_t add_workspace(bytes size) {
    pausing_for(rounded(size), [&] {
      blocks_.reserve_scratch();
      blocks_.add_scratch(size, obtain(size));
      // A replay has all of it in one piece.
      expect({}, rounded(blocks_.scratch_bytes()));
    });
    return blocks_.scratch().size() - 1;
  }
  /// Scratch that a replay has, and the first run has not; its place among the scratch.
  std::size_t add_replay_workspace(bytes size) {
    blocks_.add_replay_scratch(size);
    expect({}, {}, rounded(blocks_.scratch_bytes()));
    return blocks_.scratch().size() - 1;
  }
  /// Everything by address. What is shown for the first time is held from now on.
  [[nodiscard]] call view() {
    const auto touched = frame_->touched();
    for (; seen_inputs_ < touched.size(); ++seen_inputs_)
      if (const tensor_id t = touched[seen_inputs_]; !blocks_.is_replaced(t))
        frame_->kernels.hold(t);
    blocks_.show();
    return frame_->kernels.view(as_it_is());
  }

  /// As if it had begun with trait::never_replay. O(1).
  void forbid_replay() noexcept { traits_ = traits_ | trait::never_replay; }
  /// Ends it: its outputs become tensors, which `body` makes again. Its cost is that of all pieces.
  template <class F>
  void close(std::span<tensor_id> ids, F&& body) {
    const workload w = as_it_is();
    // What may throw while the operator can still be given up comes first.
    kernel stored;
    const bool kept = frame_->kernels.worth_recording(w.inputs, w.updates, ids.size(), traits_);
    if constexpr (frame_type::may_check)
      if (frame_->check.enabled() && !delta::has(traits_, trait::never_replay)) check(w, body);
    if (kept)
      stored = has_one_scratch()
                   ? kernel(std::forward<F>(body))
                   : kernel(split_scratch(blocks_.scratch_ends(), std::forward<F>(body)));
    pieces_.reserve(pieces_.size() + 1);
    close_bracket(cost_);
    unhold();
    frame_->table.now.coming_need = blocks_.fresh();
    const bytes scratch = blocks_.scratch_bytes();
    frame_->admit(blocks_.sizes(), blocks_.outputs(), ids, frame_->name());
    if (stored)
      frame_->kernels.record(w, ids, std::move(stored), scratch, traits_, frame_->name(), cost_,
                             pieces_);
    frame_->note_end(ids, scratch, traits_, cost_, pieces_, w.replaced);
    finish();
  }
  /// Gives it up: no outputs, no number. Its updates stay; nothing depends on old versions.
  void abort() {
    if (bracket_) close_bracket({});
    unhold();
    // `operator_inputs` had taken the number, and no longer gives it back since `stay`.
    frame_->take_number_back();
    finish();
  }
  /// At the manager's end: frees what is open, even where the storage fails. Never throws.
  void let_go() noexcept {
    if (!open_) return;
    try {
      if (bracket_) close_bracket({});
    } catch (...) {  // NOLINT(bugprone-empty-catch): the bracket is closed, all the same
    }
    unhold();
    blocks_.release();
  }

 private:
  // By reference: where it fails, the caller still has its kernel, and the operator is open.
  template <class F>
  void check(const workload& w, F& body) {
    const auto again = [&body](call& c) { body(c); };
    kernel checked =
        has_one_scratch() ? kernel(again) : kernel(split_scratch(blocks_.scratch_ends(), again));
    pausing([&] {
      frame_->check.after(w, checked, blocks_.sizes(), blocks_.scratch_bytes(), frame_->name(),
                          cost_);
    });
  }
  [[nodiscard]] bool has_one_scratch() const noexcept { return blocks_.scratch().size() <= 1; }
  [[nodiscard]] workload as_it_is() noexcept {
    return {.inputs = frame_->reads(),
            .updates = frame_->updates(),
            .outputs = blocks_.outputs(),
            .workspaces = blocks_.scratch(),
            .sequence = frame_->table.now.now,
            .replaced = blocks_.replaced()};
  }
  [[nodiscard]] std::span<const tensor_id> shown_inputs() const noexcept {
    return frame_->touched().first(seen_inputs_);
  }
  block obtain(bytes size) {
    expect(rounded(size), rounded(size));
    frame_->reclaimer.make(rounded(size), frame_->name());
    return frame_->reclaimer.obtain(size, lifetime::transient);
  }
  [[nodiscard]] bytes rounded(bytes n) const { return frame_->table.storage().rounded(n); }
  // Before anything is done for it, so that an error can name a budget.
  void expect(bytes need, bytes largest, bytes largest_again = {}) {
    if (open_)
      frame_->reclaimer.expect({.touched = frame_->footprint() - blocks_.replaced_bytes(),
                                .made = blocks_.held(),
                                .need = need,
                                .largest = largest,
                                .again = blocks_.again(),
                                .largest_again = largest_again,
                                .replayed = true});
    else
      frame_->reclaimer.expect({.need = need, .largest = largest});
  }
  // Closes the bracket, if there is one, for as long as `f` takes. It is open again after a typed
  // error, and after what a kernel in `f` has thrown; any other error poisons the manager.
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
  // The same, but the bracket stays open where the storage allows it and whatever fits by its size
  // fits: then nothing is copied or waited for, and its time is the kernel's, but for bookkeeping.
  template <class F>
  void pausing_for(bytes need, const F& f) {
    const auto& storage = frame_->table.storage();
    if (open_ && may_allocate_in_operator(storage) && !may_fragment(storage) &&
        need <= saturating_sub(storage.capacity(), storage.used()))
      return f();
    pausing(f);
  }
  void open_bracket() {
    frame_->kernels.open(as_it_is());
    bracket_ = true;
  }
  void close_bracket(nanoseconds cost) {
    bracket_ = false;
    pieces_.push_back(frame_->kernels.close(cost));
  }
  void unhold() {
    const auto touched = frame_->touched();
    for (; seen_inputs_ > 0; --seen_inputs_)
      if (const tensor_id t = touched[seen_inputs_ - 1]; !blocks_.is_replaced(t))
        frame_->kernels.unhold(t);
    blocks_.unhold();
  }
  void finish() {
    open_ = false;
    // After an end only the workspace is left; after an abort the outputs, too.
    blocks_.release();
    for (const replaced_input& r : blocks_.replaced()) frame_->table.drop(r.tensor);
    frame_->leave();
  }

  frame_type* frame_;
  bool open_ = false, bracket_ = false;  // it has begun; the storage's bracket is open now
  open_blocks<typename frame_type::table_type, launcher<Reclaimer>> blocks_;
  std::size_t seen_inputs_ = 0;  // shown to the caller
  std::vector<stamp> pieces_;    // of the brackets so far, in order
  trait traits_ = trait::pure;
  nanoseconds cost_{};
};

}  // namespace delta::detail
