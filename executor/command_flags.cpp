#include "command_flags.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <map>

namespace delta::executor {

void reject(std::string_view flag, std::string_view wrong, std::string_view allowed) {
  std::string line(flag);
  line.append(": ").append(wrong).append("; allowed: ").append(allowed);
  const auto breaks_the_line = [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == 0x7f;
  };
  std::ranges::replace_if(line, breaks_the_line, '?');
  throw usage_error(line);
}

namespace {

/// One line per choice: its name, and what `explain` says of it in a column of its own.
template <class Choice, class Explain>
std::string name_lines(std::span<const Choice> choices, Explain explain) {
  std::size_t width = 0;
  for (const Choice& choice : choices) width = std::max(width, choice.name.size());
  std::string text;
  for (const Choice& choice : choices) {
    text.append("  ").append(choice.name).append(width + 2 - choice.name.size(), ' ');
    text.append(explain(choice)).append("\n");
  }
  return text;
}

}  // namespace

std::string policy_lines(std::span<const policy_choice> policies) {
  return name_lines(policies, [](const policy_choice& policy) { return policy.explanation; });
}

struct command_flags::parser {
  CLI::App app{"", "delta-train"};
  std::string group;
  std::map<std::string, std::string> values;
  std::map<std::string, bool> switches;
  std::vector<std::string> tables;

  parser() {
    app.allow_extras();  // reported by split(), in our own form
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.get_formatter()->column_width(34);
    app.get_formatter()->label("OPTIONS", "FLAGS");
    app.set_help_flag();
    describe();
  }

  void value(const std::string& name, const std::string& type, const std::string& text) {
    app.add_option(name, values[name], text)->type_name(type)->group(group);
  }
  void flag(const std::string& name, const std::string& text) {
    app.add_flag(name, switches[name], text)->group(group);
  }

  /// Every flag, in the order of --help.
  void describe() {
    group = "What is trained";
    value("--model", "NAME", "one of the models below (default resnet20)");
    value("--data", "WHAT",
          "synthetic: labelled colour images made from the seed (default),\n"
          "mnist:DIR: MNIST's IDX files in DIR, or cifar10:DIR: CIFAR-10's binary\n"
          "files in DIR; gzip or plain");
    value("--image", "PIXELS", "side of the square images, which are scaled to it (default 32)");
    value("--batch", "IMAGES", "images per step (default 32)");

    group = "For how long, and how";
    value("--steps", "N", "train for N steps (default 10); not with --epochs");
    value("--epochs", "N", "train for N passes over the training images; not with --steps");
    value("--optimizer", "NAME", "sgd (default) or adam");
    value("--lr", "X", "learning rate (default 0.1, with adam 0.001)");
    value("--momentum", "X", "sgd: momentum, at least 0 and below 1 (default 0.9)");
    value("--beta1", "X", "adam: decay of the gradient's mean, below 1 (default 0.9)");
    value("--beta2", "X", "adam: decay of its square's mean, below 1 (default 0.999)");
    value("--epsilon", "X", "adam: added to the root, from 1e-30 to 1 (default 1e-8)");
    value("--weight-decay", "X", "weight decay, from 0 to 1 (default 0.0001)");
    value("--dropout", "P",
          "probability of zeroing what the last linear layer reads, below 1\n"
          "(default 0: none)");
    value("--lr-steps", "E,E,...", "epochs after which the rate is multiplied by --lr-gamma");
    value("--lr-gamma", "G", "that factor, over 0 and up to 1 (default 0.1); needs --lr-steps");
    value("--seed", "N", "weights, order of the images, synthetic images, dropout (default 1)");
    value("--threads", "N", "threads (default: the machine's); the results do not depend on it");
    flag("--evaluate", "measure accuracy on the images held back, after every epoch");

    group = "Memory";
    value("--budget", "BYTES|PERCENT%",
          "what tensors, workspace and copies in flight may take together;\n"
          "PERCENT% is of the unmanaged peak, measured first in the same run\n"
          "(default: no budget)");
    value("--host-budget", "BYTES",
          "host memory for tensors copied out (default: as much as the\n"
          "unmanaged peak); needs --budget");
    value("--policy", "NAME",
          "what leaves and how it comes back (default online with a budget,\n"
          "unmanaged without); 'list' explains each in a line");
    flag("--strict", "paper: stop with an error when backward would have to release");

    group = "Comparing and measuring";
    flag("--verify",
         "run the unmanaged twin too, and compare every loss and the final\n"
         "parameters, optimizer state and running statistics bit for bit;\n"
         "needs --budget");
    value("--copy-rate", "RATE",
          "slow copies down to RATE each way, to imitate a PCIe link;\nneeds --budget");
    flag("--virtual-clock",
         "take times from flops and bytes instead of the clock: the same\n"
         "decisions on every run; needs --budget");

    group = "Output";
    value("--json", "FILE", "write the results to FILE, all at once, when done");
    value("--timeline", "FILE",
          "write what the run does to FILE as it goes on, for ui.perfetto.dev and\n"
          "chrome://tracing: compute, copies out and in, bytes, decisions with their\n"
          "reasons (some 100 KB a step)");
    app.add_option("--table", tables, "train nothing: print one table of these earlier results")
        ->type_name("FILE")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->expected(1, -1)
        ->group(group);
    app.add_flag("-h,--help", switches["--help"], "print this text")->group(group);
  }

  void split(int argc, const char* const* argv) {
    try {
      app.parse(argc, argv);
    } catch (const CLI::ArgumentMismatch& error) {
      reject(name_in(error), "needs a value", "the flag followed by its value, see --help");
    } catch (const CLI::ParseError& error) {
      reject(name_in(error), "takes no value", "the flag alone");
    }
    const auto unknown = app.remaining();
    if (unknown.empty()) return;
    const std::string& first = unknown.front();
    if (!first.starts_with('-')) {
      reject("'" + first + "'", "no flag that takes it stands before it",
             "flags, each followed by its value where it takes one; see --help");
    }
    std::string all;
    for (const CLI::Option* option : app.get_options()) {
      all.append(all.empty() ? "--" : ", --").append(option->get_lnames().front());
    }
    reject(first.substr(0, first.find('=')), "unknown flag", all);
  }

  /// CLI11's messages begin with the flag, or name it where they end.
  static std::string name_in(const CLI::ParseError& error) {
    const std::string text = error.what();
    const auto begin = text.find("--");
    if (begin == std::string::npos) return "the command line";
    return text.substr(begin, text.find_first_of(": =", begin) - begin);
  }
};

command_flags::command_flags(int argc, const char* const* argv)
    : parser_(std::make_unique<parser>()) {
  parser_->split(argc, argv);
}

command_flags::~command_flags() = default;

bool command_flags::has(const std::string& flag) const {
  const auto found = parser_->switches.find(flag);
  return found == parser_->switches.end() ? parser_->app.count(flag) > 0 : found->second;
}

std::string_view command_flags::text(const std::string& flag) const {
  return parser_->values.at(flag);
}

const std::vector<std::string>& command_flags::tables() const {
  return parser_->tables;
}

std::string command_flags::help(std::span<const policy_choice> policies) const {
  std::string text =
      "delta-train: trains a residual network on this machine's CPU under a byte budget.\n"
      "\n"
      "Under --budget, tensors that do not fit are dropped and computed again, or copied out\n"
      "and back, as --policy decides. The results are the same bits as without a budget;\n"
      "--verify shows it.\n";
  std::string flags = parser_->app.help();
  while (flags.find("\n\n\n") != std::string::npos) flags.erase(flags.find("\n\n\n"), 1);
  while (flags.ends_with("\n\n")) flags.pop_back();
  text += "\n" + flags;
  text += "\nModels (and their parameters but for the last layer):\n";
  text += name_lines(known_models(), [](const model_choice& model) {
    return std::string(model.explanation) + ", images from " +
           std::to_string(model.smallest_image) + " pixels up";
  });
  text += "\nPolicies:\n" + policy_lines(policies);
  text +=
      "  (m: bytes, s: operators since the last use, c_r: what computing it again costs,\n"
      "  c_s: what copying it out and back costs)\n"
      "\n"
      "Units:\n"
      "  sizes  65536, 512KiB, 300MiB, 1.5GiB; KB, MB and GB are powers of 1000\n"
      "  rates  2GB/s, 1.5GiB/s, 800MB/s\n"
      "\n"
      "Examples:\n"
      "  delta-train --model resnet50 --image 64 --batch 16 --lr 0.005 --budget 40% --verify\n"
      "  delta-train --data mnist:data/mnist --epochs 3 --lr-steps 2 --evaluate --budget 40%\n"
      "  delta-train --budget 24MiB --copy-rate 2GB/s --json result.json\n"
      "  delta-train --model resnet18 --budget 50% --timeline timeline.json\n"
      "  delta-train --table first.json second.json\n"
      "\n"
      "Exit codes: 0 done (with --verify: and equal), 1 a failure, or not equal under --verify,\n"
      "2 a flag or a file that can't be used, 3 the policy can't keep to the budget: the message\n"
      "names a budget to try.\n";
  return text;
}

}  // namespace delta::executor
