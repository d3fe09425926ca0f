// delta executor: pooling on the GPU. One thread per result of one pixel and channel, or four
// channels: threads side by side read channels side by side. Contracts in kernels/kernels.hpp.
//
// Max pooling is ours with cuDNN, too: the graph keeps where each maximum was, a byte per output,
// while cuDNN keeps nothing and wants x and y again in the backward pass, four bytes each.
#pragma once

#include <cmath>

#include "kernels/gpu/engine.hpp"
#include "kernels/kernels.hpp"

namespace delta::executor::gpu {

/// An element's place in an NHWC tensor.
struct place {
  std::size_t image, channel;
  int y, x;
};
DELTA_GPU inline place place_of(std::size_t i, int h, int w, std::size_t c) {
  const std::size_t pixel = divided(i, c), line = divided(pixel, std::size_t(w));
  const std::size_t image = divided(line, std::size_t(h));
  return {image, i - pixel * c, int(line - image * std::size_t(h)),
          int(pixel - line * std::size_t(w))};
}

struct max_pool_forward_functor {
  int h, w, oh, ow, window, stride, pad;
  std::size_t c;
  const float* x;
  float* y;
  std::uint8_t* argmax;

  /// The window's valid taps in order; the first maximum wins, and a NaN is one (as PyTorch).
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const place p = place_of(i, oh, ow, c);
    pack<float, V> best;
    pack<std::uint8_t, V> position;
    for (int j = 0; j < V; ++j) {  // a window that lies in the padding altogether has nothing else
      best.at[j] = -INFINITY;
      position.at[j] = 0;
    }
    bool first = true;
    for (int ky = 0; ky < window; ++ky) {
      const int iy = p.y * stride - pad + ky;
      if (iy < 0 || iy >= h) continue;
      for (int kx = 0; kx < window; ++kx) {
        const int ix = p.x * stride - pad + kx;
        if (ix < 0 || ix >= w) continue;
        const std::size_t pixel =
            (p.image * std::size_t(h) + std::size_t(iy)) * std::size_t(w) + std::size_t(ix);
        const auto value = load<V>(x + pixel * c + p.channel);
        for (int j = 0; j < V; ++j) {
          const float v = value.at[j];
          if (first || v > best.at[j] || v != v) {
            best.at[j] = v;
            position.at[j] = std::uint8_t(ky * window + kx);
          }
        }
        first = false;
      }
    }
    store(y + i, best);
    store(argmax + i, position);
  }
};

struct max_pool_backward_functor {
  int h, w, oh, ow, window, stride, pad;
  std::size_t c;
  const float* dy;
  const std::uint8_t* argmax;
  float* dx;

  /// Gathers from the windows that hold the pixel, in output order: no two threads add to one sum.
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const place p = place_of(i, h, w, c);
    pack<float, V> sum;
    for (int j = 0; j < V; ++j) sum.at[j] = 0.0f;
    const int y0 = first_window(p.y), y1 = last_window(p.y, oh);
    const int x0 = first_window(p.x), x1 = last_window(p.x, ow);
    for (int oy = y0; oy <= y1; ++oy) {
      for (int ox = x0; ox <= x1; ++ox) {
        const int tap = (p.y + pad - oy * stride) * window + (p.x + pad - ox * stride);
        const std::size_t pixel =
            (p.image * std::size_t(oh) + std::size_t(oy)) * std::size_t(ow) + std::size_t(ox);
        const auto position = load<V>(argmax + pixel * c + p.channel);
        const auto d = load<V>(dy + pixel * c + p.channel);
        for (int j = 0; j < V; ++j) sum.at[j] += position.at[j] == tap ? d.at[j] : 0.0f;
      }
    }
    store(dx + i, sum);
  }

 private:
  [[nodiscard]] DELTA_GPU int first_window(int at) const {
    const int before = at + pad - window + stride;
    return before > 0 ? before / stride : 0;
  }
  [[nodiscard]] DELTA_GPU int last_window(int at, int windows) const {
    const int last = (at + pad) / stride;
    return last < windows - 1 ? last : windows - 1;
  }
};

/// y[image][channel] = mean over pixels, in double, as their number is not bounded.
struct average_functor {
  std::size_t pixels, c;
  const float* x;
  float* y;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const std::size_t image = divided(i, c), channel = i - image * c;
    double sum[V] = {};
    for (std::size_t p = 0; p < pixels; ++p) {
      const auto value = load<V>(x + (image * pixels + p) * c + channel);
      for (int j = 0; j < V; ++j) sum[j] += double(value.at[j]);
    }
    pack<float, V> mean;
    for (int j = 0; j < V; ++j) mean.at[j] = float(sum[j] / double(pixels));
    store(y + i, mean);
  }
};

struct average_backward_functor {
  std::size_t pixels, c;
  float scale;
  const float* dy;
  float* dx;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const std::size_t image = divided(i, pixels * c), channel = i - divided(i, c) * c;
    auto d = load<V>(dy + image * c + channel);
    for (int j = 0; j < V; ++j) d.at[j] *= scale;
    store(dx + i, d);
  }
};

template <class Engine>
void max_pool_forward(const Engine& engine, const pool_shape& s, const float* x, float* y,
                      std::uint8_t* argmax) {
  each_by_fours(engine, s.out_size(), s.c % 4 == 0 && aligned(x, y) && aligned(argmax),
                max_pool_forward_functor{s.h, s.w, s.oh(), s.ow(), s.window, s.stride, s.pad,
                                         std::size_t(s.c), x, y, argmax});
}
template <class Engine>
void max_pool_backward(const Engine& engine, const pool_shape& s, const float* dy,
                       const std::uint8_t* argmax, float* dx) {
  each_by_fours(engine, s.in_size(), s.c % 4 == 0 && aligned(dy, dx) && aligned(argmax),
                max_pool_backward_functor{s.h, s.w, s.oh(), s.ow(), s.window, s.stride, s.pad,
                                          std::size_t(s.c), dy, argmax, dx});
}
template <class Engine>
void global_avg_pool_forward(const Engine& engine, int n, int pixels, int c, const float* x,
                             float* y) {
  each_by_fours(engine, product_of(n, c), c % 4 == 0 && aligned(x, y),
                average_functor{std::size_t(pixels), std::size_t(c), x, y});
}
template <class Engine>
void global_avg_pool_backward(const Engine& engine, int n, int pixels, int c, const float* dy,
                              float* dx) {
  each_by_fours(
      engine, product_of(n, pixels, c), c % 4 == 0 && aligned(dy, dx),
      average_backward_functor{std::size_t(pixels), std::size_t(c), 1.0f / float(pixels), dy, dx});
}

}  // namespace delta::executor::gpu
