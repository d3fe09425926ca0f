#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/kernels.hpp"
#include "kernels/vectorise.hpp"

namespace delta::executor {
namespace {

std::size_t rows_per_task(int classes) {
  return std::max<std::size_t>(1, 4096 / std::size_t(classes));  // an exponential is dear
}

}  // namespace

void softmax_cross_entropy_forward(thread_pool& pool, int n, int classes, const float* logits,
                                   const std::int32_t* labels, float* loss, float* probabilities) {
  const auto width = std::size_t(classes);
  for (int i = 0; i < n; ++i) {
    if (labels[i] < 0 || labels[i] >= classes) {
      throw std::invalid_argument("softmax_cross_entropy: a label is not in [0, classes)");
    }
  }
  const auto rows = rows_per_task(classes);
  pool.parallel_for(ceil_div(std::size_t(n), rows), [=](std::size_t task) {
    const auto end = std::min(std::size_t(n), (task + 1) * rows);
    for (auto i = task * rows; i < end; ++i) {
      const float* z = logits + i * width;
      float* p = probabilities + i * width;
      const float top = *std::max_element(z, z + width);
      double sum = 0.0;
      for (std::size_t j = 0; j < width; ++j) sum += p[j] = std::exp(z[j] - top);
      const auto scale = float(1.0 / sum);
      for (std::size_t j = 0; j < width; ++j) p[j] *= scale;
      // The row's loss, parked where exp(-loss) belongs: the mean below needs it exactly, even
      // where the probability has underflown, and there is no other room for it.
      const auto label = std::size_t(labels[i]);
      p[label] = float(std::log(sum) - double(z[label] - top));
    }
  });
  double total = 0.0;
  for (std::size_t i = 0; i < std::size_t(n); ++i) {
    float& parked = probabilities[i * width + std::size_t(labels[i])];
    total += parked;
    parked = std::exp(-parked);
  }
  *loss = float(total / n);
}

void softmax_cross_entropy_backward(thread_pool& pool, int n, int classes,
                                    const float* probabilities, const std::int32_t* labels,
                                    float* dlogits) {
  const auto width = std::size_t(classes);
  const auto rows = std::max<std::size_t>(1, element_chunk / width);
  const float scale = 1.0f / float(n);
  pool.parallel_for(ceil_div(std::size_t(n), rows), [=](std::size_t task) {
    const auto end = std::min(std::size_t(n), (task + 1) * rows);
    for (auto i = task * rows; i < end; ++i) {
      const float* p = probabilities + i * width;
      float* d = dlogits + i * width;
      for (std::size_t j = 0; j < width; ++j) d[j] = p[j] * scale;
      const auto label = std::size_t(labels[i]);
      d[label] = (p[label] - 1.0f) * scale;
    }
  });
}

}  // namespace delta::executor
