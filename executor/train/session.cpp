#include "train/session.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "delta/engine/any_storage.hpp"
#include "delta/error.hpp"
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

session::program::program(const graph& g, const any_storage& storage)
    : what(&g), ids(g.values.size(), tensor_id::none), dying(last_uses(g)) {
  for (const node& n : g.nodes) {
    step s{{}, trait::pure, modelled_cost(n)};
    if (n.effect_once) s.traits = s.traits | trait::effect_once;
    if (n.random) s.traits = s.traits | trait::random;
    for (const value_id v : n.outputs) s.outputs.emplace_back(g[v].bytes);
    steps.push_back(std::move(s));
  }
  const auto size = [&](std::uint64_t n) { return storage.rounded(bytes{n}).count; };
  std::uint64_t held = 0;
  for (const value& v : g.values)
    if (v.persistent() || v.what == value_class::input) held += size(v.bytes);
  ahead.resize(g.nodes.size());
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    for (const value_id v : g.nodes[i].outputs) held += size(g[v].bytes);
    ahead[i] = held + size(g.nodes[i].workspace);  // at it, for now
    for (const value_id v : dying[i]) held -= size(g[v].bytes);
  }
  for (std::size_t i = ahead.size(); i-- > 0;) {
    const std::uint64_t behind = peak;
    peak = std::max(peak, ahead[i]);
    ahead[i] = behind;
  }
}

session::session(const graph& training, std::unique_ptr<manager_interface> m,
                 const session_tools& tools)
    : tools_(tools), memory_(std::move(m)), training_(training, memory_->storage()) {
  persistent_.resize(training.values.size(), tensor_id::none);
  // In virtual time the stated cost is recorded.
  costs_come_later_ = tools.recorder != nullptr && tools.recorder->measures() &&
                      tools.device != nullptr && !tools.device->computes_at_once();
  if (tools.device == nullptr) return;
  fetched_size_ = bytes{training[training.loss].bytes};
  fetched_ = tools.device->host_buffer(fetched_size_);
  if (fetched_ != nullptr) uploads_ = std::make_unique<input_uploads>(*tools.device, *memory_);
}

void session::create(std::uint64_t seed) {
  const graph& g = *training_.what;
  for (value_id v = 0; v < value_id(g.values.size()); ++v) {
    if (!g[v].persistent()) continue;
    create(v, [&](std::span<std::byte> to) {
      initialise(g, v, seed, reinterpret_cast<float*>(to.data()));
    });
  }
}

void session::create(value_id v, const std::function<void(std::span<std::byte>)>& fill) {
  const value& made = (*training_.what)[v];
  const tensor_id t = variable(made);
  training_.ids[std::size_t(v)] = persistent_[std::size_t(v)] = t;
  const manager_interface::view there = memory_->acquire(t, access::write);
  if (tools_.recorder != nullptr) tools_.recorder->write(t);
  if (tools_.device == nullptr) return;
  host_view here(*tools_.device, there.data(), bytes{made.bytes}, false);
  fill({here.data(), made.bytes});
  here.write();
}

void session::go_on_behind(const session_position& p) {
  steps_ = p.steps;
  operators_ = operators_before_ = p.operators;
}

float session::train(batch_source* batch, batch_source* next) {
  const auto began = clock::now();
  times_ = {};
  const graph& g = *training_.what;
  g.hyper->step = ++steps_;  // sessions may share the graph, so each keeps its own count
  nanoseconds filling = feed(training_, batch);
  if (uploads_ && next != nullptr) {
    // Making a batch is not the step's time, so nothing of the step may hide behind it. Waiting
    // here costs the device nothing: its first kernel reads these images.
    uploads_->await();
    filling += make(g, *next);
  }
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
  if (at == inference_.end())
    at = inference_.insert(at, std::make_unique<program>(inference, memory_->storage()));
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
  uploads_ ? fetch(from, to) : copy(from, to);
  if (tools_.recorder != nullptr) tools_.recorder->read(from);
}

// Acquired where there is no device, too, so that every storage sees the same requests.
void session::copy(tensor_id from, std::span<std::byte> to) {
  const manager_interface::view there = memory_->acquire(from);
  if (tools_.device == nullptr) return;
  const host_view here(*tools_.device, there.data(), bytes{to.size()}, true);
  std::memcpy(to.data(), here.data(), to.size());
}

/// The step's last operator, so to say: the host waits once, for that.
void session::fetch(tensor_id from, std::span<std::byte> to) {
  const bytes size{to.size()};
  if (size > fetched_size_) fetched_ = tools_.device->host_buffer(fetched_size_ = size);
  inputs_.assign(1, from);
  const operation_span op{.inputs = inputs_, .cost = nanoseconds{1000}, .name = "fetch"};
  memory_->run(op, {}, [this, size](call& c) {
    operators_ = operators_before_ + c.sequence();
    tools_.device->fetch(fetched_, c.in(0), size);
  });
  any_storage& storage = memory_->storage();
  storage.wait(storage.last_operator());
  std::memcpy(to.data(), fetched_, to.size());
}

/// Fresh images and labels, one view after the other, as a recording knows no two at once; gives
/// what making them took, without bringing them to the device.
nanoseconds session::feed(program& p, batch_source* batch) {
  if (uploads_) return upload(p, batch);
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

/// Makes a batch where the device will copy it from; gives what that took.
nanoseconds session::make(const graph& g, batch_source& batch) {
  uploads_->begin({bytes{g[g.images].bytes}, bytes{g[g.labels].bytes}});
  const auto began = clock::now();
  batch.fill(reinterpret_cast<float*>(uploads_->host(0)),
             reinterpret_cast<std::int32_t*>(uploads_->host(1)));
  return clock::now() - began;
}

/// Fresh images and labels, which the step before may have brought. Recorded as those that are
/// written at once.
nanoseconds session::upload(program& p, batch_source* batch) {
  const graph& g = *p.what;
  const nanoseconds filling = uploads_->begun() ? nanoseconds{} : make(g, *batch);
  early_uploads_ += uploads_->started();
  const auto made = uploads_->adopt({g[g.images].name.c_str(), g[g.labels].name.c_str()});
  const std::array<value_id, input_uploads::inputs> values{g.images, g.labels};
  for (std::size_t i = 0; i < made.size(); ++i) {
    const value& v = g[values[i]];
    p.ids[std::size_t(values[i])] = made[i];
    if (tools_.recorder != nullptr) tools_.recorder->variable(made[i], bytes{v.bytes}, v.name);
    note(v, +1);
  }
  if (tools_.recorder != nullptr)
    for (const tensor_id t : made) tools_.recorder->write(t);
  return filling;
}

/// Behind a node: the next batch goes to the device where that takes no more than the step has
/// taken already, and all that the rest of the step holds fits beside it, whatever the policy does.
/// False: it can't in this step.
bool session::upload_early(const program& p, std::size_t node) {
  const any_storage& storage = memory_->storage();
  const graph& g = *p.what;
  const std::uint64_t batch = storage.rounded(bytes{g[g.images].bytes}).count +
                              storage.rounded(bytes{g[g.labels].bytes}).count;
  const std::uint64_t capacity = storage.capacity().count;
  if (p.ahead[node] + batch > std::min(p.peak, capacity)) return true;
  if (storage.used().count + batch > capacity) return true;
  try {
    uploads_->start();
    return true;
  } catch (const budget_exceeded&) {
    return false;  // bytes are free, but in pieces: the batch comes when its step begins
  }
}

void session::execute(program& p) {
  const graph& g = *p.what;
  bool backward = false, early = uploads_ && uploads_->begun();
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
    const auto run = [&] {
      if (tools_.hashed != nullptr) tools_.hashed->begins(op.name);
      memory_->run(op, outputs_, [this, &n](call& c) { compute(n, c); });
      if (tools_.hashed != nullptr) tools_.hashed->ends(), tools_.hashed->check();
    };
    try {
      run();
    } catch (const budget_exceeded&) {
      // Blocks that stay where they are may be in the way of one that is large.
      if (!uploads_ || !uploads_->started()) throw;
      uploads_->abandon();
      early = false;
      run();
    }
    if (tools_.recorder != nullptr) record(p.steps[i], op);
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      p.ids[std::size_t(n.outputs[k])] = outputs_[k];
      note(g[n.outputs[k]], +1);
    }
    note_peak(n);
    for (const value_id v : p.dying[i]) let_go(p, v);
    if (early && !uploads_->started()) early = upload_early(p, i);
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
  if (tools_.hashed != nullptr) tools_.hashed->check(), tools_.hashed->end_of_step();
  note_costs(true);
  if (tools_.recorder != nullptr) tools_.recorder->end_of_step();
}

void session::compute(const node& n, call& c) {
  if (tools_.device == nullptr) return;
  if (tools_.hashed != nullptr && c.replaying()) tools_.hashed->replays(n.name.c_str());
  in_at_.clear(), out_at_.clear(), update_at_.clear();
  for (std::size_t i = 0; i < n.inputs.size(); ++i) in_at_.push_back(c.in(i));
  for (std::size_t i = 0; i < n.outputs.size(); ++i) out_at_.push_back(c.out(i));
  for (std::size_t i = 0; i < n.updates.size(); ++i) update_at_.push_back(c.update(i));
  const std::uint64_t sequence = operators_before_ + c.sequence();
  if (!c.replaying()) operators_ = sequence;
  const auto began = clock::now();
  n.run({in_at_.data(), out_at_.data(), update_at_.data(), c.workspace(), c.replaying(), sequence,
         *tools_.pool});
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
