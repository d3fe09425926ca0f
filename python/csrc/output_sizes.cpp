// delta_torch: calls PyTorch's shape functions for the sizes of an operator's outputs.
#include "output_sizes.hpp"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "replaying.hpp"
#include "session.hpp"
#include "versions.hpp"

namespace delta_torch {

namespace {

const c10::Device meta{c10::kMeta};

c10::intrusive_ptr<c10::StorageImpl> storage_without_bytes(std::size_t size) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<std::int64_t>(size),
      at::DataPtr(nullptr, meta), c10::GetAllocator(c10::kMeta), true);
}

// The operator itself warns, too.
class silent final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

}  // namespace

// As large as their tensors need, by the operator's numbers of them.
output_sizes::storages_type output_sizes::storages() const {
  std::vector<std::size_t> sizes;
  const std::int64_t* n = numbers_.data();
  for (const argument& a : arguments_) {
    std::int64_t end = a.offset + 1;
    for (std::size_t d = 0; d < a.dimensions; ++d) {
      if (n[d] == 0) end = 0;
      end += (n[d] - 1) * n[a.dimensions + d];
    }
    n += 2 * a.dimensions;
    if (a.storage >= sizes.size()) sizes.resize(a.storage + std::size_t{1});
    const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(end, 0)) * a.type.itemsize();
    sizes[a.storage] = std::max(sizes[a.storage], bytes);
  }
  storages_type made;
  for (const std::size_t size : sizes) made.push_back(storage_without_bytes(size));
  return made;
}

// What is no dense tensor stays what it is: then the function is not called.
torch::jit::Stack output_sizes::without_bytes(const storages_type& given) const {
  torch::jit::Stack made(stack_.end() - static_cast<std::ptrdiff_t>(info_.arguments.size()),
                         stack_.end());
  for (std::size_t i = 0; i < made.size(); ++i) {
    c10::IValue& value = made[i];
    if (value.isDevice()) value = meta;
    if (value.isTensorList()) value = value.toTensorList().copy();
    if (value.isOptionalTensorList()) value = value.toOptionalTensorList().copy();
  }
  const std::int64_t* n = numbers_.data();
  for (const argument& a : arguments_) {
    auto t = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(given[a.storage]), c10::DispatchKeySet(c10::DispatchKey::Meta), a.type);
    auto* impl = t.unsafeGetTensorImpl();
    impl->set_sizes_and_strides({n, a.dimensions}, {n + a.dimensions, a.dimensions});
    impl->set_storage_offset(a.offset);
    if (a.wrapped_number) impl->set_wrapped_number(true);
    n += 2 * a.dimensions;
    c10::IValue& place = made[a.position];
    if (a.element == argument::alone)
      place = std::move(t);
    else if (info_.arguments[a.position] == argument_kind::tensors)
      place.toTensorList().set(static_cast<std::size_t>(a.element), std::move(t));
    else
      place.toOptionalTensorList().set(static_cast<std::size_t>(a.element), std::move(t));
  }
  return made;
}

void output_sizes::find(const torch::jit::Stack& results, const storages_type& given) {
  std::vector<const c10::StorageImpl*> seen;
  for (const auto& s : given) seen.push_back(s.get());
  for (const c10::IValue& value : results)
    each_tensor(value, [&](const at::Tensor& t, std::int16_t) {
      if (!t.defined() || t.device() != meta || !t.has_storage()) return;
      const auto* const storage = t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
      if (std::ranges::find(seen, storage) != seen.end()) return;
      seen.push_back(storage);
      if (storage->nbytes() > 0) found_.push_back(delta::bytes{storage->nbytes()});
    });
}

std::span<const delta::bytes> output_sizes::sizes() {
  found_.clear();
  if (info_.foreign || info_.opaque) return found_;
  try {
    const storages_type given = storages();
    torch::jit::Stack values = without_bytes(given);
    for (const c10::IValue& value : values) {
      bool all = true;
      each_tensor(value, [&](const at::Tensor& t, std::int16_t) {
        all = all && (!t.defined() || t.device() == meta);
      });
      if (!all) return found_;
    }
    delta::call none({}, {}, {}, {}, nullptr, 0, true);
    const replaying aside(session::get().device(), none, {});  // what it allocates does not count
    silent quiet;
    const c10::WarningUtils::WarningHandlerGuard handler(&quiet);
    const c10::impl::ExcludeDispatchKeyGuard below(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::DispatchKeySet(dispatch_key()));
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &values);
    find(values, given);
  } catch (const std::exception&) {
    found_.clear();  // it has no such function, or one that wants values
  }
  return found_;
}

}  // namespace delta_torch
