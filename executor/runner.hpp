// delta executor: runs a graph's steps through a delta::manager. The same code trains on the CPU's
// arena and, without kernels, asks the simulated storage what a budget would do.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/manager.hpp"
#include "graph.hpp"
#include "initialise.hpp"
#include "replay/trace_recorder.hpp"
#include "report.hpp"

namespace delta::executor {

/// What an operator costs on the virtual clock: by its flops or by the bytes that it moves,
/// whichever takes longer, and a fixed part. The rates are those of two cores with AVX-512.
[[nodiscard]] nanoseconds modelled_cost(const node&) noexcept;

/// Where a step's time went, in ns; the parts exclude making the images.
struct step_times {
  nanoseconds wall{};     ///< the whole step
  nanoseconds kernels{};  ///< in kernels, replays included
};

/// Writes a batch: images (NHWC floats) and labels.
class batch_source {
 public:
  virtual ~batch_source() = default;
  virtual void fill(float* images, std::int32_t* labels) = 0;
};

/// A model in a memory, whatever the policy and the storage behind it.
class session {
 public:
  virtual ~session() = default;
  /// Makes the persistent values of the training graph and fills them from a seed.
  virtual void create(std::uint64_t seed) = 0;
  /// One training step; gives the loss. `batch` may be null where there are no kernels.
  virtual float train(batch_source* batch) = 0;
  /// One inference step over a graph that shares the names of persistent values; the probabilities
  /// (batch x classes) are copied out.
  virtual void infer(const graph& inference, batch_source* batch,
                     std::span<float> probabilities) = 0;
  /// The bytes of a persistent value of the training graph. Not recorded.
  virtual void read(value_id v, std::span<std::byte> to) = 0;
  [[nodiscard]] virtual const counters& counts() const = 0;
  [[nodiscard]] virtual step_times times() const = 0;  ///< of the last step
  /// Bytes at the instant of the peak so far, by what they are for. Exact when nothing leaves.
  [[nodiscard]] virtual bytes_by_class peak_by_class() const = 0;
  /// What the policy has learned so far; without steps where it does not learn.
  [[nodiscard]] virtual lesson learned() const = 0;
};

/// The session over one manager type.
template <class H, class D, class P, class S, class O>
class runner final : public session {
 public:
  /// The graph, the storage and the pool outlive the runner. Over a storage without bytes `pool`
  /// and the batches may be null. What the steps ask of the manager is told to `recorder`, which
  /// may be null and must otherwise outlive them.
  runner(const graph& training, policy<H, D, P> p, S& storage, thread_pool* pool, O observer,
         trace_recorder* recorder)
      : pool_(pool),
        recorder_(recorder),
        storage_(&storage),
        manager_(std::move(p), storage, std::move(observer)),
        training_(training) {
    persistent_.resize(training.values.size(), tensor_id::none);
  }

  void create(std::uint64_t seed) override {
    const graph& g = *training_.what;
    steps_ = 0;
    for (value_id v = 0; v < value_id(g.values.size()); ++v) {
      if (!g[v].persistent()) continue;
      const tensor_id t = variable(g[v]);
      training_.ids[std::size_t(v)] = persistent_[std::size_t(v)] = t;
      // Acquired on every storage, so that all see the same requests.
      const auto view = acquire(t, access::write);
      if constexpr (has_bytes) initialise(g, v, seed, reinterpret_cast<float*>(view.data()));
    }
  }

  float train(batch_source* batch) override {
    const auto began = clock::now();
    times_ = {};
    const graph& g = *training_.what;
    g.hyper->step = ++steps_;  // sessions may share the graph, so each keeps its own count
    const nanoseconds filling = feed(training_, batch);
    execute(training_);
    float loss = 0;
    look(training_.ids[std::size_t(g.loss)], std::as_writable_bytes(std::span(&loss, 1)));
    finish(training_);
    times_.wall = clock::now() - began - filling;
    return loss;
  }

  void infer(const graph& inference, batch_source* batch, std::span<float> probabilities) override {
    auto at = std::find_if(inference_.begin(), inference_.end(),
                           [&](const auto& known) { return known->what == &inference; });
    if (at == inference_.end()) at = inference_.insert(at, std::make_unique<program>(inference));
    program& p = **at;
    for (value_id v = 0; v < value_id(inference.values.size()); ++v)
      if (inference[v].persistent())
        p.ids[std::size_t(v)] = persistent_[std::size_t(training_.what->find(inference[v].name))];
    feed(p, batch);
    execute(p);
    look(p.ids[std::size_t(inference.probabilities)], std::as_writable_bytes(probabilities));
    finish(p);
  }

  void read(value_id v, std::span<std::byte> to) override { copy(persistent_[std::size_t(v)], to); }

  [[nodiscard]] const counters& counts() const override { return manager_.counts(); }
  [[nodiscard]] step_times times() const override { return times_; }
  [[nodiscard]] bytes_by_class peak_by_class() const override { return peak_; }
  [[nodiscard]] lesson learned() const override { return lesson_of(manager_); }

 private:
  using clock = std::chrono::steady_clock;
  /// A simulated storage counts bytes and keeps none: then nothing is computed, filled or read.
  static constexpr bool has_bytes = requires(S& s, const block& b) { s.data(b); };

  /// Tells the recorder, if there is one: `how` is called with it.
  template <class How>
  void record(const How& how) {
    if (recorder_ != nullptr) how(*recorder_);
  }
  tensor_id variable(const value& v) {
    const tensor_id t = manager_.variable(bytes{v.bytes}, v.name.c_str());
    record([&](trace_recorder& r) { r.variable(t, bytes{v.bytes}, v.name); });
    note(v, +1);
    return t;
  }
  /// A recording knows no two views at once: the one before must have gone.
  auto acquire(tensor_id t, access how) {
    auto view = manager_.acquire(t, how);
    record([&](trace_recorder& r) { how == access::write ? r.write(t) : r.read(t); });
    return view;
  }
  /// What a step gives the program.
  void look(tensor_id from, std::span<std::byte> to) {
    copy(from, to);
    record([&](trace_recorder& r) { r.read(from); });
  }
  void copy(tensor_id from, [[maybe_unused]] std::span<std::byte> to) {
    const auto view = manager_.acquire(from);
    if constexpr (has_bytes) std::memcpy(to.data(), view.data(), to.size());
  }

  /// A graph made ready: lists in delta's terms, so that a step allocates nothing.
  struct program {
    struct step {
      std::vector<bytes> outputs;
      trait traits = trait::pure;
      nanoseconds cost{};
    };
    const graph* what;
    std::vector<tensor_id> ids;  ///< by value
    std::vector<step> steps;     ///< by node
    std::vector<std::vector<value_id>> dying;

    explicit program(const graph& g)
        : what(&g), ids(g.values.size(), tensor_id::none), dying(last_uses(g)) {
      for (const node& n : g.nodes) {
        step s{{}, trait::pure, modelled_cost(n)};
        if (n.effect_once) s.traits = s.traits | trait::effect_once;
        if (n.random) s.traits = s.traits | trait::random;
        for (const value_id v : n.outputs) s.outputs.emplace_back(g[v].bytes);
        steps.push_back(std::move(s));
      }
    }
  };

  /// Fresh images and labels, one view after the other; gives what filling them took.
  nanoseconds feed(program& p, [[maybe_unused]] batch_source* batch) {
    const graph& g = *p.what;
    for (const value_id v : g.inputs) p.ids[std::size_t(v)] = variable(g[v]);
    const auto began = clock::now();
    labels_.resize(g[g.labels].bytes / sizeof(std::int32_t));
    {
      const auto images = acquire(p.ids[std::size_t(g.images)], access::write);
      if constexpr (has_bytes) batch->fill(reinterpret_cast<float*>(images.data()), labels_.data());
    }
    const auto labels = acquire(p.ids[std::size_t(g.labels)], access::write);
    if constexpr (has_bytes)
      std::memcpy(labels.data(), labels_.data(), labels_.size() * sizeof(std::int32_t));
    return clock::now() - began;
  }

  void execute(program& p) {
    const graph& g = *p.what;
    bool backward = false;
    for (std::size_t i = 0; i < g.nodes.size(); ++i) {
      const node& n = g.nodes[i];
      if (n.backward && !std::exchange(backward, true)) {
        manager_.backward();
        record([](trace_recorder& r) { r.backward(); });
      }
      gather(p, n.inputs, inputs_);
      gather(p, n.updates, updates_);
      outputs_.resize(n.outputs.size());
      const operation_span op{.inputs = inputs_,
                              .outputs = p.steps[i].outputs,
                              .updates = updates_,
                              .workspace = bytes{n.workspace},
                              .traits = p.steps[i].traits,
                              .cost = p.steps[i].cost,
                              .name = n.name.c_str()};
      manager_.run(op, outputs_, [this, &n](call& c) { compute(n, c); });
      record([&](trace_recorder& r) { r.run(op, outputs_, took_); });
      for (std::size_t k = 0; k < outputs_.size(); ++k) {
        p.ids[std::size_t(n.outputs[k])] = outputs_[k];
        note(g[n.outputs[k]], +1);
      }
      note_peak(n);
      for (const value_id v : p.dying[i]) let_go(p, v);
    }
  }

  /// What the step leaves behind goes: the loss, the probabilities.
  void finish(program& p) {
    const graph& g = *p.what;
    for (const value_id v : {g.loss, g.probabilities, g.logits})
      if (v != no_value && p.ids[std::size_t(v)] != tensor_id::none) let_go(p, v);
    for (const value_id v : g.inputs)
      if (p.ids[std::size_t(v)] != tensor_id::none) let_go(p, v);
    manager_.end_of_step();
    record([](trace_recorder& r) { r.end_of_step(); });
  }

  void compute(const node& n, call& c) {
    if constexpr (!has_bytes) return;
    std::array<const std::byte*, most> in{};
    std::array<std::byte*, most> out{}, update{};
    for (std::size_t i = 0; i < n.inputs.size(); ++i) in[i] = c.in(i);
    for (std::size_t i = 0; i < n.outputs.size(); ++i) out[i] = c.out(i);
    for (std::size_t i = 0; i < n.updates.size(); ++i) update[i] = c.update(i);
    const auto began = clock::now();
    n.run(
        {in.data(), out.data(), update.data(), c.workspace(), c.replaying(), c.sequence(), *pool_});
    const nanoseconds took = clock::now() - began;
    times_.kernels += took;
    if (!c.replaying()) took_ = took;
  }

  static void gather(const program& p, const std::vector<value_id>& values,
                     std::vector<tensor_id>& to) {
    to.clear();
    for (const value_id v : values) to.push_back(p.ids[std::size_t(v)]);
  }
  void let_go(program& p, value_id v) {
    const tensor_id t = std::exchange(p.ids[std::size_t(v)], tensor_id::none);
    manager_.drop(t);
    record([&](trace_recorder& r) { r.drop(t); });
    note((*p.what)[v], -1);
  }
  /// Keeps the sum of the program's tensors by class.
  void note(const value& v, int sign) {
    const auto size = std::int64_t(storage_->rounded(bytes{v.bytes}).count) * sign;
    const auto add = [&](std::uint64_t& to) { to = std::uint64_t(std::int64_t(to) + size); };
    add(held_.total);
    switch (v.what) {
      case value_class::parameter:
        return add(held_.parameters);
      case value_class::gradient:
        return add(held_.gradients);
      case value_class::optimizer_state:
        return add(held_.optimizer_state);
      default:
        return add(held_.activations);
    }
  }
  void note_peak(const node& n) {
    const std::uint64_t workspace = storage_->rounded(bytes{n.workspace}).count;
    if (held_.total + workspace <= peak_.total) return;
    peak_ = held_;
    peak_.total += workspace;
    peak_.workspace = workspace;
  }

  static constexpr std::size_t most = 8;  ///< entries in one list of a node

  thread_pool* pool_;
  trace_recorder* recorder_;
  S* storage_;
  manager<H, D, P, S, O> manager_;
  program training_;
  std::vector<std::unique_ptr<program>> inference_;  // kept: an evaluation has many batches
  std::vector<tensor_id> persistent_, inputs_, updates_, outputs_;
  std::vector<std::int32_t> labels_;  ///< of the batch at hand
  std::uint64_t steps_ = 0;           ///< training steps so far
  nanoseconds took_{};                ///< the last kernel that was no replay
  step_times times_;
  bytes_by_class held_, peak_;
};

/// Makes a session of a policy, a graph and a storage.
template <class H, class D, class P, class S, class O = no_observer>
std::unique_ptr<session> make_session(const graph& g, policy<H, D, P> p, S& s, thread_pool* pool,
                                      O observer = {}, trace_recorder* recorder = nullptr) {
  return std::make_unique<runner<H, D, P, S, O>>(g, std::move(p), s, pool, std::move(observer),
                                                 recorder);
}

}  // namespace delta::executor
