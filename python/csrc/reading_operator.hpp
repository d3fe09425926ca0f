// delta_torch: operators that are made of others, and read their tensors by themselves before.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace delta_torch {

/// Registers kernels for them at a key of their own, `reading_key`; does nothing where another
/// extension has that key.
void register_reading(std::vector<c10::RegistrationHandleRAII>& registered);
/// True if they are registered.
[[nodiscard]] bool sees_reading() noexcept;

}  // namespace delta_torch
