#include <algorithm>

#include "kernels/kernels.hpp"
#include "kernels/vectorise.hpp"

namespace delta::executor {
namespace {

/// Takes the tap's values where they are greater, or NaN (as PyTorch), and notes its position.
DELTA_VECTORISE void take_maximum(std::size_t c, const float* __restrict x, std::uint8_t position,
                                  float* __restrict best, std::uint8_t* __restrict argmax) {
  for (std::size_t i = 0; i < c; ++i) {
    const bool take = x[i] > best[i] || x[i] != x[i];
    best[i] = take ? x[i] : best[i];
    argmax[i] = take ? position : argmax[i];
  }
}

/// Adds dy where this tap was the maximum.
DELTA_VECTORISE void add_where(std::size_t c, const float* __restrict dy,
                               const std::uint8_t* __restrict argmax, std::uint8_t position,
                               float* __restrict dx) {
  for (std::size_t i = 0; i < c; ++i) dx[i] += argmax[i] == position ? dy[i] : 0.0f;
}

/// One output pixel: the window's valid taps in order.
void pool_pixel(const pool_shape& s, const float* image, int oy, int ox, float* y,
                std::uint8_t* argmax) {
  const auto c = std::size_t(s.c);
  bool first = true;
  for (int ky = 0; ky < s.window; ++ky) {
    const int iy = oy * s.stride - s.pad + ky;
    if (iy < 0 || iy >= s.h) continue;
    for (int kx = 0; kx < s.window; ++kx) {
      const int ix = ox * s.stride - s.pad + kx;
      if (ix < 0 || ix >= s.w) continue;
      const float* x = image + (product_of(iy, s.w) + std::size_t(ix)) * c;
      const auto position = std::uint8_t(ky * s.window + kx);
      if (first) {
        std::copy_n(x, c, y);
        std::fill_n(argmax, c, position);
        first = false;
      } else {
        take_maximum(c, x, position, y, argmax);
      }
    }
  }
}

/// One input pixel: the windows that hold it, in output order.
void unpool_pixel(const pool_shape& s, const float* dy, const std::uint8_t* argmax, int iy, int ix,
                  float* dx) {
  const auto c = std::size_t(s.c);
  const int oh = s.oh(), ow = s.ow();
  std::fill_n(dx, c, 0.0f);
  const int y0 = std::max(0, (iy + s.pad - s.window + s.stride) / s.stride);
  const int x0 = std::max(0, (ix + s.pad - s.window + s.stride) / s.stride);
  const int y1 = std::min(oh - 1, (iy + s.pad) / s.stride);
  const int x1 = std::min(ow - 1, (ix + s.pad) / s.stride);
  for (int oy = y0; oy <= y1; ++oy) {
    const int ky = iy + s.pad - oy * s.stride;
    for (int ox = x0; ox <= x1; ++ox) {
      const int kx = ix + s.pad - ox * s.stride;
      const auto at = (product_of(oy, ow) + std::size_t(ox)) * c;
      add_where(c, dy + at, argmax + at, std::uint8_t(ky * s.window + kx), dx);
    }
  }
}

/// y[i] = mean of `pixels` rows of length c, for a tile of at most `tile` channels, in double:
/// the number of pixels is not bounded.
constexpr int tile = 64;
DELTA_VECTORISE void mean_tile(int pixels, std::size_t c, std::size_t width,
                               const float* __restrict x, float* __restrict y) {
  double sum[tile] = {};
  for (int p = 0; p < pixels; ++p) {
    for (std::size_t i = 0; i < width; ++i) sum[i] += x[std::size_t(p) * c + i];
  }
  for (std::size_t i = 0; i < width; ++i) y[i] = float(sum[i] / pixels);
}

}  // namespace

void max_pool_forward(thread_pool& pool, const pool_shape& s, const float* x, float* y,
                      std::uint8_t* argmax) {
  const auto oh = std::size_t(s.oh()), ow = std::size_t(s.ow()), c = std::size_t(s.c);
  const std::size_t inputs = product_of(s.h, s.w, c);
  pool.parallel_for(product_of(s.n, oh), [&, oh, ow, c, inputs](std::size_t row) {
    const auto image = row / oh;
    const int oy = int(row % oh);
    for (std::size_t ox = 0; ox < ow; ++ox) {
      const auto at = (row * ow + ox) * c;
      pool_pixel(s, x + image * inputs, oy, int(ox), y + at, argmax + at);
    }
  });
}

void max_pool_backward(thread_pool& pool, const pool_shape& s, const float* dy,
                       const std::uint8_t* argmax, float* dx) {
  const auto h = std::size_t(s.h), w = std::size_t(s.w), c = std::size_t(s.c);
  const std::size_t outputs = product_of(s.oh(), s.ow(), c);
  pool.parallel_for(product_of(s.n, h), [&, h, w, c, outputs](std::size_t row) {
    const auto image = row / h;
    const int iy = int(row % h);
    for (std::size_t ix = 0; ix < w; ++ix) {
      unpool_pixel(s, dy + image * outputs, argmax + image * outputs, iy, int(ix),
                   dx + (row * w + ix) * c);
    }
  });
}

void global_avg_pool_forward(thread_pool& pool, int n, int pixels, int c, const float* x,
                             float* y) {
  const auto width = std::size_t(c);
  const std::size_t inputs = product_of(pixels, c);
  pool.parallel_for(std::size_t(n), [=](std::size_t image) {
    for (int first = 0; first < c; first += tile) {
      mean_tile(pixels, width, std::size_t(std::min(tile, c - first)), x + image * inputs + first,
                y + image * width + first);
    }
  });
}

void global_avg_pool_backward(thread_pool& pool, int n, int pixels, int c, const float* dy,
                              float* dx) {
  const float scale = 1.0f / float(pixels);
  const auto width = std::size_t(c);
  const std::size_t inputs = product_of(pixels, c);
  pool.parallel_for(std::size_t(n), [=](std::size_t image) {
    const float* d = dy + image * width;
    float* row = dx + image * inputs;
    for (std::size_t i = 0; i < width; ++i) row[i] = d[i] * scale;
    for (std::size_t at = width; at < inputs; at += width) std::copy_n(row, width, row + at);
  });
}

}  // namespace delta::executor
