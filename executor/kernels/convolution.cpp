// Convolution, forward: y = gathered input * transposed filter.
#include <cstring>

#include "kernels/convolution_blocks.hpp"
#include "kernels/gemm.hpp"
#include "kernels/kernels.hpp"

namespace delta::executor {
namespace convolution {

void gather_input(const conv_shape& s, const float* x, index first, index rows, index ky0,
                  index ky1, float* to) {
  const int oh = s.oh(), ow = s.ow();
  const index pixel = s.c, line = index(s.w) * s.c, part = index(s.kw) * s.c;
  int ox = int(first % ow), oy = int(first / ow % oh);
  index image = first / ow / oh;
  for (index r = 0; r < rows; ++r) {
    const int x0 = ox * s.stride - s.pad;
    const int left = std::clamp(-x0, 0, s.kw), right = std::clamp(s.w - x0, left, s.kw);
    for (index ky = ky0; ky < ky1; ++ky, to += part) {
      const index y = index(oy) * s.stride - s.pad + ky;
      if (y < 0 || y >= s.h || left == right) {
        std::memset(to, 0, sizeof(float) * std::size_t(part));
        continue;
      }
      const float* from = x + (image * s.h + y) * line + (x0 + left) * pixel;
      if (left > 0) std::memset(to, 0, sizeof(float) * std::size_t(left * pixel));
      std::memcpy(to + left * pixel, from, sizeof(float) * std::size_t((right - left) * pixel));
      if (right < s.kw) {
        std::memset(to + right * pixel, 0, sizeof(float) * std::size_t((s.kw - right) * pixel));
      }
    }
    if (++ox == ow) {
      ox = 0;
      if (++oy == oh) oy = 0, ++image;
    }
  }
}

}  // namespace convolution

namespace {

using namespace convolution;

/// A step is a filter row.
row_blocks cut_forward(const conv_shape& s) {
  const index depth = index(s.kw) * s.c;
  return cut_rows(index(s.n) * s.oh() * s.ow(), s.k, s.kh, depth, 1152 / depth);
}
std::size_t forward_scratch(const conv_shape& s) {
  const auto b = cut_forward(s);
  return line_bytes(b.rows * b.steps * s.kw * s.c);
}

}  // namespace

std::size_t conv_forward_workspace(const conv_shape& s, int threads) {
  return is_matrix_product(s) ? 0 : std::size_t(threads) * forward_scratch(s);
}

void conv_forward(thread_pool& pool, const conv_shape& s, const float* x, const float* filter,
                  float* y, std::byte* workspace) {
  const auto cut = cut_forward(s);
  const auto scratch = forward_scratch(s);
  const index part = index(s.kw) * s.c, depth = s.kh * part;
  pool.parallel_for(cut.tasks(), [&](std::size_t task, int worker) {
    const row_block b(cut, task);
    const float* weights = filter + b.column * depth;
    float* result = y + b.row * s.k + b.column;
    if (is_matrix_product(s)) {
      gemm(op::plain, op::transposed, b.rows, b.columns, depth, x + b.row * depth, depth, weights,
           depth, 0.0f, result, s.k);
      return;
    }
    auto* gathered = reinterpret_cast<float*>(workspace + std::size_t(worker) * scratch);
    for (index ky = 0; ky < s.kh; ky += cut.steps) {
      const index end = std::min<index>(ky + cut.steps, s.kh), width = (end - ky) * part;
      gather_input(s, x, b.row, b.rows, ky, end, gathered);
      gemm(op::plain, op::transposed, b.rows, b.columns, width, gathered, width,
           weights + ky * part, depth, ky == 0 ? 0.0f : 1.0f, result, s.k);
    }
  });
}

}  // namespace delta::executor
