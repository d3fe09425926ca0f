#include "backend/cpu_backend.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "device/cpu_machine.hpp"
#include "device/interference.hpp"
#include "kernels/thread_pool.hpp"

namespace delta::executor {
namespace {

// Typed views of the argument lists, in the order that operator_type documents.
const float* in(const kernel_args& a, int i) {
  return reinterpret_cast<const float*>(a.in[i]);
}
float* out(const kernel_args& a, int i) {
  return reinterpret_cast<float*>(a.out[i]);
}
float* update(const kernel_args& a, int i) {
  return reinterpret_cast<float*>(a.update[i]);
}
const std::int32_t* labels(const kernel_args& a) {
  return reinterpret_cast<const std::int32_t*>(a.in[1]);
}

using kernel = std::function<void(const kernel_args&)>;

kernel conv_kernel(operator_type type, const conv_shape& s) {
  switch (type) {
    case operator_type::conv_forward:
      return [s](const kernel_args& a) {
        conv_forward(a.pool, s, in(a, 0), in(a, 1), out(a, 0), a.workspace);
      };
    case operator_type::conv_backward_data:
      return [s](const kernel_args& a) {
        conv_backward_data(a.pool, s, in(a, 0), in(a, 1), out(a, 0), a.workspace);
      };
    default:
      return [s](const kernel_args& a) {
        conv_backward_filter(a.pool, s, in(a, 0), in(a, 1), out(a, 0), a.workspace);
      };
  }
}

kernel bn_kernel(operator_type type, const bn_shape& s) {
  switch (type) {
    case operator_type::bn_forward:
      return [s](const kernel_args& a) {
        bn_forward(a.pool, s, in(a, 0), in(a, 1), in(a, 2), out(a, 0), out(a, 1), out(a, 2),
                   update(a, 0), update(a, 1), a.workspace);
      };
    case operator_type::bn_relu_forward:
      return [s](const kernel_args& a) {
        bn_relu_forward(a.pool, s, in(a, 0), in(a, 1), in(a, 2), out(a, 0), out(a, 1), out(a, 2),
                        update(a, 0), update(a, 1), a.workspace);
      };
    case operator_type::bn_relu_backward:
      return [s](const kernel_args& a) {
        bn_relu_backward(a.pool, s, in(a, 0), in(a, 1), in(a, 2), in(a, 3), in(a, 4), in(a, 5),
                         out(a, 0), out(a, 1), out(a, 2), a.workspace);
      };
    case operator_type::bn_add_relu_forward:
      return [s](const kernel_args& a) {
        bn_add_relu_forward(a.pool, s, in(a, 0), in(a, 1), in(a, 2), in(a, 3), out(a, 0), out(a, 1),
                            out(a, 2), update(a, 0), update(a, 1), a.workspace);
      };
    case operator_type::bn_add_relu_backward:
      return [s](const kernel_args& a) {
        bn_add_relu_backward(a.pool, s, in(a, 0), in(a, 1), in(a, 2), in(a, 3), in(a, 4), in(a, 5),
                             out(a, 0), out(a, 1), out(a, 2), out(a, 3), a.workspace);
      };
    case operator_type::bn_inference:
      return [s](const kernel_args& a) {
        bn_inference(a.pool, s, in(a, 0), in(a, 1), in(a, 2), in(a, 3), in(a, 4), out(a, 0));
      };
    default:
      return [s](const kernel_args& a) {
        bn_backward(a.pool, s, in(a, 0), in(a, 1), in(a, 2), in(a, 3), in(a, 4), out(a, 0),
                    out(a, 1), out(a, 2), a.workspace);
      };
  }
}

kernel pool_kernel(operator_type type, const pool_shape& s) {
  if (type == operator_type::max_pool_forward) {
    return [s](const kernel_args& a) {
      max_pool_forward(a.pool, s, in(a, 0), out(a, 0), reinterpret_cast<std::uint8_t*>(a.out[1]));
    };
  }
  return [s](const kernel_args& a) {
    max_pool_backward(a.pool, s, in(a, 0), reinterpret_cast<const std::uint8_t*>(a.in[1]),
                      out(a, 0));
  };
}

kernel average_kernel(operator_type type, const average_shape& s) {
  if (type == operator_type::global_avg_pool_forward) {
    return [s](const kernel_args& a) {
      global_avg_pool_forward(a.pool, s.n, s.pixels, s.c, in(a, 0), out(a, 0));
    };
  }
  return [s](const kernel_args& a) {
    global_avg_pool_backward(a.pool, s.n, s.pixels, s.c, in(a, 0), out(a, 0));
  };
}

kernel linear_kernel(operator_type type, const linear_shape& s) {
  switch (type) {
    case operator_type::linear_forward:
      return [s](const kernel_args& a) {
        linear_forward(a.pool, s.n, s.in, s.out, in(a, 0), in(a, 1), in(a, 2), out(a, 0));
      };
    case operator_type::linear_backward_data:
      return [s](const kernel_args& a) {
        linear_backward_data(a.pool, s.n, s.in, s.out, in(a, 0), in(a, 1), out(a, 0));
      };
    case operator_type::linear_backward_weight:
      return [s](const kernel_args& a) {
        linear_backward_weight(a.pool, s.n, s.in, s.out, in(a, 0), in(a, 1), out(a, 0), out(a, 1));
      };
    case operator_type::softmax_cross_entropy_forward:
      return [s](const kernel_args& a) {
        softmax_cross_entropy_forward(a.pool, s.n, s.out, in(a, 0), labels(a), out(a, 0),
                                      out(a, 1));
      };
    default:
      return [s](const kernel_args& a) {
        softmax_cross_entropy_backward(a.pool, s.n, s.out, in(a, 0), labels(a), out(a, 0));
      };
  }
}

kernel dropout_kernel(operator_type type, const dropout_shape& s,
                      const std::shared_ptr<hyper_parameters>& hyper) {
  if (type == operator_type::dropout_forward) {
    return [s, hyper](const kernel_args& a) {
      dropout_forward(a.pool, s.n, s.probability, hyper->seed, a.sequence, in(a, 0), out(a, 0),
                      reinterpret_cast<std::uint8_t*>(a.out[1]));
    };
  }
  return [s](const kernel_args& a) {
    dropout_backward(a.pool, s.n, s.probability, in(a, 0),
                     reinterpret_cast<const std::uint8_t*>(a.in[1]), out(a, 0));
  };
}

kernel element_kernel(operator_type type, const element_count& s,
                      const std::shared_ptr<hyper_parameters>& hyper) {
  switch (type) {
    case operator_type::relu_forward:
      return [s](const kernel_args& a) { relu_forward(a.pool, s.n, in(a, 0), out(a, 0)); };
    case operator_type::relu_backward:
      return
          [s](const kernel_args& a) { relu_backward(a.pool, s.n, in(a, 0), in(a, 1), out(a, 0)); };
    case operator_type::add:
      return [s](const kernel_args& a) { add(a.pool, s.n, in(a, 0), in(a, 1), out(a, 0)); };
    case operator_type::adam_update:
      return [s, hyper](const kernel_args& a) {
        const adam_step step{hyper->learning_rate, hyper->beta1, hyper->beta2,
                             hyper->epsilon,       hyper->decay, hyper->step};
        adam_update(a.pool, s.n, step, in(a, 0), update(a, 0), update(a, 1), update(a, 2));
      };
    default:
      return [s, hyper](const kernel_args& a) {
        sgd_update(a.pool, s.n, hyper->learning_rate, hyper->momentum, hyper->decay, in(a, 0),
                   update(a, 0), update(a, 1));
      };
  }
}

/// Of each parameter in turn, as that of one.
kernel update_kernel(operator_type type, const update_shape& s,
                     const std::shared_ptr<hyper_parameters>& hyper) {
  const int states = type == operator_type::adam_update ? 3 : 2;
  std::vector<kernel> each;
  each.reserve(s.n.size());
  for (const std::size_t n : s.n) each.push_back(element_kernel(type, {n}, hyper));
  return [each = std::move(each), states](const kernel_args& all) {
    kernel_args a = all;
    for (const kernel& one : each) {
      one(a);
      ++a.in;
      a.update += states;
    }
  };
}

struct bind {
  operator_type type;
  const std::shared_ptr<hyper_parameters>& hyper;
  kernel operator()(const conv_shape& s) const { return conv_kernel(type, s); }
  kernel operator()(const bn_shape& s) const { return bn_kernel(type, s); }
  kernel operator()(const pool_shape& s) const { return pool_kernel(type, s); }
  kernel operator()(const average_shape& s) const { return average_kernel(type, s); }
  kernel operator()(const linear_shape& s) const { return linear_kernel(type, s); }
  kernel operator()(const dropout_shape& s) const { return dropout_kernel(type, s, hyper); }
  kernel operator()(const element_count& s) const { return element_kernel(type, s, hyper); }
  kernel operator()(const update_shape& s) const { return update_kernel(type, s, hyper); }
};

std::size_t workspace_of(const node& n, int threads) {
  switch (n.type) {
    case operator_type::conv_forward:
      return conv_forward_workspace(std::get<conv_shape>(n.shape), threads);
    case operator_type::conv_backward_data:
      return conv_backward_data_workspace(std::get<conv_shape>(n.shape), threads);
    case operator_type::conv_backward_filter:
      return conv_backward_filter_workspace(std::get<conv_shape>(n.shape), threads);
    case operator_type::bn_forward:
    case operator_type::bn_relu_forward:
    case operator_type::bn_add_relu_forward:
      return bn_forward_workspace(std::get<bn_shape>(n.shape), threads);
    case operator_type::bn_relu_backward:
      return bn_relu_backward_workspace(std::get<bn_shape>(n.shape), threads);
    case operator_type::bn_backward:
    case operator_type::bn_add_relu_backward:
      return bn_backward_workspace(std::get<bn_shape>(n.shape), threads);
    default:
      return 0;
  }
}

}  // namespace

void bind_cpu(graph& g, int threads) {
  if (threads < 1) throw std::invalid_argument("a graph runs on at least one thread");
  g.threads = threads;
  for (node& n : g.nodes) {
    n.workspace = workspace_of(n, threads);
    n.run = std::visit(bind{n.type, g.hyper}, n.shape);
  }
}

graph bound_to_cpu(graph&& g, int threads) {
  bind_cpu(g, threads);
  return std::move(g);
}

namespace {

class cpu_backend final : public backend {
 public:
  explicit cpu_backend(const cpu_backend_options& o) : options_(o) {}

  void bind(graph& g) override { bind_cpu(g, options_.threads); }
  std::unique_ptr<machine> open() override {
    cpu_options o{.copy_rate = options_.copy_rate, .latency = {}};
    o.copy_threads = options_.copy_threads.value_or(o.copy_threads);
    if (!options_.copy_threads) {
      // Measured once, with as many threads as kernels will have; before them, so that the two
      // are not there at once.
      if (!ways_) {
        thread_pool pool(options_.threads);
        ways_ = measure_copies(pool);
      }
      if (o.copy_rate <= 0) o.copy_threads = ways_->better();
      const copy_behaviour& way = o.copy_threads == 0 ? ways_->caller : ways_->threads;
      o.expected_rate = way.rate, o.burden = way.burden;
    }
    return std::make_unique<cpu_machine>(o, options_.overlap);
  }
  [[nodiscard]] std::uint64_t granularity() const override { return cpu_granularity; }
  [[nodiscard]] std::string_view kind() const override { return "cpu"; }
  [[nodiscard]] std::string description() const override {
    return cpu_name() + ", " + std::to_string(options_.threads) +
           (options_.threads == 1 ? " thread" : " threads");
  }
  /// The system gives pages when they are touched, and promises more than there are.
  [[nodiscard]] bytes free_memory() const override { return {}; }

 private:
  cpu_backend_options options_;
  std::optional<copy_ways> ways_;
};

}  // namespace

bool cpu_support() noexcept {
  return true;
}

std::unique_ptr<backend> make_cpu_backend(const cpu_backend_options& o) {
  return std::make_unique<cpu_backend>(o);
}

}  // namespace delta::executor
