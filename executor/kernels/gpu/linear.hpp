// delta executor: fully connected layers on the GPU, by matrix products. Contracts in
// kernels/kernels.hpp.
#pragma once

#include "kernels/gpu/engine.hpp"
#include "kernels/kernels.hpp"

namespace delta::executor::gpu {

/// Every row of y becomes the bias, onto which the product is added.
struct copy_bias {
  std::size_t out;
  const float* bias;
  float* y;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    store(y + i, load<V>(bias + (i - divided(i, out) * out)));
  }
};

/// The sum of each column, in double: columns are as long as the batch.
struct column_sum {
  using team = float_team;
  const float* x;
  std::size_t columns;
  float* to;
  DELTA_GPU double collect(std::size_t column, std::size_t row, std::size_t step,
                           std::size_t end) const {
    double sum = 0.0;
    for (; row < end; row += step) sum += double(x[row * columns + column]);
    return sum;
  }
  DELTA_GPU double join(double a, double b) const { return a + b; }
  DELTA_GPU void finish(std::size_t, std::size_t column, double sum) const {
    to[column] = float(sum);
  }
};

template <class Engine>
void linear_forward(const Engine& engine, int n, int in, int out, const float* x,
                    const float* weight, const float* bias, float* y, std::byte* workspace) {
  const auto rows = std::size_t(n), depth = std::size_t(in), width = std::size_t(out);
  each_by_fours(engine, rows * width, width % 4 == 0 && aligned(bias, y),
                copy_bias{width, bias, y});
  engine.multiply({.m = rows,
                   .n = width,
                   .k = depth,
                   .a = {x, depth},
                   .b = {.at = weight, .line = depth, .turned = true},
                   .c = {y, width},
                   .beta = 1.0f},
                  workspace);
}

template <class Engine>
void linear_backward_data(const Engine& engine, int n, int in, int out, const float* dy,
                          const float* weight, float* dx, std::byte* workspace) {
  const auto rows = std::size_t(n), depth = std::size_t(in), width = std::size_t(out);
  engine.multiply(
      {.m = rows, .n = depth, .k = width, .a = {dy, width}, .b = {weight, depth}, .c = {dx, depth}},
      workspace);
}

template <class Engine>
void linear_backward_weight(const Engine& engine, int n, int in, int out, const float* x,
                            const float* dy, float* dweight, float* dbias, std::byte* workspace) {
  const auto rows = std::size_t(n), depth = std::size_t(in), width = std::size_t(out);
  engine.multiply({.m = width,
                   .n = depth,
                   .k = rows,
                   .a = {.at = dy, .line = width, .turned = true},
                   .b = {x, depth},
                   .c = {dweight, depth}},
                  workspace);
  engine.columns(one_part(rows), width, column_sum{dy, width, dbias});
}

}  // namespace delta::executor::gpu
