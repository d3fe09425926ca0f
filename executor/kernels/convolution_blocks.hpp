// delta executor: how the convolutions are cut into blocks. Internal to the kernels.
//
// Every convolution here is a product of matrices over blocks of pixels ("im2col" by blocks): rows
// are gathered into a worker's scratch, small enough for its second-level cache, and multiplied by
// oneDNN's sgemm. All block sizes depend on the convolution's shape alone, so that the bits of a
// result do not depend on the number of threads; a worker only lends its scratch.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/kernels.hpp"
#include "kernels/vectorise.hpp"

namespace delta::executor::convolution {

using index = std::ptrdiff_t;

constexpr index divide_up(index a, index b) noexcept {
  return (a + b - 1) / b;
}

/// Bytes of `floats` floats, to the next cache line.
constexpr std::size_t line_bytes(index floats) noexcept {
  return ceil_div(std::size_t(floats) * sizeof(float), 64) * 64;
}

/// No padding, stride one, one tap: the tensors are the matrices, and nothing is gathered.
constexpr bool is_matrix_product(const conv_shape& s) noexcept {
  return s.kh == 1 && s.kw == 1 && s.stride == 1 && s.pad == 0;
}

/// The size of equal parts of `total`, none above `limit`, in multiples of `unit`.
constexpr index even_part(index total, index limit, index unit) noexcept {
  const index part = divide_up(total, divide_up(total, std::max(limit, unit)));
  return divide_up(part, unit) * unit;
}

/// Floats of gathered rows per worker: what leaves room in a second-level cache of 1 MiB.
inline constexpr index scratch_floats = 192 * 1024;

/// A cut of result = gathered * weights: rows and columns of the result per task, and how many of
/// the contracted dimension's steps (filter rows, or taps) are gathered at a time.
struct row_blocks {
  index all_rows, all_columns;
  index rows, columns, steps;
  [[nodiscard]] index row_tasks() const { return divide_up(all_rows, rows); }
  [[nodiscard]] std::size_t tasks() const {
    return std::size_t(row_tasks() * divide_up(all_columns, columns));
  }
};

/// One task's part of a cut.
struct row_block {
  index row, rows, column, columns;
  row_block(const row_blocks& b, std::size_t task)
      : row(index(task) % b.row_tasks() * b.rows),
        rows(std::min(b.rows, b.all_rows - row)),
        column(index(task) / b.row_tasks() * b.columns),
        columns(std::min(b.columns, b.all_columns - column)) {}
};

/// The cut for `steps` steps of `depth` contracted elements each, `most` steps at a time.
constexpr row_blocks cut_rows(index all_rows, index all_columns, index steps, index depth,
                              index most) noexcept {
  row_blocks b{all_rows, all_columns, 0, 0, 0};
  b.steps = std::clamp<index>(most, 1, steps);
  b.columns = even_part(all_columns, 512, 16);
  const index fitting = std::clamp<index>(scratch_floats / (b.steps * depth), 48, 1024);
  b.rows = even_part(all_rows, std::min(fitting, std::max<index>(all_rows / 4, 96)), 1);
  return b;
}

/// Rows [first, first + rows) of the matrix whose row r holds, for filter rows [ky0, ky1), the
/// input pixels under output pixel r; zero where the window leaves the image.
void gather_input(const conv_shape& s, const float* x, index first, index rows, index ky0,
                  index ky1, float* to);

}  // namespace delta::executor::convolution
