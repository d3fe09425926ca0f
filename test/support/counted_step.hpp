// delta tests: what a training step asks of CUDA, counted without a GPU. A graph's operators are
// the GPU's, over an Engine that counts its launches and computes nothing; device, arena, manager
// and session are the real ones, on the fake CUDA.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cuda/bind.hpp"
#include "delta/engine/engine.hpp"
#include "device/cuda_device.hpp"
#include "fake_cuda.hpp"
#include "kernels/gpu/engine.hpp"
#include "model/graph.hpp"
#include "train/session.hpp"

namespace delta::test {

/// What an operator, or a step, asked for of the GPU's engines.
struct launch_counts {
  std::uint64_t kernels = 0;  ///< launches of this project's own
  std::uint64_t library = 0;  ///< calls of cuBLAS or cuDNN, which launch what they like
  friend bool operator==(const launch_counts&, const launch_counts&) = default;
};

/// Where the engine's launches go: to the stream, and into the counts.
class launch_counter {
 public:
  explicit launch_counter(fake_cuda& cuda) : cuda_(&cuda) {}

  void kernel() { ++sum_.kernels, launch(); }
  void library() { ++sum_.library, launch(); }
  /// The next launch takes all of an operator's time, those behind it next to none.
  void operator_takes(nanoseconds t) { left_ = t; }

  executor::cuda_stream stream = nullptr;
  [[nodiscard]] launch_counts sum() const { return sum_; }

 private:
  void launch() {
    cuda_->kernel_time = std::max(std::exchange(left_, {}), nanoseconds{500});
    reinterpret_cast<fake_cuda::stream*>(stream)->launch({}, {}, [] {});
  }
  fake_cuda* cuda_;
  launch_counts sum_;
  nanoseconds left_{};
};

/// The Engine of kernels/gpu/engine.hpp that only counts.
class counting_engine {
 public:
  explicit counting_engine(launch_counter& to) : to_(&to) {}
  template <class F>
  void each(std::size_t, const F&) const {
    to_->kernel();
  }
  template <class R>
  void columns(const executor::gpu::column_cut&, std::size_t, const R&) const {
    to_->kernel();
  }
  template <class F>
  void blocks(std::size_t, const F&) const {
    to_->kernel();
  }
  void multiply(const executor::gpu::matrix_product&, std::byte*) const { to_->library(); }
  [[nodiscard]] static std::size_t product_workspace() { return executor::gpu::blas_workspace(9); }
  [[nodiscard]] static std::size_t gathered_bytes() { return std::size_t(64) << 20; }

 private:
  launch_counter* to_;
};

struct counting_options {
  std::string policy = "unmanaged";
  bytes budget{};       ///< of the arena
  bytes host_budget{};  ///< 0 where nothing is managed
  int steps = 4;        ///< the last one is counted
  /// Convolutions are one call of a library each, without workspace; else our own kernels.
  bool library_convolutions = true;
};

/// Of one kind of operator, in a step.
struct operator_counts {
  std::uint64_t operators = 0, replays = 0;
  launch_counts launches;
  double moved = 0;  ///< bytes, as the operator's passes are (moved_in_passes)
  double least = 0;  ///< bytes, if each tensor that it is given went once
  friend bool operator==(const operator_counts&, const operator_counts&) = default;
};

/// What the last of some steps asked for.
struct counted_step {
  std::map<std::string, operator_counts, std::less<>> by_type;
  std::uint64_t launches = 0, events = 0, stream_waits = 0, host_waits = 0, queries = 0;
  std::array<fake_cuda::traffic, 3> copies{};  ///< by executor::cuda_copy
  bytes peak{};
  counters counts;  ///< of the manager, in all steps
  std::vector<std::string> violations;
};

/// Bytes that an operator moves, by how often it goes over its tensors: batch norm has to know the
/// sums of what it then changes element by element. Forward it reads x again for that; backward x
/// and the gradient of what it normalised, which where an addition is fused is that of the
/// residual, written on the way. All others go over each tensor once.
inline double moved_in_passes(const executor::graph& g, const executor::node& n) {
  if (!std::holds_alternative<executor::bn_shape>(n.shape) ||
      n.type == executor::operator_type::bn_inference)
    return n.moved_bytes;
  return n.moved_bytes + (n.backward ? 2 : 1) * double(g[n.inputs[0]].bytes);
}

/// Bound to the counting engine. What the operators would take goes by their flops and bytes, at
/// rates like an H100's: it decides what a policy does, not what is counted of a step.
class counted_graph {
 public:
  counted_graph(executor::graph g, fake_cuda& cuda, bool library_convolutions)
      : graph_(std::move(g)), counter_(cuda) {
    graph_.threads = 1;
    for (executor::node& n : graph_.nodes) {
      auto [workspace, run, algorithm] = bound(n, library_convolutions);
      const nanoseconds takes{
          std::llround(2000 + std::max(n.flops / 100e3, moved_in_passes(graph_, n) / 2.5e3))};
      n.workspace = workspace;
      n.algorithm = std::move(algorithm);
      n.expected_ns = double(takes.count());
      n.run = [this, takes, type = n.type, moved = moved_in_passes(graph_, n),
               least = n.moved_bytes, run = std::move(run)](const executor::kernel_args& a) {
        operator_counts& sum = by_type_[std::string(to_string(type))];
        const launch_counts before = counter_.sum();
        counter_.operator_takes(takes);
        run(a);
        sum.launches.kernels += counter_.sum().kernels - before.kernels;
        sum.launches.library += counter_.sum().library - before.library;
        ++(a.replaying ? sum.replays : sum.operators);
        sum.moved += moved, sum.least += least;
      };
    }
  }
  counted_graph(const counted_graph&) = delete;
  counted_graph& operator=(const counted_graph&) = delete;

  [[nodiscard]] const executor::graph& get() const { return graph_; }
  [[nodiscard]] launch_counter& counter() { return counter_; }
  /// What was counted since the last call.
  auto take() { return std::exchange(by_type_, {}); }

 private:
  executor::gpu::bound_operator bound(const executor::node& n, bool library_convolutions) {
    if (library_convolutions && std::holds_alternative<executor::conv_shape>(n.shape))
      return {0, [this](const executor::kernel_args&) { counter_.library(); }};
    return std::visit(
        [&](const auto& shape) {
          return executor::gpu::bind_operator(counting_engine(counter_), graph_.hyper, n.type,
                                              shape);
        },
        n.shape);
  }

  executor::graph graph_;
  launch_counter counter_;
  std::map<std::string, operator_counts, std::less<>> by_type_;
};

/// Runs the steps.
inline counted_step count_step(executor::graph g, const counting_options& o) {
  class no_images final : public executor::batch_source {
   public:
    void fill(float*, std::int32_t*) override {}
  };
  fake_cuda cuda({.total = o.budget + 1_GiB,
                  .rate = 50e9,
                  .rate_both = 40e9,
                  .memory_rate = 2.5e12,
                  .launch = nanoseconds{4000},
                  .punctual = true,
                  .contents = false});
  counted_graph counted(std::move(g), cuda, o.library_convolutions);
  if (!cuda.stream_create(&counted.counter().stream, false).ok())
    throw std::logic_error("the fake CUDA gives no stream");
  executor::cuda_device device(cuda, counted.counter().stream,
                               {.clock = [&cuda] { return cuda.now(); }});
  arena<executor::machine> storage(
      device, {.capacity = o.budget, .host_capacity = o.host_budget, .granularity = 512});
  executor::thread_pool pool(1);
  executor::session trainee(counted.get(), make_manager(o.policy, over(storage)),
                            {.device = &device, .pool = &pool});
  trainee.create(1);
  no_images images;
  const auto now = [&] {
    counted_step c;
    c.launches = cuda.launches();
    c.events = cuda.calls("cudaEventRecord");
    c.stream_waits = cuda.calls("cudaStreamWaitEvent");
    c.host_waits = cuda.calls("cudaEventSynchronize") + cuda.calls("cudaStreamSynchronize") +
                   cuda.calls("cudaDeviceSynchronize");
    c.queries = cuda.calls("cudaEventQuery") + cuda.calls("cudaStreamQuery");
    for (std::size_t way = 0; way < c.copies.size(); ++way)
      c.copies[way] = cuda.copied(static_cast<executor::cuda_copy>(way));
    return c;
  };
  counted_step before;
  for (int i = 0; i < o.steps; ++i) {
    before = now();
    counted.take();
    trainee.train(&images, &images);
  }
  counted_step c = now();
  c.by_type = counted.take();
  c.launches -= before.launches, c.events -= before.events;
  c.stream_waits -= before.stream_waits, c.host_waits -= before.host_waits;
  c.queries -= before.queries;
  for (std::size_t way = 0; way < c.copies.size(); ++way) {
    c.copies[way].calls -= before.copies[way].calls;
    c.copies[way].size -= before.copies[way].size;
  }
  c.peak = storage.peak();
  c.counts = trainee.counts();
  cuda.drain();
  c.violations = cuda.violations();
  return c;
}

}  // namespace delta::test
