#include "train/resume.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <span>
#include <string_view>

#include "cli/format.hpp"
#include "train/digest.hpp"
#include "train/trainer.hpp"

namespace delta::executor {
namespace {

/// The shortest text that reads back as the same number.
std::string exactly(double number) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

std::string on_or_off(bool on) {
  return on ? "on" : "off";
}

std::string comma_separated(const std::vector<std::uint64_t>& list) {
  std::string text;
  for (const std::uint64_t n : list) text += (text.empty() ? "" : ",") + std::to_string(n);
  return text.empty() ? "none" : text;
}

std::string kernels_of(const train_options& o) {
  if (!o.cudnn) return "own";
  return o.legacy ? "legacy" : "cudnn";
}

void add_optimizer(std::vector<fixed_flag>& flags, const train_options& o) {
  flags.push_back({"--optimizer", o.optimizer});
  flags.push_back({"--lr", exactly(o.lr)});
  if (o.optimizer == "adam") {
    flags.push_back({"--beta1", exactly(o.beta1)});
    flags.push_back({"--beta2", exactly(o.beta2)});
    flags.push_back({"--epsilon", exactly(o.epsilon)});
  } else {
    flags.push_back({"--momentum", exactly(o.momentum)});
  }
  flags.push_back({"--weight-decay", exactly(o.weight_decay)});
  flags.push_back({"--lr-steps", comma_separated(o.lr_steps)});
  if (!o.lr_steps.empty()) flags.push_back({"--lr-gamma", exactly(o.lr_gamma)});
}

std::vector<value_id> persistent_values(const graph& g) {
  std::vector<value_id> values = g.parameters;
  values.insert(values.end(), g.optimizer_states.begin(), g.optimizer_states.end());
  values.insert(values.end(), g.running_statistics.begin(), g.running_statistics.end());
  return values;
}

[[noreturn]] void reject_flag(const std::filesystem::path& file, const fixed_flag& saved) {
  reject_checkpoint(file, "was saved with " + saved.name + " " + in_quotes(saved.value),
                    "the same " + saved.name);
}

/// The first of `wanted` that the file has not, or has otherwise.
void check_flags(const checkpoint_head& head, const std::vector<fixed_flag>& wanted,
                 const std::filesystem::path& file) {
  for (const fixed_flag& w : wanted) {
    const auto saved = std::ranges::find(head.flags, w.name, &fixed_flag::name);
    if (saved == head.flags.end())
      reject_checkpoint(file, "was saved by a run without " + w.name, "the flags that it had");
    if (*saved != w) reject_flag(file, *saved);
  }
}

}  // namespace

std::vector<fixed_flag> fixed_flags(const train_options& o, const dataset& data,
                                    std::string_view on) {
  const model_options model = model_of(o, data.channels(), data.classes());
  std::vector<fixed_flag> flags{{"--model", o.model},
                                {"--data", std::string(to_string(o.data.what)) + " of " +
                                               std::to_string(data.training().count) + " images"},
                                {"--image", std::to_string(o.image)},
                                {"--batch", std::to_string(o.batch)},
                                {"--seed", std::to_string(o.seed)},
                                {"--dropout", exactly(o.dropout)},
                                {"--evaluate", on_or_off(o.evaluate)},
                                {"--device", std::string(on)},
                                {"--fuse", on_or_off(model.fuse != fusion::none)},
                                {"--update-group", std::to_string(model.hyper.update_group)}};
  add_optimizer(flags, o);
  if (on == "cpu") return flags;
  flags.push_back({"--tf32", on_or_off(o.tf32)});
  flags.push_back({"--kernels", kernels_of(o)});
  flags.push_back({"--batch-norm", o.cudnn_norm ? "cudnn" : "own"});
  return flags;
}

fixed_flag algorithms_of(const graph& g) {
  digest all;
  for (const node& n : g.nodes)
    if (!n.algorithm.empty()) all.add(std::span<const char>(n.algorithm));
  return {"the GPU's algorithms", all.hex()};
}

checkpoint open_checkpoint(const train_options& o, const std::vector<fixed_flag>& flags,
                           std::uint64_t steps) {
  checkpoint saved = read_checkpoint(o.resume);
  check_flags(saved.head, flags, o.resume);
  if (saved.head.step > steps)
    reject_checkpoint(o.resume,
                      "is of step " + std::to_string(saved.head.step) + " of a run of " +
                          std::to_string(steps) + " steps",
                      "--steps " + std::to_string(saved.head.step) + " or more, or more --epochs");
  return saved;
}

void check_against_graph(const checkpoint& saved, const graph& g,
                         const std::filesystem::path& file) {
  const std::vector<value_id> values = persistent_values(g);
  const auto same = [&](const checkpoint::tensor& t, value_id v) {
    return t.name == g[v].name && t.size == g[v].bytes;
  };
  if (!std::ranges::equal(saved.tensors, values, same))
    reject_checkpoint(file, "has tensors of another model", "a file of this delta-train's model");
  check_flags(saved.head, {algorithms_of(g)}, file);
}

void restore(session& trainee, const checkpoint& saved) {
  std::size_t next = 0;
  for (const value_id v : persistent_values(trainee.training()))
    trainee.create(v, [&](std::span<std::byte> to) { saved.copy(saved.tensors[next++], to); });
  trainee.go_on_behind({.steps = saved.head.step, .operators = saved.head.operators});
}

void save(const std::filesystem::path& file, session& trainee, const graph& g,
          checkpoint_head head) {
  const std::vector<value_id> values = persistent_values(g);
  std::vector<saved_tensor> tensors;
  tensors.reserve(values.size());
  for (const value_id v : values) tensors.push_back({.name = g[v].name, .size = g[v].bytes});
  const session_position at = trainee.position();
  head.step = at.steps;
  head.operators = at.operators;
  head.memory = g.memory;
  write_checkpoint(file, head, tensors,
                   [&](std::size_t i, std::span<std::byte> to) { trainee.read(values[i], to); });
}

}  // namespace delta::executor
