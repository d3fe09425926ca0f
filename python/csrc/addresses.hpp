// delta_torch: addresses of managed bytes that are taken past PyTorch's dispatcher: by extensions,
// by PyTorch's own composite functions, by `data_ptr()`.
//
// Whoever has such an address may write. From then on no host copy is taken for clean, nothing is
// computed again from these bytes or in their place, and the bytes stay where they are: those of a
// new tensor until the first operator uses it, as who makes a tensor by hand is done then; those of
// any other for good, as the address may be kept. Reading ways, as `const_data_ptr`, are not seen.
#pragma once

#include <c10/core/StorageImpl.h>

#include "session.hpp"

namespace delta_torch {

/// What storages call before they give such an address away. From any thread, without a lock;
/// throws c10::OutOfMemoryError where what was computed from the bytes has no room to come back.
void address_taken(c10::StorageImpl*);

/// The kernel of the operator under way, in Python, gets the address of an argument of its. Whether
/// it has written there shows at its end. O(bytes). Under the session's lock `state`.
void watch_bytes(session&, const entry&);
/// Has it? O(bytes).
[[nodiscard]] bool was_written(const session::scratch::watched_bytes&);

}  // namespace delta_torch
