// delta executor: the sums over rows that batch norm on the GPU needs: of x and its square, and of
// the gradient and its product with x. Internal to the kernels.
//
// A thread has four neighbouring channels, so that it loads 16 bytes at a time. Sixteen rows are
// summed in float and added to doubles: as exact as doubles, at a fraction of their price on GPUs
// that are slow at them. Nothing divides until a channel's sums are whole.
//
// What is multiplied and added is written as std::fma: nvcc would fuse some of it in any case, and
// which may differ from kernel to kernel. As it is, an operator and its fused form have the same
// bits, and so has the host.
#pragma once

#include <cmath>
#include <utility>

#include "kernels/gpu/elementwise.hpp"
#include "kernels/gpu/engine.hpp"

namespace delta::executor::gpu {

inline constexpr std::size_t rows_in_float = 16;
/// A number as a type, so that loops over it are unrolled and their loads overlap.
template <std::size_t N>
struct row_count {
  static constexpr std::size_t value = N;
};

struct alignas(16) sums {
  double first, second;
};
DELTA_GPU inline sums operator+(const sums& a, const sums& b) {
  return {a.first + b.first, a.second + b.second};
}

/// Of one part of the rows: [part][c]. `Source` says what is summed: at a channel's beginning
/// channel() -> what is kept of it, then load() -> what is read of a row, and add() it; last end().
template <class Source>
struct part_sums {
  using team = pack_team;
  struct state {
    sums of[4];
  };
  Source source;
  std::size_t c;
  bool whole;  ///< whether packs may be loaded
  sums* parts;

  DELTA_GPU state collect(std::size_t quad, std::size_t row, std::size_t step,
                          std::size_t end) const {
    state total{};
    if (row >= end) return total;
    const std::size_t channel = 4 * quad;
    if (whole) {
      collect_channels<4>(channel, row, step, end, total.of);
    } else {
      for (std::size_t j = 0; j < 4 && channel + j < c; ++j) {
        collect_channels<1>(channel + j, row, step, end, total.of + j);
      }
    }
    return total;
  }
  DELTA_GPU state join(state a, const state& b) const {
    for (int j = 0; j < 4; ++j) a.of[j] = a.of[j] + b.of[j];
    return a;
  }
  DELTA_GPU void finish(std::size_t part, std::size_t quad, const state& s) const {
    sums* to = parts + part * c + 4 * quad;
    for (std::size_t j = 0; j < 4 && 4 * quad + j < c; ++j) to[j] = s.of[j];
  }

 private:
  template <int V>
  DELTA_GPU void collect_channels(std::size_t channel, std::size_t row, std::size_t step,
                                  std::size_t end, sums* total) const {
    const auto kept = source.template channel<V>(channel, row * c + channel);
    const double count = double(divided(end - row - 1, step) + 1);
    while (row < end) {
      float first[V] = {}, second[V] = {};
      const std::size_t stop = end - row > rows_in_float * step ? row + rows_in_float * step : end;
      const auto add = [&](auto count_of) {
        constexpr std::size_t rows = decltype(count_of)::value;
        decltype(source.template load<V>(0)) values[rows];
        for (std::size_t k = 0; k < rows; ++k) {
          values[k] = source.template load<V>((row + k * step) * c + channel);
        }
        for (std::size_t k = 0; k < rows; ++k) {
          source.add(kept, values[k], (row + k * step) * c + channel, first, second);
        }
      };
      constexpr std::size_t many = Source::rows_at_once;
      // Not unrolled any further: the registers would not do.
      DELTA_GPU_ROLLED
      for (; row + (many - 1) * step < stop; row += many * step) add(row_count<many>{});
      DELTA_GPU_ROLLED
      for (; row < stop; row += step) add(row_count<1>{});
      for (int j = 0; j < V; ++j) {
        total[j].first += double(first[j]);
        total[j].second += double(second[j]);
      }
    }
    source.end(kept, channel, count, total);
  }
};

/// x and its square, less the channel's first element: the pivot. Each thread measures from its own
/// first row, so that a mean far from zero costs no digits of the variance, and moves its sums to
/// the pivot in double.
struct moment_source {
  static constexpr std::size_t rows_at_once = 4;
  const float* x;

  template <int V>
  DELTA_GPU pack<float, V> channel(std::size_t, std::size_t first) const {
    return gpu::load<V>(x + first);
  }
  template <int V>
  DELTA_GPU pack<float, V> load(std::size_t at) const {
    return gpu::load<V>(x + at);
  }
  template <int V>
  DELTA_GPU void add(const pack<float, V>& shift, const pack<float, V>& value, std::size_t,
                     float* sum, float* square) const {
    for (int j = 0; j < V; ++j) {
      const float d = value.at[j] - shift.at[j];
      sum[j] += d;
      square[j] = std::fma(d, d, square[j]);
    }
  }
  template <int V>
  DELTA_GPU void end(const pack<float, V>& shift, std::size_t channel, double count,
                     sums* total) const {
    const auto pivot = gpu::load<V>(x + channel);
    for (int j = 0; j < V; ++j) {
      const double by = double(shift.at[j]) - double(pivot.at[j]);
      const double moved = std::fma(count, by, total[j].first);
      total[j].second = std::fma(by, total[j].first + moved, total[j].second);
      total[j].first = moved;
    }
  }
};

/// The gradient, and its product with x - mean. `Gradient` reads the gradient of batch norm's
/// output.
template <class Gradient>
struct gradient_source {
  static constexpr std::size_t rows_at_once = Gradient::rows_at_once;
  const float *x, *mean;
  Gradient dy;

  template <int V>
  struct kept {
    pack<float, V> mean;
    decltype(std::declval<const Gradient&>().template channel<V>(0)) dy;
  };
  template <int V>
  struct values {
    pack<float, V> x;
    decltype(std::declval<const Gradient&>().template load<V>(0)) dy;
  };

  template <int V>
  DELTA_GPU kept<V> channel(std::size_t channel, std::size_t) const {
    return {gpu::load<V>(mean + channel), dy.template channel<V>(channel)};
  }
  template <int V>
  DELTA_GPU values<V> load(std::size_t at) const {
    return {gpu::load<V>(x + at), dy.template load<V>(at)};
  }
  template <int V>
  DELTA_GPU void add(const kept<V>& of, const values<V>& read, std::size_t at, float* sum,
                     float* product) const {
    pack<float, V> centred;
    for (int j = 0; j < V; ++j) centred.at[j] = read.x.at[j] - of.mean.at[j];
    const pack<float, V> d = dy.gradient(of.dy, read.dy, centred, at);
    for (int j = 0; j < V; ++j) {
      sum[j] += d.at[j];
      product[j] = std::fma(d.at[j], centred.at[j], product[j]);
    }
  }
  template <int V>
  DELTA_GPU void end(const kept<V>&, std::size_t, double, sums*) const {}
};

/// The parts of a channel, added up.
struct part_join {
  using team = join_team;
  const sums* parts;
  std::size_t c;

  DELTA_GPU sums collect(std::size_t column, std::size_t part, std::size_t step,
                         std::size_t end) const {
    sums total{0.0, 0.0};
    const auto add = [&](auto count_of) {
      constexpr std::size_t count = decltype(count_of)::value;
      sums some[count];
      for (std::size_t k = 0; k < count; ++k) some[k] = parts[(part + k * step) * c + column];
      for (std::size_t k = 0; k < count; ++k) total = total + some[k];
      part += count * step;
    };
    while (part + 3 * step < end) add(row_count<4>{});
    while (part < end) add(row_count<1>{});
    return total;
  }
  DELTA_GPU sums join(const sums& a, const sums& b) const { return a + b; }
};

}  // namespace delta::executor::gpu
