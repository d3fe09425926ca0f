// delta: a manager for programs that are C++17, have no exceptions, or compile no templates of
// delta: policy and observer are chosen by name at run time, errors are values or exceptions. C++17
// compiles this header; link delta::engine, which asks nothing of a target's language level.
//
//   delta::any_options options;
//   options.budget = 512'000'000;  // bytes
//   options.host_budget = 2'000'000'000;
//   delta::any_manager manager = delta::any_manager::make(options).value();
//   delta::any_tensor x = manager.variable(1u << 20, "x").value();
//   delta::any_tensor y =
//       manager.run(delta::any_operation("twice").reads({x}).makes({1u << 20}),
//                   [](const delta::any_call& c) { twice(c.in(0), c.out(0)); }).value();
//
// Functions give an any_result: a value, or an any_error. Those of delta::throwing_manager, which
// is the same otherwise, give the value and throw any_failure. See the same-named member in
// manager.hpp for meaning and cost; here names are copied. A kernel must not call the manager, and
// what it captures by reference must live as long as its outputs may be made again. After a failure
// the manager can be used on, but for DELTA_POISONED, DELTA_FAILED and, from within an operator,
// DELTA_OUT_OF_MEMORY. Nothing of delta that is C++20 is included; a program may use both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "delta/engine/any_operation.hpp"
#include "delta/engine/any_tensor.hpp"
#include "delta/engine/c_interface.h"

namespace delta {
#if defined(__cpp_exceptions)
inline namespace with_exceptions {
#else
inline namespace without_exceptions {
#endif

/// How a manager is made (delta_options has the same, as C).
struct any_options {
  std::uint64_t budget =
      0;  ///< bytes of device memory, asked for at once; all tensors and scratch count
  std::uint64_t host_budget =
      0;  ///< bytes of host memory, asked for at once; 0: nothing is offloaded
  std::string policy = "adaptive";  ///< a name of policy_names.hpp
  std::string observer;             ///< "": nobody; "timeline:FILE": a timeline for ui.perfetto.dev
  std::uint64_t granularity = 64;   ///< sizes and addresses are multiples of it; a power of two
  bool keep_addresses =
      false;  ///< blocks never slide together; what leaves may still come back elsewhere
  bool check_replays = false;  ///< a test of the kernels: observer.hpp
  /// The machine; null: the host's own memory. Copied; what its `self` points to outlives the
  /// manager, and all its tensors and views.
  const delta_device* device = nullptr;
  /// Gets a line of text when the manager has something to warn of, each warning once; null: it is
  /// written to stderr. It must not call the manager. `warn_self` is handed to it.
  void (*warn)(void* warn_self, const char* line) = nullptr;
  void* warn_self = nullptr;
  /// Is told where a tensor's bytes are from now on, or on their way to, and by null that they go;
  /// also while the manager is destroyed. For who shows tensors by address, with `keep_addresses`:
  /// else an address holds until something is allocated. It may copy and destroy tensors, and must
  /// not throw. Nothing: nobody is told.
  std::function<void(delta_tensor, std::byte*)> on_owner_changed;
};

/// The manager. `Errors` says what becomes of errors: errors_returned, or errors_thrown. A copy is
/// the same manager; one moved from can only be assigned to or destroyed. One thread at a time, the
/// copying and destroying of its tensors included.
template <class Errors>
class basic_any_manager {
  template <class T>
  using result = typename Errors::template result<T>;

 public:
  /// A manager of the policy that the options name. Fails with DELTA_UNKNOWN_POLICY,
  /// DELTA_BAD_OPTION, DELTA_OUT_OF_MEMORY.
  static result<basic_any_manager> make(const any_options& o) {
    basic_any_manager made;
    made.core_->on_owner_changed = o.on_owner_changed;
    const delta_options options{o.policy.c_str(),
                                o.budget,
                                o.host_budget,
                                o.granularity,
                                o.keep_addresses ? 1 : 0,
                                o.check_replays ? 1 : 0,
                                o.device,
                                o.observer.c_str(),
                                o.warn,
                                o.warn_self,
                                o.on_owner_changed ? &any_detail::any_core::tell : nullptr,
                                made.core_.get()};
    delta_error error;
    made.core_->manager = delta_create(&options, &error);
    if (made.core_->manager == nullptr)
      return Errors::template failed<basic_any_manager>(any_error(error));
    return made;
  }

  // --- tensors ----------------------------------------------------------------------------------

  /// `constant`: bytes that stay; `variable`: bytes that may be offloaded. Their contents are
  /// whatever the memory held: `write` them.
  result<any_tensor> constant(std::uint64_t size, const char* label = "constant") {
    delta_tensor t = 0;
    if (delta_constant(raw(), size, label, &t) != DELTA_OK) return failed<any_tensor>();
    return any_tensor(core_, t);
  }
  result<any_tensor> variable(std::uint64_t size, const char* label = "variable") {
    delta_tensor t = 0;
    if (delta_variable(raw(), size, label, &t) != DELTA_OK) return failed<any_tensor>();
    return any_tensor(core_, t);
  }
  /// The same of bytes that exist, with their contents. Where it fails the block is as it was.
  result<any_tensor> constant(any_block&& b, const char* label = "constant") {
    return adopted(b, &delta_constant_of, label);
  }
  result<any_tensor> variable(any_block&& b, const char* label = "variable") {
    return adopted(b, &delta_variable_of, label);
  }
  /// Bytes of the program's own: of a framework's allocator, say. Makes room.
  result<any_block> take_block(std::uint64_t size) {
    delta_block b{};
    if (delta_take_block(raw(), size, &b) != DELTA_OK) return failed<any_block>();
    return any_block(core_, b);
  }
  /// True if it can be made again: so an operator that writes over it may replace it.
  [[nodiscard]] bool recomputable(const any_tensor& t) const {
    return delta_recomputable(raw(), t.id()) != 0;
  }
  result<void> forbid(const any_tensor& t, delta_pin ways) {
    return done(delta_forbid(raw(), t.id(), ways));
  }
  /// A tensor's bytes, to be read.
  result<any_view> read(const any_tensor& t) { return acquire(t, 0); }
  /// The bytes of a variable or a constant, to be written: a new version.
  result<any_view> write(const any_tensor& t) { return acquire(t, 1); }

  // --- operators --------------------------------------------------------------------------------

  /// Runs an operator that has one output. `body` is called as `body(const any_call&)`, now and
  /// when the output has to be made again; if it returns bool, false says that it has failed.
  template <class F>
  result<any_tensor> run(const any_operation& op, F&& body) {
    if (op.outputs_.size() != 1) return Errors::template failed<any_tensor>(not_one_output("run"));
    return only(run_all(op, std::forward<F>(body)));
  }
  /// Runs an operator with any number of outputs, none included.
  template <class F>
  result<std::vector<any_tensor>> run_all(const any_operation& op, F&& body) {
    const delta_operation o = op.view();
    std::vector<delta_tensor> ids(o.output_count);
    if (delta_run(raw(), &o, any_detail::make_kernel(core_.get(), std::forward<F>(body)),
                  ids.data()) != DELTA_OK)
      return failed<std::vector<any_tensor>>();
    return own(ids);
  }

  /// An operator between begin and end; given up where it is destroyed without an end, and what it
  /// has updated stays updated. Where a function fails it is still open. After its end it can only
  /// be destroyed.
  class open_operator {
   public:
    open_operator(open_operator&& o) noexcept : core_(std::move(o.core_)), outputs_(o.outputs_) {
      o.core_ = nullptr;
    }
    open_operator& operator=(open_operator&&) = delete;
    ~open_operator() {
      if (core_) delta_abort(core_->manager);
    }
    /// One more output; its place among them.
    result<std::size_t> allocate(std::uint64_t size) {
      std::size_t place = 0;
      return added(delta_allocate(core_->manager, size, &place), place);
    }
    /// Several, for which room is made once; the place of the first. All, or where it fails none.
    result<std::size_t> allocate_all(const std::vector<std::uint64_t>& sizes) {
      std::size_t first = 0;
      return added(delta_allocate_all(core_->manager, sizes.data(), sizes.size(), &first), first,
                   sizes.size());
    }
    /// One whose bytes exist. Where it fails the block is as it was.
    result<std::size_t> allocate(any_block&& b) {
      std::size_t place = 0;
      const delta_status s = delta_allocate_block(core_->manager, b.raw(), &place);
      if (s == DELTA_OK) b.forget();
      return added(s, place);
    }
    /// One in the block of an input, which is made again when it is used; its kernel copies where
    /// both have an address of their own.
    result<std::size_t> replace(const any_tensor& input) {
      std::size_t place = 0;
      return added(delta_replace(core_->manager, input.id(), &place), place);
    }
    /// Several at once; the place of the first. All, or where it fails none.
    result<std::size_t> replace_all(const std::vector<any_tensor>& inputs) {
      std::vector<delta_tensor> ids;
      ids.reserve(inputs.size());
      for (const any_tensor& t : inputs) ids.push_back(t.id());
      std::size_t first = 0;
      return added(delta_replace_all(core_->manager, ids.data(), ids.size(), &first), first,
                   ids.size());
    }
    /// Scratch that only replays get; its place among the scratch.
    result<std::size_t> replay_workspace(std::uint64_t size) {
      std::size_t place = 0;
      return added(delta_replay_workspace(core_->manager, size, &place), place, 0);
    }
    /// One more piece of scratch, any number of times; its place among them.
    result<std::size_t> workspace(std::uint64_t size) {
      std::size_t place = 0;
      return added(delta_workspace(core_->manager, size, &place), place, 0);
    }
    /// All addresses. What was shown stays where it is: allocate first, ask then.
    result<any_call> arguments() {
      const delta_call* c = nullptr;
      if (delta_arguments(core_->manager, &c) != DELTA_OK)
        return Errors::template failed<any_call>(core_->error());
      return any_call(c);
    }
    /// Ends it; `replay` makes the outputs again, the same bits.
    template <class F>
    result<std::vector<any_tensor>> end_all(F&& replay) {
      std::vector<delta_tensor> ids(outputs_);
      if (delta_end(core_->manager, any_detail::make_kernel(core_.get(), std::forward<F>(replay)),
                    ids.data(), ids.size()) != DELTA_OK)
        return Errors::template failed<std::vector<any_tensor>>(core_->error());
      return basic_any_manager(std::exchange(core_, nullptr)).own(ids);
    }
    /// The same of an operator with one output.
    template <class F>
    result<any_tensor> end(F&& replay) {
      if (outputs_ != 1) return Errors::template failed<any_tensor>(not_one_output("end"));
      return only(end_all(std::forward<F>(replay)));
    }

   private:
    friend class basic_any_manager;
    // By reference: it is set where the status comes from.
    result<std::size_t> added(delta_status s, const std::size_t& place, std::size_t outputs = 1) {
      if (s != DELTA_OK) return Errors::template failed<std::size_t>(core_->error());
      outputs_ += outputs;
      return place;
    }
    open_operator(std::shared_ptr<any_detail::any_core> core, std::size_t outputs) noexcept
        : core_(std::move(core)), outputs_(outputs) {}
    std::shared_ptr<any_detail::any_core> core_;
    std::size_t outputs_;
  };
  result<open_operator> begin(const any_operation& op) {
    const delta_operation o = op.view();
    if (delta_begin(raw(), &o) != DELTA_OK) return failed<open_operator>();
    return open_operator(core_, o.output_count);
  }
  /// Releases tensors until so many bytes are free, for an allocator that has run out.
  result<void> make_room(std::uint64_t size) { return done(delta_make_room(raw(), size)); }

  // --- marks, and what happened -----------------------------------------------------------------

  /// The backward pass begins; matters to "paper" only.
  result<void> backward() { return done(delta_backward(raw())); }
  /// The step is over: without it the records of all steps are kept.
  result<void> end_of_step() { return done(delta_end_of_step(raw())); }
  [[nodiscard]] delta_counts counts() const {
    delta_counts c;
    delta_count(raw(), &c);
    return c;
  }

 private:
  basic_any_manager() : core_(std::make_shared<any_detail::any_core>()) {}
  explicit basic_any_manager(std::shared_ptr<any_detail::any_core> core) : core_(std::move(core)) {}
  [[nodiscard]] delta_manager* raw() const noexcept { return core_->manager; }
  template <class T>
  result<T> failed() {
    return Errors::template failed<T>(core_->error());
  }
  result<void> done(delta_status s) {
    if (s != DELTA_OK) return failed<void>();
    return result<void>();
  }
  result<any_view> acquire(const any_tensor& t, int writes) {
    delta_view v{};
    if (delta_acquire(raw(), t.id(), writes, &v) != DELTA_OK) return failed<any_view>();
    return any_view(core_, v);
  }
  template <class F>
  result<any_tensor> adopted(any_block& b, F adopt, const char* label) {
    delta_tensor t = 0;
    if (adopt(raw(), b.raw(), label, &t) != DELTA_OK) return failed<any_tensor>();
    b.forget();
    return any_tensor(core_, t);
  }
  std::vector<any_tensor> own(const std::vector<delta_tensor>& ids) {
    std::vector<any_tensor> made;
    made.reserve(ids.size());
    for (const delta_tensor id : ids) made.push_back(any_tensor(core_, id));
    return made;
  }
  static any_error not_one_output(const char* function) {
    delta_error e{};
    e.status = DELTA_MISUSE;
    std::snprintf(e.what, sizeof e.what,
                  "%s: for an operator with one output; %s_all has the others", function, function);
    return any_error(e);
  }
  static any_tensor only(std::vector<any_tensor>&& made) { return std::move(made.front()); }
  static any_result<any_tensor> only(any_result<std::vector<any_tensor>>&& made) {
    if (!made) return made.error();
    return only(std::move(made).value());
  }

  std::shared_ptr<any_detail::any_core> core_;
};

/// Errors are values.
using any_manager = basic_any_manager<any_detail::errors_returned>;
#if defined(__cpp_exceptions)
/// Errors are exceptions.
using throwing_manager = basic_any_manager<any_detail::errors_thrown>;
#endif

}  // inline namespace
}  // namespace delta
