// delta benchmark: what a GPU would take for a graph's operators by its roofline, and steps of the
// graph recorded at these prices. No GPU is asked; the tests of test/executor/figures_test.cpp
// replay the same steps.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/format.hpp"
#include "delta/engine/engine.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/units.hpp"
#include "kernels/gpu/batch_norm.hpp"
#include "model/models.hpp"
#include "replay/replay_named.hpp"
#include "replay/replay_result.hpp"
#include "trace/recorder.hpp"
#include "traces/trace.hpp"
#include "train/digest.hpp"
#include "train/session.hpp"

namespace delta::bench {

/// A GPU by the rates of its data sheet, per second; dense.
struct gpu_rates {
  std::string_view name;
  double fp32, tf32;  ///< operations
  double memory;      ///< bytes
  double copies;      ///< bytes each way: 80 % of the PCIe link, an assumption
  std::string_view source;
};
/// The figures are those of docs/planning.md.
inline constexpr std::array gpus{
    gpu_rates{"A100-80", 19.5e12, 156e12, 2039e9, 25e9, "NVIDIA A100 datasheet, 80GB SXM"},
    gpu_rates{"H100", 67e12, 494.5e12, 3350e9, 50e9, "NVIDIA H100 datasheet, SXM"},
    gpu_rates{"H200", 67e12, 494.5e12, 4800e9, 50e9, "NVIDIA H200 datasheet, SXM"},
    gpu_rates{"RTX 4090", 82.6e12, 82.6e12, 1008e9, 25e9,
              "NVIDIA Ada GPU architecture whitepaper"}};

/// Which part of the rates an operator reaches, and what it takes beside them.
struct reached {
  double flops = 1, bandwidth = 1, launch_ns = 0;
};

/// All of them: nothing can be faster.
constexpr reached limit(executor::operator_type) noexcept {
  return {};
}
/// The assumptions of docs/planning.md.
constexpr reached assumed(executor::operator_type type) noexcept {
  using enum executor::operator_type;
  constexpr double launch_ns = 4000;
  switch (type) {
    case conv_forward:
    case conv_backward_data:
    case conv_backward_filter:
      return {0.5, 0.65, launch_ns};
    case linear_forward:
    case linear_backward_data:
    case linear_backward_weight:
      return {0.65, 0.75, launch_ns};
    case relu_forward:
    case relu_backward:
    case add:
    case sgd_update:
    case adam_update:
      return {0.5, 0.8, launch_ns};
    case max_pool_forward:
    case max_pool_backward:
      return {0.5, 0.6, launch_ns};
    default:  // batch norms, means, the loss
      return {0.5, 0.65, launch_ns};
  }
}

/// Bytes that the GPU's kernels of an operator read and write: batch norms go over their inputs
/// twice, once for the sums.
inline double kernel_bytes(const executor::graph& g, const executor::node& n) {
  using enum executor::operator_type;
  const auto size = [&](executor::value_id v) { return double(g[v].bytes); };
  switch (n.type) {
    case bn_forward:
    case bn_relu_forward:
    case bn_add_relu_forward:
      return n.moved_bytes + size(n.inputs[0]);
    case bn_backward:
    case bn_relu_backward:
      return n.moved_bytes + size(n.inputs[0]) + size(n.inputs[1]);
    case bn_add_relu_backward:  // x, and dresidual, which the first pass has written
      return n.moved_bytes + size(n.inputs[0]) + size(n.outputs[1]);
    default:
      return n.moved_bytes;
  }
}

/// What the operator takes, ns.
template <class Reach>
double roofline_ns(const executor::graph& g, const executor::node& n, const gpu_rates& gpu,
                   bool tf32, Reach reach) {
  using enum executor::operator_type;
  const bool products = n.type <= conv_backward_filter ||
                        (n.type >= linear_forward && n.type <= linear_backward_weight);
  const reached part = reach(n.type);
  const double peak = products && tf32 ? gpu.tf32 : gpu.fp32;
  return part.launch_ns + 1e9 * std::max(n.flops / (peak * part.flops),
                                         kernel_bytes(g, n) / (gpu.memory * part.bandwidth));
}

/// A step's operators together, ns.
template <class Reach>
double step_ns(const executor::graph& g, const gpu_rates& gpu, bool tf32, Reach reach) {
  double sum = 0;
  for (const executor::node& n : g.nodes) sum += roofline_ns(g, n, gpu, tf32, reach);
  return sum;
}

/// Operators apart, or as a GPU has them by default: batch norms fused, parameters updated
/// together.
enum class roofline_graph : std::uint8_t { apart, usual };

/// ResNet-50 on images of 224 x 224, as the GPU's backend has it but for convolutions' workspaces:
/// those are the libraries' own affair, and assumed.
inline executor::graph roofline_model(int batch, roofline_graph what) {
  using namespace executor;
  constexpr std::size_t convolution_workspace = std::size_t{64} << 20;
  model_options o{.batch = batch, .image = 224, .classes = 1000};
  if (what == roofline_graph::usual) {
    o.fuse = fusion::batch_norm;
    o.hyper.update_group = (16_MiB).count;
  }
  executor::graph g = make_model("resnet50", o);
  g.threads = 1;
  for (node& n : g.nodes) {
    if (std::holds_alternative<conv_shape>(n.shape)) n.workspace = convolution_workspace;
    if (const auto* s = std::get_if<bn_shape>(&n.shape)) n.workspace = gpu::bn_workspace(*s);
  }
  return g;
}

/// Steps of the graph at these prices, as a recording on that GPU would have them.
inline trace roofline_steps(executor::graph g, const gpu_rates& gpu, bool tf32, int steps) {
  using namespace executor;
  for (node& n : g.nodes) n.expected_ns = roofline_ns(g, n, gpu, tf32, assumed);
  trace_recorder recorder(trace_recorder::costs::stated);
  constexpr std::uint64_t granularity = 512;
  simulated storage({.capacity = bytes{std::uint64_t{1} << 62}, .granularity = granularity});
  session s(g, make_manager("unmanaged", over(storage)), {.recorder = &recorder});
  s.create(0);
  for (int i = 0; i < steps; ++i) s.train(nullptr);
  return recorder.take({.device = std::string(gpu.name),
                        .rate_out = std::uint64_t(gpu.copies),
                        .rate_in = std::uint64_t(gpu.copies),
                        .rate_move = std::uint64_t(gpu.memory / 2),
                        .latency = nanoseconds{10'000},
                        .granularity = granularity});
}

/// How many steps are replayed; the last one counts, as policies have learned by then.
inline constexpr int roofline_step_count = 6;

/// Those steps under a policy and a part of their unmanaged peak.
inline executor::replay_result roofline_replay(const trace& steps, bytes peak,
                                               std::string_view policy, int percent) {
  executor::replay_machine on = executor::machine_of(steps);
  on.budget = bytes{peak.count / 100 * std::uint64_t(percent)};
  on.host_budget = peak;
  on.thrash_limit = 20;
  on.places = true;
  return executor::replay_named(policy, steps, on);
}

/// What docs/results/gpu_predicted.md has of one GPU's steps under budgets.
inline constexpr std::array<std::string_view, 3> roofline_policies{"adaptive", "online", "dtr"};
inline constexpr std::array roofline_percents{60, 50, 40};

/// One row: the last step over its unmanaged time, as printed; "fails" where it does not pass.
/// `exact` takes in what is behind it.
inline std::vector<std::string> roofline_row(const trace& steps, std::string_view policy,
                                             executor::digest& exact) {
  const bytes peak = unmanaged_peak(steps);
  std::vector<std::string> cells;
  for (const int percent : roofline_percents) {
    const executor::replay_result r = roofline_replay(steps, peak, policy, percent);
    const std::array behind{std::uint64_t(r.result),
                            std::uint64_t(r.time.count()),
                            r.peak.count,
                            r.counts.evictions,
                            r.counts.offloads,
                            r.counts.bytes_out};
    exact.add(std::as_bytes(std::span(behind)));
    const executor::step_figures& last = r.steps.back();
    cells.push_back(
        r.result == executor::replay_result::verdict::pass
            ? executor::format_fixed(double(last.time.count()) / double(last.unmanaged.count()), 3)
            : "fails");
  }
  return cells;
}

/// The GPU whose rows the page's digest is of.
inline constexpr const gpu_rates& digested_gpu = gpus[1];

}  // namespace delta::bench
