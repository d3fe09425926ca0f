// delta_torch: the dense parts of nested and of sparse tensors.
#include "arguments.hpp"

#include <ATen/NestedTensorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>

namespace delta_torch {

std::array<at::Tensor, 3> parts_of(const at::Tensor& t) {
  if (t.is_nested() && !is_pythons(t)) {
    const auto* const nested = at::native::get_nested_tensor_impl(t);
    return {nested->get_nested_sizes(), nested->get_nested_strides(),
            nested->get_storage_offsets()};
  }
  const at::AutoDispatchBelowADInplaceOrView plain;
  switch (t.layout()) {
    case c10::kSparse:
      return {t._indices(), t._values(), {}};
    case c10::kSparseCsr:
    case c10::kSparseBsr:
      return {t.crow_indices(), t.col_indices(), t.values()};
    case c10::kSparseCsc:
    case c10::kSparseBsc:
      return {t.ccol_indices(), t.row_indices(), t.values()};
    default:
      return {};
  }
}

}  // namespace delta_torch
