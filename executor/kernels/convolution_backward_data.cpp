// Convolution, backward data: a correlation of dy with the filter turned round.
//
// With a stride, the input pixels of one phase (their position modulo the stride) are reached by
// the same taps, so each phase is a product of its own, with no multiplication by inserted zeros.
// Rows are input pixels, and each is computed by one task from all its taps: nothing is scattered
// with addition, so nothing needs an order.
#include <cstring>

#include "kernels/convolution_blocks.hpp"
#include "kernels/gemm.hpp"
#include "kernels/grouped.hpp"
#include "kernels/kernels.hpp"

namespace delta::executor {
namespace {

using namespace convolution;

/// One axis of one phase: taps first_tap, first_tap + stride, ... and pixels first_pixel,
/// first_pixel + stride, ... Pixel number i under tap number t belongs to output i + offset - t.
struct axis {
  index first_tap, taps, first_pixel, pixels, offset;
  axis(int p, int size, int kernel, int stride, int pad)
      : first_tap((p + pad) % stride),
        taps(first_tap < kernel ? divide_up(kernel - first_tap, stride) : 0),
        first_pixel(p),
        pixels(divide_up(size - p, stride)),
        offset((p + pad) / stride) {}
};

struct phase {
  axis v, u;  ///< vertical and horizontal
  phase(const conv_shape& s, int p, int q)
      : v(p, s.h, s.kh, s.stride, s.pad), u(q, s.w, s.kw, s.stride, s.pad) {}
  [[nodiscard]] index taps() const { return v.taps * u.taps; }
  /// The rows of dy are the gathered matrix already.
  [[nodiscard]] bool is_identity(const conv_shape& s) const {
    return taps() == 1 && v.offset == 0 && u.offset == 0 && v.pixels == s.oh() &&
           u.pixels == s.ow();
  }
};

template <class F>
void each_phase(const conv_shape& s, const F& body) {
  for (int p = 0; p < std::min(s.stride, s.h); ++p) {
    for (int q = 0; q < std::min(s.stride, s.w); ++q) body(phase(s, p, q));
  }
}

/// With few channels a product over one tap is too shallow, so the filter is copied into an order
/// in which a phase's taps and k are one contracted dimension. With many, the filter is used where
/// it lies, a tap at a time: the copy would cost time and memory.
bool turns_filter(const conv_shape& s) {
  return s.kh * s.kw > 1 && s.k < 256;
}

/// Where the turned filter has tap (ky, kx): by phase, then in the filter's order.
index turned_position(const conv_shape& s, index ky, index kx) {
  const auto before = [&](index residue, index kernel) {
    index count = 0;
    for (index r = 0; r < residue; ++r) count += r < kernel ? divide_up(kernel - r, s.stride) : 0;
    return count;
  };
  const index a = ky % s.stride, b = kx % s.stride;
  const index tall = divide_up(s.kh - a, s.stride), wide = divide_up(s.kw - b, s.stride);
  return before(a, s.kh) * s.kw + tall * before(b, s.kw) + ky / s.stride * wide + kx / s.stride;
}

/// [k][tap][c] to [turned tap][k][c].
void turn_filter(thread_pool& pool, const conv_shape& s, const float* filter, float* to) {
  const index taps = index(s.kh) * s.kw;
  pool.parallel_for(std::size_t(taps), [&, taps](std::size_t task) {
    const auto tap = index(task);
    float* tile = to + turned_position(s, tap / s.kw, tap % s.kw) * s.k * s.c;
    for (index o = 0; o < s.k; ++o) {
      std::memcpy(tile + o * s.c, filter + (o * taps + tap) * s.c,
                  sizeof(float) * std::size_t(s.c));
    }
  });
}

/// Taps gathered at a time.
index taps_per_step(const conv_shape& s, const phase& f) {
  return turns_filter(s) ? std::clamp<index>(1152 / s.k, 1, std::max<index>(f.taps(), 1)) : 1;
}
row_blocks cut_phase(const conv_shape& s, const phase& f) {
  return cut_rows(s.n * f.v.pixels * f.u.pixels, s.c, taps_per_step(s, f) * s.k, !f.is_identity(s));
}

/// Gathered rows, then (with a stride) the result before it is spread over its pixels.
index gathered_floats(const conv_shape& s, const phase& f) {
  if (f.taps() == 0 || f.is_identity(s)) return 0;
  return cut_phase(s, f).rows * taps_per_step(s, f) * s.k;
}
std::size_t worker_scratch(const conv_shape& s) {
  index most = 0;
  each_phase(s, [&](const phase& f) {
    const auto b = cut_phase(s, f);
    most = std::max(most, gathered_floats(s, f) + (s.stride > 1 ? b.rows * b.columns : 0));
  });
  return line_bytes(most);
}

/// Rows [first, first + rows) of a phase: for taps number [t0, t1) the k channels of the outputs
/// that the pixel fed; zero where there is no such output.
void gather_gradient(const conv_shape& s, const phase& f, const float* dy, index first, index rows,
                     index t0, index t1, float* to) {
  const int oh = s.oh(), ow = s.ow();
  const auto bytes = sizeof(float) * std::size_t(s.k);
  index px = first % f.u.pixels, py = first / f.u.pixels % f.v.pixels;
  index image = first / f.u.pixels / f.v.pixels;
  for (index r = 0; r < rows; ++r) {
    index ty = t0 / f.u.taps, tx = t0 % f.u.taps;
    for (index t = t0; t < t1; ++t, to += s.k) {
      const index oy = py + f.v.offset - ty, ox = px + f.u.offset - tx;
      if (oy < 0 || oy >= oh || ox < 0 || ox >= ow) {
        std::memset(to, 0, bytes);
      } else {
        std::memcpy(to, dy + ((image * oh + oy) * ow + ox) * s.k, bytes);
      }
      if (++tx == f.u.taps) tx = 0, ++ty;
    }
    if (++px == f.u.pixels) {
      px = 0;
      if (++py == f.v.pixels) py = 0, ++image;
    }
  }
}

/// A block's result to its pixels; zeros if `from` is null.
void spread(const conv_shape& s, const phase& f, const row_block& b, const float* from, float* dx) {
  const auto bytes = sizeof(float) * std::size_t(b.columns);
  for (index r = 0; r < b.rows; ++r) {
    const index i = b.row + r;
    const index px = f.u.first_pixel + i % f.u.pixels * s.stride;
    const index py = f.v.first_pixel + i / f.u.pixels % f.v.pixels * s.stride;
    const index image = i / f.u.pixels / f.v.pixels;
    float* to = dx + ((image * s.h + py) * s.w + px) * s.c + b.column;
    if (from) {
      std::memcpy(to, from + r * b.columns, bytes);
    } else {
      std::memset(to, 0, bytes);
    }
  }
}

/// One block of one phase. `weights` is the turned filter, or the filter itself.
void compute_block(const conv_shape& s, const phase& f, const row_block& b, const float* dy,
                   const float* weights, float* gathered, float* dx) {
  float* result = gathered + gathered_floats(s, f);
  index result_width = b.columns;
  if (s.stride == 1) {
    result = dx + b.row * s.c + b.column;
    result_width = s.c;
  }
  const bool turned = turns_filter(s);
  const index weights_width = turned ? index(s.c) : index(s.kh) * s.kw * s.c;
  const index step = taps_per_step(s, f);
  for (index t = 0; t < f.taps(); t += step) {
    const index end = std::min(t + step, f.taps()), depth = (end - t) * s.k;
    const float* rows = dy + b.row * s.k;
    if (!f.is_identity(s)) {
      gather_gradient(s, f, dy, b.row, b.rows, t, end, gathered);
      rows = gathered;
    }
    const index ky = f.v.first_tap + t / f.u.taps * s.stride;
    const index kx = f.u.first_tap + t % f.u.taps * s.stride;
    const float* tile =
        weights + b.column + (turned ? turned_position(s, ky, kx) * s.k : ky * s.kw + kx) * s.c;
    gemm(op::plain, op::plain, b.rows, b.columns, depth, rows, depth, tile, weights_width,
         t == 0 ? 0.0f : 1.0f, result, result_width);
  }
  if (s.stride > 1 || f.taps() == 0) spread(s, f, b, f.taps() > 0 ? result : nullptr, dx);
}

}  // namespace

std::size_t conv_backward_data_workspace(const conv_shape& s, int threads) {
  check_groups(s);
  if (is_depthwise(s)) return depthwise_walk_workspace(s);
  if (s.groups > 1) return grouped_walk_workspace(s, false, threads);
  return (turns_filter(s) ? line_bytes(index(s.filter_size())) : 0) +
         std::size_t(threads) * worker_scratch(s);
}

void conv_backward_data(thread_pool& pool, const conv_shape& s, const float* dy,
                        const float* filter, float* dx, std::byte* workspace) {
  check_groups(s);
  if (is_depthwise(s)) return depthwise_walk(pool, s, false, dy, filter, dx, workspace);
  if (s.groups > 1) return grouped_walk(pool, s, false, dy, filter, dx, workspace);
  const float* weights = filter;
  if (turns_filter(s)) {
    turn_filter(pool, s, filter, reinterpret_cast<float*>(workspace));
    weights = reinterpret_cast<const float*>(workspace);
    workspace += line_bytes(index(s.filter_size()));
  }
  const auto scratch = worker_scratch(s);
  each_phase(s, [&](const phase& f) {
    const auto cut = cut_phase(s, f);
    pool.parallel_for(cut.tasks(), [&](std::size_t task, int worker) {
      compute_block(s, f, row_block(cut, task), dy, weights,
                    reinterpret_cast<float*>(workspace + std::size_t(worker) * scratch), dx);
    });
  });
}

}  // namespace delta::executor
