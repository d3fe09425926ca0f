// delta tests: programs that call their manager from within kernels, first runs and replays, and
// while an operator is open: calls that are allowed there, calls that are refused, references that
// stored kernels hold, and operators of another manager.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "delta/engine/engine.hpp"
#include "delta/storage/heap_storage.hpp"
#include "random_program.hpp"

namespace delta::test {

/// Wraps the kernels of a program. What it does depends on the operator's place in the step alone,
/// so that steps stay alike. It outlives the manager, whose kernels call it.
class nesting {
 public:
  /// `demand(holds, what)` throws where something is not as it should be; `check` looks at the
  /// storage.
  using demands = void (*)(bool, const char*);
  nesting(manager_interface& m, demands demand, std::function<void()> check)
      : m_(&m), demand_(demand), check_(std::move(check)) {}

  /// So many kernels have called their manager.
  [[nodiscard]] std::uint64_t calls() const { return calls_; }

  /// The program drops it: every other one only from within the next kernel, or while the next
  /// operator is open.
  void drop(tensor_id t) { ++drops_ % 2 == 0 ? late_.push_back(t) : m_->drop(t); }
  void end_of_step() {
    for (const tensor_id t : std::exchange(late_, {})) m_->drop(t);
    number_ = 0, drops_ = 0;
  }

  /// Blocks that it has taken; those are the program's, and stay where the manager goes.
  void give_blocks_back() noexcept {
    for (block& b : blocks_) m_->give_back(std::move(b));
    blocks_.clear();
  }

  /// A kernel that does the same as `kernel`, after it has called the manager. Every third one
  /// holds a reference to one of its inputs, as a framework's closures do.
  template <class Kernel>
  auto around(const operation_span& op, const Kernel& kernel, manner how) {
    const std::size_t number = ++number_;
    const tensor_id input =
        op.inputs.empty() ? tensor_id::none : op.inputs[number % op.inputs.size()];
    std::shared_ptr<reference> captured;
    if (number % 3 == 0 && input != tensor_id::none)
      captured = std::make_shared<reference>(*m_, input);
    const bool opens = how != manner::whole && how != manner::holding;
    return [this, kernel, captured, input, number, opens](call& c) {
      call_back(c, c.replaying() ? tensor_id::none : input, number, opens && !c.replaying());
      kernel(c);
    };
  }

 private:
  /// One more, until the last kernel that holds it goes: with a record, from within the manager.
  struct reference {
    reference(manager_interface& to, tensor_id t) : m(&to), tensor(to.share(t)) {}
    reference(const reference&) = delete;
    reference& operator=(const reference&) = delete;
    ~reference() {
      try {
        m->drop(tensor);
      } catch (const poisoned&) {  // NOLINT(bugprone-empty-catch): nobody counts any more
      }
    }
    manager_interface* m;
    tensor_id tensor;
  };

  template <class F>
  void refused(const F& f) {
    try {
      f();
    } catch (const misuse&) {
      return;
    }
    demand_(false, "a call from within an operator is not refused");
  }
  [[nodiscard]] std::array<std::uint64_t, 6> state() const {
    const counters& n = m_->counts();
    return {m_->storage().used().count, m_->live_tensors(), m_->live_records(), n.operators,
            n.evictions + n.offloads,   n.reloads};
  }

  // `input`: one of the operator, in its first run; `open`: between begin and end, else within run
  // or a replay.
  void call_back(const call& c, tensor_id input, std::size_t number, bool open) {
    ++calls_;
    check_();
    const auto before = state();
    const auto nothing = [](call&) {};
    const std::span<const tensor_id> reads(&input, input != tensor_id::none ? 1 : 0);
    const operation_span op{.inputs = reads, .outputs = sizes_, .name = "nested"};
    std::array<tensor_id, 1> made{};
    refused([&] { m_->run(op, made, nothing); });
    refused([&] { (void)m_->begin(op); });
    refused([&] { (void)m_->variable(sizes_[0]); });
    refused([&] { (void)m_->constant(sizes_[0]); });
    refused([&] { m_->end_of_step(); });
    if (!open) {
      refused([&] { m_->make_room(sizes_[0]); });
      refused([&] { (void)m_->take_block(sizes_[0], lifetime::transient); });
    }
    if (input != tensor_id::none) {
      refused([&] { (void)m_->acquire(input); });
      if (!open) refused([&] { m_->forbid(input, pin::both); });
      m_->drop(m_->share(input));
    }
    demand_(state() == before, "a call that was refused has changed something");
    if (!c.replaying()) {
      for (const tensor_id t : std::exchange(late_, {})) m_->drop(t);
      give_blocks_back();
    }
    if (open) ask_for_room(number);
    if (number % 4 == 0) run_another(c.sequence(), open ? manner::open : manner::whole);
    check_();
  }
  // What fits there or not, as it comes: a typed error leaves the operator open.
  void ask_for_room(std::size_t number) {
    try {
      if (number % 2 == 0) m_->make_room(bytes{m_->storage().capacity().count / (1 + number % 5)});
      if (number % 3 == 0)
        blocks_.push_back(m_->take_block(bytes{8 + number % 100}, lifetime::transient));
    } catch (const budget_exceeded&) {  // NOLINT(bugprone-empty-catch)
    }
  }
  // A program of a manager of its own, under as little memory as it runs in.
  void run_another(std::uint64_t seed, manner how) {
    const program p = random_program(seed, {.operators = 6, .steps = 1});
    heap_storage storage({.capacity = largest_footprint(p, 64), .host_capacity = 1_MiB});
    const auto m = make_manager("online", over(storage));
    demand_(run_program(
                *m, p, run_now{}, [] {}, how) == evaluate(p),
            "the bits of a program within a kernel differ");
  }

  manager_interface* m_;
  demands demand_;
  std::function<void()> check_;
  std::array<bytes, 1> sizes_{bytes{8}};
  std::vector<tensor_id> late_;  // dropped by the program, and not yet by the manager
  std::vector<block> blocks_;    // taken in an open operator, until the next kernel
  std::uint64_t calls_ = 0;
  std::size_t number_ = 0, drops_ = 0;
};

}  // namespace delta::test
