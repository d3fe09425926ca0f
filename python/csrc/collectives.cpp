// delta_torch: the table of torch.distributed's operators.
#include "collectives.hpp"

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "arguments.hpp"
#include "operators.hpp"

namespace delta_torch {

namespace {

constexpr int nothing = -1;

struct known_operator {
  std::string_view name;
  collective_kind kind;
  int written;  // the argument that it writes, beside those that its schema declares
};

// Each of them is called by tests/distributed/test_collectives.py, but for the last group, whose
// operators FSDP calls (test_fsdp.py).
constexpr std::array known_operators{
    known_operator{"c10d::_allgather_base_", collective_kind::with_work, 0},
    known_operator{"c10d::_reduce_scatter_base_", collective_kind::with_work, 0},
    known_operator{"c10d::allgather_", collective_kind::with_work, 0},
    known_operator{"c10d::allgather_coalesced_", collective_kind::with_work, 0},
    known_operator{"c10d::allgather_into_tensor_coalesced_", collective_kind::with_work, 0},
    known_operator{"c10d::allreduce_", collective_kind::with_work, 0},
    known_operator{"c10d::allreduce_coalesced_", collective_kind::with_work, 0},
    known_operator{"c10d::alltoall_", collective_kind::with_work, 0},
    known_operator{"c10d::alltoall_base_", collective_kind::with_work, 0},
    known_operator{"c10d::barrier", collective_kind::with_work, nothing},
    known_operator{"c10d::broadcast_", collective_kind::with_work, 0},
    known_operator{"c10d::gather_", collective_kind::with_work, 0},
    known_operator{"c10d::recv_", collective_kind::with_work, 0},
    known_operator{"c10d::recv_any_source_", collective_kind::with_work, 0},
    known_operator{"c10d::reduce_", collective_kind::with_work, 0},
    known_operator{"c10d::reduce_scatter_", collective_kind::with_work, 0},
    known_operator{"c10d::reduce_scatter_tensor_coalesced_", collective_kind::with_work, 0},
    known_operator{"c10d::scatter_", collective_kind::with_work, 0},
    known_operator{"c10d::send", collective_kind::with_work, nothing},
    // Runs only where another extension has taken the key of waiting_operators' kernels.
    known_operator{"c10d::monitored_barrier_", collective_kind::none, nothing},

    known_operator{"_c10d_functional::all_gather_into_tensor", collective_kind::functional,
                   nothing},
    known_operator{"_c10d_functional::all_gather_into_tensor_coalesced",
                   collective_kind::functional, nothing},
    known_operator{"_c10d_functional::all_gather_into_tensor_out", collective_kind::functional,
                   nothing},
    known_operator{"_c10d_functional::all_reduce", collective_kind::functional, nothing},
    known_operator{"_c10d_functional::all_reduce_", collective_kind::functional, nothing},
    known_operator{"_c10d_functional::all_reduce_coalesced", collective_kind::functional, nothing},
    known_operator{"_c10d_functional::all_reduce_coalesced_", collective_kind::functional, nothing},
    known_operator{"_c10d_functional::all_to_all_single", collective_kind::functional, nothing},
    known_operator{"_c10d_functional::batch_p2p_ops", collective_kind::functional, 3},
    known_operator{"_c10d_functional::broadcast", collective_kind::functional, nothing},
    known_operator{"_c10d_functional::broadcast_", collective_kind::functional, nothing},
    known_operator{"_c10d_functional::irecv", collective_kind::functional, 0},
    known_operator{"_c10d_functional::isend", collective_kind::functional, nothing},
    known_operator{"_c10d_functional::reduce_scatter_tensor", collective_kind::functional, nothing},
    known_operator{"_c10d_functional::reduce_scatter_tensor_coalesced", collective_kind::functional,
                   nothing},

    // A wrapper of Python's around what is not waited for yet: it reads nothing.
    known_operator{"_c10d_functional::_wrap_tensor_autograd", collective_kind::none, nothing},
    // A copy: the collective comes behind it.
    known_operator{"fsdp::all_gather_copy_in", collective_kind::none, 1},
};

bool is_torchs(std::string_view name) {
  constexpr std::array<std::string_view, 5> namespaces{
      "c10d::", "_c10d_functional::", "c10d_functional::", "symm_mem::", "_dtensor::"};
  return std::ranges::any_of(namespaces, [&](std::string_view n) { return name.starts_with(n); });
}

bool is_of_type(const c10::Argument& a, std::string_view name) {
  return a.type()->annotation_str().ends_with(name);
}
constexpr std::string_view group_type = "c10d.ProcessGroup", work_type = "c10d.Work";

// Does a value of that type stand for other processes?
bool is_groups(const c10::Argument& a) {
  return a.name() == "group_name" || is_of_type(a, group_type) || is_of_type(a, work_type);
}

// Whatever it does: each tensor that it is given may be another one behind it.
void distrust(operator_info& info) {
  info.opaque = true;
  for (std::size_t i = 0; i < info.arguments.size(); ++i)
    info.written[i] = info.arguments[i] != argument_kind::none;
}

}  // namespace

void describe_collective(operator_info& info, const c10::FunctionSchema& schema) {
  const std::string_view name = info.name;
  const auto* const known = std::ranges::find(known_operators, name, &known_operator::name);
  if (known != known_operators.end()) {
    info.collective = known->kind;
    info.opaque = true;
    if (known->written != nothing) info.written[static_cast<std::size_t>(known->written)] = true;
    return;
  }
  if (is_torchs(name)) {
    info.collective = collective_kind::refused;
    return distrust(info);
  }
  if (std::ranges::any_of(schema.arguments(), is_groups) ||
      std::ranges::any_of(schema.returns(), is_groups)) {
    info.collective = collective_kind::unknown;
    distrust(info);
  }
}

const char* refused_group(const operator_info& info, const c10::OperatorHandle& op,
                          const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  const char* why = nullptr;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = stack[stack.size() - arguments.size() + i];
    if (info.arguments[i] != argument_kind::none)
      each_hidden_tensor(value, [&](const at::Tensor& t, std::int16_t) {
        if (t.defined() && (t.layout() != c10::kStrided || t.is_nested() || t.is_quantized()))
          why = "delta orders collectives of dense tensors alone";
      });
    if (!is_groups(arguments[i])) continue;
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    if (value.isString())
      group = c10d::resolve_process_group(value.toStringRef());
    else if (value.isCustomClass())
      group = value.toCustomClass<c10d::ProcessGroup>();
    if (!group ||
        !std::ranges::any_of(group->getDeviceTypes(), [](c10::Device d) { return d.is_cpu(); }) ||
        group->getBackend(c10::kCPU)->getBackendName() != "gloo")
      why = "delta orders collectives of the backend gloo alone";
  }
  return why;
}

c10::intrusive_ptr<c10d::Work> work_among(const c10::OperatorHandle& op,
                                          std::span<const c10::IValue> returned) {
  const auto& returns = op.schema().returns();
  for (std::size_t i = 0; i < returns.size(); ++i)
    if (is_of_type(returns[i], work_type) && returned[i].isCustomClass())
      return returned[i].toCustomClass<c10d::Work>();
  return nullptr;
}

}  // namespace delta_torch
