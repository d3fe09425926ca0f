// delta executor: what can go wrong with CUDA, as one type that carries data.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace delta::executor {

/// What a failed call was, and what came of it.
struct cuda_failure {
  enum class kind : std::uint8_t {
    absent,          ///< this build has no CUDA
    no_device,       ///< no driver, or no device
    driver_too_old,  ///< for this runtime
    out_of_memory,   ///< less is free than was asked for
    unsupported,     ///< the device or the driver can't do this
    lost,            ///< the device's context is gone: every later call fails, too
    failed           ///< anything else
  };
  kind what = kind::failed;
  std::string call;  ///< "cudaMemcpyAsync"
  int code = 0;      ///< CUDA's, cuBLAS's or cuDNN's
  std::string name;  ///< "cudaErrorMemoryAllocation"
};

/// A call of CUDA, cuBLAS or cuDNN that failed. what() is one line: the call, the code with its
/// name, what that means and what to do.
class cuda_error : public std::runtime_error {
 public:
  cuda_error(cuda_failure f, const std::string& line)
      : std::runtime_error(line), failure(std::move(f)) {}

  cuda_failure failure;
};

}  // namespace delta::executor
