// delta executor: dropout on the GPU. The mask's bits are the CPU's: elements 4b .. 4b+3 take the
// four words that Philox gives for counter (b, sequence), so a replay draws the same.
#pragma once

#include "kernels/dropout_plan.hpp"
#include "kernels/gpu/engine.hpp"
#include "kernels/philox.hpp"

namespace delta::executor::gpu {

/// One counter, four elements.
struct dropout_forward_functor {
  std::uint64_t threshold, seed, sequence;
  float scale;
  const float* x;
  float* y;
  std::uint8_t* mask;
  std::size_t n;
  bool whole;

  DELTA_GPU void operator()(std::size_t b) const {
    const auto words = philox({std::uint32_t(b), std::uint32_t(std::uint64_t(b) >> 32),
                               std::uint32_t(sequence), std::uint32_t(sequence >> 32)},
                              {std::uint32_t(seed), std::uint32_t(seed >> 32)});
    const std::size_t i = 4 * b;
    if (whole && i + 4 <= n) {
      auto values = load<4>(x + i);
      pack<std::uint8_t, 4> kept;
      for (int j = 0; j < 4; ++j) {
        const bool keep = words.word[j] >= threshold;
        kept.at[j] = std::uint8_t(keep);
        values.at[j] = keep ? values.at[j] * scale : 0.0f;
      }
      store(y + i, values);
      store(mask + i, kept);
      return;
    }
    for (std::size_t j = 0; j < 4 && i + j < n; ++j) {
      const bool keep = words.word[j] >= threshold;
      mask[i + j] = std::uint8_t(keep);
      y[i + j] = keep ? x[i + j] * scale : 0.0f;
    }
  }
};

struct dropout_backward_functor {
  float scale;
  const float* dy;
  const std::uint8_t* mask;
  float* dx;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    auto d = load<V>(dy + i);
    const auto kept = load<V>(mask + i);
    for (int j = 0; j < V; ++j) d.at[j] = kept.at[j] != 0 ? d.at[j] * scale : 0.0f;
    store(dx + i, d);
  }
};

template <class Engine>
void dropout_forward(const Engine& engine, std::size_t n, const dropout_plan& plan,
                     std::uint64_t seed, std::uint64_t sequence, const float* x, float* y,
                     std::uint8_t* mask) {
  engine.each(divided_up(n, 4),
              dropout_forward_functor{plan.threshold, seed, sequence, plan.scale, x, y, mask, n,
                                      aligned(x, y) && aligned(mask)});
}
template <class Engine>
void dropout_backward(const Engine& engine, std::size_t n, const dropout_plan& plan,
                      const float* dy, const std::uint8_t* mask, float* dx) {
  each_by_fours(engine, n, aligned(dy, dx) && aligned(mask),
                dropout_backward_functor{plan.scale, dy, mask, dx});
}

}  // namespace delta::executor::gpu
