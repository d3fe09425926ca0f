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

#include "delta/kernel.hpp"
#include "delta/observer.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta {

class any_storage;
struct learning_report;

/// delta::manager as an interface. Every function means what the manager's function of that name
/// does (manager.hpp), has its complexity, and throws what that throws. A call costs some
/// nanoseconds more, and `run` and `end` a call of the heap where the kernel has more than 32
/// bytes.
///
/// What lies behind it has no members here for what a policy keeps (`past`, `heuristic`), nor for
/// rehearsals (`preload`, `stage`): those are the template's.
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

  /// The bytes of a tensor, resident and in place while the view lives. It must not outlive the
  /// manager; moved from, it can only be destroyed.
  class view {
   public:
    view(view&& o) noexcept
        : owner_(std::exchange(o.owner_, nullptr)),
          slot_(o.slot_),
          data_(std::exchange(o.data_, {})) {}
    view& operator=(view&&) = delete;
    ~view() {
      if (owner_ != nullptr) owner_->unlock(slot_);
    }
    /// Null where the storage keeps no bytes.
    [[nodiscard]] std::byte* data() const& noexcept { return data_.data(); }
    /// The address would outlive the view.
    std::byte* data() && = delete;
    [[nodiscard]] bytes size() const noexcept { return bytes{data_.size()}; }

   private:
    friend class manager_interface;
    view(manager_interface* m, std::pair<std::size_t, std::span<std::byte>> held) noexcept
        : owner_(m), slot_(held.first), data_(held.second) {}
    manager_interface* owner_;
    std::size_t slot_;
    std::span<std::byte> data_;
  };
  [[nodiscard]] view acquire(tensor_id t, access how = access::read) {
    return {this, lock(t, how)};
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

  /// An operator between begin and end, given up if it is destroyed without `end`. It must not
  /// outlive the manager; after `end`, or moved from, it can only be destroyed. While it lives the
  /// manager refuses the calls that manager.hpp names.
  class open_operator {
   public:
    open_operator(open_operator&& o) noexcept : owner_(std::exchange(o.owner_, nullptr)) {}
    open_operator& operator=(open_operator&&) = delete;
    ~open_operator() {
      if (owner_ != nullptr) owner_->abort();
    }
    void make_room(bytes need) { owner_->make_room(need); }
    std::size_t allocate(bytes size) { return owner_->allocate(size); }
    std::size_t allocate(std::span<const bytes> sizes) { return owner_->allocate(sizes); }
    std::size_t allocate(bytes size, block&& b) { return owner_->allocate(size, std::move(b)); }
    std::size_t replace(tensor_id input) { return owner_->replace(std::span(&input, 1)); }
    std::size_t replace(std::span<const tensor_id> inputs) { return owner_->replace(inputs); }
    std::size_t workspace(bytes size) { return owner_->workspace(size); }
    std::size_t replay_workspace(bytes size) { return owner_->replay_workspace(size); }
    [[nodiscard]] call arguments() { return owner_->arguments(); }
    /// `replay` may hold nothing: then the outputs can't be made again.
    void end(std::span<tensor_id> ids, kernel&& replay = {}) {
      owner_->end(ids, std::move(replay));
      owner_ = nullptr;
    }
    tensor_id end(kernel&& replay) {
      tensor_id made{};
      end(std::span(&made, 1), std::move(replay));
      return made;
    }

   private:
    friend class manager_interface;
    explicit open_operator(manager_interface* m) noexcept : owner_(m) {}
    manager_interface* owner_;
  };
  [[nodiscard]] open_operator begin(const operation& op) {
    return begin(static_cast<operation_span>(op));
  }
  // A template, so that a braced list can only mean an `operation`.
  template <std::same_as<operation_span> Op>
  [[nodiscard]] open_operator begin(const Op& op) {
    open(op);
    return open_operator(this);
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
  /// The storage as the manager uses it.
  [[nodiscard]] virtual any_storage& storage() = 0;

 private:
  virtual std::pair<std::size_t, std::span<std::byte>> lock(tensor_id, access) = 0;
  virtual void unlock(std::size_t slot) noexcept = 0;
  virtual void open(const operation_span&) = 0;
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
