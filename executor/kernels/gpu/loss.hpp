// delta executor: softmax and mean cross-entropy on the GPU: a thread block per row, then one block
// over the rows' losses. Contracts in kernels/kernels.hpp, but for labels outside [0, classes): the
// host does not see them in time to throw, so they make the loss a NaN, and touch nothing else.
#pragma once

#include <cmath>

#include "kernels/gpu/engine.hpp"
#include "kernels/kernels.hpp"

namespace delta::executor::gpu {

struct softmax_rows {
  std::size_t classes;
  const float* logits;
  const std::int32_t* labels;
  float *probabilities, *losses;  ///< n x classes; n

  template <class Block>
  DELTA_GPU void operator()(Block& block, std::size_t row) const {
    const float* z = logits + row * classes;
    float* p = probabilities + row * classes;
    const float top = block.reduce(
        classes, -INFINITY, [&](std::size_t j) { return z[j]; },
        [](float a, float b) { return a > b ? a : b; });
    const double sum = block.reduce(
        classes, 0.0, [&](std::size_t j) { return double(std::exp(z[j] - top)); },
        [](double a, double b) { return a + b; });
    const auto scale = float(1.0 / sum);
    block.each(classes, [&](std::size_t j) { p[j] = std::exp(z[j] - top) * scale; });
    block.each(1, [&](std::size_t) {
      const auto label = labels[row];
      const bool valid = label >= 0 && std::size_t(label) < classes;
      losses[row] = valid ? float(std::log(sum) - double(z[label] - top)) : NAN;
    });
  }
};

struct mean_loss {
  std::size_t n;
  const float* losses;
  float* loss;
  template <class Block>
  DELTA_GPU void operator()(Block& block, std::size_t) const {
    const double sum = block.reduce(
        n, 0.0, [&](std::size_t j) { return double(losses[j]); },
        [](double a, double b) { return a + b; });
    block.each(1, [&](std::size_t) { *loss = float(sum / double(n)); });
  }
};

/// dlogits = (probabilities - onehot(label)) / n.
struct softmax_gradient {
  std::size_t classes;
  float scale;
  const float* probabilities;
  const std::int32_t* labels;
  float* dlogits;
  DELTA_GPU void operator()(std::size_t i) const {
    const std::size_t row = divided(i, classes), j = i - row * classes;
    const bool hit = labels[row] >= 0 && std::size_t(labels[row]) == j;
    dlogits[i] = (hit ? probabilities[i] - 1.0f : probabilities[i]) * scale;
  }
};

/// A row's loss each.
inline std::size_t softmax_cross_entropy_workspace(int n) {
  return std::size_t(n) * sizeof(float);
}

template <class Engine>
void softmax_cross_entropy_forward(const Engine& engine, int n, int classes, const float* logits,
                                   const std::int32_t* labels, float* loss, float* probabilities,
                                   std::byte* workspace) {
  const auto rows = std::size_t(n);
  auto* losses = reinterpret_cast<float*>(workspace);
  engine.blocks(rows, softmax_rows{std::size_t(classes), logits, labels, probabilities, losses});
  engine.blocks(1, mean_loss{rows, losses, loss});
}
template <class Engine>
void softmax_cross_entropy_backward(const Engine& engine, int n, int classes,
                                    const float* probabilities, const std::int32_t* labels,
                                    float* dlogits) {
  engine.each(product_of(n, classes), softmax_gradient{std::size_t(classes), 1.0f / float(n),
                                                       probabilities, labels, dlogits});
}

}  // namespace delta::executor::gpu
