// delta: one interface, of virtual functions, to managers of any policy and any storage: to choose
// the policy at run time, or not to compile the templates.
//
//   const auto manager = delta::make_manager("adaptive", delta::over(storage));  // engine.hpp
//   const delta::tensor_id w = manager->variable(1_MiB, "weights");
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "delta/handles.hpp"
#include "delta/kernel.hpp"
#include "delta/observer.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta {

/// An Observer behind a virtual function. The rules are the concept's: `on` neither throws nor
/// calls the manager.
class any_observer {
 public:
  virtual void on(const event&) = 0;

 protected:
  any_observer() = default;
  any_observer(const any_observer&) = default;
  any_observer& operator=(const any_observer&) = default;
  ~any_observer() = default;
};

/// How a manager that is chosen at run time is made, beside its policy and storage.
struct manager_options {
  any_observer* observer = nullptr;  ///< told of every event, outlives the manager; null: nobody
  /// Every operator that may be replayed is, right after it has run, and compared: replay_check.
  bool check_replays = false;
};

namespace detail {

/// Hands events to such an observer. Without one no event is made, and each place where one would
/// have been costs a test of a pointer.
struct maybe_observed : manager_options {
  [[nodiscard]] bool listens() const noexcept { return observer != nullptr; }
  [[nodiscard]] bool checks_replays() const noexcept { return check_replays; }
  void on(const event& e) const { observer->on(e); }
};

static_assert(Observer<maybe_observed>);

}  // namespace detail

class any_storage;
struct learning_report;
struct step_record;

/// delta::manager as an interface. Every function means what the manager's function of that name
/// does (manager.hpp), has its complexity, and throws what that throws. A call costs some
/// nanoseconds more, and `run` and `end` a call of the heap where the kernel has more than 32
/// bytes.
///
/// What lies behind it has no members here for what a policy keeps (`past`, `heuristic`), but for
/// the last step, nor for rehearsals (`preload`, `stage`): those are the template's.
class manager_interface {
 public:
  manager_interface() = default;
  manager_interface(const manager_interface&) = delete;
  manager_interface& operator=(const manager_interface&) = delete;
  virtual ~manager_interface() = default;

  // --- tensors ----------------------------------------------------------------------------------

  virtual tensor_id constant(bytes size, const char* label) = 0;
  tensor_id constant(bytes size) { return constant(size, "constant"); }
  virtual tensor_id variable(bytes size, const char* label) = 0;
  tensor_id variable(bytes size) { return variable(size, "variable"); }
  virtual tensor_id constant(bytes size, const char* label, block&&) = 0;
  virtual tensor_id variable(bytes size, const char* label, block&&) = 0;
  virtual tensor_id share(tensor_id) = 0;
  virtual void drop(tensor_id) = 0;
  [[nodiscard]] virtual bool recomputable(tensor_id) const = 0;
  virtual void forbid(tensor_id, pin ways) = 0;

  using view = tensor_view<manager_interface>;
  [[nodiscard]] view acquire(tensor_id t, access how = access::read) {
    return {*this, t, hold(t, how), size(t)};
  }

  // --- operators --------------------------------------------------------------------------------

  /// Runs an operator; `ids` receives the outputs: one id per output. Where there is no room for
  /// it, `body` is left as it was, and the same call may be tried again.
  virtual void run(const operation_span&, std::span<tensor_id> ids, kernel&& body) = 0;
  /// Runs an operator with N outputs; without N, with one.
  template <std::size_t N>
  std::array<tensor_id, N> run(const operation& op, kernel&& body) {
    std::array<tensor_id, N> made{};
    run(static_cast<operation_span>(op), made, std::move(body));
    return made;
  }
  tensor_id run(const operation& op, kernel&& body) { return run<1>(op, std::move(body))[0]; }

  using open_operator = delta::open_operator<manager_interface>;
  [[nodiscard]] open_operator begin(const operation& op) {
    return begin(static_cast<operation_span>(op));
  }
  // A template, so that a braced list can only mean an `operation`.
  template <std::same_as<operation_span> Op>
  [[nodiscard]] open_operator begin(const Op& op) {
    open_one(op);
    return open_operator(*this);
  }
  virtual void make_room(bytes need, const char* operation) = 0;
  void make_room(bytes need) { make_room(need, "make_room"); }
  [[nodiscard]] virtual block take_block(bytes size, lifetime expected) = 0;
  [[nodiscard]] block take_block(bytes size) { return take_block(size, lifetime::transient); }
  virtual void give_back(block&&) noexcept = 0;

  // --- marks ------------------------------------------------------------------------------------

  virtual void backward() = 0;
  virtual void end_of_step() = 0;

  // --- what happened ----------------------------------------------------------------------------

  [[nodiscard]] virtual const counters& counts() const = 0;
  [[nodiscard]] virtual std::uint64_t evaluations() const = 0;
  [[nodiscard]] virtual std::uint64_t walked() const = 0;
  [[nodiscard]] virtual std::size_t live_tensors() const = 0;
  [[nodiscard]] virtual std::size_t live_records() const = 0;
  [[nodiscard]] virtual bytes size(tensor_id) const = 0;
  [[nodiscard]] virtual residency where(tensor_id) const = 0;
  /// What the policy has learned; nothing where it does not learn. Include learning_report.hpp.
  [[nodiscard]] virtual learning_report learned() const = 0;
  /// The last step that has ended, until the next one does; null: none has, or the policy does not
  /// learn. Include step.hpp. O(1).
  [[nodiscard]] virtual const step_record* last_step() const = 0;
  /// The storage as the manager uses it.
  [[nodiscard]] virtual any_storage& storage() = 0;

 private:
  friend view;
  friend open_operator;
  virtual std::byte* hold(tensor_id, access) = 0;
  virtual void release(tensor_id) noexcept = 0;
  virtual void open_one(const operation_span&) = 0;
  virtual std::size_t allocate(bytes) = 0;
  virtual std::size_t allocate(std::span<const bytes>) = 0;
  virtual std::size_t allocate(bytes, block&&) = 0;
  virtual std::size_t replace(std::span<const tensor_id>) = 0;
  virtual std::size_t workspace(bytes) = 0;
  virtual std::size_t replay_workspace(bytes) = 0;
  virtual call arguments() = 0;
  virtual void end(std::span<tensor_id> ids, kernel&& replay) = 0;
  virtual void abort() noexcept = 0;
};

}  // namespace delta
