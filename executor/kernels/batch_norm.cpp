// Batch norm, bound by memory: the statistics read x once, the normalisation reads and writes once.
//
// Rows are cut into at most `max_blocks` blocks, a number that depends on the shape alone. Within a
// block, eight rows at a time are summed as a tree in float and added to sums in double; blocks are
// joined in double, in block order. Forward, each block measures from its own shift (the mean of
// its first rows) and blocks are joined by Chan's formula for two samples (Chan, Golub, LeVeque
// 1983), so that a mean far from zero costs no digits of the variance.
//
// The fused operators run the same loops over the same blocks, so their bits are those of the
// operators that they stand for: what they do not write to memory they keep in tiles that fit the
// cache.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/kernels.hpp"
#include "kernels/vectorise.hpp"

namespace delta::executor {
namespace {

constexpr std::size_t max_blocks = 64;
constexpr std::size_t group = 8;           ///< rows summed in float
constexpr std::size_t channel_chunk = 64;  ///< channels per task when blocks are joined

std::size_t rows_per_block(const bn_shape& s) {
  const auto rows = std::max(element_chunk / std::size_t(s.c), ceil_div(s.rows, max_blocks));
  return ceil_div(std::max<std::size_t>(rows, 1), group) * group;
}
std::size_t blocks(const bn_shape& s) {
  return ceil_div(s.rows, rows_per_block(s));
}
std::size_t rows_in_block(const bn_shape& s, std::size_t b) {
  return std::min(rows_per_block(s), s.rows - b * rows_per_block(s));
}

/// Per block two sums per channel in double; then per channel three floats.
double* block_sums(std::byte* workspace, const bn_shape& s, std::size_t b) {
  return reinterpret_cast<double*>(workspace) + b * 2 * std::size_t(s.c);
}
float* coefficients(std::byte* workspace, const bn_shape& s) {
  return reinterpret_cast<float*>(block_sums(workspace, s, blocks(s)));
}
std::size_t workspace_bytes(const bn_shape& s) {
  return blocks(s) * 2 * std::size_t(s.c) * sizeof(double) + 3 * std::size_t(s.c) * sizeof(float);
}

/// The mean of one to eight rows: good enough to measure from.
DELTA_VECTORISE void first_mean(std::size_t rows, std::size_t c, const float* __restrict x,
                                float* __restrict mean) {
  const float scale = 1.0f / float(rows);
  for (std::size_t i = 0; i < c; ++i) mean[i] = x[i];
  for (std::size_t r = 1; r < rows; ++r) {
    for (std::size_t i = 0; i < c; ++i) mean[i] += x[r * c + i];
  }
  for (std::size_t i = 0; i < c; ++i) mean[i] *= scale;
}

/// sum += x - shift and square += (x - shift)^2 over whole groups of rows.
DELTA_VECTORISE void add_moments(std::size_t groups, std::size_t c, const float* __restrict x,
                                 const float* __restrict shift, double* __restrict sum,
                                 double* __restrict square) {
  for (std::size_t g = 0; g < groups; ++g, x += group * c) {
    for (std::size_t i = 0; i < c; ++i) {
      const float m = shift[i];
      const float a = x[i] - m, b = x[c + i] - m, d = x[2 * c + i] - m, e = x[3 * c + i] - m,
                  f = x[4 * c + i] - m, h = x[5 * c + i] - m, j = x[6 * c + i] - m,
                  k = x[7 * c + i] - m;
      sum[i] += double(((a + b) + (d + e)) + ((f + h) + (j + k)));
      square[i] +=
          double(((a * a + b * b) + (d * d + e * e)) + ((f * f + h * h) + (j * j + k * k)));
    }
  }
}
DELTA_VECTORISE void add_moments_row(std::size_t c, const float* __restrict x,
                                     const float* __restrict shift, double* __restrict sum,
                                     double* __restrict square) {
  for (std::size_t i = 0; i < c; ++i) {
    const float d = x[i] - shift[i];
    sum[i] += double(d);
    square[i] += double(d * d);
  }
}

/// sum += dy and product += dy * (x - mean) over whole groups of rows.
DELTA_VECTORISE void add_gradients(std::size_t groups, std::size_t c, const float* __restrict x,
                                   const float* __restrict dy, const float* __restrict mean,
                                   double* __restrict sum, double* __restrict product) {
  for (std::size_t g = 0; g < groups; ++g, x += group * c, dy += group * c) {
    for (std::size_t i = 0; i < c; ++i) {
      const float m = mean[i];
      const float a = dy[i], b = dy[c + i], d = dy[2 * c + i], e = dy[3 * c + i], f = dy[4 * c + i],
                  h = dy[5 * c + i], j = dy[6 * c + i], k = dy[7 * c + i];
      sum[i] += double(((a + b) + (d + e)) + ((f + h) + (j + k)));
      product[i] += double(((a * (x[i] - m) + b * (x[c + i] - m)) +
                            (d * (x[2 * c + i] - m) + e * (x[3 * c + i] - m))) +
                           ((f * (x[4 * c + i] - m) + h * (x[5 * c + i] - m)) +
                            (j * (x[6 * c + i] - m) + k * (x[7 * c + i] - m))));
    }
  }
}
DELTA_VECTORISE void add_gradients_row(std::size_t c, const float* __restrict x,
                                       const float* __restrict dy, const float* __restrict mean,
                                       double* __restrict sum, double* __restrict product) {
  for (std::size_t i = 0; i < c; ++i) {
    sum[i] += double(dy[i]);
    product[i] += double(dy[i] * (x[i] - mean[i]));
  }
}

/// y = (x - mean) * scale + beta. Not x * scale + (beta - mean * scale), which loses digits where
/// the mean is large beside the deviation.
DELTA_VECTORISE void normalise(std::size_t rows, std::size_t c, const float* __restrict x,
                               const float* __restrict mean, const float* __restrict scale,
                               const float* __restrict beta, float* __restrict y) {
  for (std::size_t r = 0; r < rows; ++r, x += c, y += c) {
    for (std::size_t i = 0; i < c; ++i) y[i] = (x[i] - mean[i]) * scale[i] + beta[i];
  }
}

/// y = max((x - mean) * scale + beta, 0); a NaN stays one.
DELTA_VECTORISE void normalise_relu(std::size_t rows, std::size_t c, const float* __restrict x,
                                    const float* __restrict mean, const float* __restrict scale,
                                    const float* __restrict beta, float* __restrict y) {
  for (std::size_t r = 0; r < rows; ++r, x += c, y += c) {
    for (std::size_t i = 0; i < c; ++i) {
      const float v = (x[i] - mean[i]) * scale[i] + beta[i];
      y[i] = v < 0.0f ? 0.0f : v;
    }
  }
}
/// y = max((x - mean) * scale + beta + residual, 0); a NaN stays one.
DELTA_VECTORISE void normalise_add_relu(std::size_t rows, std::size_t c, const float* __restrict x,
                                        const float* __restrict mean, const float* __restrict scale,
                                        const float* __restrict beta,
                                        const float* __restrict residual, float* __restrict y) {
  for (std::size_t r = 0; r < rows; ++r, x += c, y += c, residual += c) {
    for (std::size_t i = 0; i < c; ++i) {
      const float v = ((x[i] - mean[i]) * scale[i] + beta[i]) + residual[i];
      y[i] = v < 0.0f ? 0.0f : v;
    }
  }
}

/// By bits, or the compiler makes dy a masked load, which is a third slower.
inline float let_through(float value, bool open) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & (open ? ~0u : 0u));
}
/// gated = dy where normalise_relu() gives more than zero, else 0.
DELTA_VECTORISE void gate(std::size_t rows, std::size_t c, const float* __restrict x,
                          const float* __restrict dy, const float* __restrict mean,
                          const float* __restrict scale, const float* __restrict beta,
                          float* __restrict gated) {
  for (std::size_t r = 0; r < rows; ++r, x += c, dy += c, gated += c) {
    for (std::size_t i = 0; i < c; ++i) {
      gated[i] = let_through(dy[i], (x[i] - mean[i]) * scale[i] + beta[i] > 0.0f);
    }
  }
}
/// gated = dy where y > 0, else 0.
DELTA_VECTORISE void gate_by_output(std::size_t n, const float* __restrict y,
                                    const float* __restrict dy, float* __restrict gated) {
  for (std::size_t i = 0; i < n; ++i) gated[i] = let_through(dy[i], y[i] > 0.0f);
}

/// dx = dy * scale + (x - mean) * slope + offset.
DELTA_VECTORISE void gradient(std::size_t rows, std::size_t c, const float* __restrict x,
                              const float* __restrict dy, const float* __restrict mean,
                              const float* __restrict scale, const float* __restrict slope,
                              const float* __restrict offset, float* __restrict dx) {
  for (std::size_t r = 0; r < rows; ++r, x += c, dy += c, dx += c) {
    for (std::size_t i = 0; i < c; ++i) {
      dx[i] = dy[i] * scale[i] + ((x[i] - mean[i]) * slope[i] + offset[i]);
    }
  }
}

/// Calls `body(channel)` for every channel, chunks of channels in parallel.
template <class F>
void each_channel(thread_pool& pool, const bn_shape& s, const F& body) {
  const auto c = std::size_t(s.c);
  pool.parallel_for(ceil_div(c, channel_chunk), [&](std::size_t task) {
    const auto end = std::min(c, (task + 1) * channel_chunk);
    for (auto i = task * channel_chunk; i < end; ++i) body(i);
  });
}

/// Calls `body(first_row, rows)` on chunks of rows; for results that do not depend on the cut.
template <class F>
void row_chunks(thread_pool& pool, const bn_shape& s, const F& body) {
  const auto rows = std::max<std::size_t>(1, element_chunk / std::size_t(s.c));
  pool.parallel_for(ceil_div(s.rows, rows), [&](std::size_t task) {
    body(task * rows, std::min(rows, s.rows - task * rows));
  });
}

/// A block's mean and sum of squared deviations, per channel, left where the sums were.
void block_moments(const bn_shape& s, std::size_t b, const float* x, std::byte* workspace,
                   float* shift) {
  const auto c = std::size_t(s.c);
  const auto rows = rows_in_block(s, b);
  x += b * rows_per_block(s) * c;
  double* sum = block_sums(workspace, s, b);
  double* square = sum + c;
  std::fill_n(sum, 2 * c, 0.0);
  first_mean(std::min(rows, group), c, x, shift);
  add_moments(rows / group, c, x, shift, sum, square);
  for (auto r = rows / group * group; r < rows; ++r) {
    add_moments_row(c, x + r * c, shift, sum, square);
  }
  for (std::size_t i = 0; i < c; ++i) {
    square[i] = std::max(0.0, square[i] - sum[i] * sum[i] / double(rows));
    sum[i] = double(shift[i]) + sum[i] / double(rows);
  }
}

/// Forward: the statistics of x, and the scale that the normalisation takes, which is returned.
const float* batch_statistics(thread_pool& pool, const bn_shape& s, const float* x,
                              const float* gamma, float* save_mean, float* save_invstd,
                              float* running_mean, float* running_var, std::byte* workspace) {
  const auto c = std::size_t(s.c);
  float* scale = coefficients(workspace, s);
  float* shifts = scale + 3 * c;
  pool.parallel_for(blocks(s), [&](std::size_t b, int worker) {
    block_moments(s, b, x, workspace, shifts + std::size_t(worker) * c);
  });
  each_channel(pool, s, [&](std::size_t i) {
    double count = 0.0, mean = 0.0, squares = 0.0;
    for (std::size_t b = 0; b < blocks(s); ++b) {
      const double* sums = block_sums(workspace, s, b);
      const auto rows = double(rows_in_block(s, b));
      const double delta = sums[i] - mean;
      squares += sums[c + i] + delta * delta * (count * rows / (count + rows));
      mean += delta * (rows / (count + rows));
      count += rows;
    }
    save_mean[i] = float(mean);
    save_invstd[i] = float(1.0 / std::sqrt(squares / count + double(s.epsilon)));
    scale[i] = gamma[i] * save_invstd[i];
    if (running_mean) {
      running_mean[i] = (1.0f - s.momentum) * running_mean[i] + s.momentum * float(mean);
    }
    if (running_var) {
      const double unbiased = squares / std::max(1.0, count - 1.0);
      running_var[i] = (1.0f - s.momentum) * running_var[i] + s.momentum * float(unbiased);
    }
  });
  return scale;
}

/// Backward: adds some rows of a block to its sums; `rows` are a multiple of `group`, or the rest.
void add_block_gradients(const bn_shape& s, std::size_t rows, const float* x, const float* dy,
                         const float* mean, double* sum) {
  const auto c = std::size_t(s.c);
  add_gradients(rows / group, c, x, dy, mean, sum, sum + c);
  for (auto r = rows / group * group; r < rows; ++r) {
    add_gradients_row(c, x + r * c, dy + r * c, mean, sum, sum + c);
  }
}

/// dx = gamma * invstd * (dy - mean(dy) - xhat * mean(dy * xhat)), xhat = (x - mean) * invstd, as
/// dx = dy * scale + (x - mean) * slope + offset, of the blocks' sums.
struct gradient_factors {
  float *scale, *slope, *offset;
  gradient_factors(std::byte* workspace, const bn_shape& s)
      : scale(coefficients(workspace, s)),
        slope(scale + std::size_t(s.c)),
        offset(slope + std::size_t(s.c)) {}
};
gradient_factors join_gradients(thread_pool& pool, const bn_shape& s, const float* gamma,
                                const float* save_invstd, float* dgamma, float* dbeta,
                                std::byte* workspace) {
  const auto c = std::size_t(s.c);
  const gradient_factors f(workspace, s);
  each_channel(pool, s, [&](std::size_t i) {
    double sum = 0.0, product = 0.0;
    for (std::size_t b = 0; b < blocks(s); ++b) {
      sum += block_sums(workspace, s, b)[i];
      product += block_sums(workspace, s, b)[c + i];
    }
    const double invstd = save_invstd[i], a = gamma[i] * invstd, count = double(s.rows);
    dbeta[i] = float(sum);
    dgamma[i] = float(product * invstd);
    f.scale[i] = float(a);
    f.slope[i] = float(-a * product * invstd * invstd / count);
    f.offset[i] = float(-a * sum / count);
  });
  return f;
}

/// Rows of a tile that stays in a core's cache: whole groups, some 16 KiB.
std::size_t tile_rows(const bn_shape& s) {
  return ceil_div(std::max<std::size_t>(1, 4096 / std::size_t(s.c)), group) * group;
}

/// Calls `body(row, rows)` on the tiles of rows [first, first + rows), in order.
template <class F>
void tiles(const bn_shape& s, std::size_t first, std::size_t rows, const F& body) {
  for (std::size_t r = 0; r < rows; r += tile_rows(s)) {
    body(first + r, std::min(tile_rows(s), rows - r));
  }
}

}  // namespace

// Forward needs, beyond the sums, a shift per worker and the scale.
std::size_t bn_forward_workspace(const bn_shape& s, int threads) {
  return workspace_bytes(s) + std::size_t(threads) * std::size_t(s.c) * sizeof(float);
}
std::size_t bn_backward_workspace(const bn_shape& s, int) {
  return workspace_bytes(s);
}

// Beyond those the scale of the forward pass, and a tile per worker.
std::size_t bn_relu_backward_workspace(const bn_shape& s, int threads) {
  return workspace_bytes(s) +
         (1 + std::size_t(threads) * tile_rows(s)) * std::size_t(s.c) * sizeof(float);
}

void bn_forward(thread_pool& pool, const bn_shape& s, const float* x, const float* gamma,
                const float* beta, float* y, float* save_mean, float* save_invstd,
                float* running_mean, float* running_var, std::byte* workspace) {
  const auto c = std::size_t(s.c);
  const float* scale = batch_statistics(pool, s, x, gamma, save_mean, save_invstd, running_mean,
                                        running_var, workspace);
  row_chunks(pool, s, [=](std::size_t r, std::size_t rows) {
    normalise(rows, c, x + r * c, save_mean, scale, beta, y + r * c);
  });
}

void bn_relu_forward(thread_pool& pool, const bn_shape& s, const float* x, const float* gamma,
                     const float* beta, float* y, float* save_mean, float* save_invstd,
                     float* running_mean, float* running_var, std::byte* workspace) {
  const auto c = std::size_t(s.c);
  const float* scale = batch_statistics(pool, s, x, gamma, save_mean, save_invstd, running_mean,
                                        running_var, workspace);
  row_chunks(pool, s, [=](std::size_t r, std::size_t rows) {
    normalise_relu(rows, c, x + r * c, save_mean, scale, beta, y + r * c);
  });
}

void bn_add_relu_forward(thread_pool& pool, const bn_shape& s, const float* x, const float* gamma,
                         const float* beta, const float* residual, float* y, float* save_mean,
                         float* save_invstd, float* running_mean, float* running_var,
                         std::byte* workspace) {
  const auto c = std::size_t(s.c);
  const float* scale = batch_statistics(pool, s, x, gamma, save_mean, save_invstd, running_mean,
                                        running_var, workspace);
  row_chunks(pool, s, [=](std::size_t r, std::size_t rows) {
    normalise_add_relu(rows, c, x + r * c, save_mean, scale, beta, residual + r * c, y + r * c);
  });
}

void bn_inference(thread_pool& pool, const bn_shape& s, const float* x, const float* gamma,
                  const float* beta, const float* running_mean, const float* running_var,
                  float* y) {
  const auto c = std::size_t(s.c);
  row_chunks(pool, s, [=](std::size_t r, std::size_t rows) {
    // No workspace: a tile of channels at a time, its scale on the stack.
    for (std::size_t first = 0; first < c; first += channel_chunk) {
      const auto width = std::min(channel_chunk, c - first);
      float scale[channel_chunk];
      for (std::size_t i = 0; i < width; ++i) {
        scale[i] = gamma[first + i] / std::sqrt(running_var[first + i] + s.epsilon);
      }
      for (std::size_t p = r; p < r + rows; ++p) {
        normalise(1, width, x + p * c + first, running_mean + first, scale, beta + first,
                  y + p * c + first);
      }
    }
  });
}

void bn_backward(thread_pool& pool, const bn_shape& s, const float* x, const float* dy,
                 const float* gamma, const float* save_mean, const float* save_invstd, float* dx,
                 float* dgamma, float* dbeta, std::byte* workspace) {
  const auto c = std::size_t(s.c);
  pool.parallel_for(blocks(s), [&](std::size_t b) {
    const auto at = b * rows_per_block(s) * c;
    double* sum = block_sums(workspace, s, b);
    std::fill_n(sum, 2 * c, 0.0);
    add_block_gradients(s, rows_in_block(s, b), x + at, dy + at, save_mean, sum);
  });
  const auto f = join_gradients(pool, s, gamma, save_invstd, dgamma, dbeta, workspace);
  row_chunks(pool, s, [=](std::size_t r, std::size_t rows) {
    const auto at = r * c;
    gradient(rows, c, x + at, dy + at, save_mean, f.scale, f.slope, f.offset, dx + at);
  });
}

void bn_relu_backward(thread_pool& pool, const bn_shape& s, const float* x, const float* dy,
                      const float* gamma, const float* beta, const float* save_mean,
                      const float* save_invstd, float* dx, float* dgamma, float* dbeta,
                      std::byte* workspace) {
  const auto c = std::size_t(s.c);
  float* scale = coefficients(workspace, s) + 3 * c;  // the forward pass's
  for (std::size_t i = 0; i < c; ++i) scale[i] = gamma[i] * save_invstd[i];
  const auto tile_of = [&](int worker) {
    return scale + c + std::size_t(worker) * tile_rows(s) * c;
  };
  pool.parallel_for(blocks(s), [&](std::size_t b, int worker) {
    float* tile = tile_of(worker);
    double* sum = block_sums(workspace, s, b);
    std::fill_n(sum, 2 * c, 0.0);
    tiles(s, b * rows_per_block(s), rows_in_block(s, b), [&](std::size_t r, std::size_t rows) {
      gate(rows, c, x + r * c, dy + r * c, save_mean, scale, beta, tile);
      add_block_gradients(s, rows, x + r * c, tile, save_mean, sum);
    });
  });
  const auto f = join_gradients(pool, s, gamma, save_invstd, dgamma, dbeta, workspace);
  pool.parallel_for(blocks(s), [&](std::size_t b, int worker) {
    float* tile = tile_of(worker);
    tiles(s, b * rows_per_block(s), rows_in_block(s, b), [&](std::size_t r, std::size_t rows) {
      gate(rows, c, x + r * c, dy + r * c, save_mean, scale, beta, tile);
      gradient(rows, c, x + r * c, tile, save_mean, f.scale, f.slope, f.offset, dx + r * c);
    });
  });
}

void bn_add_relu_backward(thread_pool& pool, const bn_shape& s, const float* x, const float* dy,
                          const float* y, const float* gamma, const float* save_mean,
                          const float* save_invstd, float* dx, float* dresidual, float* dgamma,
                          float* dbeta, std::byte* workspace) {
  const auto c = std::size_t(s.c);
  pool.parallel_for(blocks(s), [&](std::size_t b) {
    double* sum = block_sums(workspace, s, b);
    std::fill_n(sum, 2 * c, 0.0);
    tiles(s, b * rows_per_block(s), rows_in_block(s, b), [&](std::size_t r, std::size_t rows) {
      const auto at = r * c;
      gate_by_output(rows * c, y + at, dy + at, dresidual + at);
      add_block_gradients(s, rows, x + at, dresidual + at, save_mean, sum);
    });
  });
  const auto f = join_gradients(pool, s, gamma, save_invstd, dgamma, dbeta, workspace);
  row_chunks(pool, s, [=](std::size_t r, std::size_t rows) {
    const auto at = r * c;
    gradient(rows, c, x + at, dresidual + at, save_mean, f.scale, f.slope, f.offset, dx + at);
  });
}

}  // namespace delta::executor
