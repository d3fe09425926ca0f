// Convolution, forward: y = gathered input * transposed filter.
#include <cstring>

#include "kernels/convolution_blocks.hpp"
#include "kernels/gemm.hpp"
#include "kernels/grouped.hpp"
#include "kernels/kernels.hpp"

namespace delta::executor {
namespace convolution {

void gather_input(const conv_shape& s, const float* x, index first, index rows,
                  const window_part& part, float* to) {
  const index oh = s.oh(), ow = s.ow();
  const index pixel = s.c, line = index(s.w) * s.c, wide = part.kx_end - part.kx;
  index ox = first % ow, oy = first / ow % oh, image = first / ow / oh;
  for (index r = 0; r < rows; ++r) {
    const index x0 = ox * s.stride - s.pad + part.kx;
    const index left = std::clamp<index>(-x0, 0, wide);
    const index right = std::clamp<index>(s.w - x0, left, wide);
    for (index ky = part.ky; ky < part.ky_end; ++ky, to += wide * pixel) {
      const index y = oy * s.stride - s.pad + ky;
      if (y < 0 || y >= s.h || left == right) {
        std::memset(to, 0, sizeof(float) * std::size_t(wide * pixel));
        continue;
      }
      const float* from = x + (image * s.h + y) * line + (x0 + left) * pixel;
      if (left > 0) std::memset(to, 0, sizeof(float) * std::size_t(left * pixel));
      std::memcpy(to + left * pixel, from, sizeof(float) * std::size_t((right - left) * pixel));
      if (right < wide) {
        std::memset(to + right * pixel, 0, sizeof(float) * std::size_t((wide - right) * pixel));
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

constexpr index contracted_at_once = 1152;

struct forward_plan {
  window_steps steps;
  row_blocks cut;
  bool turns_filter;     ///< multiply by the transposed filter, made beforehand
  std::size_t filter;    ///< bytes of workspace for it
  std::size_t gathered;  ///< bytes of workspace per worker

  explicit forward_plan(const conv_shape& s) : steps(s, contracted_at_once) {
    const index depth = steps.rows * steps.columns * s.c;
    cut = cut_rows(index(s.n) * s.oh() * s.ow(), s.k, depth, !is_matrix_product(s));
    // sgemm would transpose the filter in every block of rows. Worth its own pass where there are
    // several blocks, if the filter is small beside a budget.
    turns_filter = cut.row_tasks() >= 4 && s.filter_size() <= 640 * 1024;
    filter = turns_filter ? line_bytes(index(s.filter_size())) : 0;
    gathered = is_matrix_product(s) ? 0 : line_bytes(cut.rows * depth);
  }
};

/// [k][depth] to [depth][k].
void transpose(thread_pool& pool, index k, index depth, const float* from, float* to) {
  constexpr index tile = 16;
  pool.parallel_for(ceil_div(std::size_t(depth), 4 * tile), [&](std::size_t task) {
    const index end = std::min(depth, (index(task) + 1) * 4 * tile);
    for (index d0 = index(task) * 4 * tile; d0 < end; d0 += tile) {
      for (index o0 = 0; o0 < k; o0 += tile) {
        for (index d = d0; d < std::min(end, d0 + tile); ++d) {
          for (index o = o0; o < std::min(k, o0 + tile); ++o) to[d * k + o] = from[o * depth + d];
        }
      }
    }
  });
}

}  // namespace

std::size_t conv_forward_workspace(const conv_shape& s, int threads) {
  check_groups(s);
  if (is_depthwise(s)) return depthwise_walk_workspace(s);
  if (s.groups > 1) return grouped_walk_workspace(s, true, threads);
  const forward_plan plan(s);
  return plan.filter + std::size_t(threads) * plan.gathered;
}

void conv_forward(thread_pool& pool, const conv_shape& s, const float* x, const float* filter,
                  float* y, std::byte* workspace) {
  check_groups(s);
  if (is_depthwise(s)) return depthwise_walk(pool, s, true, x, filter, y, workspace);
  if (s.groups > 1) return grouped_walk(pool, s, true, x, filter, y, workspace);
  const forward_plan plan(s);
  const index window = index(s.kh) * s.kw * s.c;
  auto* turned = reinterpret_cast<float*>(workspace);
  if (plan.turns_filter) transpose(pool, s.k, window, filter, turned);
  pool.parallel_for(plan.cut.tasks(), [&](std::size_t task, int worker) {
    const row_block b(plan.cut, task);
    auto* gathered =
        reinterpret_cast<float*>(workspace + plan.filter + std::size_t(worker) * plan.gathered);
    for (index step = 0; step < plan.steps.count(s); ++step) {
      const auto part = plan.steps.part(s, step);
      const index depth = part.taps() * s.c, at = (part.ky * s.kw + part.kx) * s.c;
      const float* rows = x + b.row * depth;
      if (!is_matrix_product(s)) {
        gather_input(s, x, b.row, b.rows, part, gathered);
        rows = gathered;
      }
      const float beta = step == 0 ? 0.0f : 1.0f;
      float* result = y + b.row * s.k + b.column;
      if (plan.turns_filter) {
        gemm(op::plain, op::plain, b.rows, b.columns, depth, rows, depth,
             turned + at * s.k + b.column, s.k, beta, result, s.k);
      } else {
        gemm(op::plain, op::transposed, b.rows, b.columns, depth, rows, depth,
             filter + b.column * window + at, window, beta, result, s.k);
      }
    }
  });
}

}  // namespace delta::executor
