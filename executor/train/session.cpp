#include "train/session.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "delta/engine/any_storage.hpp"
#include "device/host_view.hpp"
#include "model/initialise.hpp"

namespace delta::executor {
namespace {

void gather(const std::vector<tensor_id>& ids, const std::vector<value_id>& values,
            std::vector<tensor_id>& to) {
  to.clear();
  for (const value_id v : values) to.push_back(ids[std::size_t(v)]);
}

}  // namespace

nanoseconds modelled_cost(const node& n) noexcept {
  if (n.expected_ns > 0) return nanoseconds{std::llround(n.expected_ns)};
  constexpr double flops_per_ns = 150;
  constexpr double bytes_per_ns = 12;
  constexpr double fixed_ns = 3000;
  return nanoseconds{
      std::llround(fixed_ns + std::max(n.flops / flops_per_ns, n.moved_bytes / bytes_per_ns))};
}

session::program::program(const graph& g)
    : what(&g), ids(g.values.size(), tensor_id::none), dying(last_uses(g)) {
  for (const node& n : g.nodes) {
    step s{{}, trait::pure, modelled_cost(n)};
    if (n.effect_once) s.traits = s.traits | trait::effect_once;
    if (n.random) s.traits = s.traits | trait::random;
    for (const value_id v : n.outputs) s.outputs.emplace_back(g[v].bytes);
    steps.push_back(std::move(s));
  }
}

session::session(const graph& training, std::unique_ptr<manager_interface> m,
                 const session_tools& tools)
    : tools_(tools), memory_(std::move(m)), training_(training) {
  persistent_.resize(training.values.size(), tensor_id::none);
  // In virtual time the stated cost is recorded.
  costs_come_later_ = tools.recorder != nullptr && tools.recorder->measures() &&
                      tools.device != nullptr && !tools.device->computes_at_once();
}

void session::create(std::uint64_t seed) {
  const graph& g = *training_.what;
  steps_ = 0;
  for (value_id v = 0; v < value_id(g.values.size()); ++v) {
    if (!g[v].persistent()) continue;
    const tensor_id t = variable(g[v]);
    training_.ids[std::size_t(v)] = persistent_[std::size_t(v)] = t;
    const manager_interface::view there = memory_->acquire(t, access::write);
    if (tools_.recorder != nullptr) tools_.recorder->write(t);
    if (tools_.device == nullptr) continue;
    host_view here(*tools_.device, there.data(), bytes{g[v].bytes}, false);
    initialise(g, v, seed, reinterpret_cast<float*>(here.data()));
    here.write();
  }
}

float session::train(batch_source* batch) {
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

void session::infer(const graph& inference, batch_source* batch, std::span<float> probabilities) {
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

tensor_id session::variable(const value& v) {
  const tensor_id t = memory_->variable(bytes{v.bytes}, v.name.c_str());
  if (tools_.recorder != nullptr) tools_.recorder->variable(t, bytes{v.bytes}, v.name);
  note(v, +1);
  return t;
}

/// What a step gives the program.
void session::look(tensor_id from, std::span<std::byte> to) {
  copy(from, to);
  if (tools_.recorder != nullptr) tools_.recorder->read(from);
}

// Acquired where there is no device, too, so that every storage sees the same requests.
void session::copy(tensor_id from, std::span<std::byte> to) {
  const manager_interface::view there = memory_->acquire(from);
  if (tools_.device == nullptr) return;
  const host_view here(*tools_.device, there.data(), bytes{to.size()}, true);
  std::memcpy(to.data(), here.data(), to.size());
}

/// Fresh images and labels, one view after the other, as a recording knows no two at once; gives
/// what making them took, without bringing them to the device.
nanoseconds session::feed(program& p, batch_source* batch) {
  const graph& g = *p.what;
  for (const value_id v : g.inputs) p.ids[std::size_t(v)] = variable(g[v]);
  labels_.resize(g[g.labels].bytes / sizeof(std::int32_t));
  nanoseconds filling{};
  for (const value_id v : {g.images, g.labels}) {
    const tensor_id t = p.ids[std::size_t(v)];
    const manager_interface::view there = memory_->acquire(t, access::write);
    if (tools_.recorder != nullptr) tools_.recorder->write(t);
    if (tools_.device == nullptr) continue;
    host_view here(*tools_.device, there.data(), bytes{g[v].bytes}, false);
    const auto began = clock::now();
    if (v == g.images)
      batch->fill(reinterpret_cast<float*>(here.data()), labels_.data());
    else
      std::memcpy(here.data(), labels_.data(), g[v].bytes);
    filling += clock::now() - began;
    here.write();
  }
  return filling;
}

void session::execute(program& p) {
  const graph& g = *p.what;
  bool backward = false;
  if (costs_come_later_) tools_.device->time_operators();
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const node& n = g.nodes[i];
    if (n.backward && !std::exchange(backward, true)) {
      memory_->backward();
      if (tools_.recorder != nullptr) tools_.recorder->backward();
    }
    gather(p.ids, n.inputs, inputs_);
    gather(p.ids, n.updates, updates_);
    outputs_.resize(n.outputs.size());
    const operation_span op{.inputs = inputs_,
                            .outputs = p.steps[i].outputs,
                            .updates = updates_,
                            .workspace = bytes{n.workspace},
                            .traits = p.steps[i].traits,
                            .cost = p.steps[i].cost,
                            .name = n.name.c_str()};
    memory_->run(op, outputs_, [this, &n](call& c) { compute(n, c); });
    if (tools_.recorder != nullptr) record(p.steps[i], op);
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      p.ids[std::size_t(n.outputs[k])] = outputs_[k];
      note(g[n.outputs[k]], +1);
    }
    note_peak(n);
    for (const value_id v : p.dying[i]) let_go(p, v);
  }
}

/// What the step leaves behind goes: the loss, the probabilities.
void session::finish(program& p) {
  const graph& g = *p.what;
  for (const value_id v : {g.loss, g.probabilities, g.logits})
    if (v != no_value && p.ids[std::size_t(v)] != tensor_id::none) let_go(p, v);
  for (const value_id v : g.inputs)
    if (p.ids[std::size_t(v)] != tensor_id::none) let_go(p, v);
  memory_->end_of_step();
  note_costs(true);
  if (tools_.recorder != nullptr) tools_.recorder->end_of_step();
}

void session::compute(const node& n, call& c) {
  if (tools_.device == nullptr) return;
  in_at_.clear(), out_at_.clear(), update_at_.clear();
  for (std::size_t i = 0; i < n.inputs.size(); ++i) in_at_.push_back(c.in(i));
  for (std::size_t i = 0; i < n.outputs.size(); ++i) out_at_.push_back(c.out(i));
  for (std::size_t i = 0; i < n.updates.size(); ++i) update_at_.push_back(c.update(i));
  const auto began = clock::now();
  n.run({in_at_.data(), out_at_.data(), update_at_.data(), c.workspace(), c.replaying(),
         c.sequence(), *tools_.pool});
  const nanoseconds took = clock::now() - began;
  times_.kernels += took;
  if (!c.replaying()) took_ = took;
}

/// The operator that has just run. The host's clock knows what a kernel took that is over when it
/// returns; of others it knows the launch only, and the device tells when they are over.
void session::record(program::step& s, const operation_span& op) {
  if (!costs_come_later_) {
    tools_.recorder->run(op, outputs_, took_);
    return;
  }
  const std::uint32_t operation = tools_.recorder->run(op, outputs_, op.cost);
  unknown_.push_back({operation, memory_->storage().last_operator(), &s});
  note_costs(false);
}

/// What is over; all: waits, for the last. Where a time has the launch in it, the one of a step
/// before is better, if there is one.
void session::note_costs(bool all) {
  if (unknown_.empty()) return;
  machine& device = *tools_.device;
  if (all) device.wait(unknown_.back().done);
  for (; !unknown_.empty() && device.reached(unknown_.front().done); unknown_.pop_front()) {
    const auto [operation, done, of] = unknown_.front();
    if (const auto t = device.measured(done)) of->measured = std::max(*t, nanoseconds{});
    const nanoseconds with_launch = device.elapsed(done).value_or(of->cost);
    tools_.recorder->took(operation, of->measured > nanoseconds{} ? of->measured : with_launch);
  }
}

void session::let_go(program& p, value_id v) {
  const tensor_id t = std::exchange(p.ids[std::size_t(v)], tensor_id::none);
  memory_->drop(t);
  if (tools_.recorder != nullptr) tools_.recorder->drop(t);
  note((*p.what)[v], -1);
}

/// Keeps the sum of the program's tensors by class.
void session::note(const value& v, int sign) {
  const auto size = std::int64_t(memory_->storage().rounded(bytes{v.bytes}).count) * sign;
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

void session::note_peak(const node& n) {
  const std::uint64_t workspace = memory_->storage().rounded(bytes{n.workspace}).count;
  if (held_.total + workspace <= peak_.total) return;
  peak_ = held_;
  peak_.total += workspace;
  peak_.workspace = workspace;
}

}  // namespace delta::executor
