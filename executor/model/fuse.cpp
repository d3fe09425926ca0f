#include "model/fuse.hpp"

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace delta::executor {
namespace {

// "layer1.0.bn2.forward" -> "layer1.0.bn2"
std::string_view layer_of(std::string_view name) {
  constexpr std::string_view suffix = ".forward";
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

// "layer1.0.bn2" and "layer1.0.relu2": "layer1.0.bn2+relu2.forward"
std::string joined(std::string_view bn, std::string_view relu) {
  bn = layer_of(bn), relu = layer_of(relu);
  const auto block = bn.rfind('.');
  const std::string_view prefix =
      block == std::string_view::npos ? std::string_view{} : bn.substr(0, block + 1);
  if (relu.starts_with(prefix)) relu.remove_prefix(prefix.size());
  return std::string(bn) + "+" + std::string(relu) + ".forward";
}

class fuser {
 public:
  explicit fuser(const graph& g)
      : graph_(g), readers_(g.values.size(), 0), maker_(g.values.size(), none) {
    for (std::size_t i = 0; i < g.nodes.size(); ++i) {
      const node& n = g.nodes[i];
      if (n.backward) throw std::invalid_argument("a graph is fused before it is differentiated");
      for (const value_id v : n.inputs) ++readers_[at(v)];
      for (const value_id v : n.outputs) maker_[at(v)] = i;
    }
    for (const value_id v : {g.loss, g.probabilities, g.logits}) {
      if (v != no_value) ++readers_[at(v)];
    }
  }

  graph run() {
    std::vector<std::optional<node>> nodes(graph_.nodes.begin(), graph_.nodes.end());
    std::vector<bool> gone(graph_.values.size(), false);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const auto found = chain_to(i);
      if (!found) continue;
      const node& bn = graph_.nodes[found->bn];
      nodes[i] = fused_node(*found, i);
      nodes[found->bn].reset();
      gone[at(bn.outputs[0])] = true;
      if (found->add == none) continue;
      nodes[found->add].reset();
      gone[at(graph_.nodes[found->add].outputs[0])] = true;
    }
    return without(gone, nodes);
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  static std::size_t at(value_id v) { return static_cast<std::size_t>(v); }

  // The operators before a ReLU that become one with it; `add` may be none.
  struct chain {
    std::size_t bn, add;
    value_id residual;
  };

  // Who makes `v`, if it is an operator of this type and nobody but one reads what it makes.
  std::size_t only_maker(value_id v, operator_type type) const {
    const std::size_t i = maker_[at(v)];
    return i != none && readers_[at(v)] == 1 && graph_.nodes[i].type == type ? i : none;
  }

  std::optional<chain> chain_to(std::size_t relu) const {
    const node& last = graph_.nodes[relu];
    if (last.type != operator_type::relu_forward) return {};
    const value_id x = last.inputs[0];
    const std::size_t bn = only_maker(x, operator_type::bn_forward);
    if (bn != none) return chain{bn, none, no_value};
    const std::size_t add = only_maker(x, operator_type::add);
    if (add == none) return {};
    const std::vector<value_id>& terms = graph_.nodes[add].inputs;
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) {
      const std::size_t term = only_maker(terms[k], operator_type::bn_forward);
      const value_id residual = terms[1 - k];
      if (term != none && graph_.nodes[term].inputs[0] != residual) {
        return chain{term, add, residual};
      }
    }
    return {};
  }

  node fused_node(const chain& c, std::size_t relu) const {
    const node& last = graph_.nodes[relu];
    node n = graph_.nodes[c.bn];
    n.name = joined(n.name, last.name);
    n.type = operator_type::bn_relu_forward;
    n.outputs[0] = last.outputs[0];
    if (c.add != none) {
      n.type = operator_type::bn_add_relu_forward;
      n.inputs.push_back(c.residual);
    }
    return n;
  }

  // The graph of the nodes that are left, over the values that are.
  graph without(const std::vector<bool>& gone, std::vector<std::optional<node>>& nodes) const {
    graph g;
    g.batch = graph_.batch, g.threads = graph_.threads, g.hyper = graph_.hyper;
    std::vector<value_id> now(graph_.values.size(), no_value);
    for (std::size_t v = 0; v < gone.size(); ++v) {
      if (!gone[v]) now[v] = g.add_value(graph_.values[v]);
    }
    const auto renamed = [&](value_id& v) {
      if (v != no_value) v = now[at(v)];
    };
    g.images = graph_.images, g.labels = graph_.labels, g.logits = graph_.logits;
    g.loss = graph_.loss, g.probabilities = graph_.probabilities;
    for (value_id* v : {&g.images, &g.labels, &g.logits, &g.loss, &g.probabilities}) renamed(*v);
    for (std::optional<node>& n : nodes) {
      if (!n) continue;
      for (auto* list : {&n->inputs, &n->outputs, &n->updates}) {
        for (value_id& v : *list) renamed(v);
      }
      g.append(*std::move(n));
    }
    return g;
  }

  const graph& graph_;
  std::vector<int> readers_;        // of a value; the program counts as one
  std::vector<std::size_t> maker_;  // of a value: the operator
};

}  // namespace

graph fused(const graph& g) {
  return fuser(g).run();
}

}  // namespace delta::executor
