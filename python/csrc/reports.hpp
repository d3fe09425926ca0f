// delta_torch: what Python reads of a run: its counts, samples, modules, addresses and last error.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace delta_torch {

/// Adds these functions to the module.
void add_reports(pybind11::module_&);

}  // namespace delta_torch
