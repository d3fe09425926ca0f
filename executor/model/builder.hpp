// delta executor: appends forward operators to a graph, layer by layer.
#pragma once

#include <string>
#include <vector>

#include "model/graph.hpp"

namespace delta::executor {

/// Training graphs normalise by the batch and have a backward pass; inference graphs normalise by
/// the running statistics and end with the loss.
enum class purpose { training, inference };

/// Whether operators stand alone, or a batch norm takes in the addition and the ReLU behind it.
enum class fusion { none, batch_norm };

/// Builds one graph. Each layer takes its name ("layer1.0.conv1"), under which its parameters
/// (".weight", ".bias"), output (".output") and operator (".forward") go, creates what it needs and
/// returns its output. Shapes that do not fit throw std::invalid_argument, naming the layer.
class builder {
 public:
  explicit builder(int batch, purpose = purpose::training);

  /// The step's images, batch x h x w x c.
  value_id images(int h, int w, int c);
  /// The step's labels, batch 32-bit integers.
  value_id labels();

  /// Square kernel, no bias; each of the `groups` groups of outputs sees its own share of the input
  /// channels (as many groups as channels: depthwise). He-normal weights by fan-out, whatever the
  /// groups, as PyTorch's: std = sqrt(2 / (out * kernel^2)).
  value_id conv2d(const std::string& name, value_id x, int out, int kernel, int stride, int pad,
                  int groups = 1);
  /// gamma 1, beta 0, running mean 0, running variance 1.
  value_id batch_norm(const std::string& name, value_id x);
  value_id relu(const std::string& name, value_id x);
  value_id max_pool(const std::string& name, value_id x, int window, int stride, int pad);
  /// n x h x w x c -> n x c.
  value_id global_avg_pool(const std::string& name, value_id x);
  /// Zeroes each element with `probability`, at least 0 and below 1, and scales the others up by
  /// 1 / (1 - probability). Gives x itself for inference and where the probability is 0.
  value_id dropout(const std::string& name, value_id x, double probability);
  value_id add(const std::string& name, value_id a, value_id b);
  /// Weight and bias uniform in +-1 / sqrt(in), PyTorch's default.
  value_id linear(const std::string& name, value_id x, int out);
  /// Mean cross-entropy; sets graph::loss, logits and probabilities; returns the loss.
  value_id softmax_cross_entropy(const std::string& name, value_id logits, value_id labels);

  /// NHWC extents of a value made so far.
  [[nodiscard]] const std::vector<int>& shape(value_id v) const;

  /// For training, fuses batch norms with what is behind them where that is asked for (fuse.hpp),
  /// and appends the backward pass from the loss; validates. A backend binds the kernels. The
  /// builder is spent.
  [[nodiscard]] graph finish(const hyper_parameters& = {}, fusion = fusion::none) &&;

 private:
  value_id activation(const std::string& name, std::vector<int> shape);
  value_id persistent(const std::string& name, std::vector<int> shape, value_class,
                      initial_contents);
  const std::vector<int>& expect(const std::string& layer, value_id v, std::size_t rank) const;

  graph graph_;
  purpose purpose_;
};

}  // namespace delta::executor
