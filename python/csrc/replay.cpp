// delta_torch: replays.
#include "replay.hpp"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <optional>
#include <utility>

#include "allocator.hpp"
#include "errors.hpp"
#include "session.hpp"
#include "versions.hpp"

namespace delta_torch {

namespace {

c10::intrusive_ptr<c10::StorageImpl> storage_over(at::DataPtr&& data, std::size_t size) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                               static_cast<std::int64_t>(size), std::move(data),
                                               c10::GetAllocator(data.device().type()), false);
}
c10::intrusive_ptr<c10::StorageImpl> storage_at(std::byte* at, std::size_t size,
                                                c10::Device device = managed_device()) {
  return storage_over(at::DataPtr(at, device), size);
}
// Bytes that the replay alone has.
c10::intrusive_ptr<c10::StorageImpl> scratch_storage(std::size_t size) {
  at::DataPtr memory = session::get().device().scratch(size);
  if (memory.get() == nullptr) throw std::bad_alloc();
  return storage_over(std::move(memory), size);
}

// Restores what an operator's bits depend on besides its arguments, and puts it back.
class as_it_was {
 public:
  as_it_was(const recorded_operator& o, delta::call& c)
      : keys_(o.included, o.excluded),
        autograd_(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                  c10::DispatchKeySet(dispatch_key())),
        grad_mode_(c10::AutogradState::get_tls_state().get_grad_mode()),
        inference_mode_(c10::AutogradState::get_tls_state().get_inference_mode()),
        threads_(at::get_num_threads()) {
    set(o.grad_mode, o.inference_mode);
    if (o.threads != threads_) at::set_num_threads(o.threads);
    if (!o.random.is_taken()) return;
    target& device = session::get().device();
    const replaying aside(device, c, {});  // the copies are not the operator's
    random_.emplace(device.generator(), o.random,
                    o.random_input == storage_role::none
                        ? nullptr
                        : c.in(static_cast<std::size_t>(o.random_input)));
  }
  ~as_it_was() {
    random_.reset();
    if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
    set(grad_mode_, inference_mode_);
  }
  as_it_was(const as_it_was&) = delete;
  as_it_was& operator=(const as_it_was&) = delete;

 private:
  static void set(bool grad, bool inference) {
    auto& state = c10::AutogradState::get_tls_state();
    state.set_grad_mode(grad);
    state.set_inference_mode(inference);
  }
  c10::impl::ForceDispatchKeyGuard keys_;
  c10::impl::ExcludeDispatchKeyGuard autograd_;
  bool grad_mode_, inference_mode_;
  int threads_;
  std::optional<random_state::restored> random_;
};

}  // namespace

recorded_operator::storages_type recorded_operator::storages_over(delta::call& c) {
  storages_type made(storages.size());
  for (std::size_t i = 0; i < storages.size(); ++i) {
    storage_role& s = storages[i];
    if (s.input != storage_role::none)
      made[i] = storage_at(c.in(static_cast<std::size_t>(s.input)), s.size);
    else if (s.update != storage_role::none)
      made[i] = scratch_storage(s.size);  // it happens once: a replay's goes nowhere
    else if (s.is_value)
      made[i] = storage_at(s.value.data(), s.size, c10::kCPU);
    else
      made[i] = storage_at(nullptr, 0);  // a tensor without bytes
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const output& o = outputs[i];
    if (o.overwritten == output::none) continue;
    auto& old = made[static_cast<std::size_t>(o.overwritten)];
    session::get().device().copy(c.out(i), old->data(), o.size);
    old = storage_at(c.out(i), o.size);
  }
  return made;
}

torch::jit::Stack recorded_operator::arguments_over(const storages_type& over) const {
  torch::jit::Stack made = stack;
  // A list's length stands in its place.
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto kind = info->arguments[i];
    if (!made[i].isInt()) continue;
    const auto length = static_cast<std::size_t>(made[i].toInt());
    if (kind == argument_kind::tensors) {
      c10::List<at::Tensor> list;
      list.resize(length);
      made[i] = std::move(list);
    } else if (kind == argument_kind::optional_tensors) {
      c10::List<std::optional<at::Tensor>> list;
      list.resize(length);
      made[i] = std::move(list);
    }
  }
  const std::int64_t* n = numbers.data();
  for (const argument& a : arguments) {
    auto t =
        at::detail::make_tensor<c10::TensorImpl>(c10::Storage(over[a.storage]), a.keys, a.type);
    auto* impl = t.unsafeGetTensorImpl();
    impl->set_sizes_and_strides({n, a.dimensions}, {n + a.dimensions, a.dimensions});
    impl->set_storage_offset(a.offset);
    n += 2 * a.dimensions;
    if (a.requires_grad) impl->set_requires_grad(true);
    if (a.wrapped_number) impl->set_wrapped_number(true);
    c10::IValue& place = made[a.position];
    if (a.element == argument::alone)
      place = std::move(t);
    else if (info->arguments[a.position] == argument_kind::tensors)
      place.toTensorList().set(static_cast<std::size_t>(a.element), std::move(t));
    else
      place.toOptionalTensorList().set(static_cast<std::size_t>(a.element), std::move(t));
  }
  return made;
}

// What was not made in its block is copied there.
void recorded_operator::collect(delta::call& c, const torch::jit::Stack& results) const {
  std::int32_t returned = 0;
  for (const c10::IValue& value : results)
    each_tensor(value, [&](const at::Tensor& t, std::int16_t) {
      const std::int32_t place = returned++;
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const output& o = outputs[i];
        if (o.returned != place) continue;
        const auto* storage = storage_of(t);
        TORCH_CHECK(storage != nullptr && storage->nbytes() <= o.size, "delta: ", info->name,
                    " gives other sizes when it runs again, so its result depends on more than its "
                    "arguments: make that an argument, or keep what it computes by "
                    "delta_torch.keep(module)");
        if (storage->data() == c.out(i) || storage->nbytes() == 0) continue;
        session::get().device().copy(c.out(i), storage->data(), storage->nbytes());
        ++session::get().past().own.replay_copies;
      }
    });
}

void recorded_operator::run(delta::call& c) {
  RECORD_USER_SCOPE("delta::recompute " + info->name);  // a range of PyTorch's profiler
  target& device = session::get().device();
  if (auto* const hashes = session::get().hashes(); hashes != nullptr && c.replaying())
    hashes->replays(label);
  // Its scratch is allocated on the current device.
  const c10::OptionalDeviceGuard there(device.device().is_cpu() ? std::nullopt
                                                                : std::optional(device.device()));
  const target::on_compute here_in_order(device);
  if (undefined) {  // any contents will do; where replays are compared it is zeros
    for (std::size_t i = 0; cleared && i < outputs.size(); ++i)
      device.clear(c.out(i), outputs[i].size);
    return;
  }
  // Scratch is PyTorch's to give: it takes the place of delta's.
  if (c.workspace() != nullptr) session::get().memory().lend(c.workspace());
  device.expect(which);
  const auto began = std::chrono::steady_clock::now();
  {
    const as_it_was state(*this, c);
    const auto over = storages_over(c);
    auto values = arguments_over(over);
    const replaying here(device, c, outputs, cleared);
    try {
      op.callBoxed(&values);
    } catch (const no_scratch& e) {
      throw c10::OutOfMemoryError(
          {__func__, __FILE__, __LINE__},
          out_of_memory(info->name + " runs again: " + e.what_without_backtrace()));
    }
    collect(c, values);
    values.clear();
  }
  session::get().past().replayed(
      module, std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count());
}

void recorded_operator::clear() {
  random = {};
  random_input = storage_role::none;
  stack.clear();
  arguments.clear();
  numbers.clear();
  storages.clear();
  outputs.clear();
}

namespace {
// Of so many that a step needs no new ones; more than that are freed.
std::vector<std::unique_ptr<recorded_operator>>& pool() {
  static auto& one = *new std::vector<std::unique_ptr<recorded_operator>>;
  return one;
}
constexpr std::size_t most_pooled = 16384;
}  // namespace

replay_kernel::~replay_kernel() {
  if (operator_ == nullptr) return;
  operator_->clear();
  if (pool().size() < most_pooled) pool().push_back(std::move(operator_));
}

std::unique_ptr<recorded_operator> replay_kernel::fresh(const c10::OperatorHandle& op) {
  if (pool().empty()) return std::make_unique<recorded_operator>(op);
  auto made = std::move(pool().back());
  pool().pop_back();
  made->op = op;
  return made;
}

}  // namespace delta_torch
