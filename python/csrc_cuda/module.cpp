// delta_torch: the module delta_torch._cuda, which gives CUDA's part to delta_torch._C.
#include <torch/csrc/utils/pybind.h>

#include "cuda_part.hpp"

namespace py = pybind11;

namespace delta_torch {

namespace {

// Each module hides its symbols, so a part crosses as an address, and only its virtual functions
// are called on the other side.
void use() {
  const py::capsule part(static_cast<void*>(&cuda_part()), device_part_capsule);
  py::module_::import("delta_torch._C").attr("adopt_part")(part, "cuda");
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "CUDA's part of delta_torch; not for programs. Importing it needs no GPU.";
  m.def("use", use);
}

}  // namespace delta_torch
