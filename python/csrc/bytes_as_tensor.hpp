// delta_torch: bytes at an address as a tensor, and operators on it that no run sees.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>
#include <cstdint>

#include "versions.hpp"

namespace delta_torch {

/// A tensor of bytes over memory that it does not own.
[[nodiscard]] inline at::Tensor bytes_at(void* at, std::size_t size, c10::Device device) {
  const auto count = static_cast<std::int64_t>(size);
  c10::Storage storage(c10::Storage::use_byte_size_t(), count, at::DataPtr(at, device),
                       c10::GetAllocator(device.type()), false);
  const auto type = caffe2::TypeMeta::Make<std::uint8_t>();
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(c10::computeDispatchKey(c10::ScalarType::Byte, c10::kStrided, device)),
      type);
  made.unsafeGetTensorImpl()->set_sizes_contiguous({count});
  return made;
}

/// While it lives operators of this thread go straight to their device's kernels: past autograd,
/// the run, and what is written in Python.
class unmanaged_calls {
 public:
  unmanaged_calls()
      : keys_({}, c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::python_ks |
                      c10::DispatchKeySet(dispatch_key()) | c10::DispatchKeySet(reading_key)) {}
  unmanaged_calls(const unmanaged_calls&) = delete;
  unmanaged_calls& operator=(const unmanaged_calls&) = delete;

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
};

}  // namespace delta_torch
