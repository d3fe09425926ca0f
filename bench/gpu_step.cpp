// What a training step asks of a GPU, counted where there is none: kernels launched, events,
// waits, copies, and the bytes that operators move, without a budget and under a part of the peak.
// docs/results/gpu_counted.md has its figures; test/support/counted_step.hpp says how it counts.
//
//   gpu_step [--model NAME] [--image PIXELS] [--batch IMAGES] [--classes N] [--optimizer NAME]
//            [--fuse on|off] [--update-group BYTES] [--budget PERCENT] [--policy NAME] [--kernels
//            cudnn|own]
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>

#include "counted_step.hpp"
#include "model/models.hpp"
#include "train/feasibility.hpp"

namespace {

using namespace delta;
using delta::test::counted_step;
using delta::test::operator_counts;

struct settings {
  std::string model = "resnet50", policy = "adaptive";
  executor::model_options graph{.batch = 128, .image = 224, .classes = 1000};
  double percent = 60;
  bool library_convolutions = true;
};

double gb(double n) {
  return n * 1e-9;
}

void print_operators(const counted_step& c) {
  std::puts(
      "| operator | operators | replays | kernels | library calls | GB moved | each tensor once |\n"
      "|---|---|---|---|---|---|---|");
  operator_counts all, elementwise;
  const auto row = [](const char* name, const operator_counts& n) {
    std::printf("| %s | %llu | %llu | %llu | %llu | %.2f | %.2f |\n", name,
                static_cast<unsigned long long>(n.operators),
                static_cast<unsigned long long>(n.replays),
                static_cast<unsigned long long>(n.launches.kernels),
                static_cast<unsigned long long>(n.launches.library), gb(n.moved), gb(n.least));
  };
  const auto add = [](operator_counts& to, const operator_counts& n) {
    to.operators += n.operators, to.replays += n.replays;
    to.launches.kernels += n.launches.kernels, to.launches.library += n.launches.library;
    to.moved += n.moved, to.least += n.least;
  };
  for (const auto& [name, n] : c.by_type) {
    row(name.c_str(), n);
    add(all, n);
    const std::string_view kind = name;
    if (!kind.starts_with("conv_") && !kind.starts_with("linear_")) add(elementwise, n);
  }
  row("all but convolutions and linear layers", elementwise);
  row("all", all);
}

void print_step(const counted_step& c) {
  std::puts("\n| a step | calls | MB |\n|---|---|---|");
  const auto line = [](const char* name, std::uint64_t n) {
    std::printf("| %s | %llu | |\n", name, static_cast<unsigned long long>(n));
  };
  line("launches, of kernels and of libraries", c.launches);
  line("events recorded", c.events);
  line("waits of a stream for an event", c.stream_waits);
  line("waits of the host", c.host_waits);
  line("queries of events", c.queries);
  constexpr const char* ways[] = {"copies to the host", "copies to the GPU", "copies on the GPU"};
  for (std::size_t way = 0; way < c.copies.size(); ++way)
    std::printf("| %s | %llu | %.1f |\n", ways[way],
                static_cast<unsigned long long>(c.copies[way].calls),
                static_cast<double>(c.copies[way].size.count) * 1e-6);
  std::printf("\npeak %.1f MB\n", static_cast<double>(c.peak.count) * 1e-6);
}

int run(const settings& s) {
  const executor::graph g = executor::make_model(s.model, s.graph);
  std::printf("## %s, batch %d, %dx%d, %s, convolutions %s\n", s.model.c_str(), s.graph.batch,
              s.graph.image, s.graph.image,
              s.graph.hyper.optimizer == executor::optimizer_kind::adam ? "Adam" : "SGD",
              s.library_convolutions ? "of a library" : "of our own");
  const bytes most{executor::unmanaged_peak(g, 512).total * 2 + (std::uint64_t(4) << 30)};
  test::counting_options o{.budget = most, .library_convolutions = s.library_convolutions};
  std::puts("\n### Without a budget\n");
  const counted_step plain = test::count_step(g, o);
  print_operators(plain);
  print_step(plain);
  o.policy = s.policy;
  o.budget =
      bytes{static_cast<std::uint64_t>(static_cast<double>(plain.peak.count) * s.percent / 100)};
  o.host_budget = plain.peak;
  o.steps = 8;
  std::printf("\n### %s in %.0f %%\n\n", s.policy.c_str(), s.percent);
  const counted_step managed = test::count_step(g, o);
  print_operators(managed);
  print_step(managed);
  std::printf(
      "\nof all %d steps: %llu evictions, %llu offloads, %llu left for a copy that was made "
      "before, %llu reloads\n",
      o.steps, static_cast<unsigned long long>(managed.counts.evictions),
      static_cast<unsigned long long>(managed.counts.offloads),
      static_cast<unsigned long long>(managed.counts.clean_drops),
      static_cast<unsigned long long>(managed.counts.reloads));
  for (const auto* c : {&plain, &managed})
    for (const std::string& text : c->violations) std::cerr << text << '\n';
  return plain.violations.empty() && managed.violations.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  settings s;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const char* const value = argv[i + 1];
    const std::string_view text = value;
    if (flag == "--model")
      s.model = value;
    else if (flag == "--image")
      s.graph.image = std::atoi(value);
    else if (flag == "--batch")
      s.graph.batch = std::atoi(value);
    else if (flag == "--classes")
      s.graph.classes = std::atoi(value);
    else if (flag == "--optimizer" && text == "adam")
      s.graph.hyper.optimizer = executor::optimizer_kind::adam;
    else if (flag == "--fuse" && (text == "on" || text == "off"))
      s.graph.fuse = text == "on" ? executor::fusion::batch_norm : executor::fusion::none;
    else if (flag == "--update-group")
      s.graph.hyper.update_group = std::strtoull(value, nullptr, 10);
    else if (flag == "--budget")
      s.percent = std::atof(value);
    else if (flag == "--policy")
      s.policy = value;
    else if (flag == "--kernels" && (text == "own" || text == "cudnn"))
      s.library_convolutions = text == "cudnn";
    else if (flag != "--optimizer" || text != "sgd")
      return std::cerr << "gpu_step: " << flag << ' ' << value << ": no such flag or value\n", 2;
  }
  if (argc % 2 == 0) return std::cerr << "gpu_step: " << argv[argc - 1] << ": no value\n", 2;
  try {
    return run(s);
  } catch (const std::exception& e) {
    std::cerr << "gpu_step: " << e.what() << '\n';
    return 1;
  }
}
