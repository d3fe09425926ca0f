// Runs a graph with one heap buffer per value: nothing is ever dropped, so a test may look at every
// activation and gradient of the last step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/thread_pool.hpp"
#include "model/graph.hpp"
#include "model/initialise.hpp"

namespace delta::test {

/// The graph must outlive the interpreter; its bound number of threads is used.
class interpreter {
 public:
  interpreter(const executor::graph& g, std::uint64_t seed) : graph_(g), pool_(g.threads) {
    std::size_t workspace = 0;
    for (const auto& v : g.values) values_.push_back(allocate(v.bytes));
    for (const auto& n : g.nodes) workspace = n.workspace > workspace ? n.workspace : workspace;
    workspace_ = allocate(workspace);
    workspace_bytes_ = workspace;
    for (executor::value_id v = 0; v < executor::value_id(g.values.size()); ++v) {
      if (g[v].persistent()) executor::initialise(g, v, seed, floats(v).data());
    }
  }

  /// One step; returns the loss.
  float step(std::span<const float> images, std::span<const std::int32_t> labels) {
    set(graph_.images, images.data(), images.size_bytes());
    set(graph_.labels, labels.data(), labels.size_bytes());
    graph_.hyper->step = ++steps_;
    for (const auto& n : graph_.nodes) run(n, false);
    return floats(graph_.loss)[0];
  }

  /// Runs one node. Outputs and workspace hold NaNs before, so that a kernel that reads them or
  /// leaves an element out is found.
  void run(const executor::node& n, bool replaying) {
    std::vector<const std::byte*> in;
    std::vector<std::byte*> out, update;
    in.reserve(n.inputs.size());
    for (const auto v : n.inputs) in.push_back(buffer(v));
    for (const auto v : n.outputs) {
      out.push_back(buffer(v));
      poison(out.back(), graph_[v].bytes);
    }
    for (const auto v : n.updates) {
      update.push_back(replaying && n.effect_once ? nullptr : buffer(v));
    }
    poison(workspace_.get(), workspace_bytes_);
    const std::uint64_t sequence =
        steps_ * graph_.nodes.size() + std::uint64_t(&n - graph_.nodes.data());
    n.run({in.data(), out.data(), update.data(), workspace_.get(), replaying, sequence, pool_});
  }

  [[nodiscard]] std::span<float> floats(executor::value_id v) {
    return {reinterpret_cast<float*>(buffer(v)), graph_[v].bytes / sizeof(float)};
  }
  [[nodiscard]] std::span<float> floats(std::string_view name) {
    const auto v = graph_.find(name);
    if (v == executor::no_value) throw std::invalid_argument("no value " + std::string(name));
    return floats(v);
  }
  [[nodiscard]] std::span<const std::byte> bytes(executor::value_id v) {
    return {buffer(v), graph_[v].bytes};
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct free_aligned {
    void operator()(std::byte* p) const { ::operator delete(p, alignment); }
  };
  using owned = std::unique_ptr<std::byte, free_aligned>;

  static owned allocate(std::size_t bytes) {
    return owned(static_cast<std::byte*>(::operator new(bytes, alignment)));
  }
  static void poison(std::byte* p, std::size_t bytes) { std::memset(p, 0xff, bytes); }
  std::byte* buffer(executor::value_id v) { return values_.at(std::size_t(v)).get(); }
  void set(executor::value_id v, const void* from, std::size_t bytes) {
    if (bytes != graph_[v].bytes) throw std::invalid_argument("wrong size of " + graph_[v].name);
    std::memcpy(buffer(v), from, bytes);
  }

  const executor::graph& graph_;
  executor::thread_pool pool_;
  std::vector<owned> values_;
  owned workspace_;
  std::size_t workspace_bytes_ = 0;
  std::uint64_t steps_ = 0;
};

/// Standard normal images and labels (7 i + 3) mod classes, from the executor's own generator: the
/// same numbers as in test/reference/make_training_reference.py.
struct sample_batch {
  std::vector<float> images;
  std::vector<std::int32_t> labels;

  sample_batch(const executor::graph& g, std::uint64_t seed)
      : images(g[g.images].bytes / sizeof(float)), labels(std::size_t(g.batch)) {
    executor::graph one;
    const auto v = one.add_value({"images",
                                  g[g.images].shape,
                                  g[g.images].bytes,
                                  executor::value_class::parameter,
                                  {executor::initial_contents::distribution::normal, 1}});
    executor::initialise(one, v, seed, images.data());
    const int classes = g[g.logits].shape[1];
    for (int i = 0; i < g.batch; ++i) labels[std::size_t(i)] = (7 * i + 3) % classes;
  }
};

}  // namespace delta::test
