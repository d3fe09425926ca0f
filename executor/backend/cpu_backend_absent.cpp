// For builds without the CPU's operators.
#include "backend/backend.hpp"

namespace delta::executor {

bool cpu_support() noexcept {
  return false;
}

std::unique_ptr<backend> make_cpu_backend(const cpu_backend_options&) {
  throw no_cpu_backend(
      "--device: this build is for GPUs and has none of the CPU's operators; allowed: cuda, or "
      "programs of another build (cmake --workflow --preset release)");
}

}  // namespace delta::executor
