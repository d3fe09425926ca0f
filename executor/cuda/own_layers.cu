// Reading Thrust and the standard library costs most of what nvcc takes, so there are two such
// files, not seven: one for each of two cores.
#include "cuda/bind.hpp"
#include "cuda/cuda_engine.cuh"
#include "cuda/own_operators.hpp"

namespace delta::executor::gpu {

bound_operator own_operator(const handles_pointer& handles, const hyper_pointer& hyper,
                            operator_type type, const pool_shape& shape) {
  return bind_operator(cuda_engine(handles), hyper, type, shape);
}
bound_operator own_operator(const handles_pointer& handles, const hyper_pointer& hyper,
                            operator_type type, const average_shape& shape) {
  return bind_operator(cuda_engine(handles), hyper, type, shape);
}
bound_operator own_operator(const handles_pointer& handles, const hyper_pointer& hyper,
                            operator_type type, const linear_shape& shape) {
  return bind_operator(cuda_engine(handles), hyper, type, shape);
}
bound_operator own_operator(const handles_pointer& handles, const hyper_pointer& hyper,
                            operator_type type, const dropout_shape& shape) {
  return bind_operator(cuda_engine(handles), hyper, type, shape);
}
bound_operator own_operator(const handles_pointer& handles, const hyper_pointer& hyper,
                            operator_type type, const element_count& shape) {
  return bind_operator(cuda_engine(handles), hyper, type, shape);
}
bound_operator own_operator(const handles_pointer& handles, const hyper_pointer& hyper,
                            operator_type type, const update_shape& shape) {
  return bind_operator(cuda_engine(handles), hyper, type, shape);
}

}  // namespace delta::executor::gpu
