// delta benchmark: recorded steps of residual networks that are made up, of as many operators as
// one likes, and the machine that they are replayed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "delta/units.hpp"
#include "replay/replay_result.hpp"
#include "traces/trace.hpp"

namespace delta::bench {

/// Writes a trace of residual networks, forward and backward: every layer reads the one before it
/// and a weight, every fourth also the one four before; its way back reads the layer's input and
/// the gradient. Sizes and times are those of four kinds of layers in turn.
class residual_network {
 public:
  /// `depth` layers per step, 2 x depth x steps operators; layers use `weights` weights in turn.
  residual_network(std::uint32_t depth, std::uint32_t steps, std::uint32_t weights)
      : weights_(weights) {
    reserve(depth, steps);
    t_.names = {"forward", "backward"};
    for (std::uint32_t w = 0; w < weights; ++w) source(trace::kind::constant, bytes{1 << 16});
    for (std::uint32_t s = 0; s < steps; ++s) step(depth);
  }
  trace take() { return std::move(t_); }

 private:
  void reserve(std::size_t depth, std::size_t steps) {
    const std::size_t operators = 2 * depth * steps;
    t_.tensors.reserve(weights_ + operators + steps);
    t_.operations.reserve(operators);
    t_.lists.reserve(4 * operators);
    t_.events.reserve(weights_ + 2 * operators + 4 * steps);
  }
  std::uint32_t tensor(bytes size, std::uint32_t producer) {
    t_.tensors.push_back({.size = size, .producer = producer});
    return static_cast<std::uint32_t>(t_.tensors.size() - 1);
  }
  std::uint32_t source(trace::kind what, bytes size) {
    const std::uint32_t made = tensor(size, trace::none);
    t_.events.push_back({what, made});
    return made;
  }
  void drop(std::uint32_t tensor) { t_.events.push_back({trace::kind::drop, tensor}); }

  std::uint32_t run(std::uint32_t name, std::uint32_t layer,
                    std::initializer_list<std::uint32_t> inputs) {
    constexpr std::uint64_t sizes[] = {4 << 20, 1 << 20, 4 << 20, 2 << 20};
    constexpr std::int64_t costs[] = {900'000, 60'000, 400'000, 1'500'000};
    const auto number = static_cast<std::uint32_t>(t_.operations.size());
    const std::uint32_t made = tensor(bytes{sizes[layer % 4]}, number);
    trace::operation o;
    o.name = name;
    o.cost = nanoseconds{costs[layer % 4]};
    o.first = static_cast<std::uint32_t>(t_.lists.size());
    o.inputs = static_cast<std::uint32_t>(inputs.size());
    o.outputs = 1;
    t_.lists.insert(t_.lists.end(), inputs);
    t_.lists.push_back(made);
    t_.operations.push_back(o);
    t_.events.push_back({trace::kind::run, number});
    return made;
  }
  void step(std::uint32_t depth) {
    std::vector<std::uint32_t> x{source(trace::kind::variable, bytes{4 << 20})};
    for (std::uint32_t i = 0; i < depth; ++i) {
      const std::uint32_t weight = i % weights_;
      x.push_back(i % 4 == 3 ? run(0, i, {x[i], weight, x[i - 3]}) : run(0, i, {x[i], weight}));
    }
    t_.events.push_back({trace::kind::backward, 0});
    std::uint32_t gradient = x[depth];
    for (std::uint32_t i = depth; i-- > 0;) {
      const std::uint32_t next = run(1, i, {x[i], gradient});
      drop(gradient);
      if (i + 1 < depth) drop(x[i + 1]);
      gradient = next;
    }
    drop(gradient);
    if (depth > 0) drop(x[0]);
    t_.events.push_back({trace::kind::end_of_step, 0});
  }

  std::uint32_t weights_;
  trace t_;
};

/// SHAPE and OPERATORS as replay_scale takes them: `steps` of 200 operators each, or a single step,
/// each layer with a weight of its own ("one step") or 16 weights in turn ("16 weights").
inline trace residual_trace(std::string_view shape, std::uint32_t operators) {
  constexpr std::uint32_t layers = 100, few = 16;
  if (shape == "steps") return residual_network(layers, operators / (2 * layers), layers).take();
  const std::uint32_t depth = operators / 2;
  return residual_network(depth, 1, shape == "one step" ? depth : few).take();
}

/// With so many percent of the trace's unmanaged peak.
inline executor::replay_machine scale_machine(const trace& t, std::uint32_t percent) {
  const bytes peak = unmanaged_peak(t);
  return {.budget = bytes{peak.count / 100 * percent},
          .host_budget = peak * 4,
          .latency = nanoseconds{10'000},
          .places = true};
}

}  // namespace delta::bench
