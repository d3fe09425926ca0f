// delta_torch: the fallback that sees every operator of a thread that is attached.
#pragma once

namespace delta_torch {

/// Registers the fallback, once per process. Throws std::runtime_error where the dispatch key is
/// taken.
void register_fallback();

/// Manages the operators of the calling thread, or does no longer; gives whether it did before.
bool manage_thread(bool on);

/// How the operators of a thread are dispatched.
struct thread_mode {
  bool included = false, excluded = false, within_callback = false;
};
/// The calling thread runs a callback of the program, on a thread of a process group perhaps: its
/// operators are managed from now on. Gives what was before, for `leave_callback`.
thread_mode enter_callback();
void leave_callback(const thread_mode&);

}  // namespace delta_torch
