// The operators that are about memory, not numbers; and the fallback for all others.
#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include "current_stream.hpp"
#include "host_allocator.hpp"
#include "kernels.hpp"
#include "plain_dispatch.hpp"
#include "tensors.hpp"

namespace simulated {

namespace {

constexpr double transfer_bytes_per_second = 1e10;

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pinned) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::Layout::Strided,
              "simulated device: strided tensors only");
  TORCH_CHECK(!pinned.value_or(false), "only dense CPU tensors can be pinned");
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout> layout, std::optional<c10::Device> /*device*/,
                 std::optional<bool> pinned, std::optional<c10::MemoryFormat> format) {
  check_options(layout, pinned);
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(sizes, c10::GetAllocator(at::kPrivateUse1), keys,
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                         std::optional<c10::Device> /*device*/, std::optional<bool> pinned) {
  check_options(layout, pinned);
  return empty_on_device(sizes, strides, c10::dtype_or_default(dtype));
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef sizes) {
  return at::native::view(self, sizes);
}

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::native::_reshape_alias(self, sizes, strides);
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes,
                         std::optional<c10::MemoryFormat> format) {
  if (self.sizes() == sizes && !format) {
    return self;
  }
  // Strides as PyTorch chooses them.
  const PlainDispatch plain;
  at::Tensor model = at::empty(sizes, self.options().device(at::kMeta), format);
  resize_in_place(self, sizes, model.strides(), self.storage_offset());
  return self;
}

at::Tensor& set_to(at::Tensor& self, c10::Storage storage, std::int64_t offset,
                   at::IntArrayRef sizes, at::IntArrayRef strides) {
  TORCH_CHECK(storage.device().is_privateuseone(), "a storage on ", storage.device());
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
  const PlainDispatch plain;
  at::Tensor model = strides.data() != nullptr || sizes.empty()
                         ? at::Tensor()
                         : at::empty(sizes, self.options().device(at::kMeta));
  resize_in_place(self, sizes, model.defined() ? model.strides() : strides, offset);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage storage) {
  const auto count = static_cast<std::int64_t>(storage.nbytes() / self.itemsize());
  return set_to(self, std::move(storage), 0, {count}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_to(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  c10::Storage storage(c10::Storage::use_byte_size_t{}, 0, c10::GetAllocator(at::kPrivateUse1),
                       true);
  return set_to(self, std::move(storage), 0, {0}, {1});
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

// The other end of a copy is on the host. Only pinned memory can be left to the device; for other
// memory the host waits.
void copy_with_host(const Region& from, const Region& to, const at::Tensor& host,
                    bool non_blocking) {
  const std::size_t bytes = std::max(from.bytes(), to.bytes());
  enqueue([from, to] { cpu_tensor(to).copy_(cpu_tensor(from)); }, bytes, transfer_bytes_per_second);
  void* const address = const_cast<void*>(host.storage().data());
  if (!non_blocking || !HostAllocator::instance().owns(address)) {
    Scheduler::instance().synchronize(current_stream());
    return;
  }
  at::getHostAllocator(at::kPrivateUse1)
      ->record_event(address, host.storage().data_ptr().get_context(), as_stream(current_stream()));
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  if (self.numel() == 0 || self.is_same(target)) {
    return target;
  }
  const PlainDispatch plain;
  const at::Tensor source = self.expand(target.sizes());
  if (!on_device(source)) {
    TORCH_CHECK(source.is_cpu(), "a copy from ", source.device());
    copy_with_host(host_region_of(source), region_of(target), source, non_blocking);
  } else if (!on_device(target)) {
    TORCH_CHECK(target.is_cpu(), "a copy to ", target.device());
    copy_with_host(region_of(source), host_region_of(target), target, non_blocking);
  } else {
    const Region from = region_of(source);
    const Region to = region_of(target);
    enqueue([from, to] { cpu_tensor(to).copy_(cpu_tensor(from)); }, from.bytes() + to.bytes());
  }
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  if (target.sizes() != self.sizes()) {
    target.resize_(self.sizes());
  }
  return copy_from(self, target, false);
}

at::Scalar local_scalar(const at::Tensor& self) {
  at::Tensor host = at::detail::empty_cpu(self.sizes(), self.scalar_type());
  copy_from(self, host, false);
  const PlainDispatch plain;
  return host.item();
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::impl::VirtualGuardImpl(at::kPrivateUse1)
      .recordDataPtrOnStream(self.storage().data_ptr(), stream);
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  call_deferred(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("resize_", resize);
  m.impl("set_.source_Storage_storage_offset", set_to);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("set_", set_nothing);
  m.impl("is_set_to", is_set_to);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("record_stream", record_stream);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// These have kernels for all devices that would come before the fallback; the CPU's are others.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* const name : {"native_layer_norm", "native_group_norm", "linalg__powsum"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

// A copy keeps to the conjugate and negative bits by itself; PyTorch would first make a copy
// without the bit, which is this operator again.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace

}  // namespace simulated
