// delta: runs operators (Algorithm 1, repairs P-6): as a whole where their lists are known, or open
// (open_operator.hpp) where sizes turn up on the way; the end of a step; and views and blocks that
// the program takes between operators. The two ways differ only in when memory is allocated; [ and
// ] are the storage's bracket, which stays open where the storage allows it and there is room:
//   run               gather, make room for all, allocate, [ kernel ] admit, record, leave
//   begin ... end     gather, [ ... ] admit, record, leave
//   allocate within   ] make room, allocate [
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "delta/detail/runtime/open_operator.hpp"
#include "delta/detail/runtime/operator_context.hpp"
#include "delta/kernel.hpp"

namespace delta::detail {

/// Takes operators through update_guard, restorer, reclaimer and launcher, in the order of P-6. The
/// manager has checked the ids, and that nobody else is inside.
template <class Reclaimer>
class operator_run {
  using frame_type = operator_context<Reclaimer>;

 public:
  operator_run(typename frame_type::table_type& table, Reclaimer& r)
      : frame_(table, r), open_(frame_) {}

  [[nodiscard]] launcher<Reclaimer>& kernels() noexcept { return frame_.kernels; }
  /// The one between begin and end, if there is one.
  [[nodiscard]] open_operator<Reclaimer>& opened() noexcept { return open_; }
  [[nodiscard]] const open_operator<Reclaimer>& opened() const noexcept { return open_; }

  /// A block for the program's own use, held in place; an open operator's bracket orders it.
  block take_block(bytes n, lifetime expected) {
    block b = open_.take_block(n, expected);
    frame_.taken.add(b);
    return b;
  }
  /// Those that it has.
  [[nodiscard]] auto& taken() noexcept { return frame_.taken; }

  /// The operator as a whole. Room is made for all of its blocks at once, so that nothing is
  /// allocated in vain. The kernel is stored only if it may run again; else it is called in place.
  template <class F>
  void run(const operation_span& op, std::span<tensor_id> ids, F&& body) {
    typename frame_type::operator_inputs inputs(frame_, op, true);
    const auto all = frame_.listed_by(op);
    frame_.reclaimer.make(all.sum, op.name);
    launcher<Reclaimer>& kernels = frame_.kernels;
    typename launcher<Reclaimer>::allocation fresh(
        kernels, op.outputs.size(), [&](std::size_t i) { return op.outputs[i]; }, op.workspace);
    // The tick is the operator's number: random kernels draw from it, now and in replays.
    const workload w{frame_.reads(), frame_.updates(), fresh.outputs(), fresh.workspaces(),
                     frame_.table.now.now};
    stamp done;
    const auto run_once = [&](auto& k) {
      done = kernels.launch(k, w, op.cost);
      frame_.check.after(w, k, op.outputs, op.workspace, op.name, op.cost);
      frame_.admit(op.outputs, fresh.outputs(), ids, op.name);
    };
    frame_.check.before(w, op.traits);
    // Nothing after the launch needs room, so what has run is never undone.
    if (!kernels.worth_recording(w.inputs, w.updates, ids.size(), op.traits)) {
      run_once(body);
    } else {
      kernel stored(std::forward<F>(body));
      run_once(stored);
      kernels.record(w, ids, std::move(stored), op.workspace, op.traits, op.name, op.cost,
                     std::span(&done, 1));
    }
    frame_.note_end(ids, op.workspace, op.traits, op.cost, std::span(&done, 1));
    fresh.give_back();
    inputs.end();
  }

  /// Makes a tensor resident and locks it; for writing, as a new version. The host may touch its
  /// bytes until `unlock`: it has waited for an empty kernel, ordered behind all users.
  void acquire(tensor_id t, bool writes) {
    const std::span<const tensor_id> one(&t, 1), none;
    auto& table = frame_.table;
    const bool constant = table.tensors[t].pinned == pin::both;
    const bytes touched = constant ? bytes{} : table.tensors[t].footprint;
    frame_.reclaimer.expect({.touched = touched, .restores = true});
    typename decltype(frame_.updated)::scope dependents(frame_.updated, writes ? one : none,
                                                        "acquire");
    frame_.restore.bring(one, {}, "acquire");
    try {
      if (writes) frame_.updated.renew(one);
      // Reading waits for the last writer, writing for all users: the bracket's own rules.
      const auto nothing = [](call&) {};
      const workload w{writes ? none : one, writes ? one : none, {}, {}, 0, false};
      table.storage().wait(frame_.kernels.launch(nothing, w, {}));
      table.follow_clock();
      table.touch(t, table.now.clock);
      frame_.reclaimer.events().flush();
      table.steps.acquired(t, table.tensors[t], writes ? access::write : access::read);
    } catch (...) {
      frame_.restore.unlock(one);
      throw;
    }
    // Nothing after it throws: a hold that nobody has would never end.
    frame_.kernels.hold(t);
    frame_.reclaimer.bounds().view(table.tensors[t].footprint);
  }
  /// Ends what `acquire` began. O(1), unless it was dropped meanwhile.
  void unlock(tensor_id t) {
    frame_.kernels.unhold(t);
    frame_.reclaimer.bounds().unview(frame_.table.tensors[t].footprint);
    frame_.restore.unlock(std::span(&t, 1));
  }

  /// What is still referenced becomes a variable (what was evicted comes back first, one by one),
  /// and every record goes. Where there is no room the step goes on; variables stay variables.
  void end_of_step() {
    auto& table = frame_.table;
    frame_.reclaimer.expect({.restores = true});
    for (std::uint32_t i = 0; i < table.tensors.tensor_slots(); ++i) {
      const auto t = static_cast<tensor_id>(i);
      const tensor_record& r = table.tensors[t];
      if (!r.in_use || r.references == 0) continue;
      const std::span<const tensor_id> one(&t, 1);
      // Persistent first, unlocked then: once it can't be evicted any more it won't be gone again.
      const bool gone = r.where == residency::evicted;
      if (gone) frame_.restore.bring(one, {}, "end of step");
      table.tensors[t].persistent = true;
      if (gone) frame_.restore.unlock(one);
    }
    table.close_step();
    frame_.reclaimer.bounds().end_of_step();
    frame_.kernels.forget_costs();
    if constexpr (Reclaimer::recorder::enabled) table.steps.mark(), table.follow_clock();
    table.now.backward = false;
    frame_.end_step();
    frame_.reclaimer.events().flush();
  }

 private:
  frame_type frame_;
  open_operator<Reclaimer> open_;
};

}  // namespace delta::detail
