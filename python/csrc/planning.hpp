// delta_torch: the class of recorded steps that the Python package's planning uses.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace delta_torch {

/// Adds it to the module.
void add_planning(pybind11::module_&);

}  // namespace delta_torch
