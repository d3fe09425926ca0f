// The command line of delta-train. CLI11 splits it and prints --help; every value is then read
// here, so that all errors have one form.
#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <system_error>
#include <thread>

#include "cli/command_flags.hpp"
#include "cli/format.hpp"
#include "cli/option_values.hpp"
#include "cli/options.hpp"

namespace delta::executor {
namespace {

constexpr int largest_image = 1024;
constexpr int largest_batch = 65'536;
constexpr int largest_threads = 256;
constexpr std::uint64_t largest_count = 1'000'000'000;
constexpr std::uint64_t confirming_steps = 3;  // of --find-budget's runs, where none are given

budget_choice budget_of(std::string_view flag, std::string_view text) {
  budget_choice budget;
  const std::string allowed =
      std::string(size_forms) + ", or a part of the unmanaged peak over 0% and up to 100%";
  if (text.ends_with('%')) {
    budget.what = budget_choice::kind::percent;
    budget.percent = percent_of(flag, text, allowed);
    return budget;
  }
  budget.what = budget_choice::kind::absolute;
  try {
    budget.size = parse_bytes(text);
  } catch (const format_error& error) {
    reject(flag, error.what(), allowed);
  }
  return budget;
}

data_choice data_of(std::string_view flag, std::string_view text) {
  constexpr std::string_view allowed =
      "synthetic, mnist:DIR with DIR the folder of MNIST's IDX files, or cifar10:DIR with DIR the "
      "folder of CIFAR-10's binary files";
  using kind = data_choice::kind;
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  if (text == to_string(kind::synthetic)) return {};
  for (const kind what : {kind::mnist, kind::cifar10}) {
    if (name != to_string(what)) continue;
    if (colon == std::string_view::npos || colon + 1 == text.size()) {
      reject(flag, in_quotes(text) + " names no folder", allowed);
    }
    return {what, std::filesystem::path(text.substr(colon + 1))};
  }
  reject(flag, "unknown data " + in_quotes(text), allowed);
}

std::vector<std::uint64_t> epochs_of(std::string_view flag, std::string_view text) {
  std::vector<std::uint64_t> list;
  while (true) {
    const auto comma = text.find(',');
    list.push_back(whole(flag, text.substr(0, comma), 1, largest_count));
    if (list.size() > 1 && list.back() <= list[list.size() - 2]) {
      reject(flag, "the epochs do not ascend", "ascending epochs such as 30,60");
    }
    if (comma == std::string_view::npos) return list;
    text.remove_prefix(comma + 1);
  }
}

void read_training(const command_flags& given, train_options& options) {
  if (given.has("--model")) {
    options.model = given.text("--model");
    if (std::ranges::find(known_models(), options.model, &model_choice::name) ==
        known_models().end()) {
      reject("--model", "unknown model " + in_quotes(options.model), names_of(known_models()));
    }
  }
  if (given.has("--data")) options.data = data_of("--data", given.text("--data"));
  const model_choice& model =
      *std::ranges::find(known_models(), options.model, &model_choice::name);
  if (given.has("--image")) {
    options.image = whole_int("--image", given.text("--image"), 1, largest_image);
    if (options.image < model.smallest_image) {
      reject("--image", std::to_string(options.image) + " is too small for " + options.model,
             "a whole number from " + std::to_string(model.smallest_image) + " to " +
                 std::to_string(largest_image));
    }
  }
  if (given.has("--batch")) {
    options.batch = whole_int("--batch", given.text("--batch"), 1, largest_batch);
  }
  if (options.batch == 1 && options.image < model.smallest_alone) {
    reject("--batch",
           "one image of " + std::to_string(options.image) + " pixels per side leaves " +
               options.model + " a single pixel to normalise by",
           "2 or more, or --image " + std::to_string(model.smallest_alone) + " or more");
  }
  if (given.has("--steps") && given.has("--epochs")) {
    reject("--steps", "given together with --epochs", "one of the two");
  }
  if (given.has("--steps")) {
    options.steps = whole("--steps", given.text("--steps"), 1, largest_count);
  }
  if (given.has("--epochs")) {
    options.epochs = whole("--epochs", given.text("--epochs"), 1, 1'000'000);
    options.steps = 0;
  }
  if (given.has("--find-budget") && !given.has("--steps") && !given.has("--epochs")) {
    options.steps = confirming_steps;
  }
}

void read_optimizer(const command_flags& given, train_options& options) {
  if (given.has("--optimizer")) options.optimizer = given.text("--optimizer");
  const bool adam = options.optimizer == "adam";
  if (!adam && options.optimizer != "sgd") {
    reject("--optimizer", "unknown optimizer " + in_quotes(options.optimizer), "sgd, adam");
  }
  for (const char* flag : {"--momentum", "--beta1", "--beta2", "--epsilon"}) {
    const std::string wanted = std::string_view(flag) == "--momentum" ? "sgd" : "adam";
    if (given.has(flag) && options.optimizer != wanted) {
      reject(flag, "given with --optimizer " + options.optimizer,
             "with --optimizer " + wanted + " only");
    }
  }
  if (adam) options.lr = 0.001;
  const auto number = [&](const std::string& flag, double& value, std::string_view allowed,
                          auto fits) {
    if (given.has(flag)) value = real(flag, given.text(flag), allowed, fits);
  };
  number("--lr", options.lr, "a number over 0 and up to 1000",
         [](double x) { return x > 0 && x <= 1000; });
  constexpr std::string_view below_one = "a number of at least 0 and below 1";
  const auto fits_below_one = [](double x) { return x >= 0 && float(x) < 1; };
  number("--momentum", options.momentum, below_one, fits_below_one);
  number("--beta1", options.beta1, below_one, fits_below_one);
  number("--beta2", options.beta2, below_one, fits_below_one);
  number("--epsilon", options.epsilon, "a number from 1e-30 to 1",
         [](double x) { return x >= 1e-30 && x <= 1; });
  number("--weight-decay", options.weight_decay, "a number from 0 to 1",
         [](double x) { return x >= 0 && x <= 1; });
  number("--dropout", options.dropout, below_one, fits_below_one);
  number("--lr-gamma", options.lr_gamma, "a number over 0 and up to 1",
         [](double x) { return x > 0 && x <= 1; });
  if (given.has("--lr-steps")) {
    options.lr_steps = epochs_of("--lr-steps", given.text("--lr-steps"));
  } else if (given.has("--lr-gamma")) {
    reject("--lr-gamma", "without --lr-steps has nothing to do", "with --lr-steps E,E,...");
  }
  if (given.has("--seed")) options.seed = whole("--seed", given.text("--seed"), 0, ~0ull);
  const unsigned cores = std::thread::hardware_concurrency();
  options.threads = std::clamp(static_cast<int>(cores), 1, largest_threads);
  if (given.has("--threads")) {
    options.threads = whole_int("--threads", given.text("--threads"), 1, largest_threads);
  }
}

/// A budget is looked for in place of one that is given.
void read_search(const command_flags& given, train_options& options) {
  options.find_budget = given.has("--find-budget");
  if (!options.find_budget) {
    if (given.has("--max-overhead"))
      reject("--max-overhead", "given without --find-budget", "with --find-budget");
    return;
  }
  if (given.has("--budget")) reject("--find-budget", "given with --budget", "one of the two");
  if (given.has("--max-overhead"))
    options.max_overhead =
        real("--max-overhead", given.text("--max-overhead"), "a number from 1 to 1000",
             [](double x) { return x >= 1 && x <= 1000; });
  options.policy = "adaptive";
}

void read_policy(const command_flags& given, train_options& options,
                 std::span<const preset> policies) {
  if (given.has("--policy")) {
    options.policy = given.text("--policy");
    if (std::ranges::find(policies, options.policy, &preset::name) == policies.end()) {
      reject("--policy", "unknown policy " + in_quotes(options.policy),
             names_of(policies) + ", or list");
    }
  }
  const bool managed = given.has("--budget") || options.find_budget;
  if (options.policy != "unmanaged" && !managed) {
    reject("--policy", in_quotes(options.policy) + " without --budget has nothing to do",
           "unmanaged without a budget, or add --budget BYTES|PERCENT% or --find-budget");
  }
  if (options.policy == "unmanaged" && options.find_budget) {
    reject("--policy", "'unmanaged' given with --find-budget", "a policy that keeps to a budget");
  }
}

void read_memory(const command_flags& given, train_options& options,
                 std::span<const preset> policies) {
  if (given.has("--budget")) {
    options.budget = budget_of("--budget", given.text("--budget"));
    options.policy = "adaptive";
  }
  if (given.has("--host-budget")) {
    options.host_budget = size_of("--host-budget", given.text("--host-budget"));
  }
  read_search(given, options);
  read_policy(given, options, policies);
  if (given.has("--copy-rate")) {
    options.copy_rate = rate_of("--copy-rate", given.text("--copy-rate"));
  }
  if (given.has("--copy-threads") && given.text("--copy-threads") != "auto") {
    const std::string_view text = given.text("--copy-threads");
    if (text != "0" && text != "2")
      reject("--copy-threads", "unknown value " + in_quotes(text), "auto, 0, 2");
    if (text == "0" && given.has("--copy-rate"))
      reject("--copy-threads", "0 given with --copy-rate", "auto, 2");
    options.copy_threads = text == "0" ? 0 : 2;
  }
}

/// A flag of one kind of device alone asks for that kind where --device leaves it open, so that a
/// line means the same wherever it is run.
void narrow(const command_flags& given, device_choice& device,
            std::initializer_list<const char*> flags, device_choice kind) {
  const std::string name = kind == device_choice::cuda ? "cuda" : "cpu";
  for (const char* flag : flags) {
    if (!given.has(flag)) continue;
    if (device == device_choice::automatic) device = kind;
    if (device == kind) continue;
    const std::string other = kind == device_choice::cuda ? "cpu" : "cuda";
    const std::string why = given.has("--device") ? "given with --device " + other
                                                  : "given with a flag of --device " + other;
    reject(flag, why, "with --device " + name + " only");
  }
}

/// One of two words; gives whether it is the second.
bool second_of(const command_flags& given, const char* flag, std::string_view first,
               std::string_view second) {
  if (!given.has(flag)) return false;
  const std::string_view text = given.text(flag);
  if (text != first && text != second)
    reject(flag, "unknown value " + in_quotes(text), std::string(first) + ", " += second);
  return text == second;
}

/// A size, or 0.
bytes group_of(std::string_view flag, std::string_view text) {
  if (text == "0") return {};
  try {
    return parse_bytes(text);
  } catch (const format_error& error) {
    reject(flag, error.what(), "0, or " + std::string(size_forms));
  }
}

constexpr const char* device_forms = "auto, cpu, cuda, cuda:N";

/// The N of "cuda:N"; of "cuda", 0.
int gpu_of(std::string_view text) {
  const std::string_view number = text.substr(std::min(text.size(), std::size_t{5}));
  if (text == "cuda") return 0;
  int n = 0;
  const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), n);
  if (failed != std::errc{} || end != number.data() + number.size() || n < 0)
    reject("--device", "unknown device " + in_quotes(text), device_forms);
  return n;
}

void read_device(const command_flags& given, train_options& options) {
  if (given.has("--fuse")) options.fuse = !second_of(given, "--fuse", "on", "off");
  if (given.has("--update-group"))
    options.update_group = group_of("--update-group", given.text("--update-group"));
  options.device = device_choice::automatic;
  if (given.has("--device")) {
    const std::string_view text = given.text("--device");
    if (text == "cpu")
      options.device = device_choice::cpu;
    else if (text == "cuda" || text.starts_with("cuda:"))
      options.device = device_choice::cuda, options.gpu = gpu_of(text);
    else if (text != "auto")
      reject("--device", "unknown device " + in_quotes(text), device_forms);
  }
  narrow(given, options.device, {"--threads", "--copy-rate", "--copy-threads"}, device_choice::cpu);
  narrow(given, options.device,
         {"--tf32", "--kernels", "--batch-norm", "--arena", "--workspace-cap", "--fill-rounding"},
         device_choice::cuda);
  options.tf32 = given.has("--tf32");
  if (given.has("--kernels")) {
    const std::string_view whose = given.text("--kernels");
    if (whose != "cudnn" && whose != "graph" && whose != "legacy" && whose != "own")
      reject("--kernels", "unknown value " + in_quotes(whose), "cudnn, graph, legacy, own");
    options.cudnn = whose != "own";
    options.legacy = whose == "legacy";
  }
  options.cudnn_norm = second_of(given, "--batch-norm", "own", "cudnn");
  if (options.cudnn_norm && !options.cudnn)
    reject("--batch-norm", "cudnn given with --kernels own", "--batch-norm own");
  if (options.cudnn_norm && options.fuse.value_or(false))
    reject("--batch-norm", "cudnn given with --fuse on, whose operators are our own", "--fuse off");
  if (options.cudnn_norm) options.fuse = false;
  options.virtual_memory = second_of(given, "--arena", "plain", "vmm");
  options.overlap = !given.has("--no-overlap");
  options.fill_rounding = given.has("--fill-rounding");
  if (given.has("--workspace-cap"))
    options.workspace_cap = size_of("--workspace-cap", given.text("--workspace-cap"));
}

/// A file of its own for each flag.
void read_outputs(const command_flags& given, train_options& options) {
  const output_files files = outputs_of(given);
  options.json = files.json;
  options.timeline = files.timeline;
  options.decisions = output_of(given, "--decisions");
  options.record = output_of(given, "--record");
  options.save = output_of(given, "--save");
  constexpr std::array<std::string_view, 5> flags{"--json", "--timeline", "--decisions", "--record",
                                                  "--save"};
  const std::array<const std::filesystem::path*, 5> named{
      &options.json, &options.timeline, &options.decisions, &options.record, &options.save};
  for (std::size_t i = 0; i < named.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (!named[i]->empty() && *named[i] == *named[k])
        reject(flags[i], "names the file of " + std::string(flags[k]), "another file");
}

void read_checkpoints(const command_flags& given, train_options& options) {
  std::error_code ignored;
  const auto there = std::filesystem::status(options.save, ignored);
  if (given.has("--save") && exists(there) && !is_regular_file(there))
    reject("--save", in_quotes(options.save.string()) + " is no regular file",
           "a file, or a new name");
  if (given.has("--save-every")) {
    if (!given.has("--save"))
      reject("--save-every", "without --save has nothing to do", "with --save FILE");
    options.save_every = whole("--save-every", given.text("--save-every"), 1, largest_count);
  }
  if (given.has("--resume")) options.resume = given.text("--resume");
  for (const char* flag : {"--save", "--resume"})
    for (const char* other : {"--record", "--find-budget"})
      if (given.has(flag) && given.has(other))
        reject(flag, std::string("given with ") + other, "one of the two");
}

}  // namespace

command parse_options(int argc, const char* const* argv, std::span<const preset> policies) {
  const command_flags given(argc, argv);

  command result;
  if (given.has("--help")) {
    result.what = command::action::print;
    result.text = given.help(policies);
    return result;
  }
  if (given.has("--version")) {
    result.what = command::action::version;
    return result;
  }
  if (given.has("--policy") && given.text("--policy") == "list") {
    result.what = command::action::print;
    result.text = policy_lines(policies);
    return result;
  }
  if (given.has("--table")) {
    result.what = command::action::table;
    result.reports.assign(given.values("--table").begin(), given.values("--table").end());
    return result;
  }

  train_options& options = result.options;
  read_training(given, options);
  read_optimizer(given, options);
  read_memory(given, options, policies);
  read_device(given, options);
  options.verify = given.has("--verify");
  for (const char* flag :
       {"--verify", "--host-budget", "--copy-rate", "--copy-threads", "--virtual-clock"}) {
    if (given.has(flag) && !given.has("--budget") && !options.find_budget) {
      reject(flag, "without --budget has nothing to do",
             "with --budget BYTES|PERCENT% or --find-budget");
    }
  }
  options.check_replays = given.has("--check-replays");
  options.verify_tensors = given.has("--verify-tensors");
  for (const char* check : {"--check-replays", "--verify-tensors"})
    for (const char* flag : {"--record", "--find-budget"})
      if (given.has(check) && given.has(flag))
        reject(check, std::string("given with ") + flag,
               "without it: what is measured would be the checks");
  options.evaluate = given.has("--evaluate");
  options.virtual_clock = given.has("--virtual-clock");
  options.turns = given.has("--turns");
  read_outputs(given, options);
  read_checkpoints(given, options);
  return result;
}

}  // namespace delta::executor
