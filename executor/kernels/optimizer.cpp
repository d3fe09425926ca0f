#include <algorithm>
#include <cmath>

#include "kernels/adam_factors.hpp"
#include "kernels/kernels.hpp"
#include "kernels/vectorise.hpp"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace delta::executor {
namespace {

DELTA_VECTORISE void sgd_range(std::size_t n, float lr, float momentum, float decay,
                               const float* __restrict g, float* __restrict w,
                               float* __restrict v) {
  for (std::size_t i = 0; i < n; ++i) {
    v[i] = momentum * v[i] + (g[i] + decay * w[i]);
    w[i] -= lr * v[i];
  }
}

constexpr std::size_t adam_tile = 256;

/// std::sqrt may set errno, which keeps a loop over it from being vectorised. Both ways round
/// correctly, so the bits are the same.
void square_roots(std::size_t n, const float* x, float* y) {
  std::size_t i = 0;
#if defined(__SSE__)
  for (; i + 4 <= n; i += 4) _mm_storeu_ps(y + i, _mm_sqrt_ps(_mm_loadu_ps(x + i)));
#endif
  for (; i < n; ++i) y[i] = std::sqrt(x[i]);
}

DELTA_VECTORISE void adam_moments(std::size_t n, const adam_factors& f, const float* __restrict g,
                                  const float* __restrict w, float* __restrict m,
                                  float* __restrict v) {
  const float decay = f.decay, take1 = f.take1, keep2 = f.keep2, take2 = f.take2;
  for (std::size_t i = 0; i < n; ++i) {
    const float slope = g[i] + decay * w[i];
    m[i] += take1 * (slope - m[i]);
    v[i] = keep2 * v[i] + take2 * slope * slope;
  }
}

DELTA_VECTORISE void adam_weights(std::size_t n, const adam_factors& f, const float* __restrict m,
                                  const float* __restrict root, float* __restrict w) {
  const float root_correction = f.root_correction, epsilon = f.epsilon, size = f.size;
  for (std::size_t i = 0; i < n; ++i) {
    w[i] -= size * m[i] / (root[i] / root_correction + epsilon);
  }
}

void adam_range(std::size_t n, const adam_factors& f, const float* g, float* w, float* m,
                float* v) {
  alignas(64) float root[adam_tile];
  for (std::size_t i = 0; i < n; i += adam_tile) {
    const auto count = std::min(adam_tile, n - i);
    adam_moments(count, f, g + i, w + i, m + i, v + i);
    square_roots(count, v + i, root);
    adam_weights(count, f, m + i, root, w + i);
  }
}

}  // namespace

void sgd_update(thread_pool& pool, std::size_t n, float lr, float momentum, float decay,
                const float* g, float* w, float* v) {
  pool.parallel_for(ceil_div(n, element_chunk), [=](std::size_t task) {
    const auto i = task * element_chunk;
    sgd_range(std::min(element_chunk, n - i), lr, momentum, decay, g + i, w + i, v + i);
  });
}

void adam_update(thread_pool& pool, std::size_t n, const adam_step& step, const float* g, float* w,
                 float* m, float* v) {
  const adam_factors factors(step);
  pool.parallel_for(ceil_div(n, element_chunk), [=](std::size_t task) {
    const auto i = task * element_chunk;
    adam_range(std::min(element_chunk, n - i), factors, g + i, w + i, m + i, v + i);
  });
}

}  // namespace delta::executor
