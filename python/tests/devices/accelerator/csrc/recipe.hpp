// An operator's arguments, apart from the tensors they name.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

namespace simulated {

/// The same call is made with meta tensors, to learn sizes, and with CPU tensors over the device's
/// bytes. The recipe says which tensor goes where; a table holds the tensors. A tensor that is
/// passed twice is one entry, so that it is one tensor in both calls, too.
class Recipe {
 public:
  Recipe(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  /// Is the entry an out= argument, one that the kernel may resize?
  bool is_out(std::size_t entry) const { return out_[entry]; }
  bool is_written(std::size_t entry) const { return written_[entry]; }
  bool takes_generator() const { return takes_generator_; }
  const std::optional<at::Generator>& generator() const { return generator_; }

  /// Lets go of the caller's tensors and generator: what is queued must not keep memory alive, or a
  /// free that comes too early would do no harm.
  void forget();

  /// The call's arguments with the tensors of another table.
  torch::jit::Stack arguments(const std::vector<at::Tensor>& table, c10::Device device,
                              const std::optional<at::Generator>& generator) const;

 private:
  enum class Kind { constant, tensor, tensors, optional_tensors, device, generator };
  struct Slot {
    Kind kind = Kind::constant;
    c10::IValue constant;
    std::vector<int> entries;  // -1: an undefined or absent tensor
  };

  int entry_of(const at::Tensor& tensor, const c10::Argument& argument);

  std::vector<Slot> slots_;
  std::vector<at::Tensor> tensors_;
  std::vector<bool> out_;
  std::vector<bool> written_;
  bool takes_generator_ = false;
  std::optional<at::Generator> generator_;
};

}  // namespace simulated
