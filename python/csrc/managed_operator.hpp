// delta_torch: the fallback that sees every operator of a thread that is attached.
#pragma once

namespace delta_torch {

/// Registers the fallback, once per process. Throws std::runtime_error where the dispatch key is
/// taken.
void register_fallback();

}  // namespace delta_torch
