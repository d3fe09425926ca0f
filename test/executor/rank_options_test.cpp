// delta-replay's flags for several devices: what they give, what is refused, and the rows.
#include "replay/rank_options.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "recordings.hpp"
#include "replay/replay_runs.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

replay_options options(std::vector<std::string> words) {
  words.insert(words.begin(), "step.log.gz");
  std::vector<const char*> argv{"delta-replay"};
  for (const auto& word : words) argv.push_back(word.c_str());
  return parse_replay_options(static_cast<int>(argv.size()), argv.data()).options;
}

std::string refused(const std::vector<std::string>& words) {
  try {
    (void)options(words);
  } catch (const usage_error& error) {
    return error.what();
  }
  return "no error";
}

/// One layer of 1000 bytes: 100 ns forward, 300 ns back, 50 ns of an optimizer.
const std::string one_layer = R"({"delta_trace":1}
{"variable":1000,"name":"w"}
{"run":"forward","cost":100,"inputs":[0],"outputs":[10]}
{"mark":"backward"}
{"run":"backward","cost":300,"inputs":[0,1],"outputs":[1000],"gradients":[2]}
{"drop":1}
{"run":"optimizer","cost":50,"inputs":[2],"updates":[0]}
{"drop":2}
{"mark":"end_of_step"}
)";

std::vector<replay_row> rows_of(const std::string& trace, const std::vector<std::string>& words) {
  const named_trace t{"step", parsed(trace)};
  return replay_all({&t, 1}, options(words)).at(0);
}

}  // namespace

TEST_CASE("the flags of ranks arrive, with defaults that --help states") {
  const replay_options none = options({});
  CHECK(none.group.ranks == 1);
  CHECK(none.group.how == all_reduce::ring);
  CHECK(none.group.rate == 25e9);
  CHECK(none.group.latency == nanoseconds{5000});
  CHECK_FALSE(none.one_link);
  const replay_options o =
      options({"--ranks", "64", "--collectives", "tree", "--network", "10GB/s", "--network-latency",
               "2us", "--one-link", "--jitter", "0.05", "--seed", "7"});
  CHECK(o.group.ranks == 64);
  CHECK(o.group.how == all_reduce::tree);
  CHECK(o.group.rate == 10e9);
  CHECK(o.group.latency == nanoseconds{2000});
  CHECK(o.one_link);
  CHECK_FALSE(o.group.sharded);
  const replay_options sharded = options({"--ranks", "8", "--parallel", "fsdp", "--unit", "3MiB"});
  CHECK(sharded.group.sharded);
  CHECK(sharded.group.unit == 3_MiB);
  CHECK(o.perturbed_by == perturbation{.seed = 7, .jitter = 0.05, .ranks = 64});
}

TEST_CASE("refusals of ranks, word for word") {
  for (const char* flag :
       {"--parallel", "--unit", "--collectives", "--network", "--network-latency", "--jitter"})
    CHECK(refused({flag, "1"}) ==
          std::string(flag) + ": given without --ranks; allowed: with --ranks");
  CHECK(refused({"--one-link"}) == "--one-link: given without --ranks; allowed: with --ranks");
  CHECK(refused({"--ranks", "0"}).starts_with("--ranks: '0' is too small; allowed: "));
  CHECK(refused({"--ranks", "2", "--collectives", "star"}) ==
        "--collectives: unknown algorithm 'star'; allowed: ring, tree");
  CHECK(refused({"--ranks", "2", "--parallel", "pp"}) ==
        "--parallel: unknown way to train 'pp'; allowed: ddp, fsdp");
  CHECK(refused({"--ranks", "2", "--unit", "1MiB"}) ==
        "--unit: given without --parallel fsdp; allowed: with it");
  CHECK(
      refused({"--ranks", "2", "--parallel", "fsdp", "--collectives", "ring"}) ==
      "--collectives: given with --parallel fsdp, whose collectives are rings; allowed: with ddp");
  CHECK(refused({"--ranks", "2", "--network", "10KB/s"}) ==
        "--network: '10KB/s' is too slow; allowed: a rate of at least 1MB/s such as 25GB/s");
  CHECK(refused({"--ranks", "2", "--network-latency", "2s"})
            .starts_with("--network-latency: '2s' is too long; allowed: "));
  CHECK(refused({"--ranks", "2", "--jitter", "4"}) ==
        "--jitter: '4' is out of range; allowed: a number from 0 to 3");
  CHECK(refused({"--ranks", "2", "--policy", "dtr,simrd:dtr"}) ==
        "--ranks: given with --policy simrd:dtr, which knows no collectives; allowed: delta's own "
        "policies");
  CHECK(refused({"--ranks", "2", "--plan", "p.jsonl"}) ==
        "--ranks: given with --plan, which knows no collectives; allowed: one of the two");
  std::string unknown = one_layer;
  unknown.erase(unknown.find(R"(,"gradients":[2])"), 16);
  CHECK_THROWS_WITH_AS(
      (void)rows_of(unknown, {"--ranks", "2"}),
      "--ranks: step: the trace does not say which tensors are gradients; allowed: a step that "
      "delta_torch.record has written, with its optimizer",
      usage_error);
}

TEST_CASE("rows of ranks: exact times, and one rank is none") {
  const std::vector<std::string> room{"--policy", "online", "--budget", "1MiB"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), room.begin(), room.end());
    return rows_of(one_layer, more);
  };
  const auto alone = with({}), same = with({"--ranks", "1"});
  REQUIRE(alone.size() == 3);
  CHECK(alone[2].time_ns == 450);
  CHECK(same[2].time_ns == 450);
  CHECK(same[2].unmanaged_peak_bytes == alone[2].unmanaged_peak_bytes);
  CHECK_FALSE(same[2].collectives.has_value());
  std::ostringstream plain, one;
  print_rows(plain, alone, 3);
  print_rows(one, same, 3);
  CHECK(plain.str() == one.str());

  // 2 * 7 / 8 * 1000 bytes at a byte per ns, and 14 hops of 10 ns.
  const std::vector<std::string> eight{"--ranks",           "8",   "--network", "1GB/s",
                                       "--network-latency", "10ns"};
  const auto rows = with(eight);
  for (const replay_row& row : rows) {
    CHECK(row.time_ns == 400 + 1750 + 140 + 50);
    CHECK(row.unmanaged_time_ns == row.time_ns);
    CHECK(row.network_wait_ns == 1750 + 140);
    CHECK(row.stall_ns == 0);
    CHECK(row.unmanaged_peak_bytes == alone[0].unmanaged_peak_bytes + 1000);
    CHECK(row.ranks == 8);
    CHECK(row.collectives == "ring");
    CHECK(row.network == 1'000'000'000);
    CHECK(row.network_latency_ns == 10);
    CHECK(row.one_link == false);
  }
  std::ostringstream text;
  print_rows(text, rows, 3);
  CHECK(text.str().find("; 8 ranks, ddp, ring at 1.00 GB/s, latency 0 us\n") != std::string::npos);
  // The network is not faster where operators are, and gets no noise; the slowest is drawn anew.
  auto faster = eight;
  faster.insert(faster.end(), {"--operators-faster", "10"});
  CHECK(with(faster)[0].time_ns == 10 + 30 + 1750 + 140 + 5);
  auto jittered = eight;
  jittered.insert(jittered.end(), {"--jitter", "0.2"});
  const auto drawn = with(jittered);
  CHECK(drawn[0].time_ns > rows[0].time_ns);
  CHECK(drawn[0].time_ns != drawn[1].time_ns);
  CHECK(drawn[0].time_ns == drawn[0].unmanaged_time_ns);
  CHECK(with(jittered)[1].time_ns == drawn[1].time_ns);
  jittered.insert(jittered.end(), {"--seed", "2"});
  CHECK(with(jittered)[0].time_ns != drawn[0].time_ns);
}

TEST_CASE("the smallest budget of a rank is found over its unmanaged time") {
  const named_trace t{"step", parsed(one_layer)};
  const auto found = find_budgets(
      t, options({"--ranks", "8", "--policy", "online", "--find-budget", "--max-overhead", "1.5"}));
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].smallest.has_value());
  const replay_row& row = found[0].curve[*found[0].smallest];
  CHECK(row.ranks == 8);
  CHECK(row.overhead.value_or(9) <= 1.5);
}
