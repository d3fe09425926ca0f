// delta executor: gives an operator its kernel over an Engine (kernels/gpu/engine.hpp): the GPU's,
// or the one that the tests run on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/gpu/batch_norm.hpp"
#include "kernels/gpu/convolution.hpp"
#include "kernels/gpu/dropout.hpp"
#include "kernels/gpu/elementwise.hpp"
#include "kernels/gpu/linear.hpp"
#include "kernels/gpu/loss.hpp"
#include "kernels/gpu/optimizer.hpp"
#include "kernels/gpu/pooling.hpp"
#include "model/graph.hpp"

namespace delta::executor::gpu {

/// What node::workspace and node::run become.
struct bound_operator {
  std::size_t workspace = 0;
  std::function<void(const kernel_args&)> run = {};
  std::string algorithm = {};  ///< where there was a choice; as node's
};

using hyper_pointer = std::shared_ptr<const hyper_parameters>;

// Typed views of the argument lists, in the order that operator_type documents.
inline const float* in(const kernel_args& a, int i) {
  return reinterpret_cast<const float*>(a.in[i]);
}
inline float* out(const kernel_args& a, int i) {
  return reinterpret_cast<float*>(a.out[i]);
}
inline float* update(const kernel_args& a, int i) {
  return reinterpret_cast<float*>(a.update[i]);
}
inline const std::int32_t* labels(const kernel_args& a) {
  return reinterpret_cast<const std::int32_t*>(a.in[1]);
}

// One overload per shape. Nodes of the graph outlive no engine: it is captured by value, and holds
// its handles. Hyper-parameters are read when the operator runs.

template <class Engine>
bound_operator bind_operator(const Engine& e, const hyper_pointer&, operator_type type,
                             const conv_shape& s) {
  const bool depthwise = is_depthwise(s);
  switch (type) {
    case operator_type::conv_forward:
      if (depthwise) {
        return {0, [e, s](const kernel_args& a) {
                  depthwise_forward(e, s, in(a, 0), in(a, 1), out(a, 0));
                }};
      }
      return {conv_workspace(e, s, false), [e, s](const kernel_args& a) {
                conv_forward(e, s, in(a, 0), in(a, 1), out(a, 0), a.workspace);
              }};
    case operator_type::conv_backward_data:
      if (depthwise) {
        return {0, [e, s](const kernel_args& a) {
                  depthwise_backward_data(e, s, in(a, 0), in(a, 1), out(a, 0));
                }};
      }
      return {conv_workspace(e, s, true), [e, s](const kernel_args& a) {
                conv_backward_data(e, s, in(a, 0), in(a, 1), out(a, 0), a.workspace);
              }};
    default:
      if (depthwise) {
        return {depthwise_filter_workspace(s), [e, s](const kernel_args& a) {
                  depthwise_backward_filter(e, s, in(a, 0), in(a, 1), out(a, 0), a.workspace);
                }};
      }
      return {conv_workspace(e, s, false), [e, s](const kernel_args& a) {
                conv_backward_filter(e, s, in(a, 0), in(a, 1), out(a, 0), a.workspace);
              }};
  }
}

template <class Engine>
bound_operator bind_operator(const Engine& e, const hyper_pointer&, operator_type type,
                             const bn_shape& s) {
  switch (type) {
    case operator_type::bn_forward:
      return {bn_workspace(s), [e, s](const kernel_args& a) {
                bn_forward(e, s, in(a, 0), in(a, 1), in(a, 2), out(a, 0), out(a, 1), out(a, 2),
                           update(a, 0), update(a, 1), a.workspace);
              }};
    case operator_type::bn_relu_forward:
      return {bn_workspace(s), [e, s](const kernel_args& a) {
                bn_relu_forward(e, s, in(a, 0), in(a, 1), in(a, 2), out(a, 0), out(a, 1), out(a, 2),
                                update(a, 0), update(a, 1), a.workspace);
              }};
    case operator_type::bn_relu_backward:
      return {bn_workspace(s), [e, s](const kernel_args& a) {
                bn_relu_backward(e, s, in(a, 0), in(a, 1), in(a, 2), in(a, 3), in(a, 4), in(a, 5),
                                 out(a, 0), out(a, 1), out(a, 2), a.workspace);
              }};
    case operator_type::bn_add_relu_forward:
      return {bn_workspace(s), [e, s](const kernel_args& a) {
                bn_add_relu_forward(e, s, in(a, 0), in(a, 1), in(a, 2), in(a, 3), out(a, 0),
                                    out(a, 1), out(a, 2), update(a, 0), update(a, 1), a.workspace);
              }};
    case operator_type::bn_add_relu_backward:
      return {bn_workspace(s), [e, s](const kernel_args& a) {
                bn_add_relu_backward(e, s, in(a, 0), in(a, 1), in(a, 2), in(a, 3), in(a, 4),
                                     in(a, 5), out(a, 0), out(a, 1), out(a, 2), out(a, 3),
                                     a.workspace);
              }};
    case operator_type::bn_inference:
      return {0, [e, s](const kernel_args& a) {
                bn_inference(e, s, in(a, 0), in(a, 1), in(a, 2), in(a, 3), in(a, 4), out(a, 0));
              }};
    default:
      return {bn_workspace(s), [e, s](const kernel_args& a) {
                bn_backward(e, s, in(a, 0), in(a, 1), in(a, 2), in(a, 3), in(a, 4), out(a, 0),
                            out(a, 1), out(a, 2), a.workspace);
              }};
  }
}

template <class Engine>
bound_operator bind_operator(const Engine& e, const hyper_pointer&, operator_type type,
                             const pool_shape& s) {
  if (type == operator_type::max_pool_forward) {
    return {0, [e, s](const kernel_args& a) {
              max_pool_forward(e, s, in(a, 0), out(a, 0),
                               reinterpret_cast<std::uint8_t*>(a.out[1]));
            }};
  }
  return {0, [e, s](const kernel_args& a) {
            max_pool_backward(e, s, in(a, 0), reinterpret_cast<const std::uint8_t*>(a.in[1]),
                              out(a, 0));
          }};
}

template <class Engine>
bound_operator bind_operator(const Engine& e, const hyper_pointer&, operator_type type,
                             const average_shape& s) {
  if (type == operator_type::global_avg_pool_forward) {
    return {0, [e, s](const kernel_args& a) {
              global_avg_pool_forward(e, s.n, s.pixels, s.c, in(a, 0), out(a, 0));
            }};
  }
  return {0, [e, s](const kernel_args& a) {
            global_avg_pool_backward(e, s.n, s.pixels, s.c, in(a, 0), out(a, 0));
          }};
}

template <class Engine>
bound_operator bind_operator(const Engine& e, const hyper_pointer&, operator_type type,
                             const linear_shape& s) {
  switch (type) {
    case operator_type::linear_forward:
      return {e.product_workspace(), [e, s](const kernel_args& a) {
                linear_forward(e, s.n, s.in, s.out, in(a, 0), in(a, 1), in(a, 2), out(a, 0),
                               a.workspace);
              }};
    case operator_type::linear_backward_data:
      return {e.product_workspace(), [e, s](const kernel_args& a) {
                linear_backward_data(e, s.n, s.in, s.out, in(a, 0), in(a, 1), out(a, 0),
                                     a.workspace);
              }};
    case operator_type::linear_backward_weight:
      return {e.product_workspace(), [e, s](const kernel_args& a) {
                linear_backward_weight(e, s.n, s.in, s.out, in(a, 0), in(a, 1), out(a, 0),
                                       out(a, 1), a.workspace);
              }};
    case operator_type::softmax_cross_entropy_forward:
      return {softmax_cross_entropy_workspace(s.n), [e, s](const kernel_args& a) {
                softmax_cross_entropy_forward(e, s.n, s.out, in(a, 0), labels(a), out(a, 0),
                                              out(a, 1), a.workspace);
              }};
    default:
      return {0, [e, s](const kernel_args& a) {
                softmax_cross_entropy_backward(e, s.n, s.out, in(a, 0), labels(a), out(a, 0));
              }};
  }
}

template <class Engine>
bound_operator bind_operator(const Engine& e, const hyper_pointer& hyper, operator_type type,
                             const dropout_shape& s) {
  const dropout_plan plan(s.probability);
  if (type == operator_type::dropout_forward) {
    return {0, [e, s, plan, hyper](const kernel_args& a) {
              dropout_forward(e, s.n, plan, hyper->seed, a.sequence, in(a, 0), out(a, 0),
                              reinterpret_cast<std::uint8_t*>(a.out[1]));
            }};
  }
  return {0, [e, s, plan](const kernel_args& a) {
            dropout_backward(e, s.n, plan, in(a, 0), reinterpret_cast<const std::uint8_t*>(a.in[1]),
                             out(a, 0));
          }};
}

template <class Engine>
bound_operator bind_operator(const Engine& e, const hyper_pointer& hyper, operator_type type,
                             const element_count& s) {
  switch (type) {
    case operator_type::relu_forward:
      return {0, [e, s](const kernel_args& a) { relu_forward(e, s.n, in(a, 0), out(a, 0)); }};
    case operator_type::relu_backward:
      return {0, [e, s](const kernel_args& a) {
                relu_backward(e, s.n, in(a, 0), in(a, 1), out(a, 0));
              }};
    case operator_type::add:
      return {0, [e, s](const kernel_args& a) { add(e, s.n, in(a, 0), in(a, 1), out(a, 0)); }};
    case operator_type::adam_update:
      return {0, [e, s, hyper](const kernel_args& a) {
                const adam_step step{hyper->learning_rate, hyper->beta1, hyper->beta2,
                                     hyper->epsilon,       hyper->decay, hyper->step};
                adam_update(e, s.n, step, in(a, 0), update(a, 0), update(a, 1), update(a, 2));
              }};
    default:
      return {0, [e, s, hyper](const kernel_args& a) {
                sgd_update(e, s.n, hyper->learning_rate, hyper->momentum, hyper->decay, in(a, 0),
                           update(a, 0), update(a, 1));
              }};
  }
}

template <class Engine>
bound_operator bind_operator(const Engine& e, const hyper_pointer& hyper, operator_type type,
                             const update_shape& s) {
  if (type == operator_type::adam_update) {
    return {0, [e, s, hyper](const kernel_args& a) {
              const adam_step step{hyper->learning_rate, hyper->beta1, hyper->beta2,
                                   hyper->epsilon,       hyper->decay, hyper->step};
              update_all(e, s.n, adam_rule{adam_factors(step)}, a.in, a.update);
            }};
  }
  return {0, [e, s, hyper](const kernel_args& a) {
            const sgd_rule rule{hyper->learning_rate, hyper->momentum, hyper->decay};
            update_all(e, s.n, rule, a.in, a.update);
          }};
}

}  // namespace delta::executor::gpu
