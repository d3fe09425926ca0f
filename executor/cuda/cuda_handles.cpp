#include "cuda/cuda_handles.hpp"

#include <cublas_v2.h>

#include "device/cuda_error.hpp"

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

cuda_handles::cuda_handles(cuda_stream stream, bool tf32) : stream_(stream) {
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
  check(cublasSetWorkspace(blas_, workspace, product_workspace), "cublasSetWorkspace");
  const float one = 1.0f;
  // cuBLAS counts by columns. Read so, our rows are the transposed matrices, and
  // c^T = op(b)^T * op(a)^T: the operands change places.
  const auto m = std::int64_t(p.n), n = std::int64_t(p.m), k = std::int64_t(p.k);
  const auto first = turned(p.b.turned), second = turned(p.a.turned);
  const auto first_line = std::int64_t(p.b.line), second_line = std::int64_t(p.a.line);
  if (p.batch == 1) {
    check(cublasSgemm_64(blas_, first, second, m, n, k, &one, p.b.at, first_line, p.a.at,
                         second_line, &p.beta, p.c.at, std::int64_t(p.c.line)),
          "cublasSgemm");
    return;
  }
  check(cublasSgemmStridedBatched_64(
            blas_, first, second, m, n, k, &one, p.b.at, first_line, std::int64_t(p.b.step), p.a.at,
            second_line, std::int64_t(p.a.step), &p.beta, p.c.at, std::int64_t(p.c.line),
            std::int64_t(p.c.step), std::int64_t(p.batch)),
        "cublasSgemmStridedBatched");
}

}  // namespace delta::executor
