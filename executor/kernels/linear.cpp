#include <algorithm>
#include <cstring>

#include "kernels/gemm.hpp"
#include "kernels/kernels.hpp"
#include "kernels/vectorise.hpp"

namespace delta::executor {
namespace {

/// Columns of the result per task. The batch is short, so rows are not split.
constexpr int columns_per_task = 128;

/// Calls `body(first, count)` on fixed blocks of [0, n).
template <class F>
void column_blocks(thread_pool& pool, int n, const F& body) {
  pool.parallel_for(ceil_div(std::size_t(n), columns_per_task), [&](std::size_t task) {
    const int first = int(task) * columns_per_task;
    body(first, std::min(columns_per_task, n - first));
  });
}

}  // namespace

void linear_forward(thread_pool& pool, int n, int in, int out, const float* x, const float* weight,
                    const float* bias, float* y) {
  column_blocks(pool, out, [=](int first, int count) {
    for (int i = 0; i < n; ++i) {
      std::memcpy(y + product_of(i, out) + first, bias + first, sizeof(float) * std::size_t(count));
    }
    gemm(op::plain, op::transposed, n, count, in, x, in, weight + product_of(first, in), in, 1.0f,
         y + first, out);
  });
}

void linear_backward_data(thread_pool& pool, int n, int in, int out, const float* dy,
                          const float* weight, float* dx) {
  column_blocks(pool, in, [=](int first, int count) {
    gemm(op::plain, op::plain, n, count, out, dy, out, weight + first, in, 0.0f, dx + first, in);
  });
}

void linear_backward_weight(thread_pool& pool, int n, int in, int out, const float* x,
                            const float* dy, float* dweight, float* dbias) {
  column_blocks(pool, out, [=](int first, int count) {
    gemm(op::transposed, op::plain, count, in, n, dy + first, out, x, in, 0.0f,
         dweight + product_of(first, in), in);
    for (int j = first; j < first + count; ++j) {
      double sum = 0.0;
      for (int i = 0; i < n; ++i) sum += dy[product_of(i, out) + std::size_t(j)];
      dbias[j] = float(sum);
    }
  });
}

}  // namespace delta::executor
