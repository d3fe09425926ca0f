// Depthwise convolution, all three passes: see grouped.hpp. Vectors run over channels, which lie
// side by side, so nothing is gathered; at the image's border taps are left out.
#include "kernels/grouped.hpp"
#include "kernels/lanes.hpp"

namespace delta::executor::convolution {
namespace {

/// Destination pixels [begin, end) of an axis under whose taps [0, taps) the source has pixels.
struct reach {
  index begin, end;
  reach(const walk_axis& a, index tap, index taps, index source) {
    begin = std::clamp<index>(divide_up(std::max<index>(-a.in0 - tap, 0), a.in_step), 0, a.pixels);
    const index last = source - taps - a.in0 - tap;  // i * in_step may be that at most
    end = std::clamp<index>(last < 0 ? 0 : last / a.in_step + 1, begin, a.pixels);
  }
};

/// One row of destination pixels.
struct walk_row {
  const float* from;     ///< the image's row under the first of the taps
  const float* weights;  ///< [tap][channel], at tap (ty, 0) of the phase
  float* to;             ///< the phase's first pixel of the row
  index channels, source_w;
  walk_axis u;
  index v_taps;        ///< those inside the image
  index v_tap_stride;  ///< in weights, from one to the next
};

/// `Pixels` neighbours under taps [begin, end) of every row, for all channels from `first` on that
/// fill vectors. Returns the first channel left.
template <int Lanes, int Pixels>
DELTA_INLINE index walk_channels(const walk_row& r, index pixel, index begin, index end,
                                 index first) {
  const index step = r.u.in_step * r.channels, line = r.source_w * r.channels;
  const index tap_stride = r.u.tap_step * r.channels;
  const float* from = r.from + (r.u.in0 + pixel * r.u.in_step + begin) * r.channels;
  const float* weights = r.weights + begin * tap_stride;
  float* to = r.to + pixel * r.u.pixel_step * r.channels;
  for (; first + Lanes <= r.channels; first += Lanes) {
    lanes<Lanes> sum[Pixels] = {};
    for (index ty = 0; ty < r.v_taps; ++ty) {
      const float* x = from + ty * line + first;
      const float* w = weights + ty * r.v_tap_stride + first;
      for (index tx = begin; tx < end; ++tx, x += r.channels, w += tap_stride) {
        lanes<Lanes> by;
        load(by, w);
#pragma GCC unroll 4
        for (int p = 0; p < Pixels; ++p) {
          lanes<Lanes> value;
          load(value, x + p * step);
          sum[p] += value * by;
        }
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < Pixels; ++p) {
      store(to + p * r.u.pixel_step * r.channels + first, sum[p]);
    }
  }
  return first;
}

template <int Lanes, int Pixels>
DELTA_INLINE void walk_pixels(const walk_row& r, index pixel, index begin, index end) {
  index first = walk_channels<Lanes, Pixels>(r, pixel, begin, end, 0);
  if (Lanes > 4) first = walk_channels<4, Pixels>(r, pixel, begin, end, first);
  walk_channels<1, Pixels>(r, pixel, begin, end, first);
}

template <int Lanes>
DELTA_INLINE void walk_border(const walk_row& r, index pixel) {
  const index x = r.u.in0 + pixel * r.u.in_step;
  const index begin = std::clamp<index>(-x, 0, r.u.taps);
  const index end = std::clamp<index>(r.source_w - x, begin, r.u.taps);
  walk_pixels<Lanes, 1>(r, pixel, begin, end);
}

template <int Lanes>
DELTA_INLINE void walk_all(const walk_row& r) {
  const reach whole(r.u, 0, r.u.taps, r.source_w);
  index i = 0;
  for (; i < whole.begin; ++i) walk_border<Lanes>(r, i);
  for (; i + 4 <= whole.end; i += 4) {
    walk_pixels<Lanes, 4>(r, i, 0, r.u.taps);
  }
  for (; i < r.u.pixels; ++i) walk_border<Lanes>(r, i);
}

DELTA_DEFINE_BY_LANES(compute_row, const walk_row&, walk_all)

/// [c][tap] to [tap][c].
void by_taps(const conv_shape& s, const float* filter, float* to) {
  const index taps = index(s.kh) * s.kw;
  for (index t = 0; t < taps; ++t) {
    for (index c = 0; c < s.c; ++c) to[t * s.c + c] = filter[c * taps + t];
  }
}

/// Some channels of a band of rows of one image, for one tap or three neighbours in a filter row.
struct tap_rows {
  const float* x;   ///< the input under the first row's and column's first tap
  const float* dy;  ///< the first row and column
  float* sums;      ///< [tap][channel], rows as long as the image's channels
  index taps;       ///< 1 or 3
  index count;      ///< channels
  index channels;   ///< in the image
  index rows, columns, x_row, x_column, dy_row;  ///< counts; strides in floats
};

template <int Lanes, int Vectors, int Taps>
DELTA_INLINE void add_products(const tap_rows& t, index first) {
  lanes<Lanes> sum[Taps][Vectors] = {};
  for (index row = 0; row < t.rows; ++row) {
    const float* x = t.x + row * t.x_row + first;
    const float* dy = t.dy + row * t.dy_row + first;
    for (index i = 0; i < t.columns; ++i, x += t.x_column, dy += t.channels) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        lanes<Lanes> gradient;
        load(gradient, dy + v * Lanes);
#pragma GCC unroll 3
        for (int tap = 0; tap < Taps; ++tap) {
          lanes<Lanes> value;
          load(value, x + tap * t.channels + v * Lanes);
          sum[tap][v] += value * gradient;
        }
      }
    }
  }
#pragma GCC unroll 3
  for (int tap = 0; tap < Taps; ++tap) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      float* to = t.sums + tap * t.channels + first + v * Lanes;
      lanes<Lanes> before;
      load(before, to);
      before += sum[tap][v];
      store(to, before);
    }
  }
}

template <int Lanes, int Taps>
DELTA_INLINE void add_channels(const tap_rows& t) {
  index i = 0;
  for (; i + 4 * Lanes <= t.count; i += 4 * Lanes) add_products<Lanes, 4, Taps>(t, i);
  if (i + 3 * Lanes <= t.count) add_products<Lanes, 3, Taps>(t, i), i += 3 * Lanes;
  if (i + 2 * Lanes <= t.count) add_products<Lanes, 2, Taps>(t, i), i += 2 * Lanes;
  if (i + Lanes <= t.count) add_products<Lanes, 1, Taps>(t, i), i += Lanes;
  for (; i + 4 <= t.count; i += 4) add_products<4, 1, Taps>(t, i);
  for (; i < t.count; ++i) add_products<1, 1, Taps>(t, i);
}

template <int Lanes>
DELTA_INLINE void add_taps(const tap_rows& t) {
  if (t.taps == 3) {
    add_channels<Lanes, 3>(t);
  } else {
    add_channels<Lanes, 1>(t);
  }
}

DELTA_DEFINE_BY_LANES(compute_taps, const tap_rows&, add_taps)

struct depthwise_plan {
  index part, parts;       ///< channels of a task
  index spans, span_rows;  ///< output rows of all images in a span
  index band;              ///< output rows of one image at a time, at most

  explicit depthwise_plan(const conv_shape& s) {
    constexpr index widest = 4 * vector_floats, band_floats = 6 * 1024;
    part = even_part(s.c, widest, vector_floats);
    parts = divide_up(s.c, part);
    const index rows = index(s.n) * s.oh();
    spans = std::clamp<index>(divide_up(wanted_grouped_tasks, parts), 1, rows);
    span_rows = divide_up(rows, spans);
    spans = divide_up(rows, span_rows);
    band = even_part(s.oh(), std::clamp<index>(band_floats / (part * s.ow()), 1, s.oh()), 1);
  }
};

}  // namespace

std::size_t depthwise_walk_workspace(const conv_shape& s) {
  return line_bytes(index(s.filter_size()));
}

void depthwise_walk(thread_pool& pool, const conv_shape& s, bool forward, const float* from,
                    const float* filter, float* to, std::byte* workspace) {
  const walk w(s, forward);
  auto* const weights = reinterpret_cast<float*>(workspace);
  by_taps(s, filter, weights);
  const index c = s.c;
  each_walk_phase(s, forward, [&](const walk_phase& f) {
    pool.parallel_for(std::size_t(w.n * f.v.pixels), [&](std::size_t task) {
      const index image = index(task) / f.v.pixels, row = index(task) % f.v.pixels;
      const index y = f.v.in0 + row * f.v.in_step;
      const index begin = std::clamp<index>(-y, 0, f.v.taps);
      const index end = std::clamp<index>(w.in_h - y, begin, f.v.taps);
      walk_row r{};
      r.u = f.u;
      r.channels = c;
      r.source_w = w.in_w;
      r.v_taps = end - begin;
      r.v_tap_stride = f.v.tap_step * s.kw * c;
      r.from = from + (image * w.in_h + y + begin) * w.in_w * c;
      r.weights = weights + ((f.v.tap0 + begin * f.v.tap_step) * s.kw + f.u.tap0) * c;
      const index out = f.v.pixel0 + row * f.v.pixel_step;
      r.to = to + ((image * w.out_h + out) * w.out_w + f.u.pixel0) * c;
      compute_row(r);
    });
  });
}

std::size_t depthwise_filter_workspace(const conv_shape& s) {
  return line_bytes(depthwise_plan(s).spans * index(s.filter_size()));
}

void depthwise_filter(thread_pool& pool, const conv_shape& s, const float* x, const float* dy,
                      float* dfilter, std::byte* workspace) {
  const depthwise_plan p(s);
  const index c = s.c, oh = s.oh(), ow = s.ow(), taps = index(s.kh) * s.kw;
  const auto v = walk_axis::forward(s.oh(), s.kh, s.stride, s.pad);
  const auto u = walk_axis::forward(s.ow(), s.kw, s.stride, s.pad);
  auto* const partials = reinterpret_cast<float*>(workspace);
  pool.parallel_for(std::size_t(p.spans * p.parts), [&](std::size_t task) {
    const index first = index(task) % p.parts * p.part, span = index(task) / p.parts;
    const index end = std::min(s.n * oh, (span + 1) * p.span_rows);
    float* sums = partials + span * taps * c;
    const index count = std::min(p.part, c - first);
    for (index tap = 0; tap < taps; ++tap) std::fill_n(sums + tap * c + first, count, 0.0f);
    for (index row = span * p.span_rows, rows = 0; row < end; row += rows) {
      const index image = row / oh, y = row % oh;
      rows = std::min({p.band, oh - y, end - row});
      for (index ky = 0; ky < s.kh; ++ky) {
        const reach down(v, ky, 1, s.h);
        const index y0 = std::max(down.begin, y), y1 = std::min(down.end, y + rows);
        const auto add = [&](index kx, index at_once, index x0, index x1) {
          if (y0 >= y1 || x0 >= x1) return;
          const index iy = y0 * s.stride - s.pad + ky, ix = x0 * s.stride - s.pad + kx;
          compute_taps({x + ((image * s.h + iy) * s.w + ix) * c + first,
                        dy + ((image * oh + y0) * ow + x0) * c + first,
                        sums + (ky * s.kw + kx) * c + first, at_once, count, c, y1 - y0, x1 - x0,
                        index(s.stride) * s.w * c, index(s.stride) * c, ow * c});
        };
        // Three taps at a time where all of them are inside; what is left of each alone.
        for (index kx = 0, at_once = 0; kx < s.kw; kx += at_once) {
          at_once = s.kw - kx >= 3 ? 3 : 1;
          const reach all(u, kx, at_once, s.w);
          add(kx, at_once, all.begin, all.end);
          for (index tap = kx; tap < kx + at_once; ++tap) {
            const reach each(u, tap, 1, s.w);
            add(tap, 1, each.begin, std::min(all.begin, each.end));
            add(tap, 1, std::max(all.end, each.begin), each.end);
          }
        }
      }
    }
  });
  for (index i = 0; i < c; ++i) {
    for (index t = 0; t < taps; ++t) {
      float sum = partials[t * c + i];
      for (index span = 1; span < p.spans; ++span) sum += partials[(span * taps + t) * c + i];
      dfilter[i * taps + t] = sum;
    }
  }
}

}  // namespace delta::executor::convolution
