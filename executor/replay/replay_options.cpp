#include "replay/replay_options.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <system_error>

#include "cli/command_line.hpp"
#include "cli/format.hpp"
#include "peers/peer_names.hpp"
#include "replay/rank_options.hpp"

namespace delta::executor {
namespace {

constexpr std::array<preset, 6> simulator_policies{{
    {"simrd:dtr", "DTR's simulator: its cost and its evicted neighbourhood's / (m s)"},
    {"simrd:dtr-eq", "the same, the neighbourhood's cost from classes of a union-find"},
    {"simrd:dtr-local", "its cost / (m s)"},
    {"simrd:msps", "its cost and its evicted ancestors' / m"},
    {"simrd:lru", "the least recently used"},
    {"simrd:size", "the largest"},
}};
constexpr auto known = [] {
  std::array<preset, all_policies.size() + simulator_policies.size()> all;
  const auto behind = std::ranges::copy(all_policies, all.begin()).out;
  std::ranges::copy(simulator_policies, behind);
  return all;
}();

constexpr std::string_view budget_forms =
    "parts of the unmanaged peak over 0 and up to 1 such as 0.4 or 40%, or sizes with a unit such "
    "as 300MiB (units B, KB, MB, GB, KiB, MiB, GiB)";
// Slower, a copy of all that a trace may hold would take more nanoseconds than 63 bits hold.
constexpr double slowest_rate = 1e6;
constexpr std::uint64_t most_iterations = 10'000;

/// What stands between commas.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::string policy_of(std::string_view name) {
  if (std::ranges::find(known, name, &preset::name) == known.end())
    reject("--policy", "unknown policy " + in_quotes(name), names_of(known) + ", or list");
  return std::string(name);
}

replay_budget budget_of(std::string_view text) {
  constexpr std::string_view flag = "--budget";
  if (text.ends_with('%')) return {percent_of(flag, text, budget_forms) / 100, {}};
  if (double ratio = 0; read_real(text, ratio)) {
    if (!(ratio > 0 && ratio <= 1))
      reject(flag, in_quotes(text) + " is out of range", budget_forms);
    return {ratio, {}};
  }
  try {
    return {{}, parse_bytes(text)};
  } catch (const format_error& error) {
    reject(flag, error.what(), budget_forms);
  }
}

double bandwidth_of(std::string_view flag, std::string_view text) {
  const double rate = rate_of(flag, text);
  if (rate < slowest_rate)
    reject(flag, in_quotes(text) + " is too slow", "a rate of at least 1MB/s such as 12GB/s");
  return rate;
}

/// Every flag, in the order of --help.
void describe(command_line& given) {
  given.group("What is replayed");
  given.list("TRACE", "", "recorded programs: DTR's format or delta's own, plain or gzip");
  given.value("--policy", "NAME,...",
              "of the policies below (default dtr,online,adaptive); 'list'\n"
              "explains each in a line");
  given.value("--policy-file", "FILE:NAME,...",
              "policies of your own beside these: a C++ header, and the struct or\n"
              "function in it (docs/writing_a_policy.md); compiled by $CXX or c++ in\n"
              "some ten seconds");
  given.value("--plan", "FILE",
              "a plan of the step, made elsewhere: which tensors are away, when and\n"
              "how (docs/traces.md); it is the policy 'plan', alone without --policy");
  given.value("--budget", "R,...",
              "parts of each trace's unmanaged peak, 0.4 or 40%, or sizes, 300MiB\n"
              "(default 0.3,0.5,0.7)");
  given.value("--iterations", "N",
              "replay N training steps one behind the other, a row for each, and\n"
              "judge each by itself; 1 replays the trace as it is (default " +
                  std::to_string(default_iterations) + ")");

  given.group("The machine");
  given.value("--bandwidth", "RATE",
              "of copies, each way (default: what the trace says of the machine\n"
              "that it was recorded on, else 12GB/s)");
  given.value("--bandwidth-in", "RATE",
              "of copies back to the device (default: what --bandwidth says, else\n"
              "the trace, else 12GB/s)");
  given.value("--latency", "TIME", "of every copy (default: what the trace says, else 10us)");
  given.value("--host-budget", "BYTES",
              "host memory for tensors copied out (default: four times each\n"
              "trace's unmanaged peak)");
  given.value("--memory", "KIND",
              "places: tensors lie side by side, and free bytes scatter between them;\n"
              "pages: free bytes are as good as one piece, as behind a table of pages\n"
              "(default: places for delta's own recordings, pages for DTR's logs and\n"
              "for what does not say where it was recorded)");
  given.value("--thrash-limit", "X",
              "end a replay that takes more than X times the unmanaged time, as\n"
              "thrash (default 2.0); of several iterations each against its own");

  describe_ranks(given);

  given.group("A machine that is not as recorded");
  given.value("--operators-faster", "X",
              "divide what every operation takes by X, from 0.01 to 100 (default 1)");
  given.value("--noise", "SIGMA",
              "multiply what each operation takes in each iteration by a lognormal\n"
              "factor of mean 1, with that sigma from 0 to 3 (default 0)");
  given.value("--seed", "N", "of the noise and the jitter (default 1); needs one of them");
  given.value("--real-rate", "X",
              "copies run at X times the rates that policies are told, from 0.01 to\n"
              "100 (default 1)");

  given.group("The smallest budget");
  given.flag("--find-budget",
             "in place of --budget: try a grid of budgets from what the largest\n"
             "operator takes up to the unmanaged peak, and name the smallest that\n"
             "keeps to --max-overhead");
  given.value("--max-overhead", "X",
              "time over unmanaged time, from 1 to --thrash-limit (default 1.2);\n"
              "needs --find-budget");

  given.group("Output");
  given.value("--json", "FILE",
              "write one row per replay and iteration to FILE, all at once, when done");
  given.value("--timeline", "FILE",
              "write what the replay does to FILE as it goes on, for ui.perfetto.dev and\n"
              "chrome://tracing; one trace, one budget and one policy, no simrd:...");
  given.value("--decisions", "FILE",
              "write every decision to FILE, one line of JSON each; likewise");
  given.value("--plan-out", "FILE",
              "save the plan that the last step has followed, for --plan; likewise, under\n"
              "adaptive");
  given.flag("-h,--help", "print this text");
}

std::string help(const command_line& given) {
  std::string text =
      "delta-replay: replays recorded training steps under byte budgets, in virtual time.\n"
      "\n"
      "Every trace is replayed with every policy and budget, by the same manager that trains;\n"
      "only the bytes and the device are missing. The simrd policies are those of DTR's own\n"
      "simulator instead, which recomputes only and knows no copies. Replays run on all cores;\n"
      "the results do not depend on it. Results go to stdout, one table per trace.\n";
  text += "\n" + given.flags();
  text += "\nPolicies:\n" + policy_lines(known);
  text +=
      "  (m: bytes, s: since the last use, c_r: what computing it again costs, c_s: what\n"
      "  copying it out and back costs)\n"
      "\n"
      "Results:\n"
      "  pass    it ran to its end; overhead is its time over the unmanaged time\n"
      "  oom     an operator's tensors did not come together in the budget\n"
      "  thrash  it was given up at --thrash-limit; simrd counts recomputation alone\n"
      "  recompute, stall (waits for copies) and network (for collectives) are parts of the time;\n"
      "  unmanaged times of several ranks have their collectives, too; out and in are the bytes\n"
      "  of copies; evaluations are the scores computed to find out who leaves.\n"
      "  bound   what no policy can beat under that budget\n"
      "\n"
      "A trace is a program of --iterations training steps (docs/traces.md): policies that learn\n"
      "know nothing in the first, and more in each. Each is an iteration: --thrash-limit holds "
      "for\n"
      "it, and --json has a row for it, up to the first that fails. The table has the overheads "
      "of\n"
      "the first and the last, and the counters of the last; --find-budget goes by the last. The\n"
      "simrd policies know one iteration, and pages only.\n"
      "\n"
      "--find-budget prints a line per policy:\n"
      "  smallest    the smallest budget tried that keeps to --max-overhead, or none\n"
      "  holes       how many larger ones tried do not: no policy is sure to do better with more\n"
      "  safe from   from this budget on all that were tried keep to it\n"
      "  and part of the curve. 64 budgets are tried, and more below the smallest, so that the\n"
      "  next smaller one tried is less than 0.5 % of the peak away. That none keeps to it is\n"
      "  a result, exit code 0. In --json every replay is a row, with \"keeps\": true or false.\n"
      "\n"
      "Units:\n"
      "  sizes  65536, 512KiB, 300MiB, 1.5GiB; KB, MB and GB are powers of 1000; a budget's\n"
      "         size has a unit\n"
      "  rates  12GB/s, 1.5GiB/s, 800MB/s\n"
      "  times  0ns, 10us, 1.5ms\n"
      "\n"
      "Examples:\n"
      "  delta-replay step.log.gz\n"
      "  delta-replay a.jsonl b.jsonl --policy online,simrd:dtr --budget 0.2,0.4,0.6\n"
      "  delta-replay step.log.gz --policy online --budget 300MiB --bandwidth 16GB/s\n"
      "  delta-replay step.log.gz --budget 40% --latency 5us --json rows.json\n"
      "  delta-replay step.log.gz --policy paper --budget 0.5 --timeline timeline.json\n"
      "  delta-replay step.log.gz --policy dtr,online --find-budget --max-overhead 1.1\n"
      "  delta-replay step.log.gz --policy-file mine.hpp:mine --policy dtr,adaptive\n"
      "  delta-replay step.log.gz --budget 0.4 --plan-out plan.jsonl\n"
      "  delta-replay step.log.gz --plan plan.jsonl --policy adaptive --budget 0.4\n"
      "  delta-replay step.log.gz --iterations 10 --noise 0.1 --real-rate 0.5 --json rows.json\n"
      "  delta-replay step.log.gz --ranks 64 --network 25GB/s --jitter 0.03 --budget 0.4\n"
      "\n"
      "Exit codes: 0 done, budgets that are too small included; 1 a failure; 2 a flag or a file\n"
      "that can't be used.\n";
  return text;
}

/// A trace is not written over, nor one result over another.
void check_outputs(const replay_options& options) {
  struct output {
    std::string flag;
    const std::filesystem::path& file;
  };
  const std::array<output, 4> outputs{{{"--json", options.json},
                                       {"--timeline", options.timeline},
                                       {"--decisions", options.decisions},
                                       {"--plan-out", options.plan_out}}};
  const auto same = [](const std::filesystem::path& a, const std::filesystem::path& b) {
    std::error_code none_such;
    return a == b || std::filesystem::equivalent(a, b, none_such);
  };
  for (auto at = outputs.begin(); at != outputs.end(); ++at) {
    if (at->file.empty()) continue;
    if (same(options.plan, at->file)) reject(at->flag, "names the plan", "another file");
    for (const auto& trace : options.traces)
      if (same(trace, at->file)) reject(at->flag, "names a trace", "another file");
    for (auto before = outputs.begin(); before != at; ++before)
      if (same(before->file, at->file))
        reject(at->flag, "names the file of " + before->flag, "another file");
  }
}

/// A flag that writes what one replay does.
void check_watch(const replay_options& options, const std::string& flag) {
  const std::string one = "one trace, one policy and one budget";
  const auto only_one = [&](const auto& list, const std::string& what) {
    if (list.size() == 1) return;
    reject(flag, "given with " + std::to_string(list.size()) + " " + what, one);
  };
  if (options.find_budget) reject(flag, "given with --find-budget", one);
  only_one(options.traces, "traces");
  only_one(options.policies, "policies");
  only_one(options.budgets, "budgets");
  const std::span watched(all_policies);
  if (options.policies.front() != plan_policy && options.own.empty() &&
      std::ranges::find(watched, options.policies.front(), &preset::name) == watched.end())
    reject(flag, "given with --policy " + options.policies.front(), "with " + names_of(watched));
}

/// The plan is that of one replay of several steps under `adaptive`.
void check_plan_out(const replay_options& options) {
  constexpr std::string_view flag = "--plan-out";
  check_watch(options, std::string(flag));
  if (options.policies.front() != "adaptive")
    reject(flag, "given with --policy " + options.policies.front(), "with --policy adaptive");
  if (options.iterations < 2)
    reject(flag, "given with --iterations 1, and the first step has no plan", "2 or more");
}

/// What is replayed, with what.
void read_runs(const command_line& given, replay_options& options) {
  const auto& traces = given.values("TRACE");
  if (traces.empty())
    reject("TRACE", "none is given", "one or more files with a trace; see --help");
  options.traces.assign(traces.begin(), traces.end());
  if (given.has("--policy")) {
    options.policies.clear();
    for (const auto part : parts_of(given.text("--policy")))
      options.policies.push_back(policy_of(part));
  }
  if (given.has("--policy-file"))
    for (const auto part : parts_of(given.text("--policy-file"))) {
      options.own.push_back(own_policy_file_of("--policy-file", part));
      const std::string& name = options.own.back().name;
      if (name == plan_policy ||
          std::ranges::find(options.policies, name) != options.policies.end())
        reject("--policy-file", in_quotes(name) + " is another policy's name, too", "another name");
      options.policies.push_back(name);
    }
  if (given.has("--plan")) {
    options.plan = given.text("--plan");
    if (!given.has("--policy")) options.policies.clear();
    options.policies.emplace_back(plan_policy);
  }
  if (given.has("--plan-out") && !given.has("--policy") && options.plan.empty())
    options.policies = {"adaptive"};
  if (given.has("--budget")) {
    options.budgets.clear();
    for (const auto part : parts_of(given.text("--budget")))
      options.budgets.push_back(budget_of(part));
  }
  if (given.has("--iterations"))
    options.iterations = whole("--iterations", given.text("--iterations"), 1, most_iterations);
}

void read_machine(const command_line& given, replay_options& options) {
  if (given.has("--bandwidth")) {
    options.rate_out = bandwidth_of("--bandwidth", given.text("--bandwidth"));
    options.rate_in = options.rate_out;
  }
  if (given.has("--bandwidth-in"))
    options.rate_in = bandwidth_of("--bandwidth-in", given.text("--bandwidth-in"));
  if (given.has("--latency")) options.latency = latency_of("--latency", given.text("--latency"));
  if (given.has("--host-budget"))
    options.host_budget = size_of("--host-budget", given.text("--host-budget"));
  if (given.has("--memory")) {
    const std::string_view memory = given.text("--memory");
    if (memory != "places" && memory != "pages")
      reject("--memory", "unknown memory " + in_quotes(memory), "places, pages");
    options.places = memory == "places";
  }
  if (given.has("--thrash-limit")) {
    options.thrash_limit =
        real("--thrash-limit", given.text("--thrash-limit"), "a number from 1 to 1000",
             [](double x) { return x >= 1 && x <= 1000; });
  }
}

void read_perturbations(const command_line& given, replay_options& options) {
  const auto factor = [&](const char* flag, double& value) {
    if (given.has(flag))
      value = real(flag, given.text(flag), "a number from 0.01 to 100",
                   [](double x) { return x >= 0.01 && x <= 100; });
  };
  perturbation& p = options.perturbed_by;
  factor("--operators-faster", p.operators_faster);
  factor("--real-rate", options.real_rate);
  if (given.has("--noise"))
    p.noise = real("--noise", given.text("--noise"), "a number from 0 to 3",
                   [](double x) { return x >= 0 && x <= 3; });
  if (!given.has("--seed")) return;
  if (!given.has("--noise") && !given.has("--jitter"))
    reject("--seed", "given without --noise", "with --noise or --jitter");
  p.seed = whole("--seed", given.text("--seed"), 0, std::numeric_limits<std::uint64_t>::max());
}

void read_search(const command_line& given, replay_options& options) {
  options.find_budget = given.has("--find-budget");
  if (options.find_budget && given.has("--budget"))
    reject("--find-budget", "given with --budget", "one of the two");
  if (options.find_budget && given.has("--plan"))
    reject("--find-budget", "given with --plan, which is for one budget", "one of the two");
  if (!given.has("--max-overhead")) {
    options.max_overhead = std::min(options.max_overhead, options.thrash_limit);
    return;
  }
  if (!options.find_budget)
    reject("--max-overhead", "given without --find-budget", "with --find-budget");
  options.max_overhead = real("--max-overhead", given.text("--max-overhead"),
                              "a number from 1 to that of --thrash-limit",
                              [&](double x) { return x >= 1 && x <= options.thrash_limit; });
}

void read_outputs(const command_line& given, replay_options& options) {
  for (const char* flag : {"--timeline", "--decisions"})
    if (given.has(flag)) check_watch(options, flag);
  options.json = output_of(given, "--json");
  options.timeline = output_of(given, "--timeline");
  options.decisions = output_of(given, "--decisions");
  options.plan_out = output_of(given, "--plan-out");
  check_outputs(options);
  if (!options.plan_out.empty()) check_plan_out(options);
}

}  // namespace

std::span<const preset> replay_policies() noexcept {
  return known;
}

bytes replay_budget::resolve(bytes unmanaged_peak) const noexcept {
  if (!ratio) return size;
  return bytes{
      static_cast<std::uint64_t>(std::floor(*ratio * static_cast<double>(unmanaged_peak.count)))};
}

replay_command parse_replay_options(int argc, const char* const* argv) {
  command_line given("delta-replay");
  describe(given);
  given.split(argc, argv);
  if (given.has("--help")) return {help(given), {}};
  if (given.has("--policy") && given.text("--policy") == "list") return {policy_lines(known), {}};

  replay_command result;
  read_runs(given, result.options);
  read_machine(given, result.options);
  read_ranks(given, result.options);
  read_perturbations(given, result.options);
  read_search(given, result.options);
  read_outputs(given, result.options);
  return result;
}

}  // namespace delta::executor
