// Reading Thrust and the standard library costs most of what nvcc takes, so there are two such
// files, not seven: one for each of two cores.
#include "cuda/bind.hpp"
#include "cuda/cuda_engine.cuh"
#include "cuda/own_operators.hpp"

namespace delta::executor::gpu {

bound_operator own_operator(const handles_pointer& handles, const hyper_pointer& hyper,
                            operator_type type, const conv_shape& shape) {
  return bind_operator(cuda_engine(handles), hyper, type, shape);
}
bound_operator own_operator(const handles_pointer& handles, const hyper_pointer& hyper,
                            operator_type type, const bn_shape& shape) {
  return bind_operator(cuda_engine(handles), hyper, type, shape);
}

}  // namespace delta::executor::gpu
