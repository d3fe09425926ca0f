// A model trained by the GPU's operators, run on the host (support/gpu_host_engine.hpp): the losses
// are the CPU's but for rounding, and under a budget, with operators that run again, the same bits.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "backend/backend.hpp"
#include "cuda/bind.hpp"
#include "gpu_host_engine.hpp"
#include "train/feasibility.hpp"
#include "train/training_run.hpp"
#include "training.hpp"

using namespace delta::executor;
using delta::bytes;

namespace {

/// Binds the GPU's operators to the host's engine; the machine is the CPU's.
class gpu_on_host final : public backend {
 public:
  void bind(graph& g) override {
    g.threads = 1;
    for (node& n : g.nodes) {
      gpu::bound_operator bound = std::visit(
          [&](const auto& shape) {
            return gpu::bind_operator(gpu_host::engine(), g.hyper, n.type, shape);
          },
          n.shape);
      n.workspace = bound.workspace;
      n.run = std::move(bound.run);
    }
  }
  std::unique_ptr<machine> open() override { return cpu_->open(); }
  [[nodiscard]] std::uint64_t granularity() const override { return 512; }
  [[nodiscard]] std::string_view kind() const override { return "cpu"; }
  [[nodiscard]] std::string description() const override { return "the GPU's operators on a CPU"; }
  [[nodiscard]] bytes free_memory() const override { return {}; }

 private:
  std::unique_ptr<backend> cpu_ = make_cpu_backend({});
};

}  // namespace

TEST_CASE(
    "a model is trained by the GPU's operators as by the CPU's, and the same under a budget") {
  auto options = delta::test::unmanaged({"resnet20", 16, 4, 2}, 1);
  std::ostream nowhere(nullptr);
  training_bench bench(options, nowhere);
  const auto cpu = train_once(bench, unmanaged_run(bench, options.steps, "on the CPU"));

  bench.on = std::make_unique<gpu_on_host>();
  bench.on->bind(bench.training);
  bench.expected = unmanaged_peak(bench.training, bench.on->granularity());
  const auto free = train_once(bench, unmanaged_run(bench, options.steps, "without a budget"));
  REQUIRE(free.losses.size() == cpu.losses.size());
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    CHECK(std::abs(free.losses[i] - cpu.losses[i]) < 1e-4f * std::abs(cpu.losses[i]));
  }

  // In groups: the same numbers, whoever's memory it is in.
  auto grouped_options = options;
  grouped_options.update_group = delta::bytes{200'000};
  training_bench grouped(grouped_options, nowhere);
  grouped.on = std::make_unique<gpu_on_host>();
  grouped.on->bind(grouped.training);
  CHECK(grouped.training.nodes.size() + 50 < bench.training.nodes.size());
  CHECK(same_bits(free, train_once(grouped, unmanaged_run(grouped, options.steps, "in groups"))));
  CHECK(same_bits(free, train_once(grouped, {.policy = "adaptive",
                                             .budget = bytes{free.peak.count * 6 / 10},
                                             .host_budget = free.peak,
                                             .steps = options.steps,
                                             .title = "in groups and a part of it"})));

  // By recomputing alone: which way out is cheaper is the clock's to say. It keeps what the steps
  // share on the device, so it needs more.
  for (const auto& [policy, tenths] :
       {std::pair<std::string, unsigned>{"dtr", 9}, {"adaptive", 5}}) {
    CAPTURE(policy);
    const auto tight = train_once(bench, {.policy = policy,
                                          .budget = bytes{free.peak.count * tenths / 10},
                                          .host_budget = free.peak,
                                          .steps = options.steps,
                                          .title = "in a part of it"});
    CHECK(tight.counts.evictions + tight.counts.offloads > 0);
    if (policy == "dtr") CHECK(tight.counts.recomputes > 0);
    CHECK(same_bits(free, tight));
  }
}

TEST_CASE("batch norms fused with what is behind them change no bit of a training") {
  auto options = delta::test::unmanaged({"resnet20", 16, 4, 2}, 1);
  const auto trained = [&](bool fuse) {
    options.fuse = fuse;
    std::ostream nowhere(nullptr);
    training_bench bench(options, nowhere);
    bench.on = std::make_unique<gpu_on_host>();
    bench.on->bind(bench.training);
    for (const operator_type fused :
         {operator_type::bn_relu_forward, operator_type::bn_relu_backward,
          operator_type::bn_add_relu_forward})
      CHECK(std::ranges::any_of(bench.training.nodes,
                                [&](const node& n) { return n.type == fused; }) == fuse);
    bench.expected = unmanaged_peak(bench.training, bench.on->granularity());
    return train_once(bench, unmanaged_run(bench, options.steps, "without a budget"));
  };
  CHECK(same_bits(trained(true), trained(false)));
}

TEST_CASE(
    "on a GPU batch norms are fused and parameters updated in groups, unless told otherwise") {
  train_options options;
  options.device = device_choice::cuda;
  CHECK(model_of(options, 3, 10).fuse == fusion::batch_norm);
  CHECK(model_of(options, 3, 10).hyper.update_group == 16u << 20);
  options.fuse = false;
  options.update_group = bytes{};
  CHECK(model_of(options, 3, 10).fuse == fusion::none);
  CHECK(model_of(options, 3, 10).hyper.update_group == 0);
  options = {};
  options.device = device_choice::cpu;
  CHECK(model_of(options, 3, 10).fuse == fusion::none);
  CHECK(model_of(options, 3, 10).hyper.update_group == 0);
}
