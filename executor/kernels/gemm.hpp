// delta executor: the one door to oneDNN (gemm.cpp), or to what stands in for it where only tests
// compute on the CPU (gemm_plain.cpp). Internal to the kernels.
#pragma once

#include <cstddef>

namespace delta::executor {

enum class op : char { plain = 'N', transposed = 'T' };

/// c = op(a) * op(b) + beta * c on the calling thread, all row-major: op(a) is m x k, op(b) k x n,
/// c m x n; `ld*` are the lengths of the stored rows in floats. With beta = 0, c is only written.
/// Bits depend on the arguments' sizes alone. Throws std::runtime_error if oneDNN refuses.
///
/// oneDNN takes packing buffers from the heap and frees them before it returns: with the block
/// sizes the kernels use, up to 1.1 MiB per thread for ResNet-50 (version 2.6, AVX-512). Apart from
/// 0.4 MiB of code generated at first use, nothing stays allocated.
void gemm(op op_a, op op_b, std::ptrdiff_t m, std::ptrdiff_t n, std::ptrdiff_t k, const float* a,
          std::ptrdiff_t lda, const float* b, std::ptrdiff_t ldb, float beta, float* c,
          std::ptrdiff_t ldc);

/// Keeps gemm() from starting threads of its own when this thread calls it.
void keep_gemm_single() noexcept;

}  // namespace delta::executor
