// Kernels that PyTorch calls on accelerators and doesn't have for the CPU: the cells of recurrent
// networks. Registered for the CPU, where the device's kernels run.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <tuple>

namespace {

using at::Tensor;
using std::optional;

Tensor gates(const Tensor& input, const Tensor& hidden, const optional<Tensor>& input_bias,
             const optional<Tensor>& hidden_bias) {
  Tensor sum = input + hidden;
  if (input_bias && input_bias->defined()) {
    sum += *input_bias + *hidden_bias;
  }
  return sum;
}

// The workspace is what the gates let through, which is all that the gradient needs.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input, const Tensor& hidden,
                                             const Tensor& cx, const optional<Tensor>& input_bias,
                                             const optional<Tensor>& hidden_bias) {
  const auto raw = gates(input, hidden, input_bias, hidden_bias).chunk(4, 1);
  const Tensor in = raw[0].sigmoid();
  const Tensor keep = raw[1].sigmoid();
  const Tensor cell = raw[2].tanh();
  const Tensor out = raw[3].sigmoid();
  Tensor cy = keep * cx + in * cell;
  Tensor hy = out * cy.tanh();
  return {hy, cy, at::cat({in, keep, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const optional<Tensor>& grad_hy,
                                                      const optional<Tensor>& grad_cy,
                                                      const Tensor& cx, const Tensor& cy,
                                                      const Tensor& workspace, bool has_bias) {
  const bool of_hy = grad_hy && grad_hy->defined();
  const bool of_cy = grad_cy && grad_cy->defined();
  if (!of_hy && !of_cy) {
    return {};
  }
  const auto kept = workspace.chunk(4, 1);
  const Tensor& in = kept[0];
  const Tensor& keep = kept[1];
  const Tensor& cell = kept[2];
  const Tensor& out = kept[3];
  const Tensor shown = cy.tanh();
  const Tensor slope_hy = of_hy ? *grad_hy : at::zeros_like(cy);
  Tensor slope_cy = slope_hy * out * (1 - shown * shown);
  if (of_cy) {
    slope_cy = slope_cy + *grad_cy;
  }
  Tensor grad_gates =
      at::cat({slope_cy * cell * in * (1 - in), slope_cy * cx * keep * (1 - keep),
               slope_cy * in * (1 - cell * cell), slope_hy * shown * out * (1 - out)},
              1);
  return {grad_gates, slope_cy * keep, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input, const Tensor& hidden, const Tensor& hx,
                                    const optional<Tensor>& input_bias,
                                    const optional<Tensor>& hidden_bias) {
  const bool biased = input_bias && input_bias->defined();
  const auto left = (biased ? input + *input_bias : input).chunk(3, 1);
  const auto right = (biased ? hidden + *hidden_bias : hidden).chunk(3, 1);
  const Tensor reset = (left[0] + right[0]).sigmoid();
  const Tensor keep = (left[1] + right[1]).sigmoid();
  const Tensor fresh = (left[2] + reset * right[2]).tanh();
  return {fresh + keep * (hx - fresh), at::cat({reset, keep, fresh, hx, right[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy,
                                                                     const Tensor& workspace,
                                                                     bool has_bias) {
  const auto kept = workspace.chunk(5, 1);
  const Tensor& reset = kept[0];
  const Tensor& keep = kept[1];
  const Tensor& fresh = kept[2];
  const Tensor& hx = kept[3];
  const Tensor& right = kept[4];
  const Tensor slope_keep = grad_hy * (hx - fresh) * keep * (1 - keep);
  const Tensor slope_fresh = grad_hy * (1 - keep) * (1 - fresh * fresh);
  const Tensor slope_reset = slope_fresh * right * reset * (1 - reset);
  Tensor of_input = at::cat({slope_reset, slope_keep, slope_fresh}, 1);
  Tensor of_hidden = at::cat({slope_reset, slope_keep, slope_fresh * reset}, 1);
  return {of_input, of_hidden, grad_hy * keep, has_bias ? of_input.sum(0) : Tensor(),
          has_bias ? of_hidden.sum(0) : Tensor()};
}

TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

}  // namespace
