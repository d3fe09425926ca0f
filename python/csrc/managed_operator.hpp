// delta_torch: the fallback that sees every operator of a thread that is attached.
#pragma once

namespace delta_torch {

/// Registers the fallback, once per process. Throws std::runtime_error where the dispatch key is
/// taken.
void register_fallback();

/// Manages the operators of the calling thread, or does no longer; gives whether it did before.
bool manage_thread(bool on);

}  // namespace delta_torch
