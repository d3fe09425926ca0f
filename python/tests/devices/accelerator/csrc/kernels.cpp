#include "kernels.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <stdexcept>
#include <string_view>

#include "current_stream.hpp"
#include "generator.hpp"
#include "plain_dispatch.hpp"
#include "recipe.hpp"
#include "tensors.hpp"

namespace simulated {

namespace {

constexpr double launch_seconds = 2e-6;

std::atomic<std::uint64_t> deferred{0};
std::atomic<std::uint64_t> immediate{0};

// The default CPU generator starts from `seed` while a kernel that takes no generator runs.
class SeededDefault {
 public:
  explicit SeededDefault(std::uint64_t seed) : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
    generator_.set_current_seed(seed);
  }
  SeededDefault(const SeededDefault&) = delete;
  SeededDefault& operator=(const SeededDefault&) = delete;
  ~SeededDefault() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }

 private:
  at::Generator generator_;
  at::Tensor state_;
};

// A host tensor as it is now.
at::Tensor snapshot(const at::Tensor& tensor) {
  const PlainDispatch plain;
  at::Tensor copy = tensor.clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return copy;
}

// One call, as the device's thread makes it.
struct Call {
  c10::OperatorHandle op;
  Recipe recipe;
  std::vector<std::optional<Region>> regions;  // by entry; none: a host tensor or one made anew
  std::vector<at::Tensor> host;                // by entry
  std::optional<std::uint64_t> seed;

  Call(const c10::OperatorHandle& operation, Recipe&& made)
      : op(operation), recipe(std::move(made)) {}

  torch::jit::Stack run() const {
    std::vector<at::Tensor> table = host;
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (regions[i]) {
        table[i] = cpu_tensor(*regions[i]);
      }
    }
    std::optional<at::Generator> generator;
    std::optional<SeededDefault> seeded;
    if (seed && recipe.takes_generator()) {
      generator = at::detail::createCPUGenerator(*seed);
    } else if (seed) {
      seeded.emplace(*seed);
    }
    torch::jit::Stack stack = recipe.arguments(table, c10::DeviceType::CPU, generator);
    op.callBoxed(&stack);
    return stack;
  }

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& region : regions) {
      sum += region ? region->bytes() : 0;
    }
    return sum;
  }
};

// Operators that may be given indices on the host, as on other accelerators.
bool takes_host_indices(std::string_view name) {
  return name.find("index") != std::string_view::npos;
}

Call prepare(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  Call call(op, Recipe(op.schema(), stack));
  const auto& tensors = call.recipe.tensors();
  call.regions.resize(tensors.size());
  call.host.resize(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (on_device(tensor)) {
      continue;  // its region is known once out= arguments have their sizes
    }
    TORCH_CHECK(tensor.is_cpu(), op.schema().name(), ": a tensor is on ", tensor.device());
    TORCH_CHECK(tensor.dim() == 0 || takes_host_indices(op.schema().name()), op.schema().name(),
                ": Expected all tensors to be on the same device, but one is on the simulated "
                "device and one on the CPU");
    call.host[i] = call.recipe.is_written(i) ? tensor : snapshot(tensor);
  }
  if (op.hasTag(at::Tag::nondeterministic_seeded)) {
    call.seed = draw(call.recipe.generator());
  }
  return call;
}

void describe(Call& call) {
  const auto& tensors = call.recipe.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (on_device(tensors[i])) {
      call.regions[i] = region_of(tensors[i]);
    }
  }
}

// The argument that a result is, or is a view of.
const c10::IValue* aliased(const c10::FunctionSchema& schema, const c10::Argument& result,
                           const torch::jit::Stack& stack) {
  const c10::AliasInfo* const alias = result.alias_info();
  if (alias == nullptr) {
    return nullptr;
  }
  const auto& arguments = schema.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const other = arguments[i].alias_info();
    if (other != nullptr && other->beforeSets() == alias->beforeSets()) {
      return &stack[stack.size() - arguments.size() + i];
    }
  }
  return nullptr;
}

struct Result {
  c10::IValue value;          // what the caller gets
  std::vector<Region> fresh;  // what the kernel's results are copied into
};

// The tensors of a result, alone or in a list.
std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  if (value.isTensor()) {
    return {value.toTensor()};
  }
  return value.isTensorList() ? value.toTensorVector() : std::vector<at::Tensor>();
}

// What the caller gets for what a meta or a CPU kernel has returned.
Result device_result(const c10::FunctionSchema& schema, const c10::Argument& result,
                     const torch::jit::Stack& arguments, const c10::IValue& model) {
  const c10::IValue* const source = aliased(schema, result, arguments);
  if (source != nullptr && result.alias_info()->isWrite()) {
    return {*source, {}};
  }
  if (!model.isTensor() && !model.isTensorList()) {
    return {model, {}};
  }
  Result made;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : tensors_in(model)) {
    at::Tensor own;
    if (!tensor.defined()) {
    } else if (source != nullptr && source->isTensor()) {
      own = view_of(source->toTensor(), tensor.sizes(), tensor.strides(), tensor.storage_offset(),
                    tensor.scalar_type());
    } else {
      own = empty_on_device(tensor.sizes(), tensor.strides(), tensor.scalar_type());
      made.fresh.push_back(region_of(own));
    }
    list.push_back(own);
  }
  made.value = model.isTensor() ? c10::IValue(list.get(0)) : c10::IValue(list);
  return made;
}

// Copies a kernel's results to where the caller's tensors are.
void deliver(const c10::OperatorHandle& op, const c10::IValue& result,
             const std::vector<Region>& fresh) {
  if (fresh.empty()) {
    return;
  }
  auto target = fresh.begin();
  for (const at::Tensor& tensor : tensors_in(result)) {
    if (!tensor.defined()) {
      continue;
    }
    TORCH_CHECK(target != fresh.end() && tensor.sizes() == at::IntArrayRef(target->sizes) &&
                    tensor.scalar_type() == target->dtype,
                op.schema().operator_name(), ": the meta kernel foretold ",
                target == fresh.end() ? "nothing" : c10::str(at::IntArrayRef(target->sizes)), ' ',
                target == fresh.end() ? c10::ScalarType::Undefined : target->dtype,
                ", the CPU's has made ", tensor.sizes(), ' ', tensor.scalar_type());
    cpu_tensor(*target++).copy_(tensor);
  }
  TORCH_CHECK(target == fresh.end(), op.schema().operator_name(),
              ": the CPU kernel has made fewer tensors than the meta kernel foretold");
}

bool returns_only_tensors(const c10::FunctionSchema& schema) {
  return std::ranges::all_of(schema.returns(), [](const c10::Argument& result) {
    const auto& type = result.type();
    return type->isSubtypeOf(*c10::TensorType::get()) ||
           type->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

// Where the CPU's kernels return something else than the meta kernels say of a device that they
// don't know.
void correct(const Call& call, const torch::jit::Stack& arguments, torch::jit::Stack& foretold) {
  const c10::FunctionSchema& schema = call.op.schema();
  if (schema.name() == "aten::convolution") {
    // channels_last for channels_last: the numbers are the same, but what follows goes by strides.
    const at::Tensor& input = arguments[0].toTensor();
    const at::Tensor& weight = arguments[1].toTensor();
    for (const auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d}) {
      if (input.suggest_memory_format() == format || weight.suggest_memory_format() == format) {
        foretold[0] = foretold[0].toTensor().contiguous(format);
      }
    }
  } else if (schema.name() == "aten::native_batch_norm" ||
             schema.name() == "aten::_native_batch_norm_legit") {
    // Nothing is saved but in training.
    const auto training = schema.argumentIndexWithName("training");
    if (training && !arguments[static_cast<std::size_t>(*training)].toBool()) {
      for (const std::size_t saved : {1, 2}) {
        foretold[saved] = foretold[saved].toTensor().new_empty({0});
      }
    }
  }
}

// Its meta kernel is made for other devices: it foretells other sizes than the CPU's kernel.
bool is_foretold_wrongly(std::string_view name) {
  return name == "aten::_embedding_bag" || name == "aten::_embedding_bag_forward_only";
}

// What the meta kernel returns; nothing if it can't tell.
std::optional<torch::jit::Stack> foretell(const Call& call, std::vector<at::Tensor>& metas) {
  if (call.op.hasTag(at::Tag::dynamic_output_shape) ||
      call.op.hasTag(at::Tag::data_dependent_output) || !returns_only_tensors(call.op.schema()) ||
      is_foretold_wrongly(call.op.schema().name())) {
    return std::nullopt;
  }
  const auto& tensors = call.recipe.tensors();
  metas = call.host;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (on_device(tensors[i])) {
      metas[i] = meta_tensor(tensors[i]);
    } else if (call.recipe.is_written(i) || tensors[i].dim() > 0) {
      return std::nullopt;
    } else {
      // Not the queued call's own: what Python sees gets an object there, which the device's thread
      // could free only with the lock that the host may wait with.
      metas[i] =
          at::Tensor::wrap_tensor_impl(call.host[i].unsafeGetTensorImpl()->shallow_copy_and_detach(
              c10::VariableVersion(0), false));
    }
  }
  torch::jit::Stack stack =
      call.recipe.arguments(metas, c10::DeviceType::Meta, std::optional<at::Generator>());
  try {
    const PlainDispatch plain;
    const torch::jit::Stack arguments = stack;
    call.op.callBoxed(&stack);
    correct(call, arguments, stack);
  } catch (const std::exception&) {
    // No meta kernel; or the call is wrong, which the CPU kernel will say better.
    return std::nullopt;
  }
  return stack;
}

// The out= arguments that the meta kernel has resized.
void resize_outputs(const Call& call, const std::vector<at::Tensor>& models) {
  const auto& tensors = call.recipe.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (on_device(tensors[i]) && call.recipe.is_written(i) && models[i].defined() &&
        (tensors[i].sizes() != models[i].sizes() || tensors[i].strides() != models[i].strides())) {
      resize_in_place(tensors[i], models[i].sizes(), models[i].strides(),
                      models[i].storage_offset());
    }
  }
}

void call_later(Call&& call, const torch::jit::Stack& foretold,
                const std::vector<at::Tensor>& metas, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = call.op.schema();
  resize_outputs(call, metas);
  describe(call);
  torch::jit::Stack results;
  std::vector<std::vector<Region>> fresh;
  std::size_t bytes = call.bytes();
  for (std::size_t i = 0; i < schema.returns().size(); ++i) {
    Result result = device_result(schema, schema.returns()[i], *stack, foretold[i]);
    for (const Region& region : result.fresh) {
      bytes += region.bytes();
    }
    results.push_back(std::move(result.value));
    fresh.push_back(std::move(result.fresh));
  }
  call.recipe.forget();
  enqueue(
      [call = std::move(call), fresh = std::move(fresh)] {
        const torch::jit::Stack made = call.run();
        for (std::size_t i = 0; i < fresh.size(); ++i) {
          deliver(call.op, made[i], fresh[i]);
        }
      },
      bytes);
  torch::jit::drop(*stack, schema.arguments().size());
  stack->insert(stack->end(), results.begin(), results.end());
  ++deferred;
}

void call_now(Call&& call, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = call.op.schema();
  const auto& tensors = call.recipe.tensors();
  describe(call);
  // An out= argument gets its size from the kernel, which must not resize the device's memory.
  std::vector<bool> made_anew(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (on_device(tensors[i]) && call.recipe.is_out(i)) {
      made_anew[i] = true;
      call.regions[i].reset();
      call.host[i] = at::detail::empty_cpu({0}, tensors[i].scalar_type());
    }
  }
  torch::jit::Stack made;
  std::exception_ptr error;
  const std::size_t bytes = call.bytes();
  enqueue(
      [&] {
        try {
          made = call.run();
        } catch (...) {
          error = std::current_exception();
        }
      },
      bytes);
  Scheduler::instance().synchronize(current_stream());
  if (error) {
    std::rethrow_exception(error);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (made_anew[i]) {
      const at::Tensor& source = call.host[i];
      if (tensors[i].sizes() != source.sizes()) {
        resize_in_place(tensors[i], source.sizes(), source.strides(), tensors[i].storage_offset());
      }
      enqueue([source, target = region_of(tensors[i])] { cpu_tensor(target).copy_(source); },
              source.nbytes());
    }
  }
  torch::jit::Stack results;
  for (std::size_t i = 0; i < schema.returns().size(); ++i) {
    Result result = device_result(schema, schema.returns()[i], *stack, made[i]);
    if (!result.fresh.empty()) {
      enqueue([op = call.op, value = made[i], fresh = result.fresh] { deliver(op, value, fresh); },
              result.fresh[0].bytes());
    }
    results.push_back(std::move(result.value));
  }
  torch::jit::drop(*stack, schema.arguments().size());
  stack->insert(stack->end(), results.begin(), results.end());
  ++immediate;
}

}  // namespace

void enqueue(std::function<void()> work, std::size_t bytes, double bytes_per_second) {
  Scheduler::instance().enqueue(
      current_stream(),
      [work = std::move(work)] {
        const at::AutoDispatchBelowADInplaceOrView below;
        const at::NoGradGuard no_grad;
        try {
          work();
        } catch (const c10::Error& error) {
          // It is thrown again in some later wait, where this thread's stack says nothing.
          throw std::runtime_error(error.what_without_backtrace());
        }
      },
      launch_seconds + static_cast<double>(bytes) / bytes_per_second);
}

void call_deferred(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call call = prepare(op, *stack);
  std::vector<at::Tensor> metas;
  if (const auto foretold = foretell(call, metas)) {
    call_later(std::move(call), *foretold, metas, stack);
  } else {
    call_now(std::move(call), stack);
  }
}

KernelCounters kernel_counters() {
  return {deferred, immediate};
}

}  // namespace simulated
