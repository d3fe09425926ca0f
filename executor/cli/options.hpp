// delta executor: what delta-train is asked to do, read from the command line and checked before
// anything is built. Nothing here trains or opens data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/option_values.hpp"
#include "delta/units.hpp"

namespace delta::executor {

/// A model that --model takes.
struct model_choice {
  std::string_view name;
  std::string_view explanation;
  int smallest_image;  ///< pixels per side
  int smallest_alone;  ///< the same in a batch of one: batch norm needs two pixels
};

/// The models, in the order in which --help lists them.
std::span<const model_choice> known_models() noexcept;

/// The device's budget: none given, a number of bytes, or a part of the unmanaged peak.
struct budget_choice {
  enum class kind : std::uint8_t { none, absolute, percent };
  kind what = kind::none;
  bytes size{};        ///< when absolute
  double percent = 0;  ///< when percent: in (0, 100]

  /// The budget in bytes for a measured (or computed) unmanaged peak, rounded down; none gives the
  /// peak itself.
  [[nodiscard]] bytes resolve(bytes unmanaged_peak) const noexcept;
};

/// Where the images come from.
struct data_choice {
  enum class kind : std::uint8_t { synthetic, mnist, cifar10 };
  kind what = kind::synthetic;
  std::filesystem::path directory;  ///< of the files, when not synthetic
};
/// "synthetic", "mnist" or "cifar10".
std::string_view to_string(data_choice::kind) noexcept;

/// Whose kernels run, in whose memory: of --device.
enum class device_choice : std::uint8_t {
  automatic,  ///< a GPU where one answers, else the CPU
  cpu,
  cuda
};

/// Everything that a training run needs to know. The defaults are delta-train's.
struct train_options {
  std::string model = "resnet20";
  data_choice data;
  int image = 32;  ///< pixels per side
  int batch = 32;  ///< images per step

  device_choice device = device_choice::cpu;  ///< parse_options: automatic
  int gpu = 0;                                ///< cuda: as cuda_backend_options, these eight
  bool tf32 = false;
  bool cudnn = true;
  bool cudnn_norm = false;
  bool legacy = false;
  bool virtual_memory = false;
  std::optional<bytes> workspace_cap;
  bool fill_rounding = false;
  bool overlap = true;       ///< of copies with operators
  std::optional<bool> fuse;  ///< batch norms with what is behind them; absent: on a GPU

  std::optional<bytes> update_group;  ///< absent: 16 MiB on a GPU, 0 on the CPU

  std::uint64_t steps = 10;       ///< 0 when `epochs` counts; parse_options: 3 with find_budget
  std::uint64_t epochs = 0;       ///< 0 when `steps` counts
  std::string optimizer = "sgd";  ///< or "adam"
  double lr = 0.1;                ///< parse_options: 0.001 with adam
  double momentum = 0.9;          ///< sgd
  double beta1 = 0.9;             ///< adam
  double beta2 = 0.999;           ///< adam
  double epsilon = 1e-8;          ///< adam
  double weight_decay = 1e-4;
  double dropout = 0;                   ///< probability, before the last linear layer
  std::vector<std::uint64_t> lr_steps;  ///< epochs (ascending) from which on lr is lr * gamma
  double lr_gamma = 0.1;
  std::uint64_t seed = 1;
  int threads = 1;        ///< parse_options sets the machine's number by default
  bool evaluate = false;  ///< an evaluation pass at the end of every epoch and of the run

  budget_choice budget;
  std::optional<bytes> host_budget;  ///< absent: the unmanaged peak
  bool find_budget = false;          ///< in place of `budget`: look for the smallest that will do
  double max_overhead = 1.2;         ///< with find_budget: step time / unmanaged step time
  std::string policy = "unmanaged";  ///< parse_options: "adaptive" with a budget or find_budget
  bool check_replays = false;        ///< run every operator twice and compare
  bool verify_tensors = false;       ///< hash every tensor and compare
  bool verify = false;               ///< run the unmanaged twin and compare bit for bit
  bool virtual_clock = false;        ///< costs from flops and bytes: decisions repeat exactly
  double copy_rate = 0;              ///< bytes per second, each way; 0: as fast as memory copies
  std::optional<int> copy_threads;   ///< cpu: as cpu_options; absent: whichever measures better
  bool turns = false;                ///< each training step waits for a line on standard input

  std::filesystem::path json;       ///< empty: none
  std::filesystem::path timeline;   ///< empty: none
  std::filesystem::path decisions;  ///< empty: none
  std::filesystem::path record;     ///< empty: none

  std::filesystem::path save;    ///< a checkpoint; empty: none
  std::uint64_t save_every = 0;  ///< steps; 0: behind the last one only
  std::filesystem::path resume;  ///< that it goes on from; empty: none
};

/// The learning rate of an epoch (the first is 0): lr * gamma^(number of lr_steps reached).
double learning_rate(const train_options&, std::uint64_t epoch);

/// The number of steps of a run over `training_images`: whole batches only.
std::uint64_t total_steps(const train_options&, std::size_t training_images);

/// Throws usage_error when a batch is larger than the training images. Called once the data is
/// open, before anything is built.
void check_against_data(const train_options&, std::size_t training_images);

/// Throws usage_error when the budget (in bytes) is below the footprint of the largest operator:
/// inputs, outputs, workspace and constants together. Called once the graph is known.
void check_against_operator(bytes budget, bytes largest_footprint);

/// A parsed command line.
struct command {
  enum class action : std::uint8_t {
    train,    ///< `options` says how, or that a budget is to be found
    print,    ///< print `text` (help, the policies) and stop
    version,  ///< print what this build is, and stop
    table     ///< print one table of the reports in `reports`
  };
  action what = action::train;
  train_options options;
  std::string text;
  std::vector<std::filesystem::path> reports;
};

/// Reads delta-train's command line. Throws usage_error. Also checks that the files of --json,
/// --timeline, --decisions, --record and --save can be written: creates a temporary file beside
/// each and removes it again.
command parse_options(int argc, const char* const* argv, std::span<const preset> policies);

}  // namespace delta::executor
