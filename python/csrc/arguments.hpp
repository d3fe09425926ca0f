// delta_torch: the tensors among an operator's arguments and results.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/StorageImpl.h>

#include <array>
#include <cstdint>

#include "operators.hpp"
#include "target.hpp"

namespace delta_torch {

/// A tensor argument as a replay makes it again; sizes and strides are in a list beside it.
struct argument {
  static constexpr std::int16_t alone = -1;
  std::uint16_t position = 0;    ///< among the operator's arguments
  std::int16_t element = alone;  ///< in a list
  std::uint16_t storage = 0;     ///< among the operator's storages
  std::uint16_t dimensions = 0;
  bool requires_grad = false, wrapped_number = false;
  caffe2::TypeMeta type;
  std::int64_t offset = 0;
  c10::DispatchKeySet keys;
};

/// Calls `f(tensor, element)` for each tensor of a value; `element` is -1 for one that is alone,
/// and for those within anything else than a list of tensors.
template <class F>
void each_tensor(const c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    f(value.toTensor(), argument::alone);
  } else if (value.isTensorList()) {
    const auto list = value.toTensorList();
    for (std::size_t i = 0; i < list.size(); ++i) f(list.get(i), static_cast<std::int16_t>(i));
  } else if (value.isOptionalTensorList()) {
    const auto list = value.toOptionalTensorList();
    for (std::size_t i = 0; i < list.size(); ++i)
      if (const auto& t = list.get(i); t.has_value()) f(*t, static_cast<std::int16_t>(i));
  }
}

/// The same of a value that may hide them: within dictionaries, tuples, objects.
template <class F>
void each_hidden_tensor(const c10::IValue& value, F&& f) {
  value.visit([&](const c10::IValue& inner) {
    if (inner.isTensor()) f(inner.toTensor(), argument::alone);
    return false;
  });
}

/// A tensor that Python handles itself: a subclass with __torch_dispatch__, a fake tensor.
[[nodiscard]] inline bool is_pythons(const at::Tensor& t) {
  return t.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python);
}

/// The storage of a dense tensor of the device that is managed; null: it is none.
[[nodiscard]] inline c10::StorageImpl* storage_of(const at::Tensor& t) {
  const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  if (!impl->has_storage() || impl->layout() != c10::kStrided ||
      impl->device() != managed_device() || is_pythons(t))
    return nullptr;
  return impl->unsafe_storage().unsafeGetStorageImpl();
}

/// The dense tensors that a sparse one is made of, or by which a nested one is laid out; undefined
/// ones where it has fewer. For any other, none.
std::array<at::Tensor, 3> parts_of(const at::Tensor&);

}  // namespace delta_torch
