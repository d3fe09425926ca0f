#include "replay/rank_options.hpp"

#include <string>
#include <string_view>

#include "cli/option_values.hpp"

namespace delta::executor {
namespace {

// Slower, the collectives of all that a trace may hold would leave 63 bits.
constexpr double slowest_network = 1e6;
constexpr std::uint64_t most_ranks = 1'000'000;
constexpr const char* with_ranks[] = {
    "--parallel",        "--unit",     "--collectives", "--network",
    "--network-latency", "--one-link", "--jitter"};

all_reduce algorithm_of(std::string_view text) {
  if (text == "ring") return all_reduce::ring;
  if (text != "tree") reject("--collectives", "unknown algorithm " + in_quotes(text), "ring, tree");
  return all_reduce::tree;
}

void check_policies(const replay_options& options) {
  if (!options.plan.empty())
    reject("--ranks", "given with --plan, which knows no collectives", "one of the two");
  for (const std::string& policy : options.policies)
    if (policy.starts_with("simrd:"))
      reject("--ranks", "given with --policy " + policy + ", which knows no collectives",
             "delta's own policies");
}

}  // namespace

void describe_ranks(command_line& given) {
  given.group("Several devices");
  given.value("--ranks", "N",
              "that many train together (default 1); the trace names its gradients, as\n"
              "those of delta_torch.record do; all below needs it");
  given.value("--parallel", "HOW",
              "ddp: gradients go into buckets, and each is reduced while the backward\n"
              "pass goes on; fsdp: parameters, gradients and optimizer state are\n"
              "sharded, and parameters gathered for each pass (default ddp)");
  given.value("--unit", "SIZE",
              "of fsdp: parameters are gathered together once they have that size\n"
              "(default 100MiB)");
  given.value("--collectives", "KIND", "of ddp: ring or tree (default ring)");
  given.value("--network", "RATE", "of each rank, in and out at once (default 25GB/s)");
  given.value("--network-latency", "TIME", "of each hop (default 5us)");
  given.flag("--one-link",
             "collectives and copies to the host take turns on one link (default:\n"
             "each has its own)");
  given.value("--jitter", "SIGMA",
              "each rank's operations take a lognormal factor of mean 1 longer in each\n"
              "step, with that sigma from 0 to 3, and all wait for the slowest\n"
              "(default 0); see --seed");
}

void read_ranks(const command_line& given, replay_options& options) {
  rank_group& group = options.group;
  if (given.has("--ranks")) {
    group.ranks = whole("--ranks", given.text("--ranks"), 1, most_ranks);
    if (group.ranks > 1) check_policies(options);
  } else {
    for (const char* flag : with_ranks)
      if (given.has(flag)) reject(flag, "given without --ranks", "with --ranks");
  }
  if (given.has("--parallel")) {
    const std::string_view how = given.text("--parallel");
    if (how != "ddp" && how != "fsdp")
      reject("--parallel", "unknown way to train " + in_quotes(how), "ddp, fsdp");
    group.sharded = how == "fsdp";
  }
  if (group.sharded && given.has("--collectives"))
    reject("--collectives", "given with --parallel fsdp, whose collectives are rings", "with ddp");
  if (given.has("--unit")) {
    if (!group.sharded) reject("--unit", "given without --parallel fsdp", "with it");
    group.unit = size_of("--unit", given.text("--unit"));
  }
  if (given.has("--collectives")) group.how = algorithm_of(given.text("--collectives"));
  if (given.has("--network")) {
    group.rate = rate_of("--network", given.text("--network"));
    if (group.rate < slowest_network)
      reject("--network", in_quotes(given.text("--network")) + " is too slow",
             "a rate of at least 1MB/s such as 25GB/s");
  }
  if (given.has("--network-latency"))
    group.latency = latency_of("--network-latency", given.text("--network-latency"));
  options.one_link = given.has("--one-link");
  options.perturbed_by.ranks = group.ranks;
  if (given.has("--jitter"))
    options.perturbed_by.jitter = real("--jitter", given.text("--jitter"), "a number from 0 to 3",
                                       [](double x) { return x >= 0 && x <= 3; });
}

}  // namespace delta::executor
