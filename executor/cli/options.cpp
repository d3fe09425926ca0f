#include "cli/options.hpp"

#include <array>
#include <cmath>

#include "cli/format.hpp"

namespace delta::executor {
namespace {

// Parameters in millions, without the last layer's.
constexpr std::array<model_choice, 5> models{
    {{"resnet20", "ResNet-20 for small images (He et al. 2016; 0.27 million)", 8, 8},
     {"resnet18", "ResNet-18 (11.2 million)", 32, 33},
     {"resnet50", "ResNet-50 with bottlenecks (23.5 million)", 32, 33},
     {"resnet101", "ResNet-101 with bottlenecks (42.5 million)", 32, 33},
     {"resnext50_32x4d", "ResNeXt-50, 32 groups of 4 (Xie et al. 2017; 23.0 million)", 32, 33}}};

}  // namespace

std::span<const model_choice> known_models() noexcept {
  return models;
}

std::string_view to_string(data_choice::kind what) noexcept {
  constexpr std::array<std::string_view, 3> names{"synthetic", "mnist", "cifar10"};
  return names[std::size_t(what)];
}

bytes budget_choice::resolve(bytes unmanaged_peak) const noexcept {
  switch (what) {
    case kind::absolute:
      return size;
    case kind::percent:
      return bytes{static_cast<std::uint64_t>(
          std::floor(static_cast<long double>(unmanaged_peak.count) * percent / 100.0L))};
    case kind::none:
      break;
  }
  return unmanaged_peak;
}

double learning_rate(const train_options& options, std::uint64_t epoch) {
  double rate = options.lr;
  for (const std::uint64_t step : options.lr_steps) rate *= epoch >= step ? options.lr_gamma : 1.0;
  return rate;
}

std::uint64_t total_steps(const train_options& options, std::size_t training_images) {
  if (options.epochs == 0) return options.steps;
  return options.epochs * (training_images / static_cast<std::size_t>(options.batch));
}

void check_against_data(const train_options& options, std::size_t training_images) {
  if (static_cast<std::size_t>(options.batch) <= training_images) return;
  throw usage_error("--batch: " + std::to_string(options.batch) +
                    " images are more than the data has for training; allowed: 1 to " +
                    std::to_string(training_images));
}

void check_against_operator(bytes budget, bytes largest_footprint) {
  if (budget >= largest_footprint) return;
  const std::string number = std::to_string(budget.count);
  const bool meant_percent = budget.count <= 100;
  throw usage_error("--budget: " + number +
                    " bytes are less than the largest operator needs; allowed: at least " +
                    std::to_string(largest_footprint.count) + " bytes (" +
                    format_bytes(largest_footprint) + ")" +
                    (meant_percent ? ", or " + number + "% of the unmanaged peak" : ""));
}

}  // namespace delta::executor
