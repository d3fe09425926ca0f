// The kernels' forward passes once more, straight from their definitions, in double precision and
// without regard for speed. Nothing is shared with the kernels but the shapes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/kernels.hpp"

namespace kernel_reference {

using doubles = std::vector<double>;

/// Where (i, j) lies among rows of `width`.
template <class Row>
std::size_t position(Row i, int width, int j) {
  return std::size_t(i) * std::size_t(width) + std::size_t(j);
}

inline doubles convolution(const delta::executor::conv_shape& s, const doubles& x,
                           const doubles& filter) {
  doubles y(s.out_size());
  const int depth = s.c / s.groups;
  std::size_t at = 0;
  for (int n = 0; n < s.n; ++n)
    for (int oy = 0; oy < s.oh(); ++oy)
      for (int ox = 0; ox < s.ow(); ++ox)
        for (int k = 0; k < s.k; ++k) {
          double sum = 0.0;
          const int first = k / (s.k / s.groups) * depth;  // channel of the group
          for (int ky = 0; ky < s.kh; ++ky)
            for (int kx = 0; kx < s.kw; ++kx) {
              const int iy = oy * s.stride - s.pad + ky, ix = ox * s.stride - s.pad + kx;
              if (iy < 0 || iy >= s.h || ix < 0 || ix >= s.w) continue;
              const auto pixel = position(position(n, s.h, iy), s.w, ix);
              const auto tap = position(position(k, s.kh, ky), s.kw, kx);
              for (int c = 0; c < depth; ++c) {
                sum += x[position(pixel, s.c, first + c)] * filter[position(tap, depth, c)];
              }
            }
          y[at++] = sum;
        }
  return y;
}

struct moments {
  doubles mean, variance;  ///< per channel; the variance is biased
};
inline moments channel_moments(std::size_t rows, int c, const doubles& x) {
  const auto width = std::size_t(c);
  moments m{doubles(width), doubles(width)};
  for (std::size_t i = 0; i < width; ++i) {
    for (std::size_t r = 0; r < rows; ++r) m.mean[i] += x[r * width + i] / double(rows);
    for (std::size_t r = 0; r < rows; ++r) {
      m.variance[i] += std::pow(x[r * width + i] - m.mean[i], 2) / double(rows);
    }
  }
  return m;
}

inline doubles normalise(std::size_t rows, int c, const doubles& x, const moments& m,
                         const doubles& gamma, const doubles& beta, double epsilon) {
  const auto width = std::size_t(c);
  doubles y(rows * width);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < width; ++i) {
      const double deviation = std::sqrt(m.variance[i] + epsilon);
      y[r * width + i] = (x[r * width + i] - m.mean[i]) / deviation * gamma[i] + beta[i];
    }
  return y;
}

inline doubles max_pool(const delta::executor::pool_shape& s, const doubles& x) {
  doubles y(s.out_size());
  std::size_t at = 0;
  for (int n = 0; n < s.n; ++n)
    for (int oy = 0; oy < s.oh(); ++oy)
      for (int ox = 0; ox < s.ow(); ++ox)
        for (int c = 0; c < s.c; ++c) {
          double best = -std::numeric_limits<double>::infinity();
          for (int iy = oy * s.stride - s.pad; iy < oy * s.stride - s.pad + s.window; ++iy)
            for (int ix = ox * s.stride - s.pad; ix < ox * s.stride - s.pad + s.window; ++ix) {
              if (iy < 0 || iy >= s.h || ix < 0 || ix >= s.w) continue;
              best = std::max(best, x[position(position(position(n, s.h, iy), s.w, ix), s.c, c)]);
            }
          y[at++] = best;
        }
  return y;
}

inline doubles linear(int n, int in, int out, const doubles& x, const doubles& weight,
                      const doubles& bias) {
  doubles y;
  for (int i = 0; i < n; ++i)
    for (int o = 0; o < out; ++o) {
      double sum = bias[std::size_t(o)];
      for (int j = 0; j < in; ++j) {
        sum += x[position(i, in, j)] * weight[position(o, in, j)];
      }
      y.push_back(sum);
    }
  return y;
}

inline double cross_entropy(int n, int classes, const doubles& logits,
                            const std::vector<std::int32_t>& labels) {
  double total = 0.0;
  for (int i = 0; i < n; ++i) {
    double sum = 0.0;
    for (int j = 0; j < classes; ++j) sum += std::exp(logits[position(i, classes, j)]);
    total += std::log(sum) - logits[position(i, classes, labels[std::size_t(i)])];
  }
  return total / n;
}

}  // namespace kernel_reference
