// Calls of our own that no one is to see.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace simulated {

/// While it lives, operators go to the kernels at once: none of the keys that the caller's thread
/// has put in the way of every operator counts. Whatever watches operators sees those that are
/// called, not how we find their sizes.
class PlainDispatch {
 public:
  PlainDispatch()
      : force_(c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
               c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
                   c10::DispatchKeySet({c10::DispatchKey::Fake, c10::DispatchKey::Python,
                                        c10::DispatchKey::TESTING_ONLY_GenericMode})) {}

 private:
  c10::impl::ForceDispatchKeyGuard force_;
  at::NoGradGuard no_grad_;
};

}  // namespace simulated
