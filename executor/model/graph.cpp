#include "model/graph.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <unordered_set>
#include <utility>

namespace delta::executor {
namespace {

constexpr std::array<std::string_view, 26> type_names = {"conv_forward",
                                                         "conv_backward_data",
                                                         "conv_backward_filter",
                                                         "bn_forward",
                                                         "bn_inference",
                                                         "bn_backward",
                                                         "bn_relu_forward",
                                                         "bn_relu_backward",
                                                         "bn_add_relu_forward",
                                                         "bn_add_relu_backward",
                                                         "relu_forward",
                                                         "relu_backward",
                                                         "add",
                                                         "max_pool_forward",
                                                         "max_pool_backward",
                                                         "dropout_forward",
                                                         "dropout_backward",
                                                         "global_avg_pool_forward",
                                                         "global_avg_pool_backward",
                                                         "linear_forward",
                                                         "linear_backward_data",
                                                         "linear_backward_weight",
                                                         "softmax_cross_entropy_forward",
                                                         "softmax_cross_entropy_backward",
                                                         "sgd_update",
                                                         "adam_update"};
static_assert(type_names.size() == std::size_t(operator_type::adam_update) + 1);

// Operations per element of the larger side, counted from the formulas. Only convolution and linear
// layers are bound by arithmetic, so for the rest the order of magnitude is what matters.
double operations_per_element(operator_type type) {
  switch (type) {
    case operator_type::bn_forward:
      return 7;  // two moments, then scale and shift
    case operator_type::bn_backward:
      return 9;  // two sums, then dx
    case operator_type::bn_relu_forward:
      return 8;
    case operator_type::bn_add_relu_forward:
      return 9;
    case operator_type::bn_relu_backward:
      return 12;  // as bn_backward, and the gate, computed again
    case operator_type::bn_add_relu_backward:
      return 10;
    case operator_type::bn_inference:
      return 2;
    case operator_type::softmax_cross_entropy_forward:
      return 4;
    case operator_type::softmax_cross_entropy_backward:
      return 2;
    case operator_type::dropout_forward:
      return 20;  // a random word each, from ten rounds per four
    case operator_type::sgd_update:
      return 6;
    case operator_type::adam_update:
      return 14;  // two moments, their corrections, a root and a division
    default:
      return 1;
  }
}

struct count_flops {
  operator_type type;
  double operator()(const conv_shape& s) const { return s.flops(); }
  double operator()(const bn_shape& s) const {
    return operations_per_element(type) * double(s.rows) * s.c;
  }
  double operator()(const pool_shape& s) const {
    return type == operator_type::max_pool_forward ? double(s.out_size()) * s.window * s.window
                                                   : double(s.out_size());
  }
  double operator()(const average_shape& s) const { return double(s.n) * s.pixels * s.c; }
  double operator()(const linear_shape& s) const {
    const bool loss = type == operator_type::softmax_cross_entropy_forward ||
                      type == operator_type::softmax_cross_entropy_backward;
    return loss ? operations_per_element(type) * s.n * s.out : 2.0 * s.n * s.in * s.out;
  }
  double operator()(const dropout_shape& s) const {
    return operations_per_element(type) * double(s.n);
  }
  double operator()(const element_count& s) const {
    return operations_per_element(type) * double(s.n);
  }
  double operator()(const update_shape& s) const {
    return operations_per_element(type) *
           double(std::accumulate(s.n.begin(), s.n.end(), std::size_t{0}));
  }
};

// The checks of validate(), one step per node: `made[v]` while v holds something to read.
class checker {
 public:
  explicit checker(const graph& g) : graph_(g), made_(g.values.size()), final_(g.values.size()) {
    for (std::size_t v = 0; v < g.values.size(); ++v) {
      const value& x = g.values[v];
      require(names_.insert(x.name).second, "two values are named " + x.name);
      made_[v] = x.persistent() || x.what == value_class::input;
    }
    names_.clear();
  }

  void check(const node& n) {
    require(names_.insert(n.name).second, "two operators are named " + n.name);
    for (const value_id v : n.inputs) {
      require(made_[at(n, v)], n.name + " reads " + graph_[v].name + " before it is made");
      require(!final_[at(n, v)], n.name + " reads " + graph_[v].name + " after its update");
    }
    for (const value_id v : n.outputs) {
      require(!made_[at(n, v)], n.name + " makes " + graph_[v].name + ", which exists already");
      made_[at(n, v)] = true;
    }
    for (const value_id v : n.updates) {
      require(graph_.values[at(n, v)].persistent(),
              n.name + " updates " + graph_[v].name + ", which does not persist");
      require(!final_[at(n, v)], n.name + " updates " + graph_[v].name + " for a second time");
      final_[at(n, v)] = true;
    }
  }

  void finish() const {
    for (std::size_t v = 0; v < made_.size(); ++v) {
      require(made_[v], "nobody makes " + graph_.values[v].name);
    }
  }

 private:
  [[nodiscard]] std::size_t at(const node& n, value_id v) const {
    require(v >= 0 && std::size_t(v) < made_.size(), n.name + " names a value out of range");
    return std::size_t(v);
  }
  static void require(bool holds, const std::string& otherwise) {
    if (!holds) throw std::logic_error("invalid graph: " + otherwise);
  }

  const graph& graph_;
  std::unordered_set<std::string_view> names_;
  std::vector<bool> made_, final_;
};

}  // namespace

std::string_view to_string(operator_type type) noexcept {
  return type_names[std::size_t(type)];
}

value_id graph::add_value(value v) {
  const auto id = static_cast<value_id>(values.size());
  switch (v.what) {
    case value_class::input:
      inputs.push_back(id);
      break;
    case value_class::parameter:
      parameters.push_back(id);
      break;
    case value_class::optimizer_state:
      optimizer_states.push_back(id);
      break;
    case value_class::running_statistic:
      running_statistics.push_back(id);
      break;
    case value_class::gradient:
    case value_class::activation:
      break;
  }
  values.push_back(std::move(v));
  return id;
}

void graph::append(node n) {
  n.flops = std::visit(count_flops{n.type}, n.shape);
  n.moved_bytes = 0;
  for (const value_id v : n.inputs) n.moved_bytes += double((*this)[v].bytes);
  for (const value_id v : n.outputs) n.moved_bytes += double((*this)[v].bytes);
  for (const value_id v : n.updates) n.moved_bytes += 2 * double((*this)[v].bytes);
  nodes.push_back(std::move(n));
}

value_id graph::find(std::string_view name) const noexcept {
  const auto it =
      std::find_if(values.begin(), values.end(), [name](const value& v) { return v.name == name; });
  return it == values.end() ? no_value : static_cast<value_id>(it - values.begin());
}

std::vector<std::vector<value_id>> last_uses(const graph& g) {
  constexpr std::size_t never = ~std::size_t{0};
  std::vector<std::size_t> last(g.values.size(), never);
  for (std::size_t n = 0; n < g.nodes.size(); ++n) {
    for (const value_id v : g.nodes[n].inputs) last[std::size_t(v)] = n;
    for (const value_id v : g.nodes[n].outputs) last[std::size_t(v)] = n;
  }
  std::vector<std::vector<value_id>> result(g.nodes.size());
  for (value_id v = 0; v < value_id(g.values.size()); ++v) {
    const bool kept = g[v].persistent() || v == g.loss || v == g.probabilities;
    if (!kept && last[std::size_t(v)] != never) result[last[std::size_t(v)]].push_back(v);
  }
  return result;
}

void validate(const graph& g) {
  checker c(g);
  for (const node& n : g.nodes) c.check(n);
  c.finish();
}

}  // namespace delta::executor
