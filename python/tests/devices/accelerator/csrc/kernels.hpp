// How an operator becomes work on a stream.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>

namespace simulated {

/// Calls an operator whose arguments are on the stack: what it returns is there when this ends, but
/// filled in only when the device comes to it.
void call_deferred(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Queues work on the current stream that takes as long as touching `bytes` bytes does. It runs
/// with no thread-local state of PyTorch's but "no autograd".
void enqueue(std::function<void()> work, std::size_t bytes, double bytes_per_second = 1e11);

struct KernelCounters {
  std::uint64_t deferred = 0;
  std::uint64_t immediate = 0;  // waited for, since their outputs' sizes depend on data
};
KernelCounters kernel_counters();

}  // namespace simulated
