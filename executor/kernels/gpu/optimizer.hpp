// delta executor: SGD and Adam on the GPU: one pass over the parameter, its gradient and states, of
// one parameter or of many in one launch. Contracts in kernels/kernels.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/adam_factors.hpp"
#include "kernels/gpu/engine.hpp"

namespace delta::executor::gpu {

/// What happens to V neighbours: `g` their gradients, `w` the parameter, behind it its states.
struct sgd_rule {
  static constexpr std::size_t updated = 2;  ///< the parameter and its states
  float lr, momentum, decay;
  template <int V>
  DELTA_GPU void at(std::size_t i, const float* g, float* const* w) const {
    const auto slope = load<V>(g + i);
    auto weight = load<V>(w[0] + i);
    auto velocity = load<V>(w[1] + i);
    for (int j = 0; j < V; ++j) {
      velocity.at[j] = momentum * velocity.at[j] + (slope.at[j] + decay * weight.at[j]);
      weight.at[j] -= lr * velocity.at[j];
    }
    store(w[1] + i, velocity);
    store(w[0] + i, weight);
  }
};

struct adam_rule {
  static constexpr std::size_t updated = 3;
  adam_factors f;
  template <int V>
  DELTA_GPU void at(std::size_t i, const float* g, float* const* w) const {
    auto slope = load<V>(g + i);
    auto weight = load<V>(w[0] + i);
    auto mean = load<V>(w[1] + i);
    auto square = load<V>(w[2] + i);
    for (int j = 0; j < V; ++j) {
      slope.at[j] += f.decay * weight.at[j];
      mean.at[j] += f.take1 * (slope.at[j] - mean.at[j]);
      square.at[j] = f.keep2 * square.at[j] + f.take2 * slope.at[j] * slope.at[j];
      const float root = std::sqrt(square.at[j]);
      weight.at[j] -= f.size * mean.at[j] / (root / f.root_correction + f.epsilon);
    }
    store(w[1] + i, mean);
    store(w[2] + i, square);
    store(w[0] + i, weight);
  }
};

/// One parameter's update.
template <class Rule>
struct update_functor {
  Rule rule;
  const float* g;
  float* w[Rule::updated];
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    rule.template at<V>(i, g, w);
  }
};

template <class Engine>
void sgd_update(const Engine& engine, std::size_t n, float lr, float momentum, float decay,
                const float* g, float* w, float* v) {
  each_by_fours(engine, n, aligned(g, w, v),
                update_functor<sgd_rule>{{lr, momentum, decay}, g, {w, v}});
}
template <class Engine>
void adam_update(const Engine& engine, std::size_t n, const adam_step& step, const float* g,
                 float* w, float* m, float* v) {
  each_by_fours(engine, n, aligned(g, w, m, v),
                update_functor<adam_rule>{{adam_factors(step)}, g, {w, m, v}});
}

/// A launch for many parameters: each is cut into pieces, several thread blocks to a piece, and a
/// block finds its parameter by the number of its piece. The tables go to the GPU as the kernel's
/// arguments, of which all GPUs take four KiB; so only blocks() will do, as Thrust would copy them
/// for every thread.
template <class Rule>
struct updates_functor {
  static constexpr std::size_t most = 48, most_pieces = 512;
  static constexpr std::size_t quads_per_block = 1024, blocks_per_piece = 4;
  static constexpr std::size_t elements_per_piece = 4 * quads_per_block * blocks_per_piece;
  struct parameter {
    const float* g;
    float* w[Rule::updated];
    std::uint32_t n;  ///< elements, from these addresses on
    bool whole;       ///< as by_fours
  };
  Rule rule;
  parameter of[most];
  std::uint8_t owner[most_pieces];
  std::uint16_t piece[most_pieces];  ///< of its owner's

  template <class Block>
  DELTA_GPU void operator()(Block& block, std::size_t b) const {
    const std::size_t at = b / blocks_per_piece;
    const parameter& p = of[owner[at]];
    const float* const g = p.g;
    float* w[Rule::updated];
    for (std::size_t k = 0; k < Rule::updated; ++k) w[k] = p.w[k];
    const std::size_t n = p.n;
    const bool whole = p.whole;
    const std::size_t first =
        piece[at] * elements_per_piece + b % blocks_per_piece * 4 * quads_per_block;
    block.each(quads_per_block, [&](std::size_t quad) {
      std::size_t i = first + 4 * quad;
      if (whole && i + 4 <= n) {
        rule.template at<4>(i, g, w);
        return;
      }
      const std::size_t end = i + 4 < n ? i + 4 : n;
      for (; i < end; ++i) rule.template at<1>(i, g, w);
    });
  }
};

/// The same bits as an update of each: n elements of in[k] with the next Rule::updated of `update`.
template <class Rule, class Engine>
void update_all(const Engine& engine, std::span<const std::size_t> n, const Rule& rule,
                const std::byte* const* in, std::byte* const* update) {
  using functor = updates_functor<Rule>;
  static_assert(sizeof(functor) <= 3840);
  constexpr std::size_t elements_per_piece = functor::elements_per_piece;
  functor f{rule, {}, {}, {}};
  std::size_t parameters = 0, pieces = 0;
  const auto launch = [&] {
    if (pieces > 0) engine.blocks(pieces * functor::blocks_per_piece, f);
    parameters = pieces = 0;
  };
  for (std::size_t k = 0; k < n.size(); ++k) {
    for (std::size_t done = 0; done < n[k];) {
      if (parameters == functor::most || pieces == functor::most_pieces) launch();
      const std::size_t wanted = divided_up(n[k] - done, elements_per_piece);
      const std::size_t taken = std::min(wanted, functor::most_pieces - pieces);
      const std::size_t size = std::min(n[k] - done, taken * elements_per_piece);
      auto& p = f.of[parameters];
      p.g = reinterpret_cast<const float*>(in[k]) + done;
      p.n = std::uint32_t(size);
      p.whole = aligned(p.g);
      for (std::size_t i = 0; i < Rule::updated; ++i) {
        p.w[i] = reinterpret_cast<float*>(update[k * Rule::updated + i]) + done;
        p.whole = p.whole && aligned(p.w[i]);
      }
      for (std::size_t i = 0; i < taken; ++i, ++pieces) {
        f.owner[pieces] = std::uint8_t(parameters);
        f.piece[pieces] = std::uint16_t(i);
      }
      ++parameters;
      done += size;
    }
  }
  launch();
}

}  // namespace delta::executor::gpu
