// Grouped convolution, backward filter: see grouped.hpp.
//
// A task takes one block of channels over one span of rows, band by band, and sums into a partial
// filter of that block and span; the partial filters are added in the order of the spans.
#include "kernels/grouped_blocks.hpp"
#include "kernels/lanes.hpp"

namespace delta::executor::convolution {
namespace {

constexpr index partial_floats = 1024 * 1024;

/// Filter taps by channels of one vector in, by one vector out: [tap][channel][lane].
constexpr index tap_floats = vector_floats * vector_floats;

/// A block's band of one image.
struct filter_band {
  const float* x;   ///< tile of the input
  const float* dy;  ///< tile of the gradient, of the output's rows and columns
  float* sums;      ///< [out vector][in vector][tap][channel of the in vector][lane]
  tile_shape x_shape, dy_shape;
  index in, out, kh, kw, stride;
};

/// Adds one tap's products of `Channels` input channels with one vector of output channels.
template <int Lanes, int Channels>
DELTA_INLINE void add_tap(const filter_band& b, const float* x, const float* dy, float* sums) {
  for (index lane = 0; lane < vector_floats; lane += Lanes) {
    lanes<Lanes> sum[Channels] = {};
    for (index row = 0; row < b.dy_shape.rows; ++row) {
      const float* from = x + row * b.stride * b.x_shape.row_floats();
      const float* by = dy + row * b.dy_shape.row_floats() + lane;
      for (index i = 0; i < b.dy_shape.width; ++i, from += vector_floats, by += vector_floats) {
        lanes<Lanes> gradient;
        load(gradient, by);
#pragma GCC unroll 16
        for (int c = 0; c < Channels; ++c) sum[c] += from[c] * gradient;
      }
    }
#pragma GCC unroll 16
    for (int c = 0; c < Channels; ++c) {
      lanes<Lanes> before;
      load(before, sums + c * vector_floats + lane);
      before += sum[c];
      store(sums + c * vector_floats + lane, before);
    }
  }
}

template <int Lanes>
DELTA_INLINE void add_band(const filter_band& b) {
  float* sums = b.sums;
  for (index o = 0; o < b.out; o += vector_floats) {
    const float* dy = b.dy + o / vector_floats * b.dy_shape.vector_stride();
    for (index i = 0; i < b.in; i += vector_floats) {
      const float* vector = b.x + i / vector_floats * b.x_shape.vector_stride();
      for (index ky = 0; ky < b.kh; ++ky) {
        for (index kx = 0; kx < b.kw; ++kx, sums += tap_floats) {
          const float* x = vector + ky * b.x_shape.row_floats() +
                           kx % b.stride * b.x_shape.phase_floats() + kx / b.stride * vector_floats;
          if (b.in - i > vector_floats / 2) {
            add_tap<Lanes, 16>(b, x, dy, sums);
          } else {
            add_tap<Lanes, 8>(b, x, dy, sums);
          }
        }
      }
    }
  }
}

DELTA_DEFINE_BY_LANES(compute_filter_band, const filter_band&, add_band)

struct filter_plan {
  channel_blocks blocks;
  index block_floats;      ///< of a partial filter
  index spans, span_rows;  ///< output rows of all images in a span
  index band;              ///< output rows of one image at a time, at most
  tile_shape x, dy;        ///< of a full band
  std::size_t partials, scratch;

  explicit filter_plan(const conv_shape& s) : blocks(s.groups, s.c / s.groups, s.k / s.groups) {
    block_floats = blocks.out_vectors() * blocks.in_vectors() * s.kh * s.kw * tap_floats;
    const index size = blocks.count() * block_floats, rows = index(s.n) * s.oh();
    const index room = std::max<index>(1, partial_floats / size);
    spans =
        std::clamp<index>(divide_up(wanted_grouped_tasks, blocks.count()), 1, std::min(rows, room));
    span_rows = divide_up(rows, spans);
    spans = divide_up(rows, span_rows);
    x.width = index(s.ow() - 1) * s.stride + s.kw;
    x.step = s.stride;
    dy.width = s.ow();
    dy.step = 1;
    const index row_floats = std::max(blocks.in_vectors() * x.row_floats() * s.stride,
                                      blocks.out_vectors() * dy.row_floats());
    band = band_rows(s.oh(), row_floats, 1);
    x.rows = (band - 1) * s.stride + s.kh;
    dy.rows = band;
    partials = line_bytes(spans * size);
    scratch = line_bytes(x_floats() + dy_floats());
  }
  [[nodiscard]] index x_floats() const { return blocks.in_vectors() * x.vector_stride(); }
  [[nodiscard]] index dy_floats() const { return blocks.out_vectors() * dy.vector_stride(); }
};

/// The partial filters of one block, added up and put where the filter has them.
void collect(const conv_shape& s, const filter_plan& p, index block, const float* partials,
             float* dfilter) {
  const index in = p.blocks.in, out = p.blocks.out, taps = index(s.kh) * s.kw;
  const index first = block * p.blocks.merged, stride = p.blocks.count() * p.block_floats;
  const index in_vectors = divide_up(p.blocks.groups_in(block) * in, vector_floats);
  for (index o = 0; o < p.blocks.groups_in(block) * out; ++o) {
    for (index t = 0; t < taps; ++t) {
      float* to = dfilter + ((first * out + o) * taps + t) * in;
      for (index c = 0; c < in; ++c) {
        const index i = o / out * in + c;
        const index vector = o / vector_floats * in_vectors + i / vector_floats;
        const float* from = partials + block * p.block_floats + (vector * taps + t) * tap_floats +
                            i % vector_floats * vector_floats + o % vector_floats;
        float sum = *from;
        for (index span = 1; span < p.spans; ++span) sum += from[span * stride];
        to[c] = sum;
      }
    }
  }
}

}  // namespace

std::size_t grouped_filter_workspace(const conv_shape& s, int threads) {
  const filter_plan p(s);
  return p.partials + std::size_t(threads) * p.scratch;
}

void grouped_filter(thread_pool& pool, const conv_shape& s, const float* x, const float* dy,
                    float* dfilter, std::byte* workspace) {
  const filter_plan p(s);
  auto* const partials = reinterpret_cast<float*>(workspace);
  const index oh = s.oh(), ow = s.ow(), count = p.blocks.count(), all_rows = s.n * oh;
  pool.parallel_for(std::size_t(p.spans * count), [&](std::size_t task, int worker) {
    const index block = index(task) % count, span = index(task) / count;
    const index groups = p.blocks.groups_in(block), first = block * p.blocks.merged;
    auto* scratch =
        reinterpret_cast<float*>(workspace + p.partials + std::size_t(worker) * p.scratch);
    filter_band b{};
    b.x = scratch;
    b.dy = scratch + p.x_floats();
    b.sums = partials + (span * count + block) * p.block_floats;
    b.x_shape = p.x;
    b.dy_shape = p.dy;
    b.in = groups * p.blocks.in;
    b.out = groups * p.blocks.out;
    b.kh = s.kh;
    b.kw = s.kw;
    b.stride = s.stride;
    std::memset(b.sums, 0, sizeof(float) * std::size_t(p.block_floats));
    const index end = std::min(all_rows, (span + 1) * p.span_rows);
    for (index row = span * p.span_rows; row < end; row += b.dy_shape.rows) {
      const index image = row / oh, y = row % oh;
      b.dy_shape.rows = std::min({p.band, oh - y, end - row});
      b.x_shape.rows = (b.dy_shape.rows - 1) * s.stride + s.kh;
      fill_tile(b.x_shape, x + image * s.h * s.w * s.c + first * p.blocks.in, s.h, s.w, s.c, b.in,
                y * s.stride - s.pad, -s.pad, scratch);
      fill_tile(b.dy_shape, dy + image * oh * ow * s.k + first * p.blocks.out, oh, ow, s.k, b.out,
                y, 0, scratch + p.x_floats());
      compute_filter_band(b);
    }
  });
  pool.parallel_for(std::size_t(count),
                    [&](std::size_t block) { collect(s, p, index(block), partials, dfilter); });
}

}  // namespace delta::executor::convolution
