// delta executor: device memory that is kept free by taking it.
#pragma once

#include <string>
#include <utility>

#include "device/cuda_api.hpp"
#include "device/cuda_error.hpp"

namespace delta::executor {

/// CUDA and its libraries load kernels when they are first launched, and take device memory then.
/// Held from before the arena is taken until the first launch, a reserve sees to it that neither
/// the arena nor other programs have that memory by then.
class cuda_reserve {
 public:
  /// Throws cuda_error: out_of_memory where less is free. `api` outlives it.
  cuda_reserve(cuda_api& api, bytes n) : api_(api) {
    if (const cuda_status s = api_.malloc(&at_, n); !s.ok())
      raise(
          "cudaMalloc", s,
          std::to_string(n.count >> 20) + " MiB were asked for, for kernels that are loaded later");
  }
  ~cuda_reserve() {
    if (at_ != nullptr) api_.free(at_);
  }
  cuda_reserve(const cuda_reserve&) = delete;
  cuda_reserve& operator=(const cuda_reserve&) = delete;

  [[nodiscard]] bool held() const noexcept { return at_ != nullptr; }
  /// Before the first launch; later calls do nothing.
  void give_back() {
    if (at_ != nullptr) check("cudaFree", api_.free(std::exchange(at_, nullptr)));
  }

 private:
  cuda_api& api_;
  std::byte* at_ = nullptr;
};

}  // namespace delta::executor
