// delta executor: gathering pixels into matrices ("im2col") on the GPU. Internal to the kernels.
#pragma once

#include "kernels/gpu/engine.hpp"
#include "kernels/gpu/pooling.hpp"

namespace delta::executor::gpu {

/// A window that moves over a tensor: which source pixels a destination pixel sees. Forward, the
/// destination is the convolution's output; backward, its input, and the source is dy.
struct window {
  int source_h, source_w, to_h, to_w, kh, kw, stride, pad;
  bool backward;

  [[nodiscard]] std::size_t taps() const { return product_of(kh, kw); }
  /// Where the source is along an axis of that length; -1: nowhere.
  [[nodiscard]] DELTA_GPU int source(int to, int tap, int length) const {
    int at = to * stride - pad + tap;
    if (backward) {
      at = to + pad - tap;
      if (at < 0) return -1;
      if (stride > 1) {
        const int window_at = at / stride;
        if (window_at * stride != at) return -1;
        at = window_at;
      }
    }
    return at < length ? at : -1;
  }
};
inline window forward_window(const conv_shape& s) {
  return {s.h, s.w, s.oh(), s.ow(), s.kh, s.kw, s.stride, s.pad, false};
}
inline window backward_window(const conv_shape& s) {
  return {s.oh(), s.ow(), s.h, s.w, s.kh, s.kw, s.stride, s.pad, true};
}

/// Rows of a matrix, one per destination pixel from `first_row` on: [row][group][tap][depth], zero
/// where the window leaves the source. The groups are apart, so each is a matrix of its own.
struct gather_functor {
  window over;
  std::size_t first_row, taps, depth, channels;  ///< depth: channels of one group
  const float* source;
  float* to;

  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const std::size_t width = taps * channels;
    const std::size_t row = divided(i, width);
    std::size_t rest = i - row * width;
    const std::size_t group = depth == channels ? 0 : divided(rest, taps * depth);
    rest -= group * taps * depth;
    const std::size_t tap = divided(rest, depth);
    const int ky = int(tap) / over.kw, kx = int(tap) - ky * over.kw;
    const place p = place_of(first_row + row, over.to_h, over.to_w, 1);
    const int y = over.source(p.y, ky, over.source_h), x = over.source(p.x, kx, over.source_w);
    pack<float, V> values;
    if (y < 0 || x < 0) {
      for (int j = 0; j < V; ++j) values.at[j] = 0.0f;
    } else {
      const std::size_t pixel =
          (p.image * std::size_t(over.source_h) + std::size_t(y)) * std::size_t(over.source_w) +
          std::size_t(x);
      values = load<V>(source + pixel * channels + group * depth + (rest - tap * depth));
    }
    store(to + i, values);
  }
};

/// The filter as the backward pass over the data multiplies by it: from [group][out][tap][depth] to
/// [group][tap][out][depth], `outs` output channels per group.
struct turn_filter_functor {
  std::size_t outs, taps, depth;
  const float* filter;
  float* to;

  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const std::size_t line = divided(i, depth), d = i - line * depth;
    const std::size_t above = divided(line, outs), out = line - above * outs;
    const std::size_t group = divided(above, taps), tap = above - group * taps;
    store(to + i, load<V>(filter + ((group * outs + out) * taps + tap) * depth + d));
  }
};

}  // namespace delta::executor::gpu
