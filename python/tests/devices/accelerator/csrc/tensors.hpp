// Device tensors seen from the device, and as PyTorch's meta tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>

namespace simulated {

/// What a kernel knows of a tensor: where its bytes are and how they lie. It keeps nothing alive;
/// that memory isn't given to anyone else too early is the allocator's business.
struct Region {
  std::byte* storage = nullptr;  // the real bytes
  std::size_t storage_bytes = 0;
  std::int64_t offset = 0;
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool conjugated = false;
  bool negated = false;

  std::size_t bytes() const;
};

inline bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_privateuseone();
}

Region region_of(const at::Tensor& tensor);
/// A CPU tensor over the region's bytes; for the device's thread only.
at::Tensor cpu_tensor(const Region& region);
/// A CPU tensor over host memory that nothing keeps alive.
Region host_region_of(const at::Tensor& tensor);
at::Tensor meta_tensor(const at::Tensor& tensor);

at::Tensor empty_on_device(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype);
/// Another tensor over the same storage.
at::Tensor view_of(const at::Tensor& base, at::IntArrayRef sizes, at::IntArrayRef strides,
                   std::int64_t offset, c10::ScalarType dtype);
/// Gives a tensor other sizes; its storage grows if it has to.
void resize_in_place(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                     std::int64_t offset);

}  // namespace simulated
