#include "model/builder.hpp"

#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "model/autograd.hpp"
#include "model/fuse.hpp"

namespace delta::executor {
namespace {

std::size_t elements(const std::vector<int>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1},
                         [](std::size_t n, int extent) { return n * std::size_t(extent); });
}

[[noreturn]] void refuse(const std::string& layer, const std::string& why) {
  throw std::invalid_argument(layer + ": " + why);
}

std::string text(const std::vector<int>& shape) {
  std::string s;
  for (const int extent : shape) s += (s.empty() ? "" : " x ") + std::to_string(extent);
  return s;
}

initial_contents all_zero() {
  return {initial_contents::distribution::zero, 0};
}
initial_contents all_one() {
  return {initial_contents::distribution::one, 0};
}
initial_contents normal(double deviation) {
  return {initial_contents::distribution::normal, deviation};
}
initial_contents uniform(double half_width) {
  return {initial_contents::distribution::uniform, half_width};
}

}  // namespace

builder::builder(int batch, purpose p) : purpose_(p) {
  if (batch < 1) throw std::invalid_argument("a batch holds at least one image");
  graph_.batch = batch;
}

value_id builder::images(int h, int w, int c) {
  if (h < 1 || w < 1 || c < 1) refuse("images", "every extent is at least 1");
  std::vector<int> shape{graph_.batch, h, w, c};
  const std::size_t bytes = elements(shape) * sizeof(float);
  return graph_.images = graph_.add_value({"images", std::move(shape), bytes, value_class::input});
}

value_id builder::labels() {
  const std::size_t bytes = std::size_t(graph_.batch) * sizeof(std::int32_t);
  return graph_.labels = graph_.add_value({"labels", {graph_.batch}, bytes, value_class::input});
}

value_id builder::conv2d(const std::string& name, value_id x, int out, int kernel, int stride,
                         int pad, int groups) {
  const auto in = expect(name, x, 4);
  const conv_shape s{in[0], in[1], in[2], in[3], out, kernel, kernel, stride, pad, groups};
  if (out < 1 || kernel < 1 || stride < 1 || pad < 0) refuse(name, "bad convolution");
  if (groups < 1 || in[3] % groups != 0 || out % groups != 0) {
    refuse(name, std::to_string(groups) + " groups do not divide " + std::to_string(in[3]) +
                     " input and " + std::to_string(out) + " output channels");
  }
  if (in[1] + 2 * pad < kernel || in[2] + 2 * pad < kernel) {
    refuse(name, "an image of " + text(in) + " is smaller than the kernel");
  }
  const auto w =
      persistent(name + ".weight", {out, kernel, kernel, s.c / groups}, value_class::parameter,
                 normal(std::sqrt(2.0 / (double(out) * kernel * kernel))));
  const auto y = activation(name + ".output", {s.n, s.oh(), s.ow(), out});
  graph_.append({name + ".forward", operator_type::conv_forward, s, {x, w}, {y}});
  return y;
}

value_id builder::batch_norm(const std::string& name, value_id x) {
  const auto in = expect(name, x, 4);
  const int c = in[3];
  const bn_shape s{elements(in) / std::size_t(c), c};
  const auto gamma = persistent(name + ".weight", {c}, value_class::parameter, all_one());
  const auto beta = persistent(name + ".bias", {c}, value_class::parameter, all_zero());
  const auto mean =
      persistent(name + ".running_mean", {c}, value_class::running_statistic, all_zero());
  const auto var =
      persistent(name + ".running_var", {c}, value_class::running_statistic, all_one());
  const auto y = activation(name + ".output", in);
  if (purpose_ == purpose::inference) {
    graph_.append(
        {name + ".forward", operator_type::bn_inference, s, {x, gamma, beta, mean, var}, {y}});
    return y;
  }
  if (s.rows < 2) refuse(name, "the variance of a batch needs at least two pixels");
  const auto save_mean = activation(name + ".save_mean", {c});
  const auto save_invstd = activation(name + ".save_invstd", {c});
  node n{name + ".forward", operator_type::bn_forward,   s,
         {x, gamma, beta},  {y, save_mean, save_invstd}, {mean, var}};
  n.effect_once = true;
  graph_.append(std::move(n));
  return y;
}

value_id builder::relu(const std::string& name, value_id x) {
  const auto in = shape(x);
  const auto y = activation(name + ".output", in);
  graph_.append(
      {name + ".forward", operator_type::relu_forward, element_count{elements(in)}, {x}, {y}});
  return y;
}

value_id builder::max_pool(const std::string& name, value_id x, int window, int stride, int pad) {
  const auto in = expect(name, x, 4);
  const pool_shape s{in[0], in[1], in[2], in[3], window, stride, pad};
  // A window wholly inside the padding would have no maximum; one over 16 no 8-bit position.
  if (window < 1 || window > 16 || stride < 1 || pad < 0 || 2 * pad > window) {
    refuse(name, "bad pooling window");
  }
  if (in[1] + 2 * pad < window || in[2] + 2 * pad < window) {
    refuse(name, "an image of " + text(in) + " is smaller than the window");
  }
  const std::vector<int> out{s.n, s.oh(), s.ow(), s.c};
  const auto y = activation(name + ".output", out);
  const auto argmax =
      graph_.add_value({name + ".argmax", out, s.out_size(), value_class::activation});
  graph_.append({name + ".forward", operator_type::max_pool_forward, s, {x}, {y, argmax}});
  return y;
}

value_id builder::global_avg_pool(const std::string& name, value_id x) {
  const auto in = expect(name, x, 4);
  const auto y = activation(name + ".output", {in[0], in[3]});
  graph_.append({name + ".forward",
                 operator_type::global_avg_pool_forward,
                 average_shape{in[0], in[1] * in[2], in[3]},
                 {x},
                 {y}});
  return y;
}

value_id builder::dropout(const std::string& name, value_id x, double probability) {
  const dropout_shape s{elements(shape(x)), float(probability)};
  if (!(s.probability >= 0 && s.probability < 1)) {
    refuse(name, "a probability is at least 0 and below 1");
  }
  if (purpose_ == purpose::inference || s.probability == 0) return x;
  const auto in = shape(x);
  const auto y = activation(name + ".output", in);
  const auto mask = graph_.add_value({name + ".mask", in, s.n, value_class::activation});
  node n{name + ".forward", operator_type::dropout_forward, s, {x}, {y, mask}};
  n.random = true;
  graph_.append(std::move(n));
  return y;
}

value_id builder::add(const std::string& name, value_id a, value_id b) {
  const auto in = shape(a);
  if (in != shape(b)) refuse(name, "adds " + text(in) + " to " + text(shape(b)));
  const auto y = activation(name + ".output", in);
  graph_.append({name + ".forward", operator_type::add, element_count{elements(in)}, {a, b}, {y}});
  return y;
}

value_id builder::linear(const std::string& name, value_id x, int out) {
  const auto in = expect(name, x, 2);
  if (out < 1) refuse(name, "needs at least one output");
  const auto start = uniform(1 / std::sqrt(double(in[1])));
  const auto w = persistent(name + ".weight", {out, in[1]}, value_class::parameter, start);
  const auto b = persistent(name + ".bias", {out}, value_class::parameter, start);
  const auto y = activation(name + ".output", {in[0], out});
  graph_.append({name + ".forward",
                 operator_type::linear_forward,
                 linear_shape{in[0], in[1], out},
                 {x, w, b},
                 {y}});
  return y;
}

value_id builder::softmax_cross_entropy(const std::string& name, value_id logits, value_id labels) {
  const auto in = expect(name, logits, 2);
  expect(name, labels, 1);
  graph_.logits = logits;
  graph_.loss = activation(name + ".output", {1});
  graph_.probabilities = activation(name + ".probabilities", in);
  graph_.append({name + ".forward",
                 operator_type::softmax_cross_entropy_forward,
                 linear_shape{in[0], in[1], in[1]},
                 {logits, labels},
                 {graph_.loss, graph_.probabilities}});
  return graph_.loss;
}

const std::vector<int>& builder::shape(value_id v) const {
  return graph_.values.at(std::size_t(v)).shape;
}

graph builder::finish(const hyper_parameters& hyper, fusion f) && {
  *graph_.hyper = hyper;
  if (purpose_ == purpose::training && f == fusion::batch_norm) graph_ = fused(graph_);
  if (purpose_ == purpose::training) differentiate(graph_, graph_.loss);
  validate(graph_);
  return std::move(graph_);
}

value_id builder::activation(const std::string& name, std::vector<int> shape) {
  const std::size_t bytes = elements(shape) * sizeof(float);
  return graph_.add_value({name, std::move(shape), bytes, value_class::activation});
}

value_id builder::persistent(const std::string& name, std::vector<int> shape, value_class what,
                             initial_contents start) {
  const std::size_t bytes = elements(shape) * sizeof(float);
  return graph_.add_value({name, std::move(shape), bytes, what, start});
}

const std::vector<int>& builder::expect(const std::string& layer, value_id v,
                                        std::size_t rank) const {
  const auto& s = shape(v);
  if (s.size() != rank) {
    refuse(layer, "expects " + std::to_string(rank) + " extents, not " + text(s));
  }
  return s;
}

}  // namespace delta::executor
