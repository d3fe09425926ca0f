// For builds without CUDA: there is no runtime.
#include "device/cuda_api.hpp"

namespace delta::executor {

std::unique_ptr<cuda_api> make_cuda_runtime() {
  return nullptr;
}

}  // namespace delta::executor
