// delta: what every operator begins and ends with, whether it runs as a whole or is begun and
// ended: its inputs together, its outputs made tensors, its end told to whoever learns or listens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "delta/detail/runtime/guessed_costs.hpp"
#include "delta/detail/runtime/idle_work.hpp"
#include "delta/detail/runtime/kernel_launch.hpp"
#include "delta/detail/runtime/open_blocks.hpp"
#include "delta/detail/runtime/restore.hpp"
#include "delta/detail/runtime/update_guard.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/error.hpp"
#include "delta/kernel.hpp"

namespace delta::detail {

/// Runs each operator twice for an observer that asks for it: delta/testing/replay_check.hpp.
template <class Reclaimer>
class replay_checker;
/// Nobody asks for checks: nothing of them is compiled.
struct no_replay_checker {
  template <class... Any>
  explicit no_replay_checker(Any&...) noexcept {}
  static constexpr bool enabled() noexcept { return false; }
  template <class... Any>
  void before(const Any&...) const noexcept {}
  template <class... Any>
  void after(const Any&...) const noexcept {}
};

/// What runs operators twice, by whether an observer asks for it. Only then does it matter whether
/// the checker was included: elsewhere the type is the same in every source file.
template <class Reclaimer, bool asked>
struct checker_of {
  using type = no_replay_checker;
};
template <class Reclaimer>
struct checker_of<Reclaimer, true> {
  static constexpr bool included = requires { sizeof(replay_checker<Reclaimer>); };
  static_assert(
      included,
      "an observer with 'checks_replays' needs #include <delta/testing/replay_check.hpp>");
  using type = std::conditional_t<included, replay_checker<Reclaimer>, no_replay_checker>;
};

/// The operator at hand, one at a time. Members are public for `operator_run`, `open_operator`.
template <class Reclaimer>
class operator_context {
  using recorder = typename Reclaimer::recorder;

 public:
  using table_type = typename Reclaimer::table_type;

  operator_context(table_type& t, Reclaimer& r)
      : table(t),
        reclaimer(r),
        kernels(t, r),
        taken(t, kernels),
        restore(t, r, kernels),
        updated(t, restore),
        check(t, r, kernels) {}
  operator_context(const operator_context&) = delete;
  operator_context& operator=(const operator_context&) = delete;

  table_type& table;
  Reclaimer& reclaimer;
  launcher<Reclaimer> kernels;
  program_blocks<table_type, launcher<Reclaimer>> taken;
  restorer<Reclaimer> restore;
  update_guard<table_type, restorer<Reclaimer>> updated;
  /// Asked by an observer only (replay_check).
  static constexpr bool may_check = has_checks_replays<typename Reclaimer::observer_type>;
  [[no_unique_address]] typename checker_of<Reclaimer, may_check>::type check;

  /// What an operator reads and updates: on the device, locked, in its new version, and numbered.
  /// One that does not end gives its number back: a second try draws the same random numbers.
  class operator_inputs {
   public:
    /// `at_once`: what it lists is allocated in one go, else block by block.
    operator_inputs(operator_context& f, const operation_span& op, bool at_once) : frame_(&f) {
      const listed all = f.listed_by(op);
      const bytes need = at_once ? all.sum : bytes{};
      f.kernels.learn_costs();
      f.name_ = op.name;
      f.made_ = {};
      f.asynchronous_ = has(op.traits, trait::asynchronous);
      f.inputs_ = op.inputs.size();
      f.touched_.assign(op.inputs.begin(), op.inputs.end());
      f.touched_.insert(f.touched_.end(), op.updates.begin(), op.updates.end());
      // The next operator's need is guessed to be this one's (P-8). What an open one allocates
      // shows at its end.
      f.table.now.coming_need = need;
      f.expect(all);
      f.began_ = f.table.advance();
      f.record_beginning(op.name);
      try {
        // Must outlive `renew`: bringing the inputs may take any room.
        typename decltype(updated)::scope dependents(f.updated, op.updates, op.name);
        f.restore.bring(f.touched_, need, op.name, all.sum - need,
                        [&] { return f.learn_outputs(op, all); });
        locked_ = true;
        f.updated.renew(f.updates());
      } catch (...) {
        give_up();
        throw;
      }
    }
    operator_inputs(const operator_inputs&) = delete;
    operator_inputs& operator=(const operator_inputs&) = delete;
    ~operator_inputs() {
      if (frame_ != nullptr) give_up();
    }
    void end() { std::exchange(frame_, nullptr)->leave(); }
    /// The inputs stay together beyond this object: `leave` lets them go.
    void stay() noexcept { frame_ = nullptr; }

   private:
    void give_up() {
      // `bring` locks all or none.
      if (locked_) frame_->restore.unlock(frame_->touched_);
      frame_->take_number_back();
    }
    operator_context* frame_;
    bool locked_ = false;
  };

  /// The outputs and the workspace that an operator states. O(outputs).
  struct listed {
    bytes sum{};      ///< rounded
    bytes largest{};  ///< block, as asked for
  };
  [[nodiscard]] listed listed_by(const operation_span& op) const {
    return with(op.outputs, {table.storage().rounded(op.workspace), op.workspace});
  }

  [[nodiscard]] const char* name() const noexcept { return name_; }
  /// What it reads, then what it updates: views of one list, as all of it is brought together.
  [[nodiscard]] std::span<const tensor_id> touched() const noexcept { return touched_; }
  [[nodiscard]] std::span<const tensor_id> reads() const noexcept {
    return touched().first(inputs_);
  }
  [[nodiscard]] std::span<const tensor_id> updates() const noexcept {
    return touched().subspan(inputs_);
  }
  /// Bytes of what the operator touches, each tensor once, but constants. O(inputs + updates).
  [[nodiscard]] bytes footprint() const {
    return table.tensors.footprint({touched_},
                                   [](const tensor_record& r) { return r.pinned != pin::both; });
  }

  /// The operator was given up: its number goes to the next one.
  void take_number_back() {
    table.steps.abort();
    --table.now.now;
  }
  /// The blocks become tensors with one reference each.
  void admit(std::span<const bytes> sizes, std::span<block> made, std::span<tensor_id> ids,
             const char* label) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = table.admit(sizes[i], std::move(made[i]), false, pin::none, label);
  }
  /// It has made `ids`: told to whoever learns, and to the observer.
  void note_end(std::span<const tensor_id> ids, bytes workspace, trait traits, nanoseconds prior,
                std::span<const stamp> pieces, std::span<const replaced_input> replaced = {}) {
    if constexpr (recorder::enabled)
      table.steps.end(
          ids, table.storage().rounded(workspace), traits, prior,
          [&] { return guess_cost(table, reads(), updates(), ids, workspace); }, pieces,
          table.tensors, [&](stamp s) { return table.cost_of(s); }, replaced);
    ++table.counts.operators;
    made_ = ids;
    reclaimer.events().work(event_kind::run, name_, ids, pieces.back());
  }
  /// The operator has ended. Its tensors are touched before they are unlocked, as unlocking may
  /// free one that was dropped meanwhile.
  void leave() {
    for (const tensor_id t : touched_) table.touch(t, began_);
    restore.unlock(touched_);
    do_idle_work(reclaimer, {name_, reads(), updates(), made_}, asynchronous_);
  }

  /// The step ends, with the times that are known by now, and the next one begins: what the policy
  /// does in between does not count as its time.
  void end_step() {
    if constexpr (recorder::enabled) {
      table.steps.forget_times([&](stamp s) { return table.cost_of(s); });
      table.steps.end_of_step(table.now.clock, table.tensors);
    }
    reclaimer.end_of_step();
    if constexpr (recorder::enabled) table.follow_clock(), table.steps.resume(table.now.clock);
  }

 private:
  [[nodiscard]] listed with(std::span<const bytes> sizes, listed all) const {
    for (const bytes size : sizes) {
      all.sum += table.storage().rounded(size);
      all.largest = std::max(all.largest, size);
    }
    return all;
  }
  void expect(const listed& all) {
    reclaimer.expect({.touched = footprint(),
                      .need = all.sum,
                      .largest = table.storage().rounded(all.largest),
                      .restores = true,
                      .replayed = true});
  }
  // Bytes of outputs that the operator does not list, as far as they can be known. An error names
  // budgets that hold them, too.
  [[nodiscard]] bytes learn_outputs(const operation_span& op, const listed& known) {
    if (op.later == nullptr) return {};
    const listed all = with(op.later->sizes(), known);
    expect(all);
    return all.sum - known.sum;
  }
  // A policy that learns is told of the operator; and of the end of a step that nobody has marked.
  void record_beginning(const char* name) {
    if constexpr (recorder::enabled) {
      if (table.steps.begins_step(name, touched_, table.tensors)) end_step();
      table.steps.begin(name, touched_, inputs_, began_, table.tensors);
    }
  }

  std::vector<tensor_id> touched_;   // inputs, then updates
  std::span<const tensor_id> made_;  // the outputs, once it has ended; the caller's list
  const char* name_ = "";
  std::size_t inputs_ = 0;
  nanoseconds began_{};  // by `machine_state::clock`
  bool asynchronous_ = false;
};

}  // namespace delta::detail
