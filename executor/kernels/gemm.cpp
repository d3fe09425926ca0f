#include "kernels/gemm.hpp"

#include <dnnl.h>

#include <stdexcept>

// OpenMP's own, of any compiler. Its header comes with g++ alone.
extern "C" void omp_set_num_threads(int threads);

namespace delta::executor {

void gemm(op op_a, op op_b, std::ptrdiff_t m, std::ptrdiff_t n, std::ptrdiff_t k, const float* a,
          std::ptrdiff_t lda, const float* b, std::ptrdiff_t ldb, float beta, float* c,
          std::ptrdiff_t ldc) {
  if (dnnl_sgemm(char(op_a), char(op_b), m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc) !=
      dnnl_success) {
    throw std::runtime_error("dnnl_sgemm refused its arguments");
  }
}

// oneDNN sizes its team by the calling thread's OpenMP setting.
void keep_gemm_single() noexcept {
  omp_set_num_threads(1);
}

}  // namespace delta::executor
