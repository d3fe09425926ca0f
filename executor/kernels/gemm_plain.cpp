// A matrix product in loops, for programs without oneDNN: their tests compare a GPU's operators
// with the CPU's, on small shapes, and nothing else there multiplies on the CPU.
#include "kernels/gemm.hpp"

namespace delta::executor {

void gemm(op op_a, op op_b, std::ptrdiff_t m, std::ptrdiff_t n, std::ptrdiff_t k, const float* a,
          std::ptrdiff_t lda, const float* b, std::ptrdiff_t ldb, float beta, float* c,
          std::ptrdiff_t ldc) {
  const bool turn_a = op_a == op::transposed, turn_b = op_b == op::transposed;
  for (std::ptrdiff_t row = 0; row < m; ++row) {
    for (std::ptrdiff_t column = 0; column < n; ++column) {
      // In double, so that the order of the sum is nobody's business.
      double sum = 0;
      for (std::ptrdiff_t i = 0; i < k; ++i) {
        sum += double(turn_a ? a[i * lda + row] : a[row * lda + i]) *
               double(turn_b ? b[column * ldb + i] : b[i * ldb + column]);
      }
      float& to = c[row * ldc + column];
      to = float(beta == 0 ? sum : sum + double(beta) * double(to));
    }
  }
}

void keep_gemm_single() noexcept {}

}  // namespace delta::executor
