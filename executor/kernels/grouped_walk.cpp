// Grouped convolution, forward and backward data: see grouped.hpp.
#include <stdexcept>

#include "kernels/grouped_blocks.hpp"
#include "kernels/lanes.hpp"

namespace delta::executor::convolution {

void check_groups(const conv_shape& s) {
  if (s.groups < 1 || s.c % s.groups != 0 || s.k % s.groups != 0) {
    throw std::invalid_argument("convolution: the groups must divide the channels on both sides");
  }
}

namespace {

/// A block's band of one image and phase.
struct band {
  const float* tile;
  const float* weights;  ///< [out vector][in vector][tap][channel of the in vector][lane]
  float* to;             ///< the band's first pixel and the block's first channel
  tile_shape shape;
  index in, out;       ///< the block's channels
  index rows, pixels;  ///< of the destination
  index v_taps, u_taps, v_step;
  index row_stride, pixel_stride;  ///< of the destination, in floats
};

/// Pixels at a time. With the filter's vector they fill the registers of AVX2 and half of
/// AVX-512's, and they divide the widths of images of 224 pixels.
constexpr int many = 14, few = 7;

/// `Pixels` neighbours of one row by `Vectors` vectors of channels; stores `valid` of the pixels.
template <int Lanes, int Pixels, int Vectors>
DELTA_INLINE void walk_pixels(const band& b, const float* tile, const float* weights, float* to,
                              index channels, index valid) {
  const index taps = b.v_taps * b.u_taps;
  for (index lane = 0; lane < std::min(channels, vector_floats); lane += Lanes) {
    lanes<Lanes> sum[Vectors][Pixels] = {};
    const float* w = weights + lane;
    for (index first = 0; first < b.in; first += vector_floats) {
      const index count = std::min(vector_floats, b.in - first);
      const float* vector = tile + first / vector_floats * b.shape.vector_stride();
      for (index ty = 0; ty < b.v_taps; ++ty) {
        const float* row = vector + ty * b.shape.row_floats();
        index phase = 0, at = 0;
        for (index tx = 0; tx < b.u_taps; ++tx) {
          const float* x = row + phase * b.shape.phase_floats() + at;
          for (index i = 0; i < count; ++i, w += vector_floats) {
#pragma GCC unroll 2
            for (int v = 0; v < Vectors; ++v) {
              lanes<Lanes> by;
              load(by, w + v * taps * b.in * vector_floats);
#pragma GCC unroll 14
              for (int p = 0; p < Pixels; ++p) sum[v][p] += x[p * vector_floats + i] * by;
            }
          }
          if (++phase == b.shape.step) phase = 0, at += vector_floats;
        }
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      const index from = v * vector_floats + lane;
      if (channels - from >= Lanes && valid == Pixels) {
#pragma GCC unroll 14
        for (int p = 0; p < Pixels; ++p) store(to + p * b.pixel_stride + from, sum[v][p]);
      } else {
        float spilled[Pixels][Lanes];
#pragma GCC unroll 14
        for (int p = 0; p < Pixels; ++p) store(spilled[p], sum[v][p]);
        const auto bytes =
            sizeof(float) * std::size_t(std::clamp<index>(channels - from, 0, Lanes));
        for (index p = 0; p < valid; ++p) {
          std::memcpy(to + p * b.pixel_stride + from, spilled[p], bytes);
        }
      }
    }
  }
}

template <int Lanes>
DELTA_INLINE void walk_band(const band& b) {
  const index vector_weights = b.v_taps * b.u_taps * b.in * vector_floats;
  for (index row = 0; row < b.rows; ++row) {
    const float* tile = b.tile + row * b.v_step * b.shape.row_floats();
    // A row of few pixels has too few sums for the latency of an addition, but for two vectors.
    const index vectors = b.pixels <= few && b.out > vector_floats ? 2 : 1;
    for (index first = 0; first < b.out; first += vectors * vector_floats) {
      const float* weights = b.weights + first / vector_floats * vector_weights;
      float* to = b.to + row * b.row_stride + first;
      const index channels = b.out - first;
      for (index i = 0; i < b.pixels;) {
        const index left = b.pixels - i;
        const float* x = tile + i * vector_floats;
        float* y = to + i * b.pixel_stride;
        if (left > few) {
          walk_pixels<Lanes, many, 1>(b, x, weights, y, channels, std::min<index>(left, many));
          i += many;
        } else {
          if (vectors == 2 && channels > vector_floats) {
            walk_pixels<Lanes, few, 2>(b, x, weights, y, channels, left);
          } else {
            walk_pixels<Lanes, few, 1>(b, x, weights, y, channels, left);
          }
          i += few;
        }
      }
    }
  }
}

DELTA_DEFINE_BY_LANES(compute_band, const band&, walk_band)

/// What one phase is cut into.
struct phase_plan {
  index rows, bands;  ///< rows of destination pixels in a band
  tile_shape tile;
  phase_plan(const walk_phase& f, const channel_blocks& blocks) {
    tile.width = f.u.under(f.u.pixels);
    tile.step = f.u.in_step;
    rows = band_rows(f.v.pixels, blocks.in_vectors() * tile.row_floats(), f.v.in_step);
    bands = divide_up(f.v.pixels, rows);
    tile.rows = f.v.under(rows);
  }
  /// The last pixels of a row are computed `many` at a time, and may read beyond the tile's end.
  [[nodiscard]] index floats(const channel_blocks& blocks) const {
    return blocks.in_vectors() * tile.vector_stride() + many * vector_floats;
  }
};

index block_weights(const conv_shape& s, const channel_blocks& blocks) {
  return blocks.out_vectors() * s.kh * s.kw * blocks.merged * blocks.in * vector_floats;
}

std::size_t weights_bytes(const conv_shape& s, const channel_blocks& blocks) {
  return line_bytes(blocks.count() * block_weights(s, blocks));
}

std::size_t tile_bytes(const conv_shape& s, bool forward, const channel_blocks& blocks) {
  index most = 0;
  each_walk_phase(s, forward, [&](const walk_phase& f) {
    most = std::max(most, phase_plan(f, blocks).floats(blocks));
  });
  return line_bytes(most);
}

/// One block's filter for one phase, in the order in which walk_pixels reads it; zero where the two
/// channels are of different groups. Returns its end.
float* arrange(const conv_shape& s, const walk& w, const walk_phase& f,
               const channel_blocks& blocks, index block, const float* filter, float* to) {
  const index depth = s.c / s.groups, filter_floats = index(s.kh) * s.kw * depth;
  const index groups = blocks.groups_in(block), in = groups * w.in, out = groups * w.out;
  // From one output channel of the filter to the next, from one channel of a group to the next.
  const index i_step = w.is_forward ? 1 : filter_floats, o_step = w.is_forward ? filter_floats : 1;
  for (index o0 = 0; o0 < out; o0 += vector_floats) {
    for (index i0 = 0; i0 < in; i0 += vector_floats) {
      for (index t = 0; t < f.v.taps * f.u.taps; ++t) {
        const index ky = f.v.tap0 + t / f.u.taps * f.v.tap_step;
        const index kx = f.u.tap0 + t % f.u.taps * f.u.tap_step;
        const float* tap = filter + (ky * s.kw + kx) * depth;
        for (index i = i0; i < std::min(in, i0 + vector_floats); ++i, to += vector_floats) {
          std::memset(to, 0, sizeof(float) * vector_floats);
          const index group = i / w.in;
          const index begin = std::max(o0, group * w.out);
          const index end = std::min(o0 + vector_floats, (group + 1) * w.out);
          const float* from = tap +
                              (block * blocks.merged + group) * (s.k / s.groups) * filter_floats +
                              (i - group * w.in) * i_step - group * w.out * o_step;
          for (index o = begin; o < end; ++o) to[o - o0] = from[o * o_step];
        }
      }
    }
  }
  return to;
}

}  // namespace

std::size_t grouped_walk_workspace(const conv_shape& s, bool forward, int threads) {
  const walk w(s, forward);
  const channel_blocks blocks(w.groups, w.in, w.out);
  return weights_bytes(s, blocks) + std::size_t(threads) * tile_bytes(s, forward, blocks);
}

void grouped_walk(thread_pool& pool, const conv_shape& s, bool forward, const float* from,
                  const float* filter, float* to, std::byte* workspace) {
  const walk w(s, forward);
  const channel_blocks blocks(w.groups, w.in, w.out);
  auto* const weights = reinterpret_cast<float*>(workspace);
  const index stride = block_weights(s, blocks);
  pool.parallel_for(std::size_t(blocks.count()), [&](std::size_t task) {
    float* end = weights + index(task) * stride;
    each_walk_phase(s, forward, [&](const walk_phase& f) {
      end = arrange(s, w, f, blocks, index(task), filter, end);
    });
  });

  std::byte* const tiles = workspace + weights_bytes(s, blocks);
  const std::size_t scratch = tile_bytes(s, forward, blocks);
  index taps_before = 0;  // taps of the phases that lie before this one in a block's filter
  each_walk_phase(s, forward, [&](const walk_phase& f) {
    const phase_plan plan(f, blocks);
    pool.parallel_for(std::size_t(w.n * blocks.count() * plan.bands), [&](std::size_t task,
                                                                          int worker) {
      const index part = index(task) % plan.bands, row = part * plan.rows;
      const index block = index(task) / plan.bands % blocks.count();
      const index image = index(task) / plan.bands / blocks.count();
      const index groups = blocks.groups_in(block), first = block * blocks.merged;
      auto* tile = reinterpret_cast<float*>(tiles + std::size_t(worker) * scratch);
      band b{};
      b.in = groups * w.in;
      b.out = groups * w.out;
      b.rows = std::min(plan.rows, f.v.pixels - row);
      b.pixels = f.u.pixels;
      b.shape = plan.tile;
      b.shape.rows = f.v.under(b.rows);
      b.v_taps = f.v.taps;
      b.u_taps = f.u.taps;
      b.v_step = f.v.in_step;
      b.pixel_stride = f.u.pixel_step * w.out_channels();
      b.row_stride = f.v.pixel_step * w.out_w * w.out_channels();
      fill_tile(b.shape, from + image * w.in_h * w.in_w * w.in_channels() + first * w.in, w.in_h,
                w.in_w, w.in_channels(), b.in, f.v.in0 + row * f.v.in_step, f.u.in0, tile);
      b.tile = tile;
      b.weights = weights + block * stride +
                  taps_before * divide_up(b.out, vector_floats) * b.in * vector_floats;
      b.to = to +
             ((image * w.out_h + f.v.pixel0 + row * f.v.pixel_step) * w.out_w + f.u.pixel0) *
                 w.out_channels() +
             first * w.out;
      compute_band(b);
    });
    taps_before += f.v.taps * f.u.taps;
  });
}

}  // namespace delta::executor::convolution
