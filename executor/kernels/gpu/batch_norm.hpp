// delta executor: batch norm on the GPU, alone and with the ReLU or the addition and ReLU behind
// it, in three launches each way: sums of parts of the rows, their join per channel, and one pass
// over the elements. Contracts in kernels/kernels.hpp.
//
// A fused operator has the bits of the operators that it stands for: both are instances of one
// template, whose arithmetic is explicit about what is fused (batch_norm_sums.hpp).
#pragma once

#include <cmath>

#include "kernels/gpu/batch_norm_sums.hpp"
#include "kernels/gpu/elementwise.hpp"
#include "kernels/gpu/engine.hpp"
#include "kernels/kernels.hpp"

namespace delta::executor::gpu {

/// Joins the parts of a channel, and derives all that is kept of it.
struct channel_statistics : part_join {
  const float* pivot;  ///< per channel: what the sums were measured from
  std::size_t rows;
  float epsilon, momentum;
  const float* gamma;
  float *save_mean, *save_invstd, *scale;
  float *running_mean, *running_var;  ///< null: left alone

  DELTA_GPU void finish(std::size_t, std::size_t column, const sums& s) const {
    const double count = double(rows), from_pivot = s.first / count;
    const double rest = std::fma(-from_pivot, s.first, s.second);
    const double squares = rest < 0.0 ? 0.0 : rest;  // a NaN stays one
    const auto mean = float(double(pivot[column]) + from_pivot);
    const auto invstd = float(1.0 / std::sqrt(squares / count + double(epsilon)));
    save_mean[column] = mean;
    save_invstd[column] = invstd;
    scale[column] = gamma[column] * invstd;
    if (running_mean) {
      running_mean[column] = (1.0f - momentum) * running_mean[column] + momentum * mean;
    }
    if (running_var) {
      const double unbiased = squares / (count > 2.0 ? count - 1.0 : 1.0);
      running_var[column] = (1.0f - momentum) * running_var[column] + momentum * float(unbiased);
    }
  }
};

/// What becomes of the normalised elements from i on: nothing more.
struct as_normalised {
  template <int V>
  DELTA_GPU void at(std::size_t, pack<float, V>&) const {}
};
struct then_relu {
  template <int V>
  DELTA_GPU void at(std::size_t, pack<float, V>& y) const {
    for (int j = 0; j < V; ++j) y.at[j] = rectified(y.at[j]);
  }
};
struct then_add_and_relu {
  const float* residual;
  template <int V>
  DELTA_GPU void at(std::size_t i, pack<float, V>& y) const {
    const auto more = load<V>(residual + i);
    for (int j = 0; j < V; ++j) y.at[j] = rectified(y.at[j] + more.at[j]);
  }
};

/// (x - mean) * scale + beta, of x less its mean.
template <int V>
DELTA_GPU pack<float, V> normalised(const pack<float, V>& centred, const pack<float, V>& scale,
                                    const pack<float, V>& beta) {
  pack<float, V> y;
  for (int j = 0; j < V; ++j) y.at[j] = std::fma(centred.at[j], scale.at[j], beta.at[j]);
  return y;
}

template <class Then>
struct normalise_functor {
  std::size_t c;
  const float *x, *mean, *scale, *beta;
  float* y;
  Then then;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const std::size_t channel = i - divided(i, c) * c;
    auto a = load<V>(x + i);
    const auto m = load<V>(mean + channel);
    for (int j = 0; j < V; ++j) a.at[j] -= m.at[j];
    a = normalised(a, load<V>(scale + channel), load<V>(beta + channel));
    then.at(i, a);
    store(y + i, a);
  }
};

/// y = (x - mean) * gamma / sqrt(var + epsilon) + beta.
struct normalise_by_running_functor {
  std::size_t c;
  float epsilon;
  const float *x, *gamma, *beta, *mean, *var;
  float* y;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const std::size_t channel = i - divided(i, c) * c;
    auto a = load<V>(x + i);
    const auto g = load<V>(gamma + channel), b = load<V>(beta + channel),
               m = load<V>(mean + channel), v = load<V>(var + channel);
    for (int j = 0; j < V; ++j) {
      a.at[j] = (a.at[j] - m.at[j]) * (g.at[j] / std::sqrt(v.at[j] + epsilon)) + b.at[j];
    }
    store(y + i, a);
  }
};

/// The gradient of batch norm's output, where nothing else comes behind it.
struct plain_gradient {
  static constexpr std::size_t rows_at_once = 2;
  const float* dy;

  template <int V>
  struct nothing {};
  template <int V>
  DELTA_GPU nothing<V> channel(std::size_t) const {
    return {};
  }
  template <int V>
  DELTA_GPU pack<float, V> load(std::size_t at) const {
    return gpu::load<V>(dy + at);
  }
  template <int V>
  DELTA_GPU pack<float, V> gradient(const nothing<V>&, const pack<float, V>& d,
                                    const pack<float, V>&, std::size_t) const {
    return d;
  }
};

/// The scale of a channel, as channel_statistics has it: computed again, or from memory.
struct scale_again {
  const float *gamma, *invstd;
  template <int V>
  DELTA_GPU pack<float, V> at(std::size_t channel) const {
    auto scale = load<V>(gamma + channel);
    const auto by = load<V>(invstd + channel);
    for (int j = 0; j < V; ++j) scale.at[j] *= by.at[j];
    return scale;
  }
};
struct scale_in_memory {
  const float* scale;
  template <int V>
  DELTA_GPU pack<float, V> at(std::size_t channel) const {
    return load<V>(scale + channel);
  }
};

/// Behind batch norm is a ReLU, whose result is not at hand: it is what the forward pass computed.
template <class Scale>
struct relu_gradient {
  static constexpr std::size_t rows_at_once = 1;  // two would spill registers
  const float *dy, *beta;
  Scale scale;

  template <int V>
  struct affine {
    pack<float, V> scale, beta;
  };
  template <int V>
  DELTA_GPU affine<V> channel(std::size_t channel) const {
    return {scale.template at<V>(channel), gpu::load<V>(beta + channel)};
  }
  template <int V>
  DELTA_GPU pack<float, V> load(std::size_t at) const {
    return gpu::load<V>(dy + at);
  }
  template <int V>
  DELTA_GPU pack<float, V> gradient(const affine<V>& of, pack<float, V> d,
                                    const pack<float, V>& centred, std::size_t) const {
    const auto y = normalised(centred, of.scale, of.beta);
    for (int j = 0; j < V; ++j) d.at[j] = gated(y.at[j], d.at[j]);
    return d;
  }
};

/// Behind batch norm are an addition and a ReLU with the result y: what passes is the residual's
/// gradient, too, and is written on the way.
struct add_and_relu_gradient {
  static constexpr std::size_t rows_at_once = 1;  // two would spill registers
  const float *dy, *y;
  float* dresidual;

  template <int V>
  struct nothing {};
  template <int V>
  struct values {
    pack<float, V> dy, y;
  };
  template <int V>
  DELTA_GPU nothing<V> channel(std::size_t) const {
    return {};
  }
  template <int V>
  DELTA_GPU values<V> load(std::size_t at) const {
    return {gpu::load<V>(dy + at), gpu::load<V>(y + at)};
  }
  template <int V>
  DELTA_GPU pack<float, V> gradient(const nothing<V>&, const values<V>& read, const pack<float, V>&,
                                    std::size_t at) const {
    pack<float, V> d;
    for (int j = 0; j < V; ++j) d.at[j] = gated(read.y.at[j], read.dy.at[j]);
    store(dresidual + at, d);
    return d;
  }
};

/// dx = gamma * invstd * (dy - mean(dy) - xhat * mean(dy * xhat)), xhat = (x - mean) * invstd, as
/// dx = dy * scale + (x - mean) * slope + offset.
struct channel_gradients : part_join {
  std::size_t rows;
  const float *gamma, *invstd;
  float *dgamma, *dbeta, *scale, *slope, *offset;

  DELTA_GPU void finish(std::size_t, std::size_t column, const sums& s) const {
    const double inverse = invstd[column], a = gamma[column] * inverse, count = double(rows);
    dbeta[column] = float(s.first);
    dgamma[column] = float(s.second * inverse);
    scale[column] = gamma[column] * invstd[column];
    slope[column] = float(-a * s.second * inverse * inverse / count);
    offset[column] = float(-a * s.first / count);
  }
};

template <class Gradient>
struct bn_gradient_functor {
  std::size_t c;
  const float *x, *mean, *scale, *slope, *offset;
  float* dx;
  Gradient dy;
  template <int V>
  DELTA_GPU void at(std::size_t i) const {
    const std::size_t channel = i - divided(i, c) * c;
    auto a = load<V>(x + i);
    const auto read = dy.template load<V>(i);
    const auto m = load<V>(mean + channel), s = load<V>(scale + channel),
               l = load<V>(slope + channel), o = load<V>(offset + channel);
    for (int j = 0; j < V; ++j) a.at[j] -= m.at[j];
    const pack<float, V> d = dy.gradient(dy.template channel<V>(channel), read, a, i);
    for (int j = 0; j < V; ++j) {
      a.at[j] = std::fma(d.at[j], s.at[j], std::fma(a.at[j], l.at[j], o.at[j]));
    }
    store(dx + i, a);
  }
};

/// The workspace of both ways: the parts' sums, and three floats per channel.
struct bn_memory {
  column_cut cut;
  sums* parts;
  float *scale, *slope, *offset;
  std::size_t bytes;

  bn_memory(const bn_shape& s, std::byte* at)
      : cut(cut_rows<pack_team>(s.rows, divided_up(std::size_t(s.c), 4))) {
    const auto c = std::size_t(s.c);
    carver carve(at);
    parts = carve.take<sums>(cut.parts * c);
    scale = carve.take<float>(c);
    slope = carve.take<float>(c);
    offset = carve.take<float>(c);
    bytes = carve.used();
  }
};

inline std::size_t bn_workspace(const bn_shape& s) {
  return bn_memory(s, nullptr).bytes;
}

/// `whole`: whether what `then` reads may be read in packs.
template <class Engine, class Then>
void bn_forward_then(const Engine& engine, const bn_shape& s, const float* x, const float* gamma,
                     const float* beta, float* y, float* save_mean, float* save_invstd,
                     float* running_mean, float* running_var, std::byte* workspace,
                     const Then& then, bool whole) {
  const auto c = std::size_t(s.c);
  const bn_memory memory(s, workspace);
  const bool fours = c % 4 == 0 && aligned(x);
  engine.columns(memory.cut, divided_up(c, 4),
                 part_sums<moment_source>{{x}, c, fours, memory.parts});
  engine.columns(one_part(memory.cut.parts), c,
                 channel_statistics{{memory.parts, c},
                                    x,
                                    s.rows,
                                    s.epsilon,
                                    s.momentum,
                                    gamma,
                                    save_mean,
                                    save_invstd,
                                    memory.scale,
                                    running_mean,
                                    running_var});
  each_by_fours(engine, s.rows * c, fours && whole && aligned(save_mean, beta, y),
                normalise_functor<Then>{c, x, save_mean, memory.scale, beta, y, then});
}

template <class Engine>
void bn_forward(const Engine& engine, const bn_shape& s, const float* x, const float* gamma,
                const float* beta, float* y, float* save_mean, float* save_invstd,
                float* running_mean, float* running_var, std::byte* workspace) {
  bn_forward_then(engine, s, x, gamma, beta, y, save_mean, save_invstd, running_mean, running_var,
                  workspace, as_normalised{}, true);
}
/// y = max(bn(x), 0), with the bits of bn_forward and relu_forward.
template <class Engine>
void bn_relu_forward(const Engine& engine, const bn_shape& s, const float* x, const float* gamma,
                     const float* beta, float* y, float* save_mean, float* save_invstd,
                     float* running_mean, float* running_var, std::byte* workspace) {
  bn_forward_then(engine, s, x, gamma, beta, y, save_mean, save_invstd, running_mean, running_var,
                  workspace, then_relu{}, true);
}
/// y = max(bn(x) + residual, 0), with the bits of bn_forward, add and relu_forward.
template <class Engine>
void bn_add_relu_forward(const Engine& engine, const bn_shape& s, const float* x,
                         const float* gamma, const float* beta, const float* residual, float* y,
                         float* save_mean, float* save_invstd, float* running_mean,
                         float* running_var, std::byte* workspace) {
  bn_forward_then(engine, s, x, gamma, beta, y, save_mean, save_invstd, running_mean, running_var,
                  workspace, then_add_and_relu{residual}, aligned(residual));
}

template <class Engine>
void bn_inference(const Engine& engine, const bn_shape& s, const float* x, const float* gamma,
                  const float* beta, const float* running_mean, const float* running_var,
                  float* y) {
  const auto c = std::size_t(s.c);
  each_by_fours(
      engine, s.rows * c, c % 4 == 0 && aligned(x, gamma, beta, running_mean, running_var, y),
      normalise_by_running_functor{c, s.epsilon, x, gamma, beta, running_mean, running_var, y});
}

/// `in_sums` and, for the last pass, `in_pass` read the gradient; `whole`: in packs.
template <class Engine, class InSums, class InPass>
void bn_backward_from(const Engine& engine, const bn_shape& s, const float* x, const float* gamma,
                      const float* save_mean, const float* save_invstd, float* dx, float* dgamma,
                      float* dbeta, const bn_memory& memory, const InSums& in_sums,
                      const InPass& in_pass, bool whole) {
  const auto c = std::size_t(s.c);
  const bool fours = c % 4 == 0 && whole && aligned(x, save_mean);
  engine.columns(
      memory.cut, divided_up(c, 4),
      part_sums<gradient_source<InSums>>{{x, save_mean, in_sums}, c, fours, memory.parts});
  engine.columns(one_part(memory.cut.parts), c,
                 channel_gradients{{memory.parts, c},
                                   s.rows,
                                   gamma,
                                   save_invstd,
                                   dgamma,
                                   dbeta,
                                   memory.scale,
                                   memory.slope,
                                   memory.offset});
  each_by_fours(engine, s.rows * c, fours && aligned(dx),
                bn_gradient_functor<InPass>{c, x, save_mean, memory.scale, memory.slope,
                                            memory.offset, dx, in_pass});
}

template <class Engine>
void bn_backward(const Engine& engine, const bn_shape& s, const float* x, const float* dy,
                 const float* gamma, const float* save_mean, const float* save_invstd, float* dx,
                 float* dgamma, float* dbeta, std::byte* workspace) {
  const plain_gradient from{dy};
  bn_backward_from(engine, s, x, gamma, save_mean, save_invstd, dx, dgamma, dbeta,
                   bn_memory(s, workspace), from, from, aligned(dy));
}
/// From the gradient of bn_relu_forward's y, with the bits of relu_backward and bn_backward. y is
/// not read: its sign comes from x again.
template <class Engine>
void bn_relu_backward(const Engine& engine, const bn_shape& s, const float* x, const float* dy,
                      const float* gamma, const float* beta, const float* save_mean,
                      const float* save_invstd, float* dx, float* dgamma, float* dbeta,
                      std::byte* workspace) {
  const bn_memory memory(s, workspace);
  bn_backward_from(engine, s, x, gamma, save_mean, save_invstd, dx, dgamma, dbeta, memory,
                   relu_gradient<scale_again>{dy, beta, {gamma, save_invstd}},
                   relu_gradient<scale_in_memory>{dy, beta, {memory.scale}},
                   aligned(dy, gamma, beta, save_invstd));
}
/// From the gradient of bn_add_relu_forward's y, with the bits of relu_backward, whose result
/// dresidual is, and bn_backward.
template <class Engine>
void bn_add_relu_backward(const Engine& engine, const bn_shape& s, const float* x, const float* dy,
                          const float* y, const float* gamma, const float* save_mean,
                          const float* save_invstd, float* dx, float* dresidual, float* dgamma,
                          float* dbeta, std::byte* workspace) {
  bn_backward_from(engine, s, x, gamma, save_mean, save_invstd, dx, dgamma, dbeta,
                   bn_memory(s, workspace), add_and_relu_gradient{dy, y, dresidual},
                   plain_gradient{dresidual}, aligned(dy, y) && aligned(dresidual));
}

}  // namespace delta::executor::gpu
