// delta_torch: what an operator will allocate for its outputs, before its kernel runs: by PyTorch's
// own shape functions, those of the device "meta".
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "arguments.hpp"
#include "delta/kernel.hpp"

namespace delta_torch {

/// Of the operator whose arguments are on the stack. Runs its shape function when it is asked:
/// microseconds, or tens of them where that is in Python.
class output_sizes final : public delta::outputs_to_come {
 public:
  /// `arguments`: the tensors among them, with their sizes and strides in `numbers`. All of it has
  /// to live as long as this.
  output_sizes(const c10::OperatorHandle& op, const operator_info& info,
               const torch::jit::Stack& stack, std::span<const argument> arguments,
               std::span<const std::int64_t> numbers)
      : op_(op), info_(info), stack_(stack), arguments_(arguments), numbers_(numbers) {}

  /// Empty where the operator has no such function, or its sizes depend on its inputs' values; and
  /// for those of others, whose functions may read bytes.
  [[nodiscard]] std::span<const delta::bytes> sizes() override;

 private:
  using storages_type = std::vector<c10::intrusive_ptr<c10::StorageImpl>>;
  [[nodiscard]] storages_type storages() const;
  [[nodiscard]] torch::jit::Stack without_bytes(const storages_type&) const;
  void find(const torch::jit::Stack& results, const storages_type& given);

  const c10::OperatorHandle& op_;
  const operator_info& info_;
  const torch::jit::Stack& stack_;
  std::span<const argument> arguments_;
  std::span<const std::int64_t> numbers_;
  std::vector<delta::bytes> found_;
};

}  // namespace delta_torch
