#include "kernels/gemm.hpp"

#include <dnnl.h>

#include <stdexcept>

namespace delta::executor {

void gemm(op op_a, op op_b, std::ptrdiff_t m, std::ptrdiff_t n, std::ptrdiff_t k, const float* a,
          std::ptrdiff_t lda, const float* b, std::ptrdiff_t ldb, float beta, float* c,
          std::ptrdiff_t ldc) {
  if (dnnl_sgemm(char(op_a), char(op_b), m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc) !=
      dnnl_success) {
    throw std::runtime_error("dnnl_sgemm refused its arguments");
  }
}

}  // namespace delta::executor
