// delta executor: the graph of one training (or inference) step. A static list of operators in the
// order in which they run, over values whose sizes are known; who keeps the bytes is another's job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/kernels.hpp"

namespace delta::executor {

/// What a value is to the step. Parameters, optimizer states and running statistics persist from
/// step to step; inputs are fresh each step; activations and gradients live within one step.
enum class value_class {
  input,
  parameter,
  gradient,
  optimizer_state,
  running_statistic,
  activation
};

/// How a persistent value starts (initialise.hpp turns this into numbers).
struct initial_contents {
  enum class distribution { zero, one, normal, uniform } what = distribution::zero;
  double scale = 0;  ///< normal: the standard deviation; uniform: half the width around zero
};

/// One tensor of the step. Names are unique within a graph and, for persistent values, the same in
/// the training and the inference graph of a model ("layer1.0.conv1.weight").
struct value {
  std::string name;
  std::vector<int> shape;  ///< NHWC for images, OHWI for filters (I: of one group)
  std::size_t bytes = 0;
  value_class what = value_class::activation;
  initial_contents initial = {};  ///< meaningful where persistent() only

  /// Lives across steps: a variable, which no operator of the step produces.
  [[nodiscard]] bool persistent() const noexcept {
    return what == value_class::parameter || what == value_class::optimizer_state ||
           what == value_class::running_statistic;
  }
};

/// Index into graph::values.
using value_id = int;
inline constexpr value_id no_value = -1;

/// Which kernel an operator is; kernels.hpp says what each computes. Inputs, outputs and updates
/// are listed in the order of node's lists.
enum class operator_type {
  conv_forward,                   // x, filter -> y
  conv_backward_data,             // dy, filter -> dx
  conv_backward_filter,           // x, dy -> dfilter
  bn_forward,                     // x, gamma, beta -> y, save_mean, save_invstd; running_mean, _var
  bn_inference,                   // x, gamma, beta, running_mean, running_var -> y
  bn_backward,                    // x, dy, gamma, save_mean, save_invstd -> dx, dgamma, dbeta
  bn_relu_forward,                // as bn_forward
  bn_relu_backward,               // x, dy, gamma, beta, save_mean, save_invstd -> dx, dgamma, dbeta
  bn_add_relu_forward,            // x, gamma, beta, residual -> and updates as bn_forward
  bn_add_relu_backward,           // x, dy, y, gamma, save_mean, save_invstd
                                  //   -> dx, dresidual, dgamma, dbeta
  relu_forward,                   // x -> y
  relu_backward,                  // y, dy -> dx
  add,                            // a, b -> y
  max_pool_forward,               // x -> y, argmax (one byte per output element)
  max_pool_backward,              // dy, argmax -> dx
  dropout_forward,                // x -> y, mask (one byte per element)
  dropout_backward,               // dy, mask -> dx
  global_avg_pool_forward,        // x -> y
  global_avg_pool_backward,       // dy -> dx
  linear_forward,                 // x, weight, bias -> y
  linear_backward_data,           // dy, weight -> dx
  linear_backward_weight,         // x, dy -> dweight, dbias
  softmax_cross_entropy_forward,  // logits, labels -> loss, probabilities
  softmax_cross_entropy_backward,  // probabilities, labels -> dlogits
  sgd_update,  // gradient; parameter, velocity. With an update_shape, of each parameter in turn
  adam_update  // gradient; parameter, exp_avg, exp_avg_sq. Likewise
};

/// The enumerator's name, e.g. "conv_forward"; for traces and tables.
[[nodiscard]] std::string_view to_string(operator_type) noexcept;

/// Mean over `pixels` of n x pixels x c.
struct average_shape {
  int n, pixels, c;
};
/// A fully connected layer: n rows from `in` to `out` features. For the loss, out = classes.
struct linear_shape {
  int n, in, out;
};
/// Element-wise operators.
struct element_count {
  std::size_t n;
};
/// An update of several parameters in one operator.
struct update_shape {
  std::vector<std::size_t> n;  ///< elements of each
};
/// Dropout of `n` elements, each with this probability in [0, 1).
struct dropout_shape {
  std::size_t n;
  float probability;
};
/// Everything a backend must know beside the pointers.
using operator_shape = std::variant<conv_shape, bn_shape, pool_shape, average_shape, linear_shape,
                                    dropout_shape, element_count, update_shape>;

/// What a kernel is called with: one pointer per entry of node's inputs, outputs and updates.
struct kernel_args {
  const std::byte* const* in;
  std::byte* const* out;
  std::byte* const* update;  ///< entries are null on a replay of an effect_once operator
  std::byte* workspace;      ///< node::workspace bytes; may be null where that is zero
  bool replaying;
  std::uint64_t sequence;  ///< of the operator in the run; a replay has its first run's
  thread_pool& pool;       ///< graph::threads threads: workspace was sized for that
};

/// One operator. It reads inputs, writes every element of outputs, and changes updates in place.
struct node {
  std::string name;  ///< "layer1.0.conv1.forward"; unique within the graph
  operator_type type;
  operator_shape shape;
  std::vector<value_id> inputs = {}, outputs = {}, updates = {};
  bool effect_once = false;  ///< updates are a side effect that a replay must not repeat
  bool random = false;       ///< draws numbers, from kernel_args::sequence
  bool backward = false;     ///< appended by differentiate(); updates count as backward
  double flops = 0;          ///< floating-point operations, for cost priors
  double moved_bytes = 0;  ///< bytes read and written once each (updates twice), without workspace
  std::size_t workspace = 0;   ///< bytes; set by the backend
  std::string algorithm = {};  ///< which, where the backend had a choice; set by it
  double expected_ns = 0;      ///< until it was measured; set by the backend; 0: modelled_cost's
  std::function<void(const kernel_args&)> run = {};  ///< set by the backend, e.g. bind_cpu()
};

enum class optimizer_kind : std::uint8_t { sgd, adam };

/// Read by nodes when they run, so a schedule may change them between steps; all but the
/// optimizer and update_group, which decide what autograd appends.
struct hyper_parameters {
  float learning_rate = 0.1f;
  float momentum = 0.9f;  ///< sgd
  float decay = 1e-4f;    ///< applied to every parameter, as PyTorch's SGD and Adam do by default
  optimizer_kind optimizer = optimizer_kind::sgd;
  float beta1 = 0.9f;      ///< adam: of the mean of gradients
  float beta2 = 0.999f;    ///< adam: of the mean of their squares
  float epsilon = 1e-8f;   ///< adam
  std::uint64_t seed = 0;  ///< of what dropout draws
  std::uint64_t step = 0;  ///< the training step under way, from 1: whoever runs the steps counts
  /// Parameters are updated together once so many bytes of their gradients are complete; 0: each by
  /// an operator of its own.
  std::uint64_t update_group = 0;
};

/// One step: values, and operators in the order of execution.
struct graph {
  std::vector<value> values;
  std::vector<node> nodes;
  std::vector<value_id> inputs;      ///< images, labels
  std::vector<value_id> parameters;  ///< in forward order
  /// In the order of parameters: of each its velocity (sgd), or its exp_avg, exp_avg_sq (adam).
  std::vector<value_id> optimizer_states;
  std::vector<value_id> running_statistics;
  value_id images = no_value;         ///< batch x h x w x c floats
  value_id labels = no_value;         ///< batch 32-bit integers
  value_id logits = no_value;         ///< batch x classes floats
  value_id loss = no_value;           ///< one float, the mean over the batch
  value_id probabilities = no_value;  ///< batch x classes floats
  int batch = 0;
  int threads = 0;  ///< of the pool that runs it; set by the backend
  /// Bytes that its runs have, before a backend weighs workspaces against them; 0: any number.
  std::uint64_t memory = 0;
  /// Shared with the nodes, and so by copies of the graph.
  std::shared_ptr<hyper_parameters> hyper = std::make_shared<hyper_parameters>();

  /// Adds a value (to the list of its class too).
  value_id add_value(value v);
  /// Appends an operator, filling in flops and moved_bytes.
  void append(node n);
  [[nodiscard]] const value& operator[](value_id v) const {
    return values[static_cast<std::size_t>(v)];
  }
  /// The value of that name, or no_value. Linear time.
  [[nodiscard]] value_id find(std::string_view name) const noexcept;
};

/// Per node, the values that it is the last to touch: inputs, activations and gradients, in
/// ascending order; never persistent values, the loss or the probabilities. A runner drops them
/// after that node. An output that nobody reads dies with its producer.
[[nodiscard]] std::vector<std::vector<value_id>> last_uses(const graph&);

/// Throws std::logic_error with a sentence unless: names are unique; ids are in range; every value
/// is produced once, before its first use; only persistent values are updated; and no node reads a
/// parameter after its update.
void validate(const graph&);

}  // namespace delta::executor
