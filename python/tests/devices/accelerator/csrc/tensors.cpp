#include "tensors.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/Allocator.h>

#include "memory.hpp"

namespace simulated {

namespace {

constexpr c10::DispatchKeySet device_keys(c10::DispatchKey::PrivateUse1);

Region geometry_of(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == c10::Layout::Strided, "simulated device: strided tensors only");
  Region region;
  region.offset = tensor.storage_offset();
  region.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  region.strides.assign(tensor.strides().begin(), tensor.strides().end());
  region.dtype = tensor.scalar_type();
  region.conjugated = tensor.is_conj();
  region.negated = tensor.is_neg();
  region.storage_bytes = tensor.storage().nbytes();
  return region;
}

}  // namespace

std::size_t Region::bytes() const {
  std::size_t count = c10::elementSize(dtype);
  for (const std::int64_t size : sizes) {
    count *= static_cast<std::size_t>(size);
  }
  return count;
}

Region region_of(const at::Tensor& tensor) {
  Region region = geometry_of(tensor);
  if (const void* const address = tensor.storage().data(); address != nullptr) {
    region.storage = DeviceMemory::instance().real(address, region.storage_bytes);
  } else {
    region.storage_bytes = 0;
  }
  return region;
}

Region host_region_of(const at::Tensor& tensor) {
  Region region = geometry_of(tensor);
  region.storage = const_cast<std::byte*>(static_cast<const std::byte*>(tensor.storage().data()));
  return region;
}

at::Tensor cpu_tensor(const Region& region) {
  c10::Storage storage(c10::Storage::use_byte_size_t{}, region.storage_bytes,
                       c10::DataPtr(region.storage, c10::DeviceType::CPU));
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         c10::scalarTypeToTypeMeta(region.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(region.sizes, region.strides, region.offset);
  tensor._set_conj(region.conjugated);
  tensor._set_neg(region.negated);
  return tensor;
}

at::Tensor meta_tensor(const at::Tensor& tensor) {
  const auto bytes = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(),
                                                      tensor.itemsize(), tensor.storage_offset());
  c10::Storage storage(c10::Storage::use_byte_size_t{}, bytes,
                       c10::DataPtr(nullptr, c10::DeviceType::Meta),
                       c10::GetAllocator(c10::DeviceType::Meta), true);
  auto meta = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::Meta), tensor.dtype());
  meta.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  meta._set_conj(tensor.is_conj());
  meta._set_neg(tensor.is_neg());
  return meta;
}

at::Tensor empty_on_device(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype) {
  // Asked for at every call: a run may have put its own allocator in the place of ours.
  return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(at::kPrivateUse1),
                                           device_keys, dtype);
}

at::Tensor view_of(const at::Tensor& base, at::IntArrayRef sizes, at::IntArrayRef strides,
                   std::int64_t offset, c10::ScalarType dtype) {
  auto view =
      at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base.storage()),
                                               base.key_set(), c10::scalarTypeToTypeMeta(dtype));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return view;
}

void resize_in_place(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                     std::int64_t offset) {
  const auto bytes = at::detail::computeStorageNbytes(sizes, strides, tensor.itemsize(),
                                                      static_cast<std::size_t>(offset));
  if (bytes > tensor.storage().nbytes()) {
    TORCH_CHECK(tensor.storage().resizable(), "simulated device: the storage can't be resized");
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(tensor.storage(), bytes);
  }
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
}

}  // namespace simulated
