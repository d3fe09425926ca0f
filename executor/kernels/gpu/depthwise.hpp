// delta executor: depthwise convolutions on the GPU (one channel in and out per group): no product
// of matrices is in them, so each result is summed where it is, channels side by side.
#pragma once

#include "kernels/gpu/engine.hpp"
#include "kernels/gpu/gather.hpp"

namespace delta::executor::gpu {

/// Forward: y from x; with a backward window: dx from dy. The filter is [channel][tap].
struct depthwise_functor {
  window over;
  std::size_t c, taps;
  const float *source, *filter;
  float* to;

  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const place p = place_of(i, over.to_h, over.to_w, c);
    pack<float, V> sum;
    for (int j = 0; j < V; ++j) sum.at[j] = 0.0f;
    for (int ky = 0; ky < over.kh; ++ky) {
      const int y = over.source(p.y, ky, over.source_h);
      if (y < 0) continue;
      for (int kx = 0; kx < over.kw; ++kx) {
        const int x = over.source(p.x, kx, over.source_w);
        if (x < 0) continue;
        const std::size_t pixel =
            (p.image * std::size_t(over.source_h) + std::size_t(y)) * std::size_t(over.source_w) +
            std::size_t(x);
        const auto value = load<V>(source + pixel * c + p.channel);
        const std::size_t tap = std::size_t(ky) * std::size_t(over.kw) + std::size_t(kx);
        for (int j = 0; j < V; ++j) {
          sum.at[j] += value.at[j] * filter[(p.channel + std::size_t(j)) * taps + tap];
        }
      }
    }
    store(to + i, sum);
  }
};

/// dfilter, first stage: sums over parts of the output pixels; columns are [tap][channel].
struct depthwise_filter_parts {
  using team = float_team;
  window over;  ///< forward
  std::size_t c, taps;
  const float *x, *dy;
  double* parts;

  DELTA_GPU double collect(std::size_t column, std::size_t row, std::size_t step,
                           std::size_t end) const {
    const std::size_t tap = divided(column, c), channel = column - tap * c;
    const int ky = int(tap) / over.kw, kx = int(tap) - ky * over.kw;
    double sum = 0.0;
    while (row < end) {
      float some = 0.0f;
      for (int k = 0; k < 16 && row < end; ++k, row += step) {
        const place p = place_of(row, over.to_h, over.to_w, 1);
        const int y = over.source(p.y, ky, over.source_h), at = over.source(p.x, kx, over.source_w);
        if (y < 0 || at < 0) continue;
        const std::size_t pixel =
            (p.image * std::size_t(over.source_h) + std::size_t(y)) * std::size_t(over.source_w) +
            std::size_t(at);
        some += x[pixel * c + channel] * dy[row * c + channel];
      }
      sum += double(some);
    }
    return sum;
  }
  DELTA_GPU double join(double a, double b) const { return a + b; }
  DELTA_GPU void finish(std::size_t part, std::size_t column, double sum) const {
    parts[part * c * taps + column] = sum;
  }
};

/// dfilter, second stage.
struct depthwise_filter_join {
  using team = join_team;
  const double* parts;
  std::size_t c, taps;
  float* dfilter;

  DELTA_GPU double collect(std::size_t column, std::size_t part, std::size_t step,
                           std::size_t end) const {
    double sum = 0.0;
    for (; part < end; part += step) sum += parts[part * c * taps + column];
    return sum;
  }
  DELTA_GPU double join(double a, double b) const { return a + b; }
  DELTA_GPU void finish(std::size_t, std::size_t column, double sum) const {
    const std::size_t tap = divided(column, c);
    dfilter[(column - tap * c) * taps + tap] = float(sum);
  }
};

inline bool is_depthwise(const conv_shape& s) {
  return s.groups > 1 && s.groups == s.c && s.groups == s.k;
}
inline column_cut depthwise_cut(const conv_shape& s) {
  return cut_rows<float_team>(product_of(s.n, s.oh(), s.ow()), s.filter_size());
}
inline std::size_t depthwise_filter_workspace(const conv_shape& s) {
  return depthwise_cut(s).parts * s.filter_size() * sizeof(double);
}

template <class Engine>
void depthwise_forward(const Engine& engine, const conv_shape& s, const float* x,
                       const float* filter, float* y) {
  const window over = forward_window(s);
  each_by_fours(engine, s.out_size(), s.c % 4 == 0 && aligned(x, y),
                depthwise_functor{over, std::size_t(s.c), over.taps(), x, filter, y});
}
template <class Engine>
void depthwise_backward_data(const Engine& engine, const conv_shape& s, const float* dy,
                             const float* filter, float* dx) {
  const window over = backward_window(s);
  each_by_fours(engine, s.in_size(), s.c % 4 == 0 && aligned(dy, dx),
                depthwise_functor{over, std::size_t(s.c), over.taps(), dy, filter, dx});
}
template <class Engine>
void depthwise_backward_filter(const Engine& engine, const conv_shape& s, const float* x,
                               const float* dy, float* dfilter, std::byte* workspace) {
  const window over = forward_window(s);
  const auto c = std::size_t(s.c), taps = over.taps();
  const column_cut cut = depthwise_cut(s);
  auto* parts = reinterpret_cast<double*>(workspace);
  engine.columns(cut, c * taps, depthwise_filter_parts{over, c, taps, x, dy, parts});
  engine.columns(one_part(cut.parts), c * taps, depthwise_filter_join{parts, c, taps, dfilter});
}

}  // namespace delta::executor::gpu
