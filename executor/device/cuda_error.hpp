// delta executor: what can go wrong with CUDA, as one type that carries data.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "device/cuda_api.hpp"

namespace delta::executor {

/// What a failed call was, and what came of it.
struct cuda_failure {
  enum class kind : std::uint8_t {
    absent,          ///< this build has no CUDA
    no_device,       ///< no driver, or no device
    no_such_device,  ///< there are devices, but none of that number
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

/// What the runtime's code means; `failed` for codes without a meaning of their own here. O(1).
[[nodiscard]] cuda_failure::kind kind_of(int code) noexcept;

/// Throws the cuda_error of a failed call. `extra` is put after what CUDA says, as a clause of its
/// own: what was asked for, say.
[[noreturn]] void raise(const char* call, const cuda_status&, std::string_view extra = {});
/// The same, where more is known than the code tells: the kind is given.
[[noreturn]] void raise(cuda_failure::kind, const char* call, const cuda_status&,
                        std::string_view extra = {});
/// Throws if the call failed.
inline void check(const char* call, const cuda_status& s) {
  if (!s.ok()) raise(call, s);
}

/// Throws the error as one of the kind `lost` if the device can do nothing any more.
void raise_if_lost(cuda_api&, const cuda_error&);

/// Calls `f`. A cuda_error of it becomes one of the kind `lost` where the device's context is lost:
/// cuBLAS and cuDNN have numbers of their own for what they then can't do, and a launch is blamed
/// for what ran before it. After a failure the device is waited for.
template <class F>
auto naming_loss(cuda_api& api, const F& f) {
  try {
    return f();
  } catch (const cuda_error& e) {
    raise_if_lost(api, e);
    throw;
  }
}

/// Makes it the calling thread's current device, unless it is: CUDA's calls, launches and libraries
/// go to that one. A program with several devices does so before every call of theirs; asking costs
/// some nanoseconds. Throws cuda_error.
void make_current(cuda_api&, int device);
/// Throws cuda_error (no_such_device) with one line that says how many there are, where there is
/// none of that number; and what count_devices throws.
void check_device(cuda_api&, int device);

/// How many devices there are, at least one. Throws cuda_error: no driver, one that is too old for
/// this runtime, or no device.
int count_devices(cuda_api&);

}  // namespace delta::executor
