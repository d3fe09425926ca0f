// Fully sharded training: what is gathered and scattered when, in numbers that can be worked out by
// hand, and in random steps.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "rank_steps.hpp"
#include "recordings.hpp"
#include "replay/replay_named.hpp"
#include "seeds.hpp"
#include "trace/repeat.hpp"
#include "traces/bound.hpp"
#include "traces/collectives.hpp"
#include "traces/network.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

/// Two layers of 100 bytes of weights, 100 ns forward and 200 ns back, and 50 ns of an optimizer
/// that makes a tensor of its own and has a state.
const std::string two_layers = R"({"delta_trace":1}
{"variable":100,"name":"parameters"}
{"variable":100,"name":"parameters"}
{"variable":200,"name":"optimizer state"}
{"run":"forward0","cost":100,"inputs":[0],"outputs":[10]}
{"run":"forward1","cost":100,"inputs":[1,3],"outputs":[10]}
{"mark":"backward"}
{"run":"backward1","cost":200,"inputs":[1,3,4],"outputs":[100,10],"gradients":[5]}
{"drop":4}
{"run":"backward0","cost":200,"inputs":[0,6],"outputs":[100],"gradients":[7]}
{"drop":3}
{"drop":6}
{"run":"mean","cost":20,"inputs":[5,7],"outputs":[200],"updates":[2],"workspace":7}
{"run":"optimizer","cost":30,"inputs":[8],"updates":[0,1]}
{"drop":8}
{"drop":5}
{"drop":7}
{"mark":"end_of_step"}
)";

constexpr rank_group four{
    .ranks = 4, .rate = 1e9, .latency = nanoseconds{10}, .sharded = true, .unit = 100_B};

std::vector<std::string> names_of(const trace& t) {
  std::vector<std::string> names;
  for (const auto& o : t.operations) names.push_back(t.name(o));
  return names;
}

}  // namespace

TEST_CASE("gathering and scattering take half of an all-reduce") {
  CHECK(shard_time(100_B, four) == nanoseconds{75 + 30});
  CHECK(2 * shard_time(100_B, four) == all_reduce_time(100_B, four));
  CHECK(shard_time(1_GiB, {.ranks = 1}) == nanoseconds{});
}

TEST_CASE("a unit is gathered while the one before is in use, for each pass") {
  const trace t = with_collectives(parsed(two_layers), four);
  check(t);
  CHECK(names_of(t) == std::vector<std::string>{"all_gather", "all_gather", "forward0", "forward1",
                                                "all_gather", "all_gather", "backward1",
                                                "to_bucket", "reduce_scatter", "backward0",
                                                "reduced", "to_bucket", "reduce_scatter", "reduced",
                                                "mean", "optimizer"});
  // Gathered until 105 and 210: the layers from 105 to 205 and from 210 to 310. Again until 415 and
  // 520: backward from 415 to 615 and to 815. Scattered until 920; 5 and 8 ns of the optimizer.
  CHECK(unmanaged_time(t) == nanoseconds{920 + 5 + 8});
  // Shards of 100 bytes in all, two activations, a unit, gradients of the other on their way and
  // their shard, and those of this one.
  CHECK(unmanaged_peak(t) == 100_B + 20_B + 100_B + 100_B + 25_B + 100_B);
  const replay_result r = replay_named("online", repeat_trace(t, 2), {.budget = unmanaged_peak(t)});
  CHECK(r.result == replay_result::verdict::pass);
  CHECK(r.time == 2 * unmanaged_time(t));
  CHECK(r.peak == unmanaged_peak(t));
  // 105 before the first layer, 5, 105 and 105.
  CHECK(r.steps.at(1).network_wait == nanoseconds{105 + 5 + 105 + 105});
  // What the optimizer makes, and its scratch, is an N-th, rounded up.
  CHECK(t.tensors.back().size == 50_B);
  CHECK(t.operations[14].workspace == 2_B);
}

TEST_CASE("one unit for all: gathered at once, and scattered at once") {
  rank_group one = four;
  one.unit = 1_MiB;
  const trace t = with_collectives(parsed(two_layers), one);
  CHECK(names_of(t) == std::vector<std::string>{"all_gather", "forward0", "forward1", "all_gather",
                                                "backward1", "backward0", "to_bucket",
                                                "reduce_scatter", "reduced", "mean", "optimizer"});
  CHECK(unmanaged_time(t) == nanoseconds{180 + 200 + 180 + 400 + 180 + 5 + 8});
}

TEST_CASE("a unit is there until its gradients are complete") {
  std::string later = two_layers;
  const std::string key = R"(,"gradients":[5])";
  later.replace(later.find(key), key.size() + 1,
                "}\n"
                R"({"run":"add","updates":[5],"workspace":200)" +
                    key + "}");
  // Both units, the gradients of one, three activations, and what adds to it.
  CHECK(unmanaged_peak(with_collectives(parsed(later), four)) ==
        100_B + 200_B + 100_B + 30_B + 200_B);
}

TEST_CASE("one rank has all of it") {
  const trace t = parsed(two_layers);
  CHECK(with_collectives(t, {.ranks = 1, .sharded = true}) == t);
}

TEST_CASE("random steps: everything is gathered, dropped and scattered, and budgets are kept to") {
  std::uint64_t passed = 0, managed = 0;
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const trace alone = random_step(random);
    rank_group group = random_group(random);
    group.sharded = true;
    const trace step = with_collectives(alone, group);
    std::map<std::string, std::uint64_t> bytes_of;  // by collective
    for (const auto& o : step.operations) {
      std::uint64_t n = 0;
      for (const std::uint32_t made : step.outputs(o)) n += step.tensors[made].size.count;
      bytes_of[step.name(o)] += n;
    }
    std::uint64_t parameters = 0, shards = 0;
    for (const trace::tensor& made : alone.tensors)
      if (made.name != trace::none) {
        parameters += made.size.count;
        shards += (made.size.count + group.ranks - 1) / group.ranks;
      }
    // All layers have weights, and each is read in both passes.
    CHECK(bytes_of["all_gather"] == 2 * parameters);
    CHECK(bytes_of["to_bucket"] == parameters);
    CHECK(bytes_of["reduce_scatter"] == shards);
    const trace t = repeat_trace(step, 2);
    const nanoseconds unmanaged = unmanaged_time(t);
    const bytes peak = unmanaged_peak(t);
    for (const char* policy : {"online", "adaptive"})
      for (const std::uint64_t percent : {100u, 70u, 50u}) {
        CAPTURE(policy);
        CAPTURE(percent);
        const bytes budget{peak.count * percent / 100};
        const replay_result r = replay_named(policy, t,
                                             {.budget = budget,
                                              .host_budget = peak * 4,
                                              .rate_out = 1e9,
                                              .rate_in = 1e9,
                                              .thrash_limit = 100,
                                              .one_link = random() % 2 == 0});
        CHECK(r.peak <= budget);
        if (percent == 100) CHECK(r.time == unmanaged);
        if (r.result != replay_result::verdict::pass) continue;
        ++passed;
        CHECK(r.time >= unmanaged);
        CHECK(double(r.time.count()) >=
              double(unmanaged.count()) *
                  (lower_bound(t, {.budget = budget, .rate_out = 1e9, .rate_in = 1e9}) - 1e-9));
        managed += r.counts.evictions + r.counts.offloads > 0;
      }
  }
  CHECK(passed > 0);
  CHECK(managed > 0);
}

TEST_CASE("what can't be sharded is refused") {
  const auto refused = [](const std::string& text, const std::string& from, const std::string& to,
                          const char* sentence) {
    std::string changed = text;
    for (std::size_t at = 0; (at = changed.find(from, at)) != std::string::npos; at += to.size())
      changed.replace(at, from.size(), to);
    REQUIRE(changed != text);
    CHECK_THROWS_WITH_AS((void)with_collectives(parsed(changed), four), sentence,
                         std::invalid_argument);
  };
  refused(two_layers, R"("parameters")", R"("weights")", "the trace does not name its parameters");
  refused(two_layers,
          R"({"mark":"backward"})"
          "\n",
          "", "the trace does not say where its backward pass begins");
  refused(two_layers, R"("inputs":[0,6],)", R"("inputs":[0,6],"updates":[1],)",
          "a parameter is changed before the last gradient is complete");
  refused(two_layers, R"("outputs":[200],)", R"("outputs":[{"view_of":5}],)",
          "the trace has views, and not storages alone");
}
