// delta executor: a product as BLAS wants it, which counts by columns. Internal to the kernels.
#pragma once

#include <cstdint>

#include "kernels/gpu/engine.hpp"

namespace delta::executor::gpu {

/// The arguments of BLAS's sgemm, in its order, alpha being one.
struct column_major_product {
  bool turn_a, turn_b;
  std::int64_t m, n, k;
  const float* a;
  std::int64_t lda, a_step;
  const float* b;
  std::int64_t ldb, b_step;
  float beta;
  float* c;
  std::int64_t ldc, c_step, batch;
};

/// Read by columns our rows are the transposed matrices, and c^T = b^T * a^T: the factors change
/// places, and nothing moves.
inline column_major_product column_major(const matrix_product& p) {
  return {p.b.turned,
          p.a.turned,
          std::int64_t(p.n),
          std::int64_t(p.m),
          std::int64_t(p.k),
          p.b.at,
          std::int64_t(p.b.line),
          std::int64_t(p.b.step),
          p.a.at,
          std::int64_t(p.a.line),
          std::int64_t(p.a.step),
          p.beta,
          p.c.at,
          std::int64_t(p.c.line),
          std::int64_t(p.c.step),
          std::int64_t(p.batch)};
}

}  // namespace delta::executor::gpu
