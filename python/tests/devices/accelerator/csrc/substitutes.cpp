// Operators that PyTorch calls on a backend it doesn't know, and that no CPU kernel has: each is
// called as the CPU's operator that computes the same.
#include <ATen/SDPBackend.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <map>
#include <mutex>
#include <string>

#include "kernels.hpp"

namespace simulated {

namespace {

using torch::jit::Stack;

c10::OperatorHandle operation(const std::string& name) {
  static std::map<std::string, c10::OperatorHandle> known;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(name); found != known.end()) {
    return found->second;
  }
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
  known.emplace(name, op);
  return op;
}

void convolution(const c10::OperatorHandle& /*op*/, Stack* stack) {
  call_deferred(operation("aten::convolution"), stack);
}

void convolution_backward(const c10::OperatorHandle& op, Stack* stack) {
  const std::size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor& weight = (*stack)[first + 2].toTensor();
  const bool transposed = (*stack)[first + 6].toBool();
  const std::int64_t groups = (*stack)[first + 8].toInt();
  const std::int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  // aten::convolution_backward wants the bias's sizes after the weight.
  stack->insert(stack->begin() + static_cast<std::ptrdiff_t>(first) + 3,
                c10::IValue(std::vector<std::int64_t>{channels}));
  call_deferred(operation("aten::convolution_backward"), stack);
}

// Fused attention where the CPU has it; anything else is put together from other operators.
std::int64_t attention_choice(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const std::optional<at::Tensor>& mask,
                              double dropout, bool causal, std::optional<double> /*scale*/,
                              bool grouped) {
  const bool masked = mask && mask->defined();
  const bool fused = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && !masked &&
                     dropout == 0 && !grouped && query.is_floating_point() &&
                     query.size(3) == key.size(3) && query.size(3) == value.size(3) &&
                     query.numel() > 0 && key.numel() > 0 &&
                     (!causal || query.size(2) == key.size(2));
  return static_cast<std::int64_t>(fused ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

void attention(const c10::OperatorHandle& op, Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  const auto argument = [&](std::size_t i) { return (*stack)[stack->size() - count + i]; };
  const std::int64_t queries = argument(0).toTensor().sym_size(2).expect_int();
  const std::int64_t keys = argument(1).toTensor().sym_size(2).expect_int();
  Stack call{argument(0), argument(1), argument(2), argument(4),
             argument(5), argument(3), argument(7)};
  call_deferred(operation("aten::_scaled_dot_product_flash_attention_for_cpu"), &call);
  torch::jit::drop(*stack, count);
  // The backward takes what it needs from the first two; the rest is for other devices' kernels.
  for (c10::IValue value : {call[0], call[1], c10::IValue(at::Tensor()), c10::IValue(at::Tensor()),
                            c10::IValue(queries), c10::IValue(keys), c10::IValue(at::Tensor()),
                            c10::IValue(at::Tensor()), c10::IValue(at::Tensor())}) {
    stack->push_back(std::move(value));
  }
}

void attention_backward(const c10::OperatorHandle& op, Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  const auto argument = [&](std::size_t i) { return (*stack)[stack->size() - count + i]; };
  Stack call{argument(0), argument(1),  argument(2),  argument(3),   argument(6),
             argument(7), argument(12), argument(13), c10::IValue(), argument(16)};
  call_deferred(operation("aten::_scaled_dot_product_flash_attention_for_cpu_backward"), &call);
  torch::jit::drop(*stack, count);
  call.emplace_back(at::Tensor());  // no gradient for a mask: there is none
  stack->insert(stack->end(), call.begin(), call.end());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl("convolution_backward_overrideable",
         torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
  m.impl("_scaled_dot_product_fused_attention_overrideable",
         torch::CppFunction::makeFromBoxedFunction<&attention>());
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward",
         torch::CppFunction::makeFromBoxedFunction<&attention_backward>());
}

}  // namespace

}  // namespace simulated

namespace at::native {

// The macro wants the stub's own namespace.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &simulated::attention_choice)

}  // namespace at::native
