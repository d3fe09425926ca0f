// Convolution, backward filter: dfilter = transposed dy * gathered input, contracted over all
// output pixels.
//
// The result is cut into tiles (some output channels by some filter rows) and the pixels into
// spans; a task makes one tile of one span's partial filter, and partial filters are added in the
// order of the spans. Small filters have several spans, large ones enough tiles and one span, so
// partial filters never take more than `partial_floats`.
#include "kernels/convolution_blocks.hpp"
#include "kernels/gemm.hpp"
#include "kernels/grouped.hpp"
#include "kernels/kernels.hpp"

namespace delta::executor {
namespace {

using namespace convolution;

constexpr index partial_floats = 1024 * 1024;
constexpr index wanted_tasks = 16;

struct filter_blocks {
  index all_rows;
  index spans, span_rows;  ///< partial filters, and pixels in each
  index channels, ky;      ///< a tile: output channels by filter rows
  index rows;              ///< pixels gathered at a time
};

filter_blocks cut(const conv_shape& s) {
  const index part = index(s.kw) * s.c;
  filter_blocks b{};
  b.all_rows = index(s.n) * s.oh() * s.ow();
  b.ky = std::clamp<index>(1536 / part, 1, s.kh);
  b.channels = even_part(s.k, 512, 16);
  const index room = std::max<index>(1, partial_floats / index(s.filter_size()));
  const auto tiles = [&] { return divide_up(s.k, b.channels) * divide_up(s.kh, b.ky); };
  b.rows = std::clamp<index>(scratch_floats / (b.ky * part), 48, 1024);
  b.spans = std::clamp<index>(b.all_rows / b.rows, 1, std::min(room, wanted_tasks));
  while (b.spans * tiles() < wanted_tasks && b.channels > 64) {
    b.channels = divide_up(divide_up(b.channels, 2), 16) * 16;
  }
  b.span_rows = divide_up(b.all_rows, b.spans);
  b.spans = divide_up(b.all_rows, b.span_rows);
  b.rows = even_part(b.span_rows, b.rows, 1);
  return b;
}

std::size_t partials_bytes(const conv_shape& s, const filter_blocks& b) {
  return b.spans == 1 ? 0 : line_bytes(b.spans * index(s.filter_size()));
}
std::size_t worker_scratch(const conv_shape& s, const filter_blocks& b) {
  return is_matrix_product(s) ? 0 : line_bytes(b.rows * b.ky * s.kw * s.c);
}

DELTA_VECTORISE void add_partials(index spans, index stride, index n,
                                  const float* __restrict partials, float* __restrict sum) {
  for (index i = 0; i < n; ++i) sum[i] = partials[i];
  for (index p = 1; p < spans; ++p) {
    for (index i = 0; i < n; ++i) sum[i] += partials[p * stride + i];
  }
}

}  // namespace

std::size_t conv_backward_filter_workspace(const conv_shape& s, int threads) {
  check_groups(s);
  if (is_depthwise(s)) return depthwise_filter_workspace(s);
  if (s.groups > 1) return grouped_filter_workspace(s, threads);
  const auto b = cut(s);
  return partials_bytes(s, b) + std::size_t(threads) * worker_scratch(s, b);
}

void conv_backward_filter(thread_pool& pool, const conv_shape& s, const float* x, const float* dy,
                          float* dfilter, std::byte* workspace) {
  check_groups(s);
  if (is_depthwise(s)) return depthwise_filter(pool, s, x, dy, dfilter, workspace);
  if (s.groups > 1) return grouped_filter(pool, s, x, dy, dfilter, workspace);
  const auto b = cut(s);
  const index part = index(s.kw) * s.c, depth = s.kh * part, size = index(s.filter_size());
  const index channel_tiles = divide_up(s.k, b.channels), ky_tiles = divide_up(s.kh, b.ky);
  float* partials = b.spans == 1 ? dfilter : reinterpret_cast<float*>(workspace);
  std::byte* scratch = workspace + partials_bytes(s, b);
  const auto scratch_bytes = worker_scratch(s, b);

  pool.parallel_for(
      std::size_t(b.spans * channel_tiles * ky_tiles), [&](std::size_t task, int worker) {
        const index span = index(task) % b.spans, tile = index(task) / b.spans;
        const index channel = tile % channel_tiles * b.channels, ky = tile / channel_tiles * b.ky;
        const index channels = std::min(b.channels, s.k - channel);
        const index ky_end = std::min<index>(ky + b.ky, s.kh), width = (ky_end - ky) * part;
        const index begin = span * b.span_rows, end = std::min(begin + b.span_rows, b.all_rows);
        float* result = partials + span * size + channel * depth + ky * part;
        auto* gathered = reinterpret_cast<float*>(scratch + std::size_t(worker) * scratch_bytes);
        for (index row = begin; row < end; row += b.rows) {
          const index rows = std::min(b.rows, end - row);
          const float* input = x + row * depth;
          if (!is_matrix_product(s)) {
            gather_input(s, x, row, rows, {ky, ky_end, 0, s.kw}, gathered);
            input = gathered;
          }
          gemm(op::transposed, op::plain, channels, width, rows, dy + row * s.k + channel, s.k,
               input, width, row == begin ? 0.0f : 1.0f, result, depth);
        }
      });
  if (b.spans > 1) {
    const auto chunks = ceil_div(std::size_t(size), 8192);
    pool.parallel_for(chunks, [&](std::size_t chunk) {
      const index first = index(chunk) * 8192;
      add_partials(b.spans, size, std::min<index>(8192, size - first), partials + first,
                   dfilter + first);
    });
  }
}

}  // namespace delta::executor
