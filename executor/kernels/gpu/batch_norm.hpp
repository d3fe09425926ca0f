// delta executor: batch norm on the GPU, in three launches each way: sums of parts of the rows,
// their join per channel, and one pass over the elements. Contracts in kernels/kernels.hpp.
//
// Sixteen rows at a time are summed in float and added to doubles: as exact as doubles, at a
// fraction of their price on GPUs that are slow at them. Forward, each thread measures from its
// first row and moments are joined by Chan's formula (Chan, Golub, LeVeque 1983), so that a mean
// far from zero costs no digits of the variance.
#pragma once

#include <cmath>

#include "kernels/gpu/engine.hpp"
#include "kernels/kernels.hpp"

namespace delta::executor::gpu {

inline constexpr std::size_t rows_in_float = 16;
/// Their number as a type, so that the loops over them are unrolled and their loads overlap.
template <std::size_t N>
struct row_count {
  static constexpr std::size_t value = N;
};

/// Of `count` values: their mean and the sum of squared deviations from it.
struct moments {
  double count, mean, squares;
};
DELTA_GPU inline moments join_moments(const moments& a, const moments& b) {
  const double count = a.count + b.count;
  if (!(count > 0.0)) return a;
  const double distance = b.mean - a.mean;
  return {count, a.mean + distance * (b.count / count),
          a.squares + b.squares + distance * distance * (a.count * b.count / count)};
}

struct sums {
  double first, second;
};

/// x's moments per part and channel: [part][mean, squares][c] doubles.
struct part_moments {
  const float* x;
  std::size_t c;
  double* parts;

  DELTA_GPU moments collect(std::size_t column, std::size_t row, std::size_t step,
                            std::size_t end) const {
    if (row >= end) return {0.0, 0.0, 0.0};
    const double count = double(divided(end - row - 1, step) + 1);
    const float shift = x[row * c + column];
    double sum = 0.0, square = 0.0;
    const auto add = [&](auto count_of) {
      constexpr std::size_t rows = decltype(count_of)::value;
      float s = 0.0f, q = 0.0f;
      for (std::size_t k = 0; k < rows; ++k) {
        const float d = x[(row + k * step) * c + column] - shift;
        s += d;
        q += d * d;
      }
      sum += double(s);
      square += double(q);
      row += rows * step;
    };
    while (row + (rows_in_float - 1) * step < end) add(row_count<rows_in_float>{});
    while (row < end) add(row_count<1>{});
    const double rest = square - sum * sum / count;
    return {count, double(shift) + sum / count, rest > 0.0 ? rest : 0.0};
  }
  DELTA_GPU moments join(const moments& a, const moments& b) const { return join_moments(a, b); }
  DELTA_GPU void finish(std::size_t part, std::size_t column, const moments& m) const {
    parts[2 * part * c + column] = m.mean;
    parts[(2 * part + 1) * c + column] = m.squares;
  }
};

/// Joins the parts of a channel, and derives all that is kept of it.
struct channel_statistics {
  const double* parts;
  column_cut cut;
  std::size_t c;
  float epsilon, momentum;
  const float* gamma;
  float *save_mean, *save_invstd, *scale;
  float *running_mean, *running_var;  ///< null: left alone

  DELTA_GPU moments collect(std::size_t column, std::size_t part, std::size_t step,
                            std::size_t end) const {
    moments m{0.0, 0.0, 0.0};
    for (; part < end; part += step) {
      const std::size_t left = cut.rows - part * cut.rows_per_part;
      const std::size_t rows = left < cut.rows_per_part ? left : cut.rows_per_part;
      m = join_moments(
          m, {double(rows), parts[2 * part * c + column], parts[(2 * part + 1) * c + column]});
    }
    return m;
  }
  DELTA_GPU moments join(const moments& a, const moments& b) const { return join_moments(a, b); }
  DELTA_GPU void finish(std::size_t, std::size_t column, const moments& m) const {
    const auto mean = float(m.mean);
    const auto invstd = float(1.0 / std::sqrt(m.squares / m.count + double(epsilon)));
    save_mean[column] = mean;
    save_invstd[column] = invstd;
    scale[column] = gamma[column] * invstd;
    if (running_mean) {
      running_mean[column] = (1.0f - momentum) * running_mean[column] + momentum * mean;
    }
    if (running_var) {
      const double unbiased = m.squares / (m.count > 2.0 ? m.count - 1.0 : 1.0);
      running_var[column] = (1.0f - momentum) * running_var[column] + momentum * float(unbiased);
    }
  }
};

/// y = (x - mean) * scale + beta.
struct normalise_functor {
  std::size_t c;
  const float *x, *mean, *scale, *beta;
  float* y;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const std::size_t channel = i - divided(i, c) * c;
    auto a = load<V>(x + i);
    const auto m = load<V>(mean + channel), s = load<V>(scale + channel),
               b = load<V>(beta + channel);
    for (int j = 0; j < V; ++j) a.at[j] = (a.at[j] - m.at[j]) * s.at[j] + b.at[j];
    store(y + i, a);
  }
};

/// y = (x - mean) * gamma / sqrt(var + epsilon) + beta.
struct normalise_by_running_functor {
  std::size_t c;
  float epsilon;
  const float *x, *gamma, *beta, *mean, *var;
  float* y;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const std::size_t channel = i - divided(i, c) * c;
    auto a = load<V>(x + i);
    const auto g = load<V>(gamma + channel), b = load<V>(beta + channel),
               m = load<V>(mean + channel), v = load<V>(var + channel);
    for (int j = 0; j < V; ++j) {
      a.at[j] = (a.at[j] - m.at[j]) * (g.at[j] / std::sqrt(v.at[j] + epsilon)) + b.at[j];
    }
    store(y + i, a);
  }
};

/// Sums of dy and of dy * (x - mean) per part and channel: [part][first, second][c] doubles.
struct part_gradients {
  const float *x, *dy, *mean;
  std::size_t c;
  double* parts;

  DELTA_GPU sums collect(std::size_t column, std::size_t row, std::size_t step,
                         std::size_t end) const {
    const float m = mean[column];
    sums total{0.0, 0.0};
    const auto add = [&](auto count_of) {
      constexpr std::size_t rows = decltype(count_of)::value;
      float s = 0.0f, p = 0.0f;
      for (std::size_t k = 0; k < rows; ++k) {
        const std::size_t at = (row + k * step) * c + column;
        s += dy[at];
        p += dy[at] * (x[at] - m);
      }
      total.first += double(s);
      total.second += double(p);
      row += rows * step;
    };
    while (row + (rows_in_float - 1) * step < end) add(row_count<rows_in_float>{});
    while (row < end) add(row_count<1>{});
    return total;
  }
  DELTA_GPU sums join(const sums& a, const sums& b) const {
    return {a.first + b.first, a.second + b.second};
  }
  DELTA_GPU void finish(std::size_t part, std::size_t column, const sums& s) const {
    parts[2 * part * c + column] = s.first;
    parts[(2 * part + 1) * c + column] = s.second;
  }
};

/// dx = gamma * invstd * (dy - mean(dy) - xhat * mean(dy * xhat)), xhat = (x - mean) * invstd, as
/// dx = dy * scale + (x - mean) * slope + offset.
struct channel_gradients {
  const double* parts;
  std::size_t rows, c;
  const float *gamma, *invstd;
  float *dgamma, *dbeta, *scale, *slope, *offset;

  DELTA_GPU sums collect(std::size_t column, std::size_t part, std::size_t step,
                         std::size_t end) const {
    sums total{0.0, 0.0};
    for (; part < end; part += step) {
      total.first += parts[2 * part * c + column];
      total.second += parts[(2 * part + 1) * c + column];
    }
    return total;
  }
  DELTA_GPU sums join(const sums& a, const sums& b) const {
    return {a.first + b.first, a.second + b.second};
  }
  DELTA_GPU void finish(std::size_t, std::size_t column, const sums& s) const {
    const double inverse = invstd[column], a = gamma[column] * inverse, count = double(rows);
    dbeta[column] = float(s.first);
    dgamma[column] = float(s.second * inverse);
    scale[column] = float(a);
    slope[column] = float(-a * s.second * inverse * inverse / count);
    offset[column] = float(-a * s.first / count);
  }
};

struct bn_gradient_functor {
  std::size_t c;
  const float *x, *dy, *mean, *scale, *slope, *offset;
  float* dx;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const std::size_t channel = i - divided(i, c) * c;
    const auto a = load<V>(x + i), m = load<V>(mean + channel), s = load<V>(scale + channel),
               l = load<V>(slope + channel), o = load<V>(offset + channel);
    auto d = load<V>(dy + i);
    for (int j = 0; j < V; ++j) {
      d.at[j] = d.at[j] * s.at[j] + ((a.at[j] - m.at[j]) * l.at[j] + o.at[j]);
    }
    store(dx + i, d);
  }
};

/// The workspace of both ways: the parts' sums, and three floats per channel.
struct bn_memory {
  column_cut cut;
  double* parts;
  float *scale, *slope, *offset;
  std::size_t bytes;

  bn_memory(const bn_shape& s, std::byte* at) : cut(cut_rows(s.rows, std::size_t(s.c))) {
    const auto c = std::size_t(s.c);
    carver carve(at);
    parts = carve.take<double>(2 * cut.parts * c);
    scale = carve.take<float>(c);
    slope = carve.take<float>(c);
    offset = carve.take<float>(c);
    bytes = carve.used();
  }
};

inline std::size_t bn_workspace(const bn_shape& s) {
  return bn_memory(s, nullptr).bytes;
}

template <class Engine>
void bn_forward(const Engine& engine, const bn_shape& s, const float* x, const float* gamma,
                const float* beta, float* y, float* save_mean, float* save_invstd,
                float* running_mean, float* running_var, std::byte* workspace) {
  const auto c = std::size_t(s.c);
  const bn_memory memory(s, workspace);
  engine.columns(memory.cut, c, part_moments{x, c, memory.parts});
  engine.columns(
      one_part(memory.cut.parts), c,
      channel_statistics{memory.parts, memory.cut, c, s.epsilon, s.momentum, gamma, save_mean,
                         save_invstd, memory.scale, running_mean, running_var});
  each_by_fours(engine, s.rows * c, c % 4 == 0 && aligned(x, save_mean, beta, y),
                normalise_functor{c, x, save_mean, memory.scale, beta, y});
}

template <class Engine>
void bn_inference(const Engine& engine, const bn_shape& s, const float* x, const float* gamma,
                  const float* beta, const float* running_mean, const float* running_var,
                  float* y) {
  const auto c = std::size_t(s.c);
  each_by_fours(
      engine, s.rows * c, c % 4 == 0 && aligned(x, gamma, beta, running_mean, running_var, y),
      normalise_by_running_functor{c, s.epsilon, x, gamma, beta, running_mean, running_var, y});
}

template <class Engine>
void bn_backward(const Engine& engine, const bn_shape& s, const float* x, const float* dy,
                 const float* gamma, const float* save_mean, const float* save_invstd, float* dx,
                 float* dgamma, float* dbeta, std::byte* workspace) {
  const auto c = std::size_t(s.c);
  const bn_memory memory(s, workspace);
  engine.columns(memory.cut, c, part_gradients{x, dy, save_mean, c, memory.parts});
  engine.columns(one_part(memory.cut.parts), c,
                 channel_gradients{memory.parts, s.rows, c, gamma, save_invstd, dgamma, dbeta,
                                   memory.scale, memory.slope, memory.offset});
  each_by_fours(
      engine, s.rows * c, c % 4 == 0 && aligned(x, dy, save_mean, dx),
      bn_gradient_functor{c, x, dy, save_mean, memory.scale, memory.slope, memory.offset, dx});
}

}  // namespace delta::executor::gpu
