// delta executor: SGD and Adam on the GPU: one pass over the parameter, its gradient and states.
#pragma once

#include <cmath>

#include "kernels/adam_factors.hpp"
#include "kernels/gpu/engine.hpp"

namespace delta::executor::gpu {

struct sgd_functor {
  float lr, momentum, decay;
  const float* g;
  float *w, *v;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const auto slope = load<V>(g + i);
    auto weight = load<V>(w + i);
    auto velocity = load<V>(v + i);
    for (int j = 0; j < V; ++j) {
      velocity.at[j] = momentum * velocity.at[j] + (slope.at[j] + decay * weight.at[j]);
      weight.at[j] -= lr * velocity.at[j];
    }
    store(v + i, velocity);
    store(w + i, weight);
  }
};

struct adam_functor {
  adam_factors f;
  const float* g;
  float *w, *m, *v;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    auto slope = load<V>(g + i);
    auto weight = load<V>(w + i);
    auto mean = load<V>(m + i);
    auto square = load<V>(v + i);
    for (int j = 0; j < V; ++j) {
      slope.at[j] += f.decay * weight.at[j];
      mean.at[j] += f.take1 * (slope.at[j] - mean.at[j]);
      square.at[j] = f.keep2 * square.at[j] + f.take2 * slope.at[j] * slope.at[j];
      const float root = std::sqrt(square.at[j]);
      weight.at[j] -= f.size * mean.at[j] / (root / f.root_correction + f.epsilon);
    }
    store(m + i, mean);
    store(v + i, square);
    store(w + i, weight);
  }
};

template <class Engine>
void sgd_update(const Engine& engine, std::size_t n, float lr, float momentum, float decay,
                const float* g, float* w, float* v) {
  each_by_fours(engine, n, aligned(g, w, v), sgd_functor{lr, momentum, decay, g, w, v});
}
template <class Engine>
void adam_update(const Engine& engine, std::size_t n, const adam_step& step, const float* g,
                 float* w, float* m, float* v) {
  each_by_fours(engine, n, aligned(g, w, m, v), adam_functor{adam_factors(step), g, w, m, v});
}

}  // namespace delta::executor::gpu
