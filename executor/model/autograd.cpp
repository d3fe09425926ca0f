#include "model/autograd.hpp"

#include <stdexcept>
#include <utility>

namespace delta::executor {
namespace {

// "layer1.0.conv1.forward" -> "layer1.0.conv1"
std::string layer_of(const node& n) {
  constexpr std::string_view suffix = ".forward";
  const std::string_view name = n.name;
  return std::string(name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name);
}

// Where a node's differentiable inputs end: labels and running statistics have no gradient.
std::size_t differentiable_inputs(const node& n) {
  switch (n.type) {
    case operator_type::bn_add_relu_forward:
      return 4;
    case operator_type::bn_forward:
    case operator_type::bn_relu_forward:
    case operator_type::linear_forward:
      return 3;
    case operator_type::conv_forward:
    case operator_type::add:
      return 2;
    case operator_type::relu_forward:
    case operator_type::max_pool_forward:
    case operator_type::dropout_forward:
    case operator_type::global_avg_pool_forward:
    case operator_type::softmax_cross_entropy_forward:
      return 1;
    default:
      throw std::invalid_argument(n.name + " has no derivative");
  }
}

class differentiator {
 public:
  differentiator(graph& g, value_id loss) : graph_(g), states_(g.values.size()) {
    const std::size_t values = g.values.size();
    wanted_.assign(values, false);
    missing_.assign(values, 0);
    gradient_.assign(values, no_value);
    find_wanted();
    find_active(loss);
    const std::vector<std::string> kept = adam()
                                              ? std::vector<std::string>{".exp_avg", ".exp_avg_sq"}
                                              : std::vector<std::string>{".velocity"};
    for (const value_id p : g.parameters) {
      for (const std::string& suffix : kept) {
        value v{g[p].name + suffix, g[p].shape, g[p].bytes, value_class::optimizer_state};
        states_[at(p)].push_back(g.add_value(std::move(v)));
      }
    }
  }

  void run() {
    for (std::size_t i = active_.size(); i-- > 0;) {
      if (!active_[i]) continue;
      const node n = graph_.nodes[i];  // a copy: appending moves the nodes
      differentiate_node(n, layer_of(n));
    }
    update_complete();
  }

 private:
  static std::size_t at(value_id v) { return static_cast<std::size_t>(v); }
  bool wanted(value_id v) const { return wanted_[at(v)]; }

  // Values through which a parameter acts.
  void find_wanted() {
    for (const value_id p : graph_.parameters) wanted_[at(p)] = true;
    for (const node& n : graph_.nodes) {
      bool any = false;
      for (const value_id v : n.inputs) any = any || wanted(v);
      if (any) wanted_[at(n.outputs[0])] = true;
    }
  }

  // Nodes through which a wanted value reaches the loss; counts the gradients that each value will
  // get from them.
  void find_active(value_id loss) {
    std::vector<bool> reaches(graph_.values.size(), false);
    reaches[at(loss)] = true;
    active_.assign(graph_.nodes.size(), false);
    for (std::size_t i = graph_.nodes.size(); i-- > 0;) {
      const node& n = graph_.nodes[i];
      if (!reaches[at(n.outputs[0])] || !wanted(n.outputs[0])) continue;
      active_[i] = true;
      for (std::size_t k = 0; k < differentiable_inputs(n); ++k) {
        const value_id v = n.inputs[k];
        reaches[at(v)] = true;
        missing_[at(v)] += wanted(v);
      }
    }
  }

  void differentiate_node(const node& n, const std::string& layer) {
    const value_id dy = gradient_[at(n.outputs[0])];
    switch (n.type) {
      case operator_type::conv_forward:
        if (wanted(n.inputs[0])) {
          emit(layer + ".backward_data", operator_type::conv_backward_data, n, {dy, n.inputs[1]},
               {n.inputs[0]});
        }
        emit(layer + ".backward_filter", operator_type::conv_backward_filter, n, {n.inputs[0], dy},
             {n.inputs[1]});
        break;
      case operator_type::bn_forward:
        emit(layer + ".backward", operator_type::bn_backward, n,
             {n.inputs[0], dy, n.inputs[1], n.outputs[1], n.outputs[2]}, n.inputs);
        break;
      case operator_type::bn_relu_forward:
        emit(layer + ".backward", operator_type::bn_relu_backward, n,
             {n.inputs[0], dy, n.inputs[1], n.inputs[2], n.outputs[1], n.outputs[2]}, n.inputs);
        break;
      case operator_type::bn_add_relu_forward:
        emit(layer + ".backward", operator_type::bn_add_relu_backward, n,
             {n.inputs[0], dy, n.outputs[0], n.inputs[1], n.outputs[1], n.outputs[2]},
             {n.inputs[0], n.inputs[3], n.inputs[1], n.inputs[2]});
        break;
      case operator_type::relu_forward:
        emit(layer + ".backward", operator_type::relu_backward, n, {n.outputs[0], dy}, n.inputs);
        break;
      case operator_type::add:  // both terms receive dy itself: no copy
        for (const value_id v : n.inputs) {
          if (wanted(v)) contribute(v, dy);
        }
        break;
      case operator_type::max_pool_forward:
        emit(layer + ".backward", operator_type::max_pool_backward, n, {dy, n.outputs[1]},
             n.inputs);
        break;
      case operator_type::dropout_forward:
        emit(layer + ".backward", operator_type::dropout_backward, n, {dy, n.outputs[1]}, n.inputs);
        break;
      case operator_type::global_avg_pool_forward:
        emit(layer + ".backward", operator_type::global_avg_pool_backward, n, {dy}, n.inputs);
        break;
      case operator_type::linear_forward:
        if (wanted(n.inputs[0])) {
          emit(layer + ".backward_data", operator_type::linear_backward_data, n, {dy, n.inputs[1]},
               {n.inputs[0]});
        }
        emit(layer + ".backward_weight", operator_type::linear_backward_weight, n,
             {n.inputs[0], dy}, {n.inputs[1], n.inputs[2]});
        break;
      case operator_type::softmax_cross_entropy_forward:  // the seed: dloss = 1
        emit(layer + ".backward", operator_type::softmax_cross_entropy_backward, n,
             {n.outputs[1], n.inputs[1]}, {n.inputs[0]});
        break;
      default:
        break;  // find_active() has refused every other type
    }
  }

  // Appends a backward operator of the forward node's shape, which makes gradients of `targets`.
  void emit(std::string name, operator_type type, const node& forward, std::vector<value_id> inputs,
            const std::vector<value_id>& targets) {
    std::vector<value_id> made;
    for (const value_id v : targets) {
      const bool whole = gradient_[at(v)] == no_value && missing_[at(v)] == 1;
      made.push_back(new_gradient(v, whole ? ".gradient" : ".gradient.from." + name));
    }
    append({std::move(name), type, forward.shape, std::move(inputs), made});
    for (std::size_t k = 0; k < targets.size(); ++k) {
      if (wanted(targets[k])) contribute(targets[k], made[k]);  // bn makes dx for the images too
    }
  }

  // `g` is (a part of) the gradient of `v`: joins it to what is there; the last part of a
  // parameter's gradient sets off its update.
  void contribute(value_id v, value_id g) {
    if (gradient_[at(v)] == no_value) {
      gradient_[at(v)] = g;
    } else {
      const bool last = missing_[at(v)] == 1;
      const std::string suffix =
          last ? ".gradient" : ".gradient.without." + std::to_string(missing_[at(v)] - 1);
      const value_id sum = new_gradient(v, suffix);
      append({graph_[sum].name + ".add",
              operator_type::add,
              count_of(v),
              {gradient_[at(v)], g},
              {sum}});
      gradient_[at(v)] = sum;
    }
    --missing_[at(v)];
    if (missing_[at(v)] > 0 || graph_[v].what != value_class::parameter) return;
    complete_.push_back(v);
    complete_bytes_ += graph_[v].bytes;
    if (complete_bytes_ >= graph_.hyper->update_group) update_complete();
  }

  bool adam() const { return graph_.hyper->optimizer == optimizer_kind::adam; }

  // Appends the update of all parameters whose gradients are complete.
  void update_complete() {
    const std::vector<value_id> group = std::exchange(complete_, {});
    complete_bytes_ = 0;
    if (group.empty()) return;
    node n{graph_[group[0]].name + ".update",
           adam() ? operator_type::adam_update : operator_type::sgd_update, count_of(group[0])};
    update_shape all;
    for (const value_id p : group) {
      n.inputs.push_back(gradient_[at(p)]);
      n.updates.push_back(p);
      n.updates.insert(n.updates.end(), states_[at(p)].begin(), states_[at(p)].end());
      all.n.push_back(count_of(p).n);
    }
    if (group.size() > 1) {
      n.name += ".and." + std::to_string(group.size() - 1);
      n.shape = std::move(all);
    }
    append(std::move(n));
  }

  void append(node n) {
    n.backward = true;
    graph_.append(std::move(n));
  }
  value_id new_gradient(value_id of, const std::string& suffix) {
    value v{graph_[of].name + suffix, graph_[of].shape, graph_[of].bytes, value_class::gradient};
    return graph_.add_value(std::move(v));
  }
  element_count count_of(value_id v) const { return {graph_[v].bytes / sizeof(float)}; }

  graph& graph_;
  std::vector<bool> wanted_;                   // a parameter acts through the value
  std::vector<bool> active_;                   // per forward node: it has a backward
  std::vector<int> missing_;                   // parts of the value's gradient still to come
  std::vector<value_id> gradient_;             // of the value, as far as it has come
  std::vector<std::vector<value_id>> states_;  // what the optimizer keeps of the parameter
  std::vector<value_id> complete_;             // parameters whose gradients wait for their update
  std::uint64_t complete_bytes_ = 0;
};

}  // namespace

void differentiate(graph& g, value_id loss) {
  if (loss == no_value || loss != g.loss) {
    throw std::invalid_argument("only the loss of a softmax cross-entropy can be differentiated");
  }
  differentiator(g, loss).run();
}

}  // namespace delta::executor
