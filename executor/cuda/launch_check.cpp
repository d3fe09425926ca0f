#include "cuda/launch_check.hpp"

#include <cuda_runtime_api.h>

#include "device/cuda_error.hpp"

namespace delta::executor {

void check_launch(const char* what) {
  // Peeking costs some nanoseconds. Only an error is taken away, so that no later call is blamed.
  if (cudaPeekAtLastError() == cudaSuccess) return;
  const cudaError_t code = cudaGetLastError();
  raise(what, {int(code), cudaGetErrorName(code), cudaGetErrorString(code)});
}

}  // namespace delta::executor
