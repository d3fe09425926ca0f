// delta executor: ReLU and addition on the GPU. Bound by memory; contracts in kernels/kernels.hpp.
#pragma once

#include "kernels/gpu/engine.hpp"

namespace delta::executor::gpu {

/// A NaN stays one.
DELTA_GPU inline float rectified(float x) {
  return x < 0.0f ? 0.0f : x;
}
/// What of the gradient `dy` passes a ReLU whose result is y, or whose argument.
DELTA_GPU inline float gated(float y, float dy) {
  return y > 0.0f ? dy : 0.0f;
}

struct relu_forward_functor {
  const float* x;
  float* y;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    auto a = load<V>(x + i);
    for (int j = 0; j < V; ++j) a.at[j] = rectified(a.at[j]);
    store(y + i, a);
  }
};

struct relu_backward_functor {
  const float *y, *dy;
  float* dx;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const auto a = load<V>(y + i);
    auto d = load<V>(dy + i);
    for (int j = 0; j < V; ++j) d.at[j] = gated(a.at[j], d.at[j]);
    store(dx + i, d);
  }
};

struct add_functor {
  const float *a, *b;
  float* y;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    auto sum = load<V>(a + i);
    const auto more = load<V>(b + i);
    for (int j = 0; j < V; ++j) sum.at[j] += more.at[j];
    store(y + i, sum);
  }
};

template <class Engine>
void relu_forward(const Engine& engine, std::size_t n, const float* x, float* y) {
  each_by_fours(engine, n, aligned(x, y), relu_forward_functor{x, y});
}
template <class Engine>
void relu_backward(const Engine& engine, std::size_t n, const float* y, const float* dy,
                   float* dx) {
  each_by_fours(engine, n, aligned(y, dy, dx), relu_backward_functor{y, dy, dx});
}
template <class Engine>
void add(const Engine& engine, std::size_t n, const float* a, const float* b, float* y) {
  each_by_fours(engine, n, aligned(a, b, y), add_functor{a, b, y});
}

}  // namespace delta::executor::gpu
