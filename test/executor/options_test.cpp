// The command line: what each good flag gives, and the whole text of every refusal.
#include "cli/options.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "temporary_folder.hpp"

using namespace delta::executor;
using delta::bytes;

namespace {

constexpr std::array<delta::preset, 3> policies{{{"unmanaged", "keeps everything"},
                                                 {"paper", "the paper's algorithm"},
                                                 {"online", "the cheaper way out"}}};

command parse(const std::vector<std::string>& words) {
  std::vector<const char*> argv{"delta-train"};
  for (const auto& word : words) argv.push_back(word.c_str());
  return parse_options(static_cast<int>(argv.size()), argv.data(), policies);
}

train_options options(const std::vector<std::string>& words) {
  const command parsed = parse(words);
  CHECK(parsed.what == command::action::train);
  return parsed.options;
}

std::string refusal(const std::vector<std::string>& words) {
  try {
    (void)parse(words);
  } catch (const usage_error& error) {
    std::string line = error.what();
    CHECK_MESSAGE(line.find_first_of("\n\r") == std::string::npos, line);
    return line;
  }
  return "no error";
}

const std::string models = "resnet20, resnet18, resnet50, resnet101, resnext50_32x4d";
const std::string a_size =
    "a size of at least 1 byte such as 65536, 512KiB, 300MiB or 1.5GiB "
    "(units B, KB, MB, GB, KiB, MiB, GiB)";
const std::string a_budget = a_size + ", or a part of the unmanaged peak over 0% and up to 100%";

}  // namespace

TEST_CASE("nothing given: the defaults that --help states") {
  const train_options o = options({});
  CHECK(o.model == "resnet20");
  CHECK(o.data.what == data_choice::kind::synthetic);
  CHECK(o.image == 32);
  CHECK(o.batch == 32);
  CHECK(o.steps == 10);
  CHECK(o.epochs == 0);
  CHECK(o.lr == 0.1);
  CHECK(o.momentum == 0.9);
  CHECK(o.weight_decay == 1e-4);
  CHECK(o.dropout == 0);
  CHECK(o.lr_gamma == 0.1);
  CHECK(o.lr_steps.empty());
  CHECK(o.seed == 1);
  CHECK(o.threads >= 1);
  CHECK(o.budget.what == budget_choice::kind::none);
  CHECK_FALSE(o.host_budget.has_value());
  CHECK_FALSE(o.find_budget);
  CHECK(o.max_overhead == 1.2);
  CHECK(o.policy == "unmanaged");
  CHECK_FALSE(o.verify);
  CHECK_FALSE(o.evaluate);
  CHECK_FALSE(o.virtual_clock);
  CHECK_FALSE(o.turns);
  CHECK(o.copy_rate == 0);
  CHECK_FALSE(o.copy_threads);
  CHECK(o.device == device_choice::automatic);
  CHECK_FALSE(o.tf32);
  CHECK(o.cudnn);
  CHECK_FALSE(o.cudnn_norm);
  CHECK_FALSE(o.virtual_memory);
  CHECK_FALSE(o.legacy);
  CHECK_FALSE(o.workspace_cap);
  CHECK(o.overlap);
  CHECK_FALSE(o.fuse);
  CHECK_FALSE(o.update_group);
  CHECK(o.json.empty());
  CHECK(o.timeline.empty());
  CHECK(o.decisions.empty());
  CHECK(o.record.empty());
  CHECK(o.save.empty());
  CHECK(o.save_every == 0);
  CHECK(o.resume.empty());
}

TEST_CASE("every flag arrives") {
  const delta::test::temporary_folder folder;
  const auto json = folder / "out.json";
  const train_options o = options({"--model",
                                   "resnet50",
                                   "--data",
                                   "mnist:some/where",
                                   "--image",
                                   "64",
                                   "--batch",
                                   "128",
                                   "--epochs",
                                   "3",
                                   "--optimizer",
                                   "sgd",
                                   "--lr",
                                   "0.05",
                                   "--momentum",
                                   "0",
                                   "--weight-decay",
                                   "0.001",
                                   "--lr-steps",
                                   "1,2",
                                   "--lr-gamma",
                                   "0.5",
                                   "--seed",
                                   "7",
                                   "--threads",
                                   "3",
                                   "--evaluate",
                                   "--budget",
                                   "1.5GiB",
                                   "--host-budget",
                                   "300MiB",
                                   "--policy",
                                   "paper",
                                   "--verify",
                                   "--virtual-clock",
                                   "--copy-rate",
                                   "2GB/s",
                                   "--turns",
                                   "--json",
                                   json.string()});
  CHECK(o.model == "resnet50");
  CHECK(o.data.what == data_choice::kind::mnist);
  CHECK(o.data.directory == "some/where");
  CHECK(o.image == 64);
  CHECK(o.batch == 128);
  CHECK(o.epochs == 3);
  CHECK(o.steps == 0);
  CHECK(o.lr == 0.05);
  CHECK(o.momentum == 0);
  CHECK(o.weight_decay == 0.001);
  CHECK(o.lr_steps == std::vector<std::uint64_t>{1, 2});
  CHECK(o.lr_gamma == 0.5);
  CHECK(o.seed == 7);
  CHECK(o.threads == 3);
  CHECK(o.evaluate);
  CHECK(o.budget.what == budget_choice::kind::absolute);
  CHECK(o.budget.size == bytes{(3ull << 30) / 2});
  CHECK(o.host_budget == bytes{300u << 20});
  CHECK(o.policy == "paper");
  CHECK(o.verify);
  CHECK(o.virtual_clock);
  CHECK(o.turns);
  CHECK(o.copy_rate == 2e9);
  CHECK(o.json == json);
  CHECK(std::filesystem::is_empty(folder.path()));  // the probe left nothing behind
}

TEST_CASE("other forms that are good") {
  CHECK(options({"--batch=8"}).batch == 8);
  CHECK(options({"--data", "cifar10:a:b"}).data.what == data_choice::kind::cifar10);
  CHECK(options({"--data", "cifar10:a:b"}).data.directory == "a:b");
  CHECK(options({"--batch", "8", "--batch", "9"}).batch == 9);
  CHECK(options({"--budget", "40%"}).policy == "adaptive");
  CHECK(options({"--budget", "40%"}).budget.percent == 40);
  CHECK(options({"--budget", "12.5%"}).budget.percent == 12.5);
  CHECK(options({"--budget", "100%"}).budget.percent == 100);
  CHECK(options({"--budget", "65536"}).budget.size == bytes{65536});
  CHECK(options({"--budget", "40%", "--policy", "unmanaged"}).policy == "unmanaged");
  CHECK(options({"--seed", "18446744073709551615"}).seed == 18446744073709551615u);
  CHECK(options({"--lr", "1e-3"}).lr == 1e-3);
  CHECK(options({"--image", "8"}).image == 8);
  CHECK(options({"--dropout", "0.25"}).dropout == 0.25);
  CHECK(options({"--dropout", "0"}).dropout == 0);
  CHECK(options({"--model", "resnet50", "--image", "32"}).image == 32);
}

TEST_CASE("budgets resolve against the peak, rounded down") {
  CHECK(options({"--budget", "40%"}).budget.resolve(bytes{1000}) == bytes{400});
  CHECK(options({"--budget", "40%"}).budget.resolve(bytes{1001}) == bytes{400});
  CHECK(options({"--budget", "100%"}).budget.resolve(bytes{7}) == bytes{7});
  CHECK(options({"--budget", "64KiB"}).budget.resolve(bytes{7}) == bytes{65536});
  CHECK(options({}).budget.resolve(bytes{7}) == bytes{7});
}

TEST_CASE("the learning rate falls at the epochs given") {
  const train_options o = options({"--lr", "1", "--lr-steps", "2,5", "--lr-gamma", "0.5"});
  CHECK(learning_rate(o, 0) == 1);
  CHECK(learning_rate(o, 1) == 1);
  CHECK(learning_rate(o, 2) == 0.5);
  CHECK(learning_rate(o, 4) == 0.5);
  CHECK(learning_rate(o, 5) == 0.25);
  CHECK(learning_rate(o, 500) == 0.25);
}

TEST_CASE("steps: given, or whole batches of every epoch") {
  CHECK(total_steps(options({"--steps", "7"}), 9000) == 7);
  CHECK(total_steps(options({"--epochs", "3", "--batch", "64"}), 9000) == 3 * 140);
}

TEST_CASE("flags that do not exist or stand wrong are refused") {
  const std::string unknown = refusal({"--foo"});
  CHECK(unknown.starts_with("--foo: unknown flag; allowed: --model, --data, "));
  CHECK(refusal({"--foo=3"}).starts_with("--foo: unknown flag; allowed: "));
  CHECK(refusal({"-x"}).starts_with("-x: unknown flag; allowed: "));
  CHECK(
      refusal({"word"}) ==
      "'word': no flag that takes it stands before it; allowed: flags, each followed by its value "
      "where it takes one; see --help");
  CHECK(refusal({"--lr"}) ==
        "--lr: needs a value; allowed: the flag followed by its value, see --help");
  CHECK(refusal({"--json="}) ==
        "--json: needs a value; allowed: the flag followed by its value, see --help");
  CHECK(refusal({"--verify=maybe"}) == "--verify: takes no value; allowed: the flag alone");
  CHECK(refusal({"--model", "a\nb"}) == "--model: unknown model 'a?b'; allowed: " + models);
}

TEST_CASE("values that are unknown, or no numbers, or out of range are refused") {
  CHECK(refusal({"--model", "vgg"}) == "--model: unknown model 'vgg'; allowed: " + models);
  CHECK(refusal({"--model", "resnext50"}) ==
        "--model: unknown model 'resnext50'; allowed: " + models);
  const std::string data =
      "synthetic, mnist:DIR with DIR the folder of MNIST's IDX files, or cifar10:DIR with DIR the "
      "folder of CIFAR-10's binary files";
  CHECK(refusal({"--data", "cifar"}) == "--data: unknown data 'cifar'; allowed: " + data);
  CHECK(refusal({"--data", "mnist:"}) == "--data: 'mnist:' names no folder; allowed: " + data);
  CHECK(refusal({"--data", "cifar10"}) == "--data: 'cifar10' names no folder; allowed: " + data);
  CHECK(refusal({"--data", "synthetic:x"}) ==
        "--data: unknown data 'synthetic:x'; allowed: " + data);
  CHECK(refusal({"--image", "7"}) ==
        "--image: 7 is too small for resnet20; allowed: a whole number from 8 to 1024");
  CHECK(refusal({"--image", "31", "--model", "resnet50"}) ==
        "--image: 31 is too small for resnet50; allowed: a whole number from 32 to 1024");
  CHECK(refusal({"--image", "1025"}) ==
        "--image: '1025' is too large; allowed: a whole number from 1 to 1024");
  CHECK(refusal({"--batch", "1", "--model", "resnet18"}) ==
        "--batch: one image of 32 pixels per side leaves resnet18 a single pixel to normalise by; "
        "allowed: 2 or more, or --image 33 or more");
  CHECK(refusal({"--batch", "1", "--model", "resnet18", "--image", "33"}) == "no error");
  const std::string batch = "a whole number from 1 to 65536";
  CHECK(refusal({"--batch", "0"}) == "--batch: '0' is too small; allowed: " + batch);
  CHECK(refusal({"--batch", "-3"}) == "--batch: '-3' is negative; allowed: " + batch);
  CHECK(refusal({"--batch", "3.5"}) == "--batch: '3.5' is not a whole number; allowed: " + batch);
  CHECK(refusal({"--batch", "8x"}) == "--batch: '8x' is not a whole number; allowed: " + batch);
  CHECK(refusal({"--batch", "99999999999999999999"}) ==
        "--batch: '99999999999999999999' is too large; allowed: " + batch);
  CHECK(refusal({"--steps", "0"}) ==
        "--steps: '0' is too small; allowed: a whole number from 1 to 1000000000");
  CHECK(refusal({"--epochs", "0"}) ==
        "--epochs: '0' is too small; allowed: a whole number from 1 to 1000000");
  CHECK(refusal({"--steps", "1", "--epochs", "1"}) ==
        "--steps: given together with --epochs; allowed: one of the two");
  CHECK(refusal({"--optimizer", "rmsprop"}) ==
        "--optimizer: unknown optimizer 'rmsprop'; allowed: sgd, adam");
  const std::string lr = "a number over 0 and up to 1000";
  CHECK(refusal({"--lr", "fast"}) == "--lr: 'fast' is not a number; allowed: " + lr);
  CHECK(refusal({"--lr", "0"}) == "--lr: '0' is out of range; allowed: " + lr);
  CHECK(refusal({"--lr", "-1"}) == "--lr: '-1' is out of range; allowed: " + lr);
  CHECK(refusal({"--lr", "nan"}) == "--lr: 'nan' is out of range; allowed: " + lr);
  CHECK(refusal({"--lr", "inf"}) == "--lr: 'inf' is out of range; allowed: " + lr);
  CHECK(refusal({"--momentum", "1"}) ==
        "--momentum: '1' is out of range; allowed: a number of at least 0 and below 1");
  for (const std::string value : {"1", "-0.5", "nan", "0.99999999999"}) {
    CHECK(refusal({"--dropout", value}) ==
          "--dropout: '" + value +
              "' is out of range; allowed: a number of at least 0 and below 1");
  }
  CHECK(refusal({"--weight-decay", "2"}) ==
        "--weight-decay: '2' is out of range; allowed: a number from 0 to 1");
  CHECK(refusal({"--lr-gamma", "0"}) ==
        "--lr-gamma: '0' is out of range; allowed: a number over 0 and up to 1");
  CHECK(refusal({"--lr-steps", "3,2"}) ==
        "--lr-steps: the epochs do not ascend; allowed: ascending epochs such as 30,60");
  CHECK(refusal({"--lr-steps", "3,"}) ==
        "--lr-steps: '' is not a whole number; allowed: a whole number from 1 to 1000000000");
  CHECK(refusal({"--seed", "-1"}) ==
        "--seed: '-1' is negative; allowed: a whole number from 0 to 18446744073709551615");
  CHECK(refusal({"--threads", "0"}) ==
        "--threads: '0' is too small; allowed: a whole number from 1 to 256");
}

TEST_CASE("memory: sizes, parts, rates and policies are refused") {
  CHECK(refusal({"--budget", "0"}) == "--budget: '0' is less than one byte; allowed: " + a_budget);
  CHECK(refusal({"--budget", "-1GiB"}) == "--budget: '-1GiB' is negative; allowed: " + a_budget);
  CHECK(refusal({"--budget", "99999999999GiB"}) ==
        "--budget: '99999999999GiB' is too large; allowed: " + a_budget);
  CHECK(refusal({"--budget", "1.5XiB"}) ==
        "--budget: '1.5XiB' has an unknown unit 'XiB'; allowed: " + a_budget);
  CHECK(refusal({"--budget", "0%"}) == "--budget: '0%' is out of range; allowed: " + a_budget);
  CHECK(refusal({"--budget", "-5%"}) == "--budget: '-5%' is out of range; allowed: " + a_budget);
  CHECK(refusal({"--budget", "101%"}) == "--budget: '101%' is out of range; allowed: " + a_budget);
  CHECK(refusal({"--budget", "nan%"}) == "--budget: 'nan%' is out of range; allowed: " + a_budget);
  CHECK(refusal({"--budget", "half%"}) ==
        "--budget: 'half%' is not a percentage; allowed: " + a_budget);
  CHECK(refusal({"--host-budget", "40%"}) ==
        "--host-budget: '40%' has an unknown unit '%'; allowed: " + a_size);
  CHECK(refusal({"--policy", "best", "--budget", "40%"}) ==
        "--policy: unknown policy 'best'; allowed: unmanaged, paper, online, or list");
  CHECK(refusal({"--policy", "online"}) ==
        "--policy: 'online' without --budget has nothing to do; allowed: unmanaged without a "
        "budget, or add --budget BYTES|PERCENT% or --find-budget");
  CHECK(refusal({"--copy-rate", "2GB"}) ==
        "--copy-rate: '2GB' lacks the unit's '/s'; allowed: a rate of at least 1 B/s such as 2GB/s "
        "or 1.5GiB/s (units B/s, KB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s)");
}

TEST_CASE("checks go with a run that is trained, and with nothing that is measured") {
  CHECK(!options({}).verify_tensors);
  CHECK(options({"--verify-tensors"}).verify_tensors);
  CHECK(options({"--verify-tensors", "--check-replays", "--budget", "40%"}).check_replays);
  for (const char* check : {"--verify-tensors", "--check-replays"})
    CHECK(refusal({check, "--find-budget"}) ==
          std::string(check) +
              ": given with --find-budget; allowed: without it: what is measured would be the "
              "checks");
}

TEST_CASE("adam has its own rate and its own flags") {
  const train_options usual = options({"--optimizer", "adam"});
  CHECK(usual.optimizer == "adam");
  CHECK(usual.lr == 0.001);
  CHECK(usual.beta1 == 0.9);
  CHECK(usual.beta2 == 0.999);
  CHECK(usual.epsilon == 1e-8);
  CHECK(usual.weight_decay == 1e-4);
  const train_options o = options({"--beta1", "0", "--beta2", "0.99", "--epsilon", "1e-6", "--lr",
                                   "0.01", "--optimizer", "adam"});
  CHECK(o.lr == 0.01);
  CHECK(o.beta1 == 0);
  CHECK(o.beta2 == 0.99);
  CHECK(o.epsilon == 1e-6);

  CHECK(refusal({"--momentum", "0.9", "--optimizer", "adam"}) ==
        "--momentum: given with --optimizer adam; allowed: with --optimizer sgd only");
  for (const std::string flag : {"--beta1", "--beta2", "--epsilon"}) {
    CHECK(refusal({flag, "0.5"}) ==
          flag + ": given with --optimizer sgd; allowed: with --optimizer adam only");
  }
  const auto with_adam = [](const std::string& flag, const std::string& value) {
    return refusal({"--optimizer", "adam", flag, value});
  };
  const std::string below_one = " is out of range; allowed: a number of at least 0 and below 1";
  CHECK(with_adam("--beta1", "1") == "--beta1: '1'" + below_one);
  CHECK(with_adam("--beta2", "-0.1") == "--beta2: '-0.1'" + below_one);
  CHECK(with_adam("--beta2", "0.99999999999") == "--beta2: '0.99999999999'" + below_one);  // 1.0f
  CHECK(with_adam("--epsilon", "0") ==
        "--epsilon: '0' is out of range; allowed: a number from 1e-30 to 1");
  CHECK(with_adam("--epsilon", "small") ==
        "--epsilon: 'small' is not a number; allowed: a number from 1e-30 to 1");
}

TEST_CASE("a budget that is to be found") {
  const train_options usual = options({"--find-budget"});
  CHECK(usual.find_budget);
  CHECK(usual.max_overhead == 1.2);
  CHECK(usual.policy == "adaptive");
  CHECK(usual.steps == 3);
  CHECK(usual.budget.what == budget_choice::kind::none);
  CHECK(options({"--find-budget", "--steps", "7"}).steps == 7);
  CHECK(options({"--find-budget", "--epochs", "2"}).steps == 0);
  CHECK(options({"--find-budget", "--policy", "paper"}).policy == "paper");
  CHECK(options({"--find-budget", "--max-overhead", "1"}).max_overhead == 1);
  CHECK(options({"--find-budget", "--max-overhead", "2.5"}).max_overhead == 2.5);

  CHECK(refusal({"--find-budget", "--budget", "40%"}) ==
        "--find-budget: given with --budget; allowed: one of the two");
  CHECK(refusal({"--max-overhead", "1.1"}) ==
        "--max-overhead: given without --find-budget; allowed: with --find-budget");
  CHECK(refusal({"--max-overhead", "1.1", "--budget", "40%"}) ==
        "--max-overhead: given without --find-budget; allowed: with --find-budget");
  const auto overhead = [](const std::string& text) {
    return refusal({"--find-budget", "--max-overhead", text});
  };
  const std::string allowed = "; allowed: a number from 1 to 1000";
  for (const std::string text : {"0.99", "1001", "-1", "nan", "inf"})
    CHECK(overhead(text) == "--max-overhead: '" + text + "' is out of range" + allowed);
  CHECK(overhead("20%") == "--max-overhead: '20%' is not a number" + allowed);
  CHECK(refusal({"--find-budget", "--policy", "unmanaged"}) ==
        "--policy: 'unmanaged' given with --find-budget; allowed: a policy that keeps to a "
        "budget");
  CHECK(refusal({"--find-budget", "--policy", "best"}) ==
        "--policy: unknown policy 'best'; allowed: unmanaged, paper, online, or list");
}

TEST_CASE("a flag that would be ignored is refused") {
  const std::string budget = "without --budget has nothing to do; allowed: with --budget ";
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--verify"},
                                                {"--virtual-clock"},
                                                {"--host-budget", "1MiB"},
                                                {"--copy-rate", "2GB/s"},
                                                {"--copy-threads", "0"}}) {
    CHECK(refusal(words) == words[0] + ": " + budget + "BYTES|PERCENT% or --find-budget");
    std::vector<std::string> useful = words;
    useful.insert(useful.end(), {"--budget", "40%"});
    CHECK(refusal(useful) == "no error");
    std::vector<std::string> searching = words;
    searching.emplace_back("--find-budget");
    CHECK(refusal(searching) == "no error");
  }
  CHECK(refusal({"--lr-gamma", "0.5"}) ==
        "--lr-gamma: without --lr-steps has nothing to do; allowed: with --lr-steps E,E,...");
  CHECK(options({"--lr-gamma", "0.5", "--lr-steps", "3"}).lr_gamma == 0.5);
}

TEST_CASE("who copies on the CPU: as asked for, or as it is measured") {
  CHECK(options({"--copy-threads", "2", "--budget", "50%"}).copy_threads == 2);
  CHECK(options({"--copy-threads", "0", "--budget", "50%"}).copy_threads == 0);
  CHECK(options({"--copy-threads", "0", "--budget", "50%"}).device == device_choice::cpu);
  CHECK_FALSE(options({"--copy-threads", "auto", "--budget", "50%"}).copy_threads);
  CHECK(options({"--copy-threads", "2", "--copy-rate", "1GB/s", "--budget", "50%"}).copy_threads ==
        2);
  CHECK(refusal({"--copy-threads", "1", "--budget", "50%"}) ==
        "--copy-threads: unknown value '1'; allowed: auto, 0, 2");
  CHECK(refusal({"--copy-threads", "0", "--copy-rate", "1GB/s", "--budget", "50%"}) ==
        "--copy-threads: 0 given with --copy-rate; allowed: auto, 2");
}

TEST_CASE("the device: as asked for, or as the other flags need it") {
  CHECK(options({"--device", "auto"}).device == device_choice::automatic);
  CHECK(options({"--device", "cpu"}).device == device_choice::cpu);
  CHECK(options({"--threads", "2"}).device == device_choice::cpu);
  CHECK(options({"--budget", "50%", "--copy-rate", "2GB/s"}).device == device_choice::cpu);
  const train_options o = options({"--device", "cuda", "--tf32", "--kernels", "cudnn", "--arena",
                                   "vmm", "--no-overlap", "--workspace-cap", "1GiB"});
  CHECK(o.device == device_choice::cuda);
  CHECK(o.tf32);
  CHECK(o.cudnn);
  CHECK(o.virtual_memory);
  CHECK_FALSE(o.overlap);
  CHECK(o.workspace_cap == bytes{1u << 30});
  CHECK_FALSE(options({"--device", "cpu", "--no-overlap"}).overlap);
  CHECK(options({"--no-overlap"}).device == device_choice::automatic);
  CHECK(o.gpu == 0);
  CHECK(options({"--device", "cuda:0"}).gpu == 0);
  CHECK(options({"--device", "cuda:3", "--fill-rounding"}).gpu == 3);
  CHECK(options({"--device", "cuda:3"}).device == device_choice::cuda);
  CHECK(options({"--fill-rounding"}).fill_rounding);
  CHECK(options({"--tf32"}).device == device_choice::cuda);
  CHECK_FALSE(options({"--kernels", "own"}).cudnn);
  CHECK_FALSE(options({"--kernels", "own"}).legacy);
  for (const char* whose : {"cudnn", "graph"}) {
    CHECK(options({"--kernels", whose}).cudnn);
    CHECK_FALSE(options({"--kernels", whose}).legacy);
  }
  CHECK(options({"--kernels", "legacy"}).cudnn);
  CHECK(options({"--kernels", "legacy"}).legacy);
  CHECK(options({"--batch-norm", "cudnn"}).cudnn_norm);
  CHECK(options({"--batch-norm", "cudnn"}).device == device_choice::cuda);
  CHECK_FALSE(options({"--batch-norm", "own", "--kernels", "own"}).cudnn_norm);
  CHECK(options({"--batch-norm", "cudnn"}).fuse == false);  // cuDNN has none that are fused
  CHECK_FALSE(options({"--batch-norm", "own"}).fuse.has_value());
  CHECK_FALSE(options({"--arena", "plain"}).virtual_memory);
}

TEST_CASE("parameters are updated in groups of a size, or one by one") {
  CHECK(options({"--update-group", "4MiB"}).update_group == bytes{4u << 20});
  CHECK(options({"--update-group", "0"}).update_group == bytes{});
  CHECK(refusal({"--update-group", "all"}) ==
        "--update-group: 'all' is not a number with a unit; allowed: 0, or " + a_size);
}

TEST_CASE("the device: what does not go together is refused") {
  CHECK(refusal({"--device", "tpu"}) ==
        "--device: unknown device 'tpu'; allowed: auto, cpu, cuda, cuda:N");
  for (const std::string wrong : {"cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda1"})
    CHECK(refusal({"--device", wrong}) ==
          "--device: unknown device '" + wrong + "'; allowed: auto, cpu, cuda, cuda:N");
  for (const std::vector<std::string>& flag :
       std::vector<std::vector<std::string>>{{"--tf32"},
                                             {"--kernels", "own"},
                                             {"--batch-norm", "cudnn"},
                                             {"--arena", "vmm"},
                                             {"--fill-rounding"},
                                             {"--workspace-cap", "1MiB"}}) {
    std::vector<std::string> words{"--device", "cpu"};
    words.insert(words.end(), flag.begin(), flag.end());
    CHECK(refusal(words) ==
          flag[0] + ": given with --device cpu; allowed: with --device cuda only");
  }
  CHECK(refusal({"--device", "cuda", "--threads", "2"}) ==
        "--threads: given with --device cuda; allowed: with --device cpu only");
  CHECK(refusal({"--device", "cuda", "--budget", "50%", "--copy-rate", "1GB/s"}) ==
        "--copy-rate: given with --device cuda; allowed: with --device cpu only");
  CHECK(refusal({"--threads", "2", "--tf32"}) ==
        "--tf32: given with a flag of --device cpu; allowed: with --device cuda only");
  CHECK(refusal({"--kernels", "mine"}) ==
        "--kernels: unknown value 'mine'; allowed: cudnn, graph, legacy, own");
  CHECK(refusal({"--batch-norm", "mine"}) ==
        "--batch-norm: unknown value 'mine'; allowed: own, cudnn");
  CHECK(refusal({"--batch-norm", "cudnn", "--kernels", "own"}) ==
        "--batch-norm: cudnn given with --kernels own; allowed: --batch-norm own");
  CHECK(refusal({"--batch-norm", "cudnn", "--fuse", "on"}) ==
        "--batch-norm: cudnn given with --fuse on, whose operators are our own; allowed: "
        "--fuse off");
  CHECK(refusal({"--arena", "big"}) == "--arena: unknown value 'big'; allowed: plain, vmm");
  CHECK(refusal({"--workspace-cap", "much"}) ==
        "--workspace-cap: 'much' is not a number with a unit; allowed: " + a_size);
}

TEST_CASE("an output that can't be written is found before anything else happens") {
  const delta::test::temporary_folder folder;
  const std::string allowed = "; allowed: a file in an existing folder that may be written to";
  const std::string nowhere = (folder / "missing" / "out.json").string();
  const std::string itself = folder.path().string();
  delta::test::write_file(folder / "file", {1});
  const std::string below = (folder / "file" / "out.json").string();
  delta::test::write_file(folder / "old.json", {1, 2, 3});
  for (const std::string flag : {"--json", "--timeline", "--decisions", "--record", "--save"}) {
    CHECK(refusal({flag, nowhere}) ==
          flag + ": '" + nowhere + "' can't be written: No such file or directory" + allowed);
    CHECK(refusal({flag, itself}) ==
          flag + ": '" + itself + "' can't be written: it is a folder" + allowed);
    CHECK(refusal({flag, below}) ==
          flag + ": '" + below + "' can't be written: Not a directory" + allowed);
    // An earlier result is not touched by the check.
    (void)options({flag, (folder / "old.json").string()});
    CHECK(delta::test::read_file(folder / "old.json") == std::vector<std::uint8_t>{1, 2, 3});
  }
  CHECK(refusal({"--json", (folder / "one").string(), "--timeline", (folder / "one").string()}) ==
        "--timeline: names the file of --json; allowed: another file");
  const std::string one = (folder / "one").string();
  CHECK(refusal({"--record", one, "--timeline", one}) ==
        "--record: names the file of --timeline; allowed: another file");
  CHECK(refusal({"--record", one, "--decisions", one}) ==
        "--record: names the file of --decisions; allowed: another file");
  const train_options o = options({"--record", one, "--decisions", (folder / "two").string()});
  CHECK(o.record == folder / "one");
  CHECK(o.decisions == folder / "two");
}

TEST_CASE("checkpoints: what is written, when, and what is read") {
  const delta::test::temporary_folder folder;
  const std::string one = (folder / "one").string();
  const train_options o = options({"--save", one, "--save-every", "7", "--resume", one});
  CHECK(o.save == folder / "one");
  CHECK(o.save_every == 7);
  CHECK(o.resume == folder / "one");  // it need not be another file
  CHECK(refusal({"--save-every", "7"}) ==
        "--save-every: without --save has nothing to do; allowed: with --save FILE");
  CHECK(refusal({"--save", one, "--save-every", "0"}) ==
        "--save-every: '0' is too small; allowed: a whole number from 1 to 1000000000");
  CHECK(refusal({"--save", one, "--json", one}) ==
        "--save: names the file of --json; allowed: another file");
  CHECK(refusal({"--save", "/dev/null"}) ==
        "--save: '/dev/null' is no regular file; allowed: a file, or a new name");
  for (const std::string flag : {"--save", "--resume"}) {
    CHECK(refusal({flag, one, "--record", (folder / "two").string()}) ==
          flag + ": given with --record; allowed: one of the two");
    CHECK(refusal({flag, one, "--find-budget"}) ==
          flag + ": given with --find-budget; allowed: one of the two");
  }
}

TEST_CASE("what only the data or the graph can tell") {
  const train_options o = options({"--batch", "128"});
  CHECK_NOTHROW(check_against_data(o, 128));
  CHECK_THROWS_WITH_AS(check_against_data(o, 127),
                       "--batch: 128 images are more than the data has for training; allowed: 1 to "
                       "127",
                       usage_error);
  CHECK_NOTHROW(check_against_operator(bytes{2048}, bytes{2048}));
  CHECK_THROWS_WITH_AS(check_against_operator(bytes{2047}, bytes{2048}),
                       "--budget: 2047 bytes are less than the largest operator needs; allowed: at "
                       "least 2048 bytes (2.00 KiB)",
                       usage_error);
}

TEST_CASE("help, the list of policies and the table are actions of their own") {
  const command help = parse({"--help"});
  CHECK(help.what == command::action::print);
  for (const char* part : {"--model", "--budget", "--copy-rate", "--lr-steps", "--find-budget",
                           "Units:", "Examples:", "Policies:", "keeps everything",
                           "Exit codes:", "1.5GiB", "resnet50", "resnext50_32x4d"}) {
    CHECK_MESSAGE(help.text.find(part) != std::string::npos, part);
  }
  std::size_t longest = 0;
  for (std::size_t at = 0; at < help.text.size();) {
    const std::size_t end = std::min(help.text.find('\n', at), help.text.size());
    longest = std::max(longest, end - at);
    at = end + 1;
  }
  CHECK(longest <= 110);

  const command list = parse({"--policy", "list"});
  CHECK(list.what == command::action::print);
  CHECK(list.text ==
        "  unmanaged  keeps everything\n"
        "  paper      the paper's algorithm\n"
        "  online     the cheaper way out\n");

  const command table = parse({"--table", "a.json", "b.json"});
  CHECK(table.what == command::action::table);
  CHECK(table.reports == std::vector<std::filesystem::path>{"a.json", "b.json"});
}
