// delta benchmark: what ResNet-50 should take on GPUs that nobody has run it on yet, by their
// rooflines: images per second, and steps under budgets by replaying them in virtual time. Prints
// docs/results/gpu_predicted.md.
//
//   gpu_predicted
#include <cstdio>
#include <exception>
#include <string>

#include "gpu_roofline.hpp"
#include "traces/bound.hpp"
#include "traces/trace.hpp"

namespace {

using namespace delta;
using namespace delta::bench;

constexpr int batch = 128;

const char* name_of(roofline_graph what) {
  return what == roofline_graph::apart ? "apart" : "fused, updated together";
}

void print_traffic() {
  std::printf(
      "## What a step moves\n\n| graph | operators | GB by tensors | GB by kernels | of these in "
      "convolutions and products | element-wise and batch norm |\n|---|---|---|---|---|---|\n");
  for (const auto what : {roofline_graph::apart, roofline_graph::usual}) {
    const executor::graph g = roofline_model(batch, what);
    double tensors = 0, kernels = 0, products = 0;
    for (const auto& n : g.nodes) {
      tensors += n.moved_bytes;
      const double bytes = kernel_bytes(g, n);
      kernels += bytes;
      if (std::holds_alternative<executor::conv_shape>(n.shape) ||
          std::holds_alternative<executor::linear_shape>(n.shape))
        products += bytes;
    }
    std::printf("| %s | %zu | %.1f | %.1f | %.1f | %.1f |\n", name_of(what), g.nodes.size(),
                tensors / 1e9, kernels / 1e9, products / 1e9, (kernels - products) / 1e9);
  }
}

void print_speeds() {
  std::printf(
      "\n## Images per second, without a budget\n\n| GPU | products in | graph | ms at the limit | "
      "ms "
      "assumed | images per second assumed |\n|---|---|---|---|---|---|\n");
  for (const gpu_rates& gpu : gpus) {
    for (const bool tf32 : {true, false}) {
      for (const auto what : {roofline_graph::apart, roofline_graph::usual}) {
        const executor::graph g = roofline_model(batch, what);
        const double least = step_ns(g, gpu, tf32, limit), likely = step_ns(g, gpu, tf32, assumed);
        std::printf("| %s | %s | %s | %.1f | %.1f | %.0f |\n", std::string(gpu.name).c_str(),
                    tf32 ? "TF32" : "float32", name_of(what), least / 1e6, likely / 1e6,
                    batch / (likely / 1e9));
      }
    }
  }
}

executor::digest print_budgets() {
  std::printf(
      "\n## Step under a budget / unmanaged step\n\nTF32, fused, updated together. "
      "`bench/gpu/run_all.sh --only saving` measures these rows.\n\n"
      "| GPU | policy | 60 %% | 50 %% | 40 %% |\n|---|---|---|---|---|\n");
  executor::digest exact;
  const auto print_row = [](std::string_view head, const auto& cells) {
    std::printf("| %s |", std::string(head).c_str());
    for (const std::string& cell : cells) std::printf(" %s |", cell.c_str());
    std::printf("\n");
  };
  for (const gpu_rates& gpu : gpus) {
    const executor::graph g = roofline_model(batch, roofline_graph::usual);
    const trace steps = roofline_steps(g, gpu, true, roofline_step_count);
    for (const std::string_view policy : roofline_policies) {
      executor::digest other;
      print_row(std::string(gpu.name) + " | `" + std::string(policy) + "`",
                roofline_row(steps, policy, &gpu == &digested_gpu ? exact : other));
    }
  }
  std::printf(
      "\nNo policy can take less than this lower bound:\n\n"
      "| GPU | 60 %% | 50 %% | 40 %% |\n|---|---|---|---|\n");
  for (const gpu_rates& gpu : gpus) {
    const executor::graph g = roofline_model(batch, roofline_graph::usual);
    const trace steps = roofline_steps(g, gpu, true, roofline_step_count);
    const trace one = roofline_steps(g, gpu, true, 1);
    std::vector<std::string> bounds;
    for (const int percent : roofline_percents) {
      const bytes budget{unmanaged_peak(steps).count / 100 * std::uint64_t(percent)};
      bounds.push_back(executor::format_fixed(
          lower_bound(one, {.budget = budget, .rate_out = gpu.copies, .rate_in = gpu.copies}), 3));
    }
    print_row(gpu.name, bounds);
  }
  return exact;
}

void print_page() {
  std::printf(
      "# ResNet-50 on a GPU, predicted\n\n"
      "**Predicted, not measured**: no GPU has run it. `build/release/bin/gpu_predicted`.\n"
      "ResNet-50, 224x224, batch %d, SGD. The first run of `bench/gpu/run_all.sh` is to be "
      "compared "
      "with this page.\n\n"
      "An operator takes the longer of its flops over the GPU's rate and its kernels' bytes over "
      "the "
      "memory's, both of the data sheets; \"at the limit\" all of them, \"assumed\" the parts and "
      "the "
      "launches of [planning.md](../planning.md#what-the-prices-assume). Kernels' bytes count that "
      "batch norms go over their inputs twice. Convolutions' workspaces are assumed to be 64 "
      "MiB. The RTX 4090's rows in TF32 and float32 are alike, as NVIDIA gives it the same rate "
      "for both, 82.6 Tflop/s without sparsity.\n\n",
      batch);
  print_traffic();
  print_speeds();
  const executor::digest exact = print_budgets();
  std::printf(
      "\nThe last of %d steps, replayed in virtual time by the product's policies, with as much "
      "host "
      "memory as the unmanaged peak; copies at 80 %% of the PCIe link and 10 us of latency each. "
      "`dtr` only computes again.\n\n<!-- recomputed cells: digest %s -->\n",
      roofline_step_count, exact.hex().c_str());
}

}  // namespace

int main(int argc, char**) {
  if (argc != 1) {
    std::fputs("gpu_predicted: takes no arguments\n", stderr);
    return 2;
  }
  try {
    print_page();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_predicted: %s\n", error.what());
    return 1;
  }
}
