// delta-replay's command line: what each good flag gives, and the whole text of every refusal.
#include "replay/replay_options.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "simrd/simrd.hpp"
#include "temporary_folder.hpp"

using namespace delta::executor;
using delta::bytes;
using delta::nanoseconds;

namespace {

replay_command parse(const std::vector<std::string>& words) {
  std::vector<const char*> argv{"delta-replay"};
  for (const auto& word : words) argv.push_back(word.c_str());
  return parse_replay_options(static_cast<int>(argv.size()), argv.data());
}

replay_options options(std::vector<std::string> words) {
  words.insert(words.begin(), "step.log.gz");
  const replay_command parsed = parse(words);
  CHECK(parsed.text.empty());
  return parsed.options;
}

std::string refusal_of(const std::vector<std::string>& words) {
  try {
    (void)parse(words);
  } catch (const usage_error& error) {
    return error.what();
  }
  return "no error";
}
/// With a trace before it.
std::string refusal(std::vector<std::string> words) {
  words.insert(words.begin(), "step.log.gz");
  return refusal_of(words);
}

const std::string policies =
    "unmanaged, paper, dtr, online, adaptive, swap_lru, paper-strict, "
    "paper-lru, paper-greedy, vdnn, superneurons, capuchin, chameleon, chen, zero_offload, l2l, "
    "swapadvisor, "
    "simrd:dtr, simrd:dtr-eq, simrd:dtr-local, simrd:msps, simrd:lru, simrd:size, or "
    "list";
const std::string budgets =
    "parts of the unmanaged peak over 0 and up to 1 such as 0.4 or 40%, or sizes with a unit such "
    "as 300MiB (units B, KB, MB, GB, KiB, MiB, GiB)";
const std::string sizes =
    "a size of at least 1 byte such as 65536, 512KiB, 300MiB or 1.5GiB "
    "(units B, KB, MB, GB, KiB, MiB, GiB)";
const std::string times =
    "a time such as 0ns, 500ns, 10us or 1.5ms (units ns, us, ms, s), up to 1s";
const std::string one = "one trace, one policy and one budget";

}  // namespace

TEST_CASE("nothing but a trace: the defaults that --help states") {
  const replay_options o = options({});
  REQUIRE(o.traces.size() == 1);
  CHECK(o.traces[0] == "step.log.gz");
  CHECK(o.policies == std::vector<std::string>{"dtr", "online", "adaptive"});
  REQUIRE(o.budgets.size() == 3);
  CHECK(o.budgets[0].ratio == 0.3);
  CHECK(o.budgets[1].ratio == 0.5);
  CHECK(o.budgets[2].ratio == 0.7);
  CHECK_FALSE(o.rate_out.has_value());
  CHECK_FALSE(o.rate_in.has_value());
  CHECK_FALSE(o.latency.has_value());
  CHECK_FALSE(o.host_budget.has_value());
  CHECK(o.thrash_limit == 2.0);
  CHECK(o.iterations == 3);
  CHECK_FALSE(o.places.has_value());
  CHECK(o.perturbed_by == perturbation{});
  CHECK(o.real_rate == 1.0);
  CHECK_FALSE(o.find_budget);
  CHECK(o.json.empty());
  CHECK(o.timeline.empty());
  CHECK(o.decisions.empty());
}

TEST_CASE("every flag arrives") {
  const delta::test::temporary_folder folder;
  const auto json = folder / "rows.json";
  const replay_options o = options(
      {"b.jsonl", "--policy", "online,simrd:lru", "--budget", "0.25,40%,300MiB,1,100%",
       "--bandwidth", "16GB/s", "--bandwidth-in", "1.5GiB/s", "--latency", "1.5us", "--host-budget",
       "2GiB", "--thrash-limit", "3.5", "--json", json.string(), "c.jsonl"});
  CHECK(o.traces == std::vector<std::filesystem::path>{"step.log.gz", "b.jsonl", "c.jsonl"});
  CHECK(o.policies == std::vector<std::string>{"online", "simrd:lru"});
  REQUIRE(o.budgets.size() == 5);
  CHECK(o.budgets[0].ratio == 0.25);
  CHECK(o.budgets[1].ratio == 0.4);
  CHECK_FALSE(o.budgets[2].ratio.has_value());
  CHECK(o.budgets[2].size == bytes{300u << 20});
  CHECK(o.budgets[3].ratio == 1.0);
  CHECK(o.budgets[4].ratio == 1.0);
  CHECK(o.rate_out == 16e9);
  CHECK(o.rate_in == 1.5 * (1u << 30));
  CHECK(o.latency == nanoseconds{1500});
  CHECK(o.host_budget == bytes{2ull << 30});
  CHECK(o.thrash_limit == 3.5);
  CHECK(o.json == json);
  CHECK_FALSE(std::filesystem::exists(json));
  CHECK(options({"--bandwidth", "8GB/s"}).rate_in == 8e9);
  CHECK_FALSE(options({"--bandwidth-in", "8GB/s"}).rate_out.has_value());
  CHECK(options({"--memory", "places"}).places == true);
  CHECK(options({"--memory", "pages"}).places == false);
  const replay_options search =
      options({"--policy", "simrd:dtr,online", "--find-budget", "--max-overhead", "1.05"});
  CHECK(search.find_budget);
  CHECK(search.max_overhead == 1.05);
  CHECK(options({"--find-budget"}).max_overhead == 1.2);
  CHECK(options({"--find-budget", "--thrash-limit", "1.1"}).max_overhead == 1.1);
}

TEST_CASE("iterations, and a machine that is not as recorded") {
  CHECK(options({"--iterations", "12"}).iterations == 12);
  const replay_options o = options({"--operators-faster", "1.5", "--noise", "0.2", "--seed",
                                    "18446744073709551615", "--real-rate", "0.5"});
  CHECK(o.perturbed_by ==
        perturbation{.operators_faster = 1.5, .noise = 0.2, .seed = 18446744073709551615u});
  CHECK(o.real_rate == 0.5);
  CHECK_FALSE(o.rate_out.has_value());
  CHECK(parse({"--help"}).text.find("(default " + std::to_string(default_iterations) + ")") !=
        std::string::npos);
}

TEST_CASE("a budget in bytes: rounded down") {
  CHECK(replay_budget{0.3, {}}.resolve(bytes{1000}) == bytes{300});
  CHECK(replay_budget{0.7, {}}.resolve(bytes{10'061'179'152}) == bytes{7'042'825'406});
  CHECK(replay_budget{1.0, {}}.resolve(bytes{7}) == bytes{7});
  CHECK(replay_budget{0.1, {}}.resolve(bytes{7}) == bytes{});
  CHECK(replay_budget{{}, bytes{5}}.resolve(bytes{7}) == bytes{5});
}

TEST_CASE("help and the list of policies") {
  const std::string help = parse({"--help"}).text;
  const std::string list = parse({"--policy", "list"}).text;
  for (const delta::preset& policy : replay_policies()) {
    CHECK(list.find("  " + std::string(policy.name) + " ") != std::string::npos);
    CHECK(help.find("  " + std::string(policy.name) + " ") != std::string::npos);
    CHECK(policy.name.starts_with("simrd:") == simrd_policy_named(policy.name).has_value());
  }
  for (const char* flag : {"TRACE",       "--policy",       "--budget",           "--iterations",
                           "--bandwidth", "--bandwidth-in", "--latency",          "--host-budget",
                           "--memory",    "--thrash-limit", "--operators-faster", "--noise",
                           "--seed",      "--real-rate",    "--find-budget",      "--max-overhead",
                           "--json",      "--timeline",     "--decisions",        "--plan-out",
                           "--help",      "Examples:",      "Exit codes:"})
    CHECK_MESSAGE(help.find(flag) != std::string::npos, flag);
  std::size_t begin = 0;
  for (auto end = help.find('\n'); end != std::string::npos; end = help.find('\n', begin)) {
    CHECK_MESSAGE(end - begin <= 110, help.substr(begin, end - begin));
    begin = end + 1;
  }
}

TEST_CASE("refusals, word for word") {
  CHECK(refusal_of({}) ==
        "TRACE: none is given; allowed: one or more files with a trace; see --help");
  CHECK(refusal({"--frobnicate"}) ==
        "--frobnicate: unknown flag; allowed: --policy, --policy-file, --plan, --budget, "
        "--iterations, --bandwidth, "
        "--bandwidth-in, --latency, --host-budget, --memory, --thrash-limit, --ranks, "
        "--parallel, --unit, --collectives, --network, --network-latency, --one-link, --jitter, "
        "--operators-faster, "
        "--noise, --seed, --real-rate, --find-budget, --max-overhead, --json, --timeline, "
        "--decisions, --plan-out, --help");
  CHECK(refusal({"--budget"}) ==
        "--budget: needs a value; allowed: the flag followed by its value, see --help");

  CHECK(refusal({"--policy", "best"}) == "--policy: unknown policy 'best'; allowed: " + policies);
  CHECK(refusal({"--policy", "dtr,"}) == "--policy: unknown policy ''; allowed: " + policies);
  CHECK(refusal({"--policy", "simrd:mru"}) ==
        "--policy: unknown policy 'simrd:mru'; allowed: " + policies);

  for (const std::string range : {"0", "1.5", "-0.5", "65536", "nan", "inf", "0%", "101%", "-3%"})
    CHECK(refusal({"--budget=" + range}) ==
          "--budget: '" + range + "' is out of range; allowed: " + budgets);
  CHECK(refusal({"--budget", "x%"}) == "--budget: 'x%' is not a percentage; allowed: " + budgets);
  CHECK(refusal({"--budget", "0.3,"}) == "--budget: is empty; allowed: " + budgets);
  CHECK(refusal({"--budget", "0B"}) == "--budget: '0B' is less than one byte; allowed: " + budgets);
  CHECK(refusal({"--budget", "3TB"}) ==
        "--budget: '3TB' has an unknown unit 'TB'; allowed: " + budgets);

  CHECK(refusal({"--bandwidth", "12GB"}) ==
        "--bandwidth: '12GB' lacks the unit's '/s'; allowed: a rate of at least 1 B/s such as "
        "2GB/s or 1.5GiB/s (units B/s, KB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s)");
  for (const std::string flag : {"--bandwidth", "--bandwidth-in"})
    CHECK(refusal({flag, "999KB/s"}) ==
          flag + ": '999KB/s' is too slow; allowed: a rate of at least 1MB/s such as 12GB/s");

  CHECK(refusal({"--latency", "10"}) == "--latency: '10' has no unit; allowed: " + times);
  CHECK(refusal({"--latency", "1min"}) ==
        "--latency: '1min' has an unknown unit 'min'; allowed: " + times);
  CHECK(refusal({"--latency=-1us"}) == "--latency: '-1us' is negative; allowed: " + times);
  CHECK(refusal({"--latency", "2s"}) == "--latency: '2s' is too long; allowed: " + times);

  CHECK(refusal({"--host-budget", "0"}) ==
        "--host-budget: '0' is less than one byte; allowed: " + sizes);
  CHECK(refusal({"--memory", "page"}) == "--memory: unknown memory 'page'; allowed: places, pages");
  for (const std::string limit : {"0.99", "1001", "nan"})
    CHECK(refusal({"--thrash-limit", limit}) ==
          "--thrash-limit: '" + limit + "' is out of range; allowed: a number from 1 to 1000");
  CHECK(refusal({"--thrash-limit", "2x"}) ==
        "--thrash-limit: '2x' is not a number; allowed: a number from 1 to 1000");

  const std::string nowhere = refusal({"--json", "/does/not/exist/rows.json"});
  CHECK(nowhere ==
        "--json: '/does/not/exist/rows.json' can't be written: No such file or directory; allowed: "
        "a file in an existing folder that may be written to");
}

TEST_CASE("a search for a budget: refusals, word for word") {
  CHECK(refusal({"--find-budget", "--budget", "0.5"}) ==
        "--find-budget: given with --budget; allowed: one of the two");
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--max-overhead", "1.2"}, {"--max-overhead", "1.2", "--budget", "0.5"}})
    CHECK(refusal(words) ==
          "--max-overhead: given without --find-budget; allowed: with --find-budget");
  const std::string allowed = "a number from 1 to that of --thrash-limit";
  for (const std::string most : {"0.9", "2.01", "nan"})
    CHECK(refusal({"--find-budget", "--max-overhead", most}) ==
          "--max-overhead: '" + most + "' is out of range; allowed: " + allowed);
  CHECK(refusal({"--find-budget", "--max-overhead", "20%"}) ==
        "--max-overhead: '20%' is not a number; allowed: " + allowed);
  CHECK(options({"--find-budget", "--max-overhead", "3", "--thrash-limit", "4"}).max_overhead == 3);
}

TEST_CASE("iterations and perturbations: refusals, word for word") {
  const std::string counts = "a whole number from 1 to 10000";
  CHECK(refusal({"--iterations", "0"}) == "--iterations: '0' is too small; allowed: " + counts);
  CHECK(refusal({"--iterations", "10001"}) ==
        "--iterations: '10001' is too large; allowed: " + counts);
  CHECK(refusal({"--iterations", "two"}) ==
        "--iterations: 'two' is not a whole number; allowed: " + counts);
  for (const std::string flag : {"--operators-faster", "--real-rate"}) {
    for (const std::string factor : {"0", "-1", "0.009", "101", "nan"})
      CHECK(refusal({flag, factor}) ==
            flag + ": '" + factor + "' is out of range; allowed: a number from 0.01 to 100");
    CHECK(refusal({flag, "2x"}) ==
          flag + ": '2x' is not a number; allowed: a number from 0.01 to 100");
  }
  for (const std::string sigma : {"-0.1", "3.1", "inf"})
    CHECK(refusal({"--noise", sigma}) ==
          "--noise: '" + sigma + "' is out of range; allowed: a number from 0 to 3");
  CHECK(refusal({"--seed", "2"}) ==
        "--seed: given without --noise; allowed: with --noise or --jitter");
  CHECK(refusal({"--noise", "1", "--seed", "-2"}) ==
        "--seed: '-2' is negative; allowed: a whole number from 0 to 18446744073709551615");
}

TEST_CASE("a timeline and a log of decisions are those of one replay of a preset") {
  const delta::test::temporary_folder folder;
  for (const std::string flag : {"--timeline", "--decisions"}) {
    const std::string file = (folder / "file").string();
    const std::vector<std::string> good{"--policy", "paper", "--budget", "40%", flag, file};
    const replay_options accepted = options(good);
    CHECK((flag == "--timeline" ? accepted.timeline : accepted.decisions) == file);
    const auto with = [&](const std::vector<std::string>& more) {
      std::vector<std::string> words = good;
      words.insert(words.end(), more.begin(), more.end());
      return refusal(words);
    };
    CHECK(with({"b.jsonl"}) == flag + ": given with 2 traces; allowed: " + one);
    CHECK(with({"--policy", "dtr,online"}) == flag + ": given with 2 policies; allowed: " + one);
    CHECK(with({"--budget", "0.1,0.2,0.3"}) == flag + ": given with 3 budgets; allowed: " + one);
    CHECK(with({"--policy", "simrd:dtr"}) ==
          flag +
              ": given with --policy simrd:dtr; allowed: with unmanaged, paper, dtr, online, "
              "adaptive, swap_lru, paper-strict, paper-lru, paper-greedy, vdnn, "
              "superneurons, capuchin, "
              "chameleon, chen, zero_offload, l2l, swapadvisor");
    CHECK(with({"--json", file}) == flag + ": names the file of --json; allowed: another file");
    CHECK(refusal({"--policy", "paper", "--find-budget", flag, file}) ==
          flag + ": given with --find-budget; allowed: " + one);
    CHECK(with({"--json", (folder / "./file").string()}) == "no error");  // neither is there yet
  }
  const std::string file = (folder / "file").string();
  CHECK(refusal({"--policy", "dtr", "--budget", "0.5", "--timeline", file, "--decisions", file}) ==
        "--decisions: names the file of --timeline; allowed: another file");
  delta::test::write_file(file, {'x'});
  CHECK(refusal({"--policy", "dtr", "--budget", "0.5", "--timeline", file, "--decisions",
                 (folder / "./file").string()}) ==
        "--decisions: names the file of --timeline; allowed: another file");
}

TEST_CASE("a plan is saved of one replay of several steps under adaptive") {
  const delta::test::temporary_folder folder;
  const std::string file = (folder / "plan.jsonl").string();
  const replay_options accepted = options({"--plan-out", file, "--budget", "0.5"});
  CHECK(accepted.plan_out == file);
  CHECK(accepted.policies == std::vector<std::string>{"adaptive"});
  CHECK(refusal({"--plan-out", file}) ==
        "--plan-out: given with 3 budgets; allowed: one trace, one policy and one budget");
  CHECK(refusal({"--plan-out", file, "--budget", "0.5", "--policy", "online"}) ==
        "--plan-out: given with --policy online; allowed: with --policy adaptive");
  CHECK(refusal({"--plan-out", file, "--budget", "0.5", "--iterations", "1"}) ==
        "--plan-out: given with --iterations 1, and the first step has no plan; allowed: 2 or "
        "more");
  CHECK(refusal({"--plan-out", file, "--budget", "0.5", "--plan", "other"}) ==
        "--plan-out: given with --policy plan; allowed: with --policy adaptive");
  CHECK(refusal({"--plan-out", file, "--plan", file, "--budget", "0.5"}) ==
        "--plan-out: names the plan; allowed: another file");
}

TEST_CASE("a trace is not written over") {
  const delta::test::temporary_folder folder;
  const std::string trace = (folder / "trace.jsonl").string();
  delta::test::write_file(trace, {'x'});
  CHECK(refusal_of({trace, "--json", (folder / "./trace.jsonl").string()}) ==
        "--json: names a trace; allowed: another file");
  CHECK(refusal_of({trace, "--policy", "dtr", "--budget", "0.5", "--timeline", trace}) ==
        "--timeline: names a trace; allowed: another file");
  CHECK(delta::test::read_file(trace).size() == 1);
}
