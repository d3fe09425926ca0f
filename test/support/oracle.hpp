// The forward pass of a graph in double precision, by plain loops over what the formulas say. It
// shares no code with the kernels, and is exact enough for central differences.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <variant>
#include <vector>

#include "model/graph.hpp"

namespace delta::test {

/// Set the inputs, the persistent values (labels as doubles) and dropout's masks, call loss();
/// other values hold the activations of the last call.
class oracle {
 public:
  explicit oracle(const executor::graph& g) : graph_(g), values_(g.values.size()) {
    for (std::size_t v = 0; v < values_.size(); ++v) {
      std::size_t n = 1;
      for (const int extent : g.values[v].shape) n *= std::size_t(extent);
      values_[v].resize(n);
    }
  }

  std::vector<double>& operator[](executor::value_id v) { return values_[std::size_t(v)]; }

  double loss() {
    for (const auto& n : graph_.nodes) {
      if (n.backward) break;
      forward(n);
    }
    return (*this)[graph_.loss][0];
  }

 private:
  using type = executor::operator_type;
  using numbers = std::vector<double>;

  void forward(const executor::node& n) {
    const auto in = [&](std::size_t i) -> numbers& { return (*this)[n.inputs[i]]; };
    const auto out = [&](std::size_t i) -> numbers& { return (*this)[n.outputs[i]]; };
    switch (n.type) {
      case type::conv_forward:
        return convolve(std::get<executor::conv_shape>(n.shape), in(0), in(1), out(0));
      case type::bn_forward:
        return normalise(std::get<executor::bn_shape>(n.shape), in(0), in(1), in(2), out(0));
      case type::relu_forward:
        for (std::size_t i = 0; i < in(0).size(); ++i) out(0)[i] = std::fmax(in(0)[i], 0.0);
        return;
      case type::add:
        for (std::size_t i = 0; i < in(0).size(); ++i) out(0)[i] = in(0)[i] + in(1)[i];
        return;
      case type::max_pool_forward:
        return max_pool(std::get<executor::pool_shape>(n.shape), in(0), out(0));
      case type::dropout_forward: {
        const double p = double(std::get<executor::dropout_shape>(n.shape).probability);
        for (std::size_t i = 0; i < in(0).size(); ++i) out(0)[i] = in(0)[i] * out(1)[i] / (1 - p);
        return;
      }
      case type::global_avg_pool_forward:
        return average(std::get<executor::average_shape>(n.shape), in(0), out(0));
      case type::linear_forward:
        return multiply(std::get<executor::linear_shape>(n.shape), in(0), in(1), in(2), out(0));
      case type::softmax_cross_entropy_forward:
        return cross_entropy(std::get<executor::linear_shape>(n.shape), in(0), in(1), out(0));
      default:
        throw std::invalid_argument("the oracle does not know " + n.name);
    }
  }

  // Where (i, j) lies among rows of `width`.
  template <class Row>
  static std::size_t position(Row i, int width, int j) {
    return std::size_t(i) * std::size_t(width) + std::size_t(j);
  }

  // Calls f(output pixel, window position, input pixel) for every pair inside the image.
  template <class Shape, class F>
  static void windows(const Shape& s, int kh, int kw, F f) {
    for (int i = 0; i < s.n; ++i)
      for (int y = 0; y < s.oh(); ++y)
        for (int x = 0; x < s.ow(); ++x)
          for (int ky = 0; ky < kh; ++ky)
            for (int kx = 0; kx < kw; ++kx) {
              const int iy = y * s.stride - s.pad + ky;
              const int ix = x * s.stride - s.pad + kx;
              if (iy < 0 || iy >= s.h || ix < 0 || ix >= s.w) continue;
              f(position(position(i, s.oh(), y), s.ow(), x), position(ky, kw, kx),
                position(position(i, s.h, iy), s.w, ix));
            }
  }

  static void convolve(const executor::conv_shape& s, const numbers& x, const numbers& w,
                       numbers& y) {
    y.assign(y.size(), 0);
    const auto c = std::size_t(s.c), k = std::size_t(s.k),
               window = std::size_t(s.kh) * std::size_t(s.kw);
    const std::size_t seen = c / std::size_t(s.groups), made = k / std::size_t(s.groups);
    windows(s, s.kh, s.kw, [&](std::size_t o, std::size_t at, std::size_t i) {
      for (std::size_t a = 0; a < k; ++a)
        for (std::size_t b = 0; b < seen; ++b)
          y[o * k + a] += x[i * c + a / made * seen + b] * w[(a * window + at) * seen + b];
    });
  }

  static void normalise(const executor::bn_shape& s, const numbers& x, const numbers& gamma,
                        const numbers& beta, numbers& y) {
    const auto c = std::size_t(s.c);
    for (std::size_t j = 0; j < c; ++j) {
      double mean = 0, variance = 0;
      for (std::size_t r = 0; r < s.rows; ++r) mean += x[r * c + j] / double(s.rows);
      for (std::size_t r = 0; r < s.rows; ++r) {
        variance += (x[r * c + j] - mean) * (x[r * c + j] - mean) / double(s.rows);
      }
      const double scale = gamma[j] / std::sqrt(variance + double(s.epsilon));
      for (std::size_t r = 0; r < s.rows; ++r) {
        y[r * c + j] = (x[r * c + j] - mean) * scale + beta[j];
      }
    }
  }

  static void max_pool(const executor::pool_shape& s, const numbers& x, numbers& y) {
    y.assign(y.size(), -std::numeric_limits<double>::infinity());
    const auto c = std::size_t(s.c);
    windows(s, s.window, s.window, [&](std::size_t o, std::size_t, std::size_t i) {
      for (std::size_t b = 0; b < c; ++b) y[o * c + b] = std::fmax(y[o * c + b], x[i * c + b]);
    });
  }

  static void average(const executor::average_shape& s, const numbers& x, numbers& y) {
    y.assign(y.size(), 0);
    const auto c = std::size_t(s.c), pixels = std::size_t(s.pixels);
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[i / (pixels * c) * c + i % c] += x[i] / double(pixels);
    }
  }

  static void multiply(const executor::linear_shape& s, const numbers& x, const numbers& w,
                       const numbers& b, numbers& y) {
    const auto in = std::size_t(s.in), out = std::size_t(s.out);
    for (std::size_t o = 0; o < y.size(); ++o) {
      y[o] = b[o % out];
      for (std::size_t i = 0; i < in; ++i) y[o] += x[o / out * in + i] * w[o % out * in + i];
    }
  }

  static void cross_entropy(const executor::linear_shape& s, const numbers& logits,
                            const numbers& labels, numbers& loss) {
    const auto classes = std::size_t(s.out);
    loss[0] = 0;
    for (std::size_t r = 0; r < std::size_t(s.n); ++r) {
      const double* row = logits.data() + r * classes;
      double sum = 0;
      for (std::size_t j = 0; j < classes; ++j) sum += std::exp(row[j]);
      loss[0] += (std::log(sum) - row[std::size_t(labels[r])]) / s.n;
    }
  }

  const executor::graph& graph_;
  std::vector<numbers> values_;
};

}  // namespace delta::test
