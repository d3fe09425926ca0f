// delta_torch: which operators are torch.distributed's, and which of their arguments they write.
// Their schemas do not say it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <array>
#include <cstdint>
#include <span>

// c10d's headers take long to compile.
namespace c10d {
class Work;
}

namespace delta_torch {

struct operator_info;

/// How an operator of torch.distributed uses its tensors.
enum class collective_kind : std::uint8_t {
  none,        ///< as any other operator: not behind its return
  with_work,   ///< until the c10d::Work that it returns is completed
  functional,  ///< until its results are waited for, by `wait_tensor`
  unknown,     ///< it has a process group, and is none that is known here
  refused      ///< not tested under delta: it can't run within a run
};

/// Operators that wait for a collective or for other processes. No lock is held meanwhile, as the
/// threads of a process group allocate, and run callbacks of the program.
inline constexpr std::array waiting_operators{
    "_c10d_functional::wait_tensor", "_c10d_functional::wait_tensors", "c10d::monitored_barrier_"};

/// Adds to an operator's description, made of its schema, what torch.distributed's operators do
/// besides. None of these is ever run again by itself: the other processes would not do so, too.
void describe_collective(operator_info&, const c10::FunctionSchema&);

/// Why a collective with these arguments, the last of the stack, can't run within a run: by its
/// process group or its tensors; null: it can.
[[nodiscard]] const char* refused_group(const operator_info&, const c10::OperatorHandle&,
                                        const torch::jit::Stack&);
/// The work that an operator has returned; null: none.
[[nodiscard]] c10::intrusive_ptr<c10d::Work> work_among(const c10::OperatorHandle&,
                                                        std::span<const c10::IValue> returned);

}  // namespace delta_torch
