// delta_torch: an operator as it ran, to be run again: its arguments without the bytes of tensors,
// and the state of the thread that its bits depend on.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "arguments.hpp"
#include "delta/kernel.hpp"
#include "random_state.hpp"
#include "replaying.hpp"

namespace delta_torch {

/// A storage of the operator, as a replay finds it.
struct storage_role {
  static constexpr std::int32_t none = -1;
  static constexpr std::size_t largest_value = 16;  ///< bytes: a complex number's
  std::int32_t input = none;                        ///< its place among the inputs
  std::int32_t update = none;                       ///< or among what is updated
  std::size_t size = 0;                             ///< bytes
  bool is_value = false;  ///< a number of the program's text, as `x + 1` has: it is `value`
  alignas(largest_value) std::array<std::byte, largest_value> value{};
};

/// What an operator needs to run again; holds no tensor.
struct recorded_operator {
  explicit recorded_operator(const c10::OperatorHandle& o) : op(o) {}

  c10::OperatorHandle op;
  std::uint32_t module = 0;
  const char* label = "";
  const operator_info* info = nullptr;
  c10::DispatchKeySet included, excluded;  ///< the thread's
  bool grad_mode = false, inference_mode = false, undefined = false, cleared = false;
  int threads = 0;
  signature which;                                 ///< what it costs is remembered by that
  random_state random;                             ///< of an operator that may draw
  std::int32_t random_input = storage_role::none;  ///< its place among the inputs
  std::vector<c10::IValue> stack;                  ///< tensors are left out
  std::vector<argument> arguments;
  std::vector<std::int64_t> numbers;  ///< sizes, then strides, of each argument in turn
  std::vector<storage_role> storages;
  std::vector<output> outputs;

  /// Runs it over the addresses of `c`.
  void run(delta::call& c);
  /// As good as new, for another operator, but with the memory of its lists.
  void clear();

 private:
  using storages_type = std::vector<c10::intrusive_ptr<c10::StorageImpl>>;
  storages_type storages_over(delta::call& c);
  torch::jit::Stack arguments_over(const storages_type&) const;
  void collect(delta::call& c, const torch::jit::Stack& results) const;
};

/// The stored kernel: gives its operator back to a pool, whose lock is the session's.
class replay_kernel {
 public:
  explicit replay_kernel(std::unique_ptr<recorded_operator> o) noexcept : operator_(std::move(o)) {}
  replay_kernel(replay_kernel&&) noexcept = default;
  replay_kernel& operator=(replay_kernel&&) = delete;
  ~replay_kernel();
  void operator()(delta::call& c) { operator_->run(c); }
  /// A recorded operator that is empty.
  static std::unique_ptr<recorded_operator> fresh(const c10::OperatorHandle&);

 private:
  std::unique_ptr<recorded_operator> operator_;
};

}  // namespace delta_torch
