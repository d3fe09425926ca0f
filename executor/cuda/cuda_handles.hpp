// delta executor: what the GPU's operators of a backend share: a stream, and cuBLAS on it. No CUDA
// header is needed to read this one.
#pragma once

#include <cstddef>

#include "device/cuda_api.hpp"
#include "kernels/gpu/engine.hpp"

struct cublasContext;

namespace delta::executor {

/// Lives as long as any operator that was bound with it. For one thread.
class cuda_handles {
 public:
  /// On the current device, whose compute capability's first number is `major`. Throws cuda_error.
  /// The stream must outlive this.
  cuda_handles(cuda_stream, int major, bool tf32, bytes workspace_cap);
  ~cuda_handles();
  cuda_handles(const cuda_handles&) = delete;
  cuda_handles& operator=(const cuda_handles&) = delete;

  /// Bytes that a product is given.
  [[nodiscard]] std::size_t product_workspace() const noexcept { return product_workspace_; }
  /// Throws cuda_error. `workspace` has product_workspace() bytes, aligned to 256.
  void multiply(const gpu::matrix_product&, std::byte* workspace);

  /// What a convolution may gather at a time, in bytes.
  [[nodiscard]] std::size_t gathered_bytes() const noexcept { return gathered_bytes_; }
  [[nodiscard]] cuda_stream stream() const noexcept { return stream_; }

 private:
  cuda_stream stream_;
  std::size_t product_workspace_, gathered_bytes_;
  cublasContext* blas_ = nullptr;
};

}  // namespace delta::executor
