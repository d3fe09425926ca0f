// For builds without CUDA.
#include "backend/backend.hpp"
#include "device/cuda_error.hpp"

namespace delta::executor {

std::string_view cuda_support() noexcept {
  return {};
}

bool cuda_answers() noexcept {
  return false;
}

std::unique_ptr<backend> make_cuda_backend(const cuda_backend_options&) {
  raise(cuda_failure::kind::absent, "opening the GPU", {0, "none", "there is nothing to call"});
}

}  // namespace delta::executor
