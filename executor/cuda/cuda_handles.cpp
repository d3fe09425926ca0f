#include "cuda/cuda_handles.hpp"

#include <cublas_v2.h>

#include <algorithm>
#include <cstdint>

#include "device/cuda_error.hpp"
#include "kernels/gpu/column_major.hpp"

namespace delta::executor {
namespace {

cuda_failure::kind kind_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return cuda_failure::kind::out_of_memory;
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return cuda_failure::kind::unsupported;
    default:
      return cuda_failure::kind::failed;
  }
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  raise(kind_of(status), call,
        {int(status), cublasGetStatusName(status), cublasGetStatusString(status)});
}

cublasOperation_t turned(bool turn) {
  return turn ? CUBLAS_OP_T : CUBLAS_OP_N;
}

}  // namespace

cuda_handles::cuda_handles(cuda_stream stream, int major, bool tf32, bytes workspace_cap)
    : stream_(stream),
      product_workspace_(gpu::blas_workspace(major)),
      // Half of the cap: what else a convolution needs is small beside it. 64 MiB fill any GPU.
      gathered_bytes_(std::min(workspace_cap.count / 2, std::uint64_t(64) << 20)) {
  check(cublasCreate(&blas_), "cublasCreate");
  try {
    check(cublasSetStream(blas_, reinterpret_cast<cudaStream_t>(stream)), "cublasSetStream");
    check(cublasSetMathMode(blas_, tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH),
          "cublasSetMathMode");
    // The default, said aloud: without atomics, one stream gives the same bits every time.
    check(cublasSetAtomicsMode(blas_, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
  } catch (...) {
    cublasDestroy(blas_);
    throw;
  }
}

cuda_handles::~cuda_handles() {
  cublasDestroy(blas_);
}

void cuda_handles::multiply(const gpu::matrix_product& p, std::byte* workspace) {
  // Before each product: the workspace is the operator's, and moves from run to run.
  check(cublasSetWorkspace(blas_, workspace, product_workspace_), "cublasSetWorkspace");
  const float one = 1.0f;
  const auto c = gpu::column_major(p);
  if (c.batch == 1) {
    check(cublasSgemm_64(blas_, turned(c.turn_a), turned(c.turn_b), c.m, c.n, c.k, &one, c.a, c.lda,
                         c.b, c.ldb, &c.beta, c.c, c.ldc),
          "cublasSgemm");
    return;
  }
  check(cublasSgemmStridedBatched_64(blas_, turned(c.turn_a), turned(c.turn_b), c.m, c.n, c.k, &one,
                                     c.a, c.lda, c.a_step, c.b, c.ldb, c.b_step, &c.beta, c.c,
                                     c.ldc, c.c_step, c.batch),
        "cublasSgemmStridedBatched");
}

}  // namespace delta::executor
