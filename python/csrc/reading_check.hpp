// delta_torch: of runs that check: operators made of others that read their tensors by themselves.
// They are found and named whether or not the bytes are away at the moment.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <utility>

#include "session.hpp"

namespace delta_torch {

/// Sees every such operator from now on, on threads whose operators are managed, or no longer:
/// while one is under way, its tensors may only be read by operators that the dispatcher sees.
/// Registers some 2,000 kernels: tens of milliseconds.
void check_reading(bool on);

/// The operator that has read this storage as it should is over. Under `state`.
void forbid_guarded(session&, c10::StorageImpl*);

/// Adds the operator's name where bytes were away that somebody read past the dispatcher.
void name_reader(c10::Error&, const c10::OperatorHandle&);

}  // namespace delta_torch
