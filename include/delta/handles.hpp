// delta: what a manager hands out besides ids: the view of a tensor's bytes, and the operator that
// the program runs itself. Class templates over `delta::manager` or `manager_interface`.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "delta/kernel.hpp"
#include "delta/units.hpp"

namespace delta {

/// The bytes of a tensor, resident and in place while the view lives. Any number may live at once,
/// of one tensor too; what they hold can't leave. Move-only: the one moved from can only be
/// destroyed. It must not outlive the manager.
template <class Manager>
class tensor_view {
 public:
  tensor_view(tensor_view&& o) noexcept
      : owner_(std::exchange(o.owner_, nullptr)), tensor_(o.tensor_), at_(o.at_), size_(o.size_) {}
  tensor_view& operator=(tensor_view&&) = delete;
  ~tensor_view() {
    if (owner_ != nullptr) owner_->release(tensor_);
  }
  /// Where they are; the same as long as the view lives. Null where the storage keeps no bytes.
  [[nodiscard]] std::byte* data() const& noexcept { return at_; }
  /// The address would outlive the view: `const auto v = manager.acquire(t);`, and `v.data()`.
  std::byte* data() && = delete;
  /// How many: as the program asked, not rounded.
  [[nodiscard]] bytes size() const noexcept { return size_; }

 private:
  friend Manager;
  tensor_view(Manager& m, tensor_id t, std::byte* at, bytes size) noexcept
      : owner_(&m), tensor_(t), at_(at), size_(size) {}
  Manager* owner_;
  tensor_id tensor_;
  std::byte* at_;
  bytes size_;
};

/// An operator between begin and end, with its inputs and updates resident. What `arguments` has
/// shown stays in place, so free bytes may lie in pieces: allocate first, then ask for addresses.
/// Destroyed without `end` it is given up: no outputs, nothing recorded, updates are as they were
/// left. It must not outlive the manager. After `end`, or moved from, it can only be destroyed.
///
///   auto op = manager.begin({.inputs = {x}, .name = "filter"});
///   op.allocate(64_KiB);  // then: delta::call now = op.arguments(); kernel(now);
///   const delta::tensor_id y = op.end(kernel);
template <class Manager>
class open_operator {
 public:
  open_operator(open_operator&& o) noexcept : owner_(std::exchange(o.owner_, nullptr)) {}
  open_operator& operator=(open_operator&&) = delete;
  ~open_operator() {
    if (owner_ != nullptr) owner_->abort();
  }

  /// Makes `need` bytes free for what will be allocated, so that several allocations search only
  /// once. Throws as `run` does; the operator is still open then.
  void make_room(bytes need) { owner_->make_room(need); }
  /// One more output, of `size` bytes; gives its place in the order of the outputs. Makes room by
  /// itself. Throws as `run` does; the operator is still open then, without that output.
  std::size_t allocate(bytes size) { return owner_->allocate(size); }
  /// Several at once, for which room is made once; gives the place of the first, or where there are
  /// none of the next. All of them, or where it throws none.
  std::size_t allocate(std::span<const bytes> sizes) { return owner_->allocate(sizes); }
  /// One more output whose bytes exist: written already, or to be written. As `variable` with a
  /// block, but that they stay where they are until the end.
  std::size_t allocate(bytes size, block&& b) { return owner_->allocate(size, std::move(b)); }
  /// One more output, in the block of an input that the operator writes over. From now on the input
  /// has no bytes on the device, even if the operator is given up: its producer or its host copy
  /// brings it back when it is used. Until the kernel writes, both addresses are the same and hold
  /// the input's bytes; a replay has two blocks, and its kernel copies first. Takes no room, a
  /// replay does. O(inputs).
  ///
  /// Under a policy that never evicts nothing is `recomputable`: an operator's output of this step
  /// may be replaced all the same; without a host copy only `drop` is possible then, any other use
  /// is misuse. Throws misuse where the tensor is no input, an update too, replaced already,
  /// forbidden to be evicted, held by a view, or where its bytes would be lost: not recomputable
  /// under any other policy, or under this one shared, too.
  std::size_t replace(tensor_id input) { return replace(std::span(&input, 1)); }
  /// Several at once; gives the place of the first. All of them, or where it throws misuse none.
  std::size_t replace(std::span<const tensor_id> inputs) { return owner_->replace(inputs); }
  /// Scratch until the end; counts in the budget. Any number of times; gives its place among them.
  /// A replay gets all of it in one piece. Throws as allocate does.
  std::size_t workspace(bytes size) { return owner_->workspace(size); }
  /// Scratch that only replays get: for a first run whose temporaries were blocks of the program's
  /// own. Its place among the workspaces, where the first run has null. O(workspaces).
  std::size_t replay_workspace(bytes size) { return owner_->replay_workspace(size); }
  /// The addresses of inputs, outputs so far, updates and workspace, as a replay will get them.
  /// Valid until the next call of this; the addresses until the end.
  [[nodiscard]] call arguments() { return owner_->arguments(); }

  /// Ends it. `ids` receives the outputs (one id per output, else misuse, and it is still open);
  /// `replay`, called as `replay(call&)`, makes them again: the same bits, in the same order. Where
  /// nothing is ever replayed it is not kept. A `kernel` that holds nothing: as without one.
  template <class F>
  void end(std::span<tensor_id> ids, F&& replay) {
    owner_->end(ids, std::forward<F>(replay));
    owner_ = nullptr;
  }
  /// Ends it without a kernel: what it has made can't be made again, as under trait::never_replay.
  /// For a program that learns so only once its kernel has run.
  void end(std::span<tensor_id> ids) { end(ids, kernel()); }
  /// Ends an operator with one output.
  template <class F>
    requires std::is_invocable_v<std::decay_t<F>&, call&>
  tensor_id end(F&& replay) {
    tensor_id made{};
    end(std::span(&made, 1), std::forward<F>(replay));
    return made;
  }

 private:
  friend Manager;
  explicit open_operator(Manager& m) noexcept : owner_(&m) {}
  Manager* owner_;
};

}  // namespace delta
