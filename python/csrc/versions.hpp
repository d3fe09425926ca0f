// delta_torch: what differs between the versions of PyTorch, 2.11 to 2.15. Nothing else in this
// folder asks for a version.
#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/core/StorageImpl.h>

#include <cstdlib>
#include <string_view>

namespace delta_torch {

/// The dispatch key whose fallback sees every operator: `Fake`, which stands below autograd and
/// has no kernels of its own. Where another extension has taken it, the environment variable
/// DELTA_TORCH_KEY may say TESTING_ONLY_GenericMode, which stands above autograd.
inline c10::DispatchKey dispatch_key() {
  static const c10::DispatchKey key = [] {
    const char* name = std::getenv("DELTA_TORCH_KEY");
    return name != nullptr && std::string_view(name) == "TESTING_ONLY_GenericMode"
               ? c10::DispatchKey::TESTING_ONLY_GenericMode
               : c10::DispatchKey::Fake;
  }();
  return key;
}

/// The key at which operators are seen that read tensors themselves before they call others, as
/// `reading_operators` says: above autograd, where they still are one operator.
inline constexpr c10::DispatchKey reading_key = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// The bytes of a storage have left, or are back. From 2.13 on, reading their address past the
/// dispatcher then raises `sentence`; before, PyTorch has no way back from that state, and such
/// reads find a null address.
template <class Storage>
void forbid_reading(Storage& storage, const char* sentence) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); })
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(sentence);
}
template <class Storage>
void allow_reading(Storage& storage) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); })
    storage.clear_data_ptr_access_error_msg_();
}

/// Does a storage tell who takes an address through which its bytes may be written? From 2.15 on.
template <class Storage>
inline constexpr bool tells_addresses =
    requires(Storage& s) { s.set_materializer(static_cast<void (*)(Storage*)>(nullptr)); };
/// Calls `taken`, once, when such an address is asked for; and does no longer. O(1).
template <class Storage>
void watch_addresses(Storage& storage, void (*taken)(Storage*)) {
  if constexpr (tells_addresses<Storage>)
    if (!storage.has_materializer()) storage.set_materializer(taken);
}
template <class Storage>
void ignore_addresses(Storage& storage) {
  if constexpr (tells_addresses<Storage>) storage.clear_materializer();
}

/// Ends copy on write: afterwards the storage has bytes of its own. Before 2.15 there is no member
/// that tells whether it is needed, and the call does nothing where it is not.
template <class Storage>
void end_copy_on_write(Storage& storage) {
  (void)storage.mutable_data();
}

}  // namespace delta_torch
