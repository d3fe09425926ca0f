// delta: runs one operator, from its inputs to its record (Algorithm 1, repairs P-6):
// as a whole where its lists are known, or open, where sizes turn up on the way. Both begin with a
// `gathering` and end with `leave`; what lies between differs only in when memory is allocated:
//
//   run               gather, make room for all, allocate, [ kernel ] admit, record, leave
//   begin ... end     gather, [ ... ] admit, record, leave
//   allocate within   ] make room, allocate [
//
// where [ and ] are the storage's bracket.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/engine/idle_work.hpp"
#include "delta/detail/engine/in_place_updates.hpp"
#include "delta/detail/engine/kernel_launch.hpp"
#include "delta/detail/engine/restore.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/error.hpp"
#include "delta/kernel.hpp"

namespace delta::detail {

/// The sizes of an operator that states them.
struct as_given {
  bytes operator()(bytes n) const noexcept { return n; }
};

/// Takes one operator through versions, restorer, reclaimer and launcher, in the order that P-6
/// asks for. The manager has checked the ids, and that nobody else is inside.
template <class Reclaimer>
class operator_run {
  using storage_type = typename Reclaimer::storage_type;

 public:
  operator_run(residency_table<storage_type>& l, Reclaimer& r)
      : table_(&l),
        reclaimer_(&r),
        launcher_(l, r),
        restorer_(l, r, launcher_),
        versions_(l, restorer_) {}

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

  [[nodiscard]] launcher<Reclaimer>& kernels() noexcept { return launcher_; }

  // --- as a whole -------------------------------------------------------------------------------

  /// The operator as a whole. Room is made for all of its blocks at once, so that nothing is
  /// allocated in vain. The kernel is stored before it runs only where it may run again; otherwise
  /// it is called where it stands.
  template <class F>
  void run(const operation_span& op, std::span<tensor_id> ids, F&& body) {
    bytes need = table_->storage().rounded(op.workspace);
    bytes piece = op.workspace;
    for (const bytes size : op.outputs) {
      need += table_->storage().rounded(size);
      piece = std::max(piece, size);
    }
    gathering inputs(*this, op, need);
    reclaimer_->make(need, op.name, piece);
    typename launcher<Reclaimer>::allocation fresh(launcher_, op.outputs, as_given{}, op.workspace);
    // The tick is the operator's number: random kernels draw from it, now and in replays.
    const workload w{reads(), updates(), fresh.outputs, &fresh.workspace, table_->now.now};
    stamp done;
    // Nothing after the launch needs room, so what has run is never undone.
    if (!launcher_.worth_recording(w.inputs, w.updates, ids.size(), op.traits)) {
      done = launcher_.launch(body, w, op.cost);
      admit(op.outputs, fresh.outputs, ids, op.name);
    } else {
      kernel stored(std::forward<F>(body));
      done = launcher_.launch(stored, w, op.cost);
      admit(op.outputs, fresh.outputs, ids, op.name);
      launcher_.record(w, ids, std::move(stored), op.workspace, op.traits, op.name, op.cost,
                       std::span(&done, 1));
    }
    note_end(ids, op.workspace, op.traits, op.cost, std::span(&done, 1));
    tell(op.name, ids, done);
    fresh.give_back();
    inputs.end();
  }

  /// Makes a tensor resident and locks it; for writing, as a new version. The host may touch its
  /// bytes until `unlock`. An empty kernel orders the compute engine behind all users, and the host
  /// waits for that: the storage needs no other call for it.
  void acquire(tensor_id t, bool writes) {
    const std::span<const tensor_id> one(&t, 1), none;
    typename versions<Reclaimer>::protection dependents(versions_, writes ? one : none, "acquire");
    restorer_.bring(one, {}, "acquire");
    try {
      if (writes) versions_.renew(one);
      // Reading waits for the last writer, writing for all users: the bracket's own rules.
      const auto nothing = [](call&) {};
      const workload w{writes ? none : one, writes ? one : none, {}, nullptr, 0, false};
      table_->storage().wait(launcher_.launch(nothing, w, {}));
    } catch (...) {
      restorer_.unlock(one);
      throw;
    }
    launcher_.hold(table_->tensors[t].device);
    table_->follow_clock();
    table_->touch(t, table_->now.clock);
    reclaimer_->events().flush();
    table_->steps.acquired(t, table_->tensors[t], writes ? access::write : access::read);
  }
  /// Ends what `acquire` began. O(1), unless it was dropped meanwhile.
  void unlock(tensor_id t) {
    launcher_.unhold(table_->tensors[t].device);
    restorer_.unlock(std::span(&t, 1));
  }

  // --- open -------------------------------------------------------------------------------------
  // The storage's bracket is closed while memory is allocated and opened again behind it: nothing
  // is allocated or released within a bracket. A block whose address the caller has seen is held
  // where it is; until then it may be moved like any other.

  [[nodiscard]] bool is_open() const noexcept { return open_; }
  [[nodiscard]] std::size_t outputs() const noexcept { return outputs_.size(); }

  /// Begins: inputs together, tick taken, bracket open. If what is allocated already does not fit,
  /// nothing is open afterwards.
  void open(const operation_span& op) {
    sizes_.clear(), outputs_.clear(), pieces_.clear();
    gathering inputs(*this, op, {});
    traits_ = op.traits, cost_ = op.cost, workspace_ = {};
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
  /// Room for `need` more bytes, within the operator in hand or outside.
  void make_room(bytes need) {
    pausing([&] { reclaimer_->make(need, open_ ? name_ : "make_room"); });
  }
  /// One more output; its place in the order of the outputs.
  std::size_t add_output(bytes size) {
    pausing([&] {
      sizes_.reserve(sizes_.size() + 1);
      outputs_.reserve(outputs_.size() + 1);
      outputs_.push_back(obtain(size));
      sizes_.push_back(size);
    });
    return sizes_.size() - 1;
  }
  /// Scratch: at most one, as a replay allocates it in one piece.
  void add_workspace(bytes size) {
    if (scratch_) throw misuse("an operator has one workspace");
    pausing([&] { scratch_ = obtain(size), workspace_ = size; });
  }
  /// Everything by address. What is shown for the first time is held from now on.
  [[nodiscard]] call view() {
    for (; seen_inputs_ < touched_.size(); ++seen_inputs_)
      launcher_.hold(table_->tensors[touched_[seen_inputs_]].device);
    for (; seen_outputs_ < outputs_.size(); ++seen_outputs_)
      launcher_.hold(outputs_[seen_outputs_]);
    if (scratch_ && !std::exchange(seen_scratch_, true)) launcher_.hold(scratch_);
    return launcher_.view(in_hand());
  }

  /// Ends the operator in hand: its outputs become tensors, made by `body` when they are needed
  /// again. The record gets the stamps of all pieces: its cost is their sum.
  template <class F>
  void close(std::span<tensor_id> ids, F&& body) {
    const workload w = in_hand();
    // What may throw while the operator can still be given up comes first.
    kernel stored;
    if (launcher_.worth_recording(w.inputs, w.updates, ids.size(), traits_))
      stored = kernel(std::forward<F>(body));
    pieces_.reserve(pieces_.size() + 1);
    close_bracket(cost_);
    const stamp done = pieces_.back();
    unhold();
    table_->now.coming_need = held_bytes();
    admit(sizes_, outputs_, ids, name_);
    if (stored)
      launcher_.record(w, ids, std::move(stored), workspace_, traits_, name_, cost_, pieces_);
    note_end(ids, workspace_, traits_, cost_, pieces_);
    tell(name_, ids, done);
    finish();
  }
  /// Gives up the operator in hand: no outputs, and no number. What it updated in place is as it
  /// was left, and nothing depends on the old version any more.
  void abort() {
    if (bracket_) close_bracket({});
    unhold();
    // The number was taken by `gathering`, which `stay` has let go.
    table_->steps.abort();
    --table_->now.now;
    finish();
  }

  // --- marks ------------------------------------------------------------------------------------

  /// What is still referenced becomes a variable, every record goes. What was evicted and is still
  /// referenced comes back first, one by one: the others may be offloaded meanwhile. If there is no
  /// room the step goes on, and what has become a variable stays one.
  void end_of_step() {
    for (std::uint32_t i = 0; i < table_->tensors.tensor_slots(); ++i) {
      const auto t = static_cast<tensor_id>(i);
      const tensor& r = table_->tensors[t];
      if (!r.in_use || r.references == 0) continue;
      const std::span<const tensor_id> one(&t, 1);
      // Persistent first, unlocked then: once it can't be evicted any more it won't be gone again.
      const bool gone = r.where == residency::evicted;
      if (gone) restorer_.bring(one, {}, "end of step");
      table_->tensors[t].persistent = true;
      if (gone) restorer_.unlock(one);
    }
    table_->close_step();
    launcher_.forget_costs();
    if (table_->steps.enabled()) {
      table_->steps.mark();
      table_->follow_clock();
      end_recording();
    }
    table_->now.backward = false;
    reclaimer_->end_of_step();
    begin_timing();
    reclaimer_->events().flush();
  }

 private:
  // What an operator reads and updates, together on the device, locked, in its new version. An
  // operator that does not come to its end gives its number back: a program that frees something
  // and tries again draws the same random numbers.
  class gathering {
   public:
    gathering(operator_run& c, const operation_span& op, bytes need) : owner_(&c) {
      residency_table<storage_type>& book = *c.table_;
      c.launcher_.learn_costs();
      c.name_ = op.name;
      c.made_ = {};
      c.inputs_ = op.inputs.size();
      c.touched_.assign(op.inputs.begin(), op.inputs.end());
      c.touched_.insert(c.touched_.end(), op.updates.begin(), op.updates.end());
      // The next operator's need is guessed to be this one's (P-8). What an open one allocates
      // shows at its end.
      book.now.coming_need = need;
      // With less than this no order of doing things would help, so errors name it.
      c.reclaimer_->raise_floor(need + c.footprint());
      c.began_ = book.advance();
      c.note_beginning(op.name);
      try {
        // Lives until the old versions are severed: bringing the inputs may take any room.
        typename versions<Reclaimer>::protection dependents(c.versions_, op.updates, op.name);
        c.restorer_.bring(c.touched_, need, op.name);
        locked_ = true;
        c.versions_.renew(c.updates());
      } catch (...) {
        give_up();
        throw;
      }
    }
    gathering(const gathering&) = delete;
    gathering& operator=(const gathering&) = delete;
    ~gathering() {
      if (owner_ != nullptr) give_up();
    }
    void end() { std::exchange(owner_, nullptr)->leave(); }
    void stay() noexcept { owner_ = nullptr; }

   private:
    void give_up() {
      // `bring` locks all or none.
      if (locked_) owner_->restorer_.unlock(owner_->touched_);
      owner_->table_->steps.abort();
      --owner_->table_->now.now;
    }
    operator_run* owner_;
    bool locked_ = false;
  };

  // Views of one list, as `restorer` brings all of it together.
  [[nodiscard]] std::span<const tensor_id> reads() const noexcept {
    return std::span(touched_).first(inputs_);
  }
  [[nodiscard]] std::span<const tensor_id> updates() const noexcept {
    return std::span(touched_).subspan(inputs_);
  }
  // Bytes of what the operator touches, each tensor once, and of the constants: no budget below
  // that can hold it. Quadratic, as lists are short.
  [[nodiscard]] bytes footprint() const {
    bytes all = table_->constants();
    for (std::size_t i = 0; i < touched_.size(); ++i) {
      const auto here = touched_.begin() + std::ptrdiff_t(i);
      const tensor& r = table_->tensors[*here];
      if (r.pinned != pin::both && std::find(touched_.begin(), here, *here) == here)
        all += r.footprint;
    }
    return all;
  }
  // The blocks become tensors with one reference each.
  void admit(std::span<const bytes> sizes, std::span<block> made, std::span<tensor_id> ids,
             const char* label) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = table_->admit(sizes[i], std::move(made[i]), false, pin::none, label);
  }
  void tell(const char* name, std::span<const tensor_id> ids, stamp done) {
    ++table_->counts.operators;
    made_ = ids;
    reclaimer_->events().work(event_kind::run, name, ids, done);
  }
  // A policy that learns is told of the operator; and of the end of a step that nobody has marked.
  void note_beginning(const char* name) {
    step_recorder& steps = table_->steps;
    if (!steps.enabled()) return;
    if (steps.begins_step(name, touched_, table_->tensors)) {
      end_recording();
      reclaimer_->end_of_step();
      begin_timing();
    }
    steps.begin(name, touched_, inputs_, began_, table_->tensors);
  }
  // The step ends, with the times that are known by now.
  void end_recording() {
    table_->steps.forget_times([&](stamp s) { return table_->cost_of(s); });
    table_->steps.end_of_step(table_->now.clock, table_->tensors);
  }
  // What a selector takes to rehearse is not the next step's time.
  void begin_timing() {
    if (!table_->steps.enabled()) return;
    table_->follow_clock();
    table_->steps.resume(table_->now.clock);
  }
  void note_end(std::span<const tensor_id> ids, bytes workspace, trait traits, nanoseconds prior,
                std::span<const stamp> pieces) {
    if (!table_->steps.enabled()) return;
    table_->steps.end(ids, table_->storage().rounded(workspace), traits, prior, pieces,
                      table_->tensors, [&](stamp s) { return table_->cost_of(s); });
  }
  // The operator has come to its end. Touched before they are unlocked: an input that was dropped
  // meanwhile goes with its lock.
  void leave() {
    for (const tensor_id t : touched_) table_->touch(t, began_);
    restorer_.unlock(touched_);
    do_idle_work(*reclaimer_, {name_, reads(), updates(), made_});
  }

  // The open operator as it is by now.
  [[nodiscard]] workload in_hand() const noexcept {
    return {reads(), updates(), outputs_, &scratch_, table_->now.now};
  }
  // One block of an open operator. The largest need is raised first, so that an error names it.
  block obtain(bytes size) {
    reclaimer_->raise_floor(footprint() + held_bytes() + table_->storage().rounded(size));
    reclaimer_->make(table_->storage().rounded(size), name_, size);
    return reclaimer_->obtain(size, lifetime::transient);
  }
  [[nodiscard]] bytes held_bytes() const {
    bytes all = scratch_ ? table_->storage().rounded(workspace_) : bytes{};
    for (const bytes size : sizes_) all += table_->storage().rounded(size);
    return all;
  }
  // Closes the bracket of the operator in hand, if there is one, for as long as `f` takes. After a
  // typed error it is open again, as the operator is; after any other the manager is poisoned.
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
    }
    open_bracket();
  }
  void open_bracket() {
    launcher_.open(in_hand());
    bracket_ = true;
  }
  void close_bracket(nanoseconds cost) {
    bracket_ = false;
    pieces_.push_back(launcher_.close(cost));
  }
  // In the order of `view`, backwards; each only as far as it was shown.
  void unhold() {
    for (; seen_inputs_ > 0; --seen_inputs_)
      launcher_.unhold(table_->tensors[touched_[seen_inputs_ - 1]].device);
    for (; seen_outputs_ > 0; --seen_outputs_) launcher_.unhold(outputs_[seen_outputs_ - 1]);
    if (std::exchange(seen_scratch_, false)) launcher_.unhold(scratch_);
  }
  void finish() {
    open_ = false;
    // After an end only the workspace is left; after an abort the outputs, too.
    release_made();
    leave();
  }
  // What no tensor has taken: everything after an abort, the scratch after a close.
  void release_made() noexcept {
    for (block& b : outputs_)
      if (b) table_->storage().free(std::move(b));
    if (scratch_) table_->storage().free(std::move(scratch_));
    outputs_.clear();
  }

  residency_table<storage_type>* table_;
  Reclaimer* reclaimer_;
  launcher<Reclaimer> launcher_;
  restorer<Reclaimer> restorer_;
  versions<Reclaimer> versions_;
  std::vector<tensor_id> touched_;   // inputs, then updates
  std::span<const tensor_id> made_;  // the outputs, once it has ended; the caller's list
  const char* name_ = "";
  std::size_t inputs_ = 0;
  nanoseconds began_{};  // by `conditions::clock`

  // Of the operator in hand.
  bool open_ = false, bracket_ = false;  // begun; and its bracket is not closed for the moment
  std::vector<bytes> sizes_;
  std::vector<block> outputs_;
  block scratch_;
  bytes workspace_{};
  std::size_t seen_inputs_ = 0, seen_outputs_ = 0;  // whose addresses the caller has
  bool seen_scratch_ = false;
  std::vector<stamp> pieces_;  // of the brackets so far, in order
  trait traits_ = trait::pure;
  nanoseconds cost_{};
};

}  // namespace delta::detail
