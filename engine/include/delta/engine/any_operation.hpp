// delta: an operator of any_manager.hpp: what it touches, and its kernel. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "delta/engine/any_tensor.hpp"
#include "delta/engine/c_interface.h"

namespace delta {
#if defined(__cpp_exceptions)
inline namespace with_exceptions {
#else
inline namespace without_exceptions {
#endif

/// What a kernel sees of its operator (kernel.hpp: call). Valid while the kernel runs; from
/// `open_operator::arguments` until the next call of that operator. Indices are not checked.
class any_call {
 public:
  explicit any_call(const delta_call* c) noexcept : call_(c) {}
  [[nodiscard]] std::byte* in(std::size_t i) const { return at(delta_call_in(call_, i)); }
  [[nodiscard]] std::byte* out(std::size_t i) const { return at(delta_call_out(call_, i)); }
  /// Null in a replay of an operator whose effects happen once.
  [[nodiscard]] std::byte* update(std::size_t i) const { return at(delta_call_update(call_, i)); }
  /// Null where the operator asked for fewer.
  [[nodiscard]] std::byte* workspace(std::size_t i = 0) const {
    return at(delta_call_workspace(call_, i));
  }
  [[nodiscard]] void* stream() const { return delta_call_stream(call_); }
  /// Seeds random generators: the same number in every replay.
  [[nodiscard]] std::uint64_t sequence() const { return delta_call_sequence(call_); }
  [[nodiscard]] bool replaying() const { return delta_call_replaying(call_) != 0; }

 private:
  static std::byte* at(void* p) noexcept { return static_cast<std::byte*>(p); }
  const delta_call* call_;
};

/// What an operator touches (kernel.hpp: operation_span), built up in one expression. Keeps
/// numbers, not references: the tensors must be alive when it is used.
///
/// `reads`, `makes` and `updates` add to their lists; the others replace.
///
///   any_operation("add").reads({a, b}).makes({bytes}).cost(50'000)
class any_operation {
 public:
  /// `name`: for errors and timelines; copied.
  explicit any_operation(std::string name = "operator") : name_(std::move(name)) {}
  any_operation& reads(std::initializer_list<any_detail::any_tensor_ref> tensors) {
    for (const any_detail::any_tensor_ref t : tensors) inputs_.push_back(t.id);
    return *this;
  }
  any_operation& reads(const std::vector<any_tensor>& tensors) {
    for (const any_tensor& t : tensors) inputs_.push_back(t.id());
    return *this;
  }
  /// Sizes of the outputs, in bytes. The kernel writes every byte.
  any_operation& makes(std::initializer_list<std::uint64_t> sizes) {
    outputs_.insert(outputs_.end(), sizes);
    return *this;
  }
  any_operation& makes(const std::vector<std::uint64_t>& sizes) {
    outputs_.insert(outputs_.end(), sizes.begin(), sizes.end());
    return *this;
  }
  /// Changed in place: a new version. Unless its trait is DELTA_EFFECT_ONCE, and nothing of it is
  /// read, the operator is not replayed: what it makes is offloaded, or stays.
  any_operation& updates(std::initializer_list<any_detail::any_tensor_ref> tensors) {
    for (const any_detail::any_tensor_ref t : tensors) updates_.push_back(t.id);
    return *this;
  }
  any_operation& updates(const std::vector<any_tensor>& tensors) {
    for (const any_tensor& t : tensors) updates_.push_back(t.id());
    return *this;
  }
  /// Bytes of scratch while the kernel runs.
  any_operation& workspace(std::uint64_t size) { return workspace_ = size, *this; }
  /// Of delta_trait, combined with |.
  any_operation& traits(unsigned t) { return traits_ = t, *this; }
  /// What it is expected to take, in ns; 0: not known.
  any_operation& cost(std::int64_t ns) { return cost_ = ns, *this; }

 private:
  template <class>
  friend class basic_any_manager;
  [[nodiscard]] delta_operation view() const noexcept {
    return {inputs_.data(),  inputs_.size(), outputs_.data(), outputs_.size(), updates_.data(),
            updates_.size(), workspace_,     traits_,         cost_,           name_.c_str()};
  }
  std::string name_;
  std::vector<delta_tensor> inputs_, updates_;
  std::vector<std::uint64_t> outputs_;
  std::uint64_t workspace_ = 0;
  unsigned traits_ = DELTA_PURE;
  std::int64_t cost_ = 0;
};

namespace any_detail {

// A callable as a kernel of C: `void(const any_call&)`, or `bool`, where false says that it failed.
template <class F>
struct any_kernel {
  F body;
  any_core* core;

  static int run(void* state, const delta_call* c) {
    auto& self = *static_cast<any_kernel*>(state);
#if defined(__cpp_exceptions)
    try {
      return self.invoke(any_call(c));
    } catch (...) {
      self.core->thrown = std::current_exception();
      return 1;
    }
#else
    return self.invoke(any_call(c));
#endif
  }
  static void destroy(void* state) { delete static_cast<any_kernel*>(state); }

 private:
  int invoke(const any_call& c) {
    if constexpr (std::is_same_v<std::invoke_result_t<F&, const any_call&>, bool>)
      return body(c) ? 0 : 1;
    else
      return body(c), 0;
  }
};

template <class F>
delta_kernel make_kernel(any_core* core, F&& body) {
  using kernel = any_kernel<std::decay_t<F>>;
  return {&kernel::run, &kernel::destroy, new kernel{std::forward<F>(body), core}};
}

}  // namespace any_detail

}  // inline namespace
}  // namespace delta
