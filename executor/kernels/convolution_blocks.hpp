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

/// A cut of result = gathered * weights into tasks of `rows` by `columns`.
struct row_blocks {
  index all_rows = 0, all_columns = 0;
  index rows = 0, columns = 0;
  [[nodiscard]] constexpr index row_tasks() const { return divide_up(all_rows, rows); }
  [[nodiscard]] constexpr std::size_t tasks() const {
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

/// The cut where `depth` contracted elements are gathered at a time. A filter is packed anew for
/// every block of rows, so rows are many, and where they run out for eight tasks columns are split:
/// gathering the same rows twice is the lesser cost. `gathered` is false where the rows lie in
/// memory already, so that scratch sets no limit.
constexpr row_blocks cut_rows(index all_rows, index all_columns, index depth,
                              bool gathered) noexcept {
  row_blocks b{all_rows, all_columns, 0, 0};
  const index fitting = gathered ? std::clamp<index>(scratch_floats / depth, 48, 1024) : 1024;
  b.rows = even_part(all_rows, std::min(fitting, std::max<index>(all_rows / 2, 96)), 1);
  b.columns = even_part(all_columns, 512, 16);
  while (b.tasks() < 8 && b.columns > 128) b.columns = even_part(b.columns, b.columns / 2, 16);
  return b;
}

/// A part of the filter's window: rows [ky, ky_end) by columns [kx, kx_end).
struct window_part {
  index ky, ky_end, kx, kx_end;
  [[nodiscard]] constexpr index taps() const { return (ky_end - ky) * (kx_end - kx); }
};

/// Windows are taken apart in steps: whole filter rows, as many as come near `depth` contracted
/// elements, or single taps where one filter row is longer than that.
struct window_steps {
  index rows, columns;
  window_steps(const conv_shape& s, index depth)
      : rows(std::clamp<index>(depth / (index(s.kw) * s.c), 1, s.kh)),
        columns(index(s.kw) * s.c > depth ? 1 : s.kw) {}
  [[nodiscard]] index count(const conv_shape& s) const {
    return divide_up(s.kh, rows) * divide_up(s.kw, columns);
  }
  [[nodiscard]] window_part part(const conv_shape& s, index step) const {
    const index across = divide_up(s.kw, columns);
    const index ky = step / across * rows, kx = step % across * columns;
    return {ky, std::min<index>(ky + rows, s.kh), kx, std::min<index>(kx + columns, s.kw)};
  }
};

/// Rows [first, first + rows) of the matrix whose row r holds, for a part of the window, the input
/// pixels under output pixel r; zero where the window leaves the image.
void gather_input(const conv_shape& s, const float* x, index first, index rows,
                  const window_part& part, float* to);

}  // namespace delta::executor::convolution
