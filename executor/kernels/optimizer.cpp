#include <algorithm>

#include "kernels/kernels.hpp"
#include "kernels/vectorise.hpp"

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

}  // namespace

void sgd_update(thread_pool& pool, std::size_t n, float lr, float momentum, float decay,
                const float* g, float* w, float* v) {
  pool.parallel_for(ceil_div(n, element_chunk), [=](std::size_t task) {
    const auto i = task * element_chunk;
    sgd_range(std::min(element_chunk, n - i), lr, momentum, decay, g + i, w + i, v + i);
  });
}

}  // namespace delta::executor
