// delta executor: the CPU operators, each callable alone with raw pointers and explicit workspace.
//
// All tensors are float32, dense, NHWC ("pixels by channels"); filters are OHWI: [out][kh][kw][in],
// `in` being the channels of one group.
// Every function writes each element of its outputs, whatever they held before, allocates nothing,
// and gives the same bits for any number of threads: work is split into blocks whose size depends
// on shapes alone, and partial sums are joined in block order. Inputs and outputs may not overlap.
// A workspace is aligned to 64 bytes; its contents matter neither before nor after; null will do
// where its size is zero.
//
// "Allocates nothing" is said of our code: oneDNN's sgemm takes packing buffers from the heap and
// gives them back within the call (see gemm.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/thread_pool.hpp"

namespace delta::executor {

/// The product of lengths, none negative.
template <class... Length>
constexpr std::size_t product_of(Length... lengths) noexcept {
  return (std::size_t(lengths) * ...);
}

/// One convolution: input n x h x w x c, filter k x kh x kw x c/groups, output n x oh() x ow() x k.
/// Output channel o sees the c/groups input channels of its group, o / (k/groups); `groups` divides
/// c and k (std::invalid_argument from whoever is given another).
struct conv_shape {
  int n, h, w, c, k, kh, kw, stride, pad;
  int groups = 1;
  [[nodiscard]] constexpr int oh() const { return (h + 2 * pad - kh) / stride + 1; }
  [[nodiscard]] constexpr int ow() const { return (w + 2 * pad - kw) / stride + 1; }
  [[nodiscard]] constexpr std::size_t in_size() const { return product_of(n, h, w, c); }
  [[nodiscard]] constexpr std::size_t out_size() const { return product_of(n, oh(), ow(), k); }
  [[nodiscard]] constexpr std::size_t filter_size() const {
    return product_of(k, kh, kw, c / groups);
  }
  /// Multiply-adds times two of one pass.
  [[nodiscard]] constexpr double flops() const {
    const int depth = c / groups;
    return 2.0 * double(out_size()) * kh * kw * depth;
  }
};

/// Workspace in bytes; depends on the shape and the pool's number of threads only.
std::size_t conv_forward_workspace(const conv_shape&, int threads);
std::size_t conv_backward_data_workspace(const conv_shape&, int threads);
std::size_t conv_backward_filter_workspace(const conv_shape&, int threads);

void conv_forward(thread_pool&, const conv_shape&, const float* x, const float* filter, float* y,
                  std::byte* workspace);
void conv_backward_data(thread_pool&, const conv_shape&, const float* dy, const float* filter,
                        float* dx, std::byte* workspace);
void conv_backward_filter(thread_pool&, const conv_shape&, const float* x, const float* dy,
                          float* dfilter, std::byte* workspace);

/// Batch norm over `rows` pixels of `c` channels (rows = n*h*w).
struct bn_shape {
  std::size_t rows;
  int c;
  float epsilon = 1e-5f;
  float momentum = 0.1f;  ///< running = (1 - momentum) * running + momentum * batch
};
std::size_t bn_forward_workspace(const bn_shape&, int threads);
std::size_t bn_backward_workspace(const bn_shape&, int threads);
/// Training: normalises by the batch's statistics; saves mean and 1/sqrt(var + epsilon), c each.
/// `running_mean` and `running_var` (unbiased variance, as PyTorch keeps it) are updated unless
/// null: a replay passes null, so that the effect happens once.
void bn_forward(thread_pool&, const bn_shape&, const float* x, const float* gamma,
                const float* beta, float* y, float* save_mean, float* save_invstd,
                float* running_mean, float* running_var, std::byte* workspace);
/// Inference: normalises by the running statistics.
void bn_inference(thread_pool&, const bn_shape&, const float* x, const float* gamma,
                  const float* beta, const float* running_mean, const float* running_var, float* y);
void bn_backward(thread_pool&, const bn_shape&, const float* x, const float* dy, const float* gamma,
                 const float* save_mean, const float* save_invstd, float* dx, float* dgamma,
                 float* dbeta, std::byte* workspace);

/// Batch norm with what follows it in a residual network, in one pass over memory less or two: the
/// same bits as bn_forward, then add, then relu_forward, and as relu_backward, then bn_backward.
/// Workspaces are larger than theirs.
std::size_t bn_relu_backward_workspace(const bn_shape&, int threads);
/// y = max(bn(x), 0); else as bn_forward, whose workspace it takes.
void bn_relu_forward(thread_pool&, const bn_shape&, const float* x, const float* gamma,
                     const float* beta, float* y, float* save_mean, float* save_invstd,
                     float* running_mean, float* running_var, std::byte* workspace);
/// Where the ReLU let through is computed again from x, so y need not be kept.
void bn_relu_backward(thread_pool&, const bn_shape&, const float* x, const float* dy,
                      const float* gamma, const float* beta, const float* save_mean,
                      const float* save_invstd, float* dx, float* dgamma, float* dbeta,
                      std::byte* workspace);
/// y = max(bn(x) + residual, 0); else as bn_forward, whose workspace it takes.
void bn_add_relu_forward(thread_pool&, const bn_shape&, const float* x, const float* gamma,
                         const float* beta, const float* residual, float* y, float* save_mean,
                         float* save_invstd, float* running_mean, float* running_var,
                         std::byte* workspace);
/// dresidual = dy where y > 0, else 0; dx, dgamma and dbeta are bn_backward's of that, whose
/// workspace it takes.
void bn_add_relu_backward(thread_pool&, const bn_shape&, const float* x, const float* dy,
                          const float* y, const float* gamma, const float* save_mean,
                          const float* save_invstd, float* dx, float* dresidual, float* dgamma,
                          float* dbeta, std::byte* workspace);

void relu_forward(thread_pool&, std::size_t n, const float* x, float* y);
/// dx = dy where y > 0, else 0.
void relu_backward(thread_pool&, std::size_t n, const float* y, const float* dy, float* dx);
void add(thread_pool&, std::size_t n, const float* a, const float* b, float* y);

/// y = x / (1 - probability) where `mask` is 1, and 0 where it is 0. The mask, a byte per element,
/// is 0 with the given probability, in [0, 1] (else std::invalid_argument); it is a function of
/// seed, sequence and position alone, so a replay with the same sequence draws the same.
void dropout_forward(thread_pool&, std::size_t n, float probability, std::uint64_t seed,
                     std::uint64_t sequence, const float* x, float* y, std::uint8_t* mask);
/// dx = dy / (1 - probability) where `mask` is 1, else 0.
void dropout_backward(thread_pool&, std::size_t n, float probability, const float* dy,
                      const std::uint8_t* mask, float* dx);

/// Max pooling, square window; padding counts as minus infinity. `argmax` holds, per output, the
/// position in the window (0 .. window*window-1; first maximum wins).
struct pool_shape {
  int n, h, w, c, window, stride, pad;
  [[nodiscard]] constexpr int oh() const { return (h + 2 * pad - window) / stride + 1; }
  [[nodiscard]] constexpr int ow() const { return (w + 2 * pad - window) / stride + 1; }
  [[nodiscard]] constexpr std::size_t in_size() const { return product_of(n, h, w, c); }
  [[nodiscard]] constexpr std::size_t out_size() const { return product_of(n, oh(), ow(), c); }
};
void max_pool_forward(thread_pool&, const pool_shape&, const float* x, float* y,
                      std::uint8_t* argmax);
void max_pool_backward(thread_pool&, const pool_shape&, const float* dy, const std::uint8_t* argmax,
                       float* dx);
/// y[n][c] = mean over `pixels` of x[n][pixel][c].
void global_avg_pool_forward(thread_pool&, int n, int pixels, int c, const float* x, float* y);
void global_avg_pool_backward(thread_pool&, int n, int pixels, int c, const float* dy, float* dx);

/// y[n][out] = x[n][in] * weight[out][in]^T + bias[out].
void linear_forward(thread_pool&, int n, int in, int out, const float* x, const float* weight,
                    const float* bias, float* y);
void linear_backward_data(thread_pool&, int n, int in, int out, const float* dy,
                          const float* weight, float* dx);
void linear_backward_weight(thread_pool&, int n, int in, int out, const float* x, const float* dy,
                            float* dweight, float* dbias);

/// Mean cross-entropy over n rows; also writes probabilities n x classes. One float of loss.
void softmax_cross_entropy_forward(thread_pool&, int n, int classes, const float* logits,
                                   const std::int32_t* labels, float* loss, float* probabilities);
/// dlogits = (probabilities - onehot(label)) / n.
void softmax_cross_entropy_backward(thread_pool&, int n, int classes, const float* probabilities,
                                    const std::int32_t* labels, float* dlogits);

/// v = momentum * v + (g + decay * w);  w = w - lr * v.  (PyTorch's SGD, no Nesterov.)
void sgd_update(thread_pool&, std::size_t n, float lr, float momentum, float decay, const float* g,
                float* w, float* v);

/// One step of Adam (Kingma and Ba 2015), as torch.optim.Adam takes it: decay * w is added to the
/// gradient. `step` counts from 1.
struct adam_step {
  float lr, beta1, beta2, epsilon, decay;
  std::uint64_t step;
};
/// m and v, the running means of g and its square, begin as zeros.
void adam_update(thread_pool&, std::size_t n, const adam_step&, const float* g, float* w, float* m,
                 float* v);

}  // namespace delta::executor
