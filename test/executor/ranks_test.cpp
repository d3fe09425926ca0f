// Several devices that train together: what collectives take and wait for, in numbers that can be
// worked out by hand, and in random steps.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rank_steps.hpp"
#include "recordings.hpp"
#include "replay/replay_named.hpp"
#include "seeds.hpp"
#include "trace/delta_format.hpp"
#include "trace/perturb.hpp"
#include "trace/repeat.hpp"
#include "traces/bound.hpp"
#include "traces/collectives.hpp"
#include "traces/network.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

/// Two layers of 100 bytes of weights, 100 ns forward and 200 ns back, and 50 ns of an optimizer.
const std::string two_layers = R"({"delta_trace":1}
{"variable":100,"name":"w0"}
{"variable":100,"name":"w1"}
{"run":"forward0","cost":100,"inputs":[0],"outputs":[10]}
{"run":"forward1","cost":100,"inputs":[1,2],"outputs":[10]}
{"mark":"backward"}
{"run":"backward1","cost":200,"inputs":[1,2,3],"outputs":[100,10],"gradients":[4]}
{"drop":3}
{"run":"backward0","cost":200,"inputs":[0,5],"outputs":[100],"gradients":[6]}
{"drop":2}
{"drop":5}
{"run":"optimizer","cost":50,"inputs":[4,6],"updates":[0,1]}
{"drop":4}
{"drop":6}
{"mark":"end_of_step"}
)";

/// Four ranks at a byte per ns and 10 ns a hop; a bucket for each gradient of 100 bytes.
constexpr rank_group four{
    .ranks = 4, .rate = 1e9, .latency = nanoseconds{10}, .first_bucket = 100_B, .bucket = 100_B};

replay_result with_room(const trace& t) {
  return replay_named("online", t, {.budget = 1_MiB, .host_budget = 1_MiB});
}

nanoseconds time_of(const rank_group& group) {
  const trace t = with_collectives(parsed(two_layers), group);
  check(t);
  const replay_result r = with_room(t);
  CHECK(r.result == replay_result::verdict::pass);
  CHECK(r.time == unmanaged_time(t));
  CHECK(r.stall == nanoseconds{});
  return r.time;
}

}  // namespace

TEST_CASE("an all-reduce takes what its algorithm sends and how often") {
  CHECK(all_reduce_time(100_B, four) == nanoseconds{2 * 3 * 100 / 4 + 2 * 3 * 10});
  rank_group tree = four;
  tree.how = all_reduce::tree;
  CHECK(all_reduce_time(100_B, tree) == nanoseconds{2 * 100 + 2 * 2 * 10});
  tree.ranks = 5;
  CHECK(all_reduce_time(100_B, tree) == nanoseconds{2 * 100 + 2 * 3 * 10});
  for (const all_reduce how : {all_reduce::ring, all_reduce::tree}) {
    CHECK(all_reduce_time(1_GiB, {.ranks = 1, .how = how}) == nanoseconds{});
    CHECK(all_reduce_time(0_B, {.ranks = 2, .how = how, .latency = {}}) == nanoseconds{});
  }
  CHECK(all_reduce_time(7_B, {.ranks = 2, .rate = 2e9, .latency = {}}) == nanoseconds{4});  // up
}

TEST_CASE("collectives go on beside the backward pass, one after the other") {
  // Ring: 210 ns each. The first from 400 to 610, while the last operator runs until 600; the
  // second from 610 to 820; then the optimizer.
  CHECK(time_of(four) == nanoseconds{820 + 50});
  rank_group tree = four;
  tree.how = all_reduce::tree;
  CHECK(time_of(tree) == nanoseconds{400 + 240 + 240 + 50});
  rank_group together = four;  // one bucket, when all is complete: 2 * 3 / 4 * 200 + 60
  together.first_bucket = 101_B;
  CHECK(time_of(together) == nanoseconds{600 + 360 + 50});
  rank_group fast = four;  // the first is hidden
  fast.rate = 1e12, fast.latency = {};
  CHECK(time_of(fast) == nanoseconds{600 + 1 + 50});
  rank_group copied = four;  // 100 bytes at half a byte per ns, there and back
  copied.copy_rate = 0.5e9;
  // 200 from 400 on; 210 from 600 on, beside the last operator until 800 and its copy until 1000;
  // 210 from there, beside the first's copy back; the second's; the optimizer.
  CHECK(time_of(copied) == nanoseconds{1000 + 210 + 200 + 50});
}

TEST_CASE("a rank waits for the network, not for copies; its buckets count") {
  const trace alone = parsed(two_layers), t = with_collectives(alone, four);
  const replay_result r = with_room(t);
  CHECK(r.network_wait == nanoseconds{220});
  CHECK(r.time == total_cost(alone) + r.network_wait);
  CHECK(unmanaged_peak(t) == unmanaged_peak(alone) + 200_B);
  CHECK(r.peak == unmanaged_peak(t));
  CHECK(lower_bound(t, {.budget = 1_MiB}) == 1.0);
  const replay_result twice = with_room(repeat_trace(t, 2));
  CHECK(twice.time == 2 * r.time);
  CHECK(twice.peak == r.peak);
  REQUIRE(twice.steps.size() == 2);
  CHECK(twice.steps[1].network_wait == r.network_wait);
  CHECK(twice.steps[1].unmanaged == r.time);
}

TEST_CASE("one rank is no ranks") {
  const trace t = parsed(two_layers);
  CHECK(with_collectives(t, {.ranks = 1}) == t);
  CHECK(perturbed(t, {.jitter = 0, .ranks = 8}) == t);
  CHECK(expected_slowest(1, 0.5) == 1);
  CHECK(expected_slowest(8, 0) == 1);
  CHECK(slowed(t, 1) == t);
}

TEST_CASE("on one link collectives and copies take turns, else they don't") {
  for (const bool one_link : {false, true}) {
    CAPTURE(one_link);
    simulated_rank memory(
        {.capacity = 300_B, .host_capacity = 300_B, .rate_out = 1e9, .rate_in = 1e9}, one_link);
    const auto copied = [&] {
      block b = *memory.allocate(100_B, lifetime::transient);
      const stamp end = memory.copy_out(b)->done();
      return end.point;
    };
    CHECK(copied() == 100);
    CHECK(memory.collect(nanoseconds{50}) == nanoseconds{one_link ? 150 : 50});
    CHECK(memory.backlog(direction::out) == nanoseconds{one_link ? 150 : 100});
    CHECK(copied() == (one_link ? 250 : 200));
    memory.wait_for_collective(nanoseconds{150});
    CHECK(memory.now() == nanoseconds{150});
    CHECK(memory.waited_for_collectives() == nanoseconds{150});
    memory.wait_for_collective(nanoseconds{150});
    CHECK(memory.waited() == nanoseconds{150});
  }
}

TEST_CASE("what a collective uses stays until it is over; then it may leave") {
  const trace t = parsed(R"({"delta_trace":1}
{"variable":100}
{"run":"reduce","cost":1000,"updates":[0],"traits":["never_replay","asynchronous"]}
{"run":"large","cost":10,"outputs":[100]}
{"drop":1}
{"run":"last","cost":10,"inputs":[0],"outputs":[1]}
{"drop":2}
{"mark":"end_of_step"}
)");
  check(t);
  CHECK(unmanaged_time(t) == nanoseconds{1010});
  const auto replayed = [&](bytes budget) {
    return replay_named("online", t,
                        {.budget = budget, .host_budget = 1000_B, .rate_out = 1e9, .rate_in = 1e9});
  };
  CHECK(replayed(201_B).time == nanoseconds{1010});
  // Waits for the collective, copies 100 bytes out and back.
  const replay_result tight = replayed(150_B);
  CHECK(tight.result == replay_result::verdict::pass);
  CHECK(tight.network_wait == nanoseconds{1000});
  CHECK(tight.counts.offloads == 1);
  CHECK(tight.time == nanoseconds{1000 + 100 + 10 + 100 + 10});
}

TEST_CASE(
    "random steps: a budget costs no less than nothing, and ranks that are alone cost nothing") {
  std::uint64_t passed = 0, managed = 0, left_with_room = 0;
  for (std::uint64_t seed = 1; seed <= seeds(300); ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const trace alone = random_step(random);
    const rank_group group = random_group(random);
    const trace t = repeat_trace(with_collectives(alone, group), 2);
    check(t);
    CHECK(parsed(to_text(alone)) == alone);
    const nanoseconds unmanaged = unmanaged_time(t), compute = 2 * total_cost(alone);
    CHECK(unmanaged >= compute);
    const bytes peak = unmanaged_peak(t);
    for (const char* policy : {"dtr", "online", "adaptive"}) {
      CAPTURE(policy);
      for (const std::uint64_t percent : {100u, 70u, 50u}) {
        CAPTURE(percent);
        const bool one_link = random() % 2 == 0;
        const replay_result r = replay_named(policy, t,
                                             {.budget = bytes{peak.count * percent / 100},
                                              .host_budget = peak * 4,
                                              .rate_out = 1e9,
                                              .rate_in = 1e9,
                                              .thrash_limit = 100,
                                              .one_link = one_link});
        CHECK(r.peak <= bytes{peak.count * percent / 100});
        if (r.result != replay_result::verdict::pass) continue;
        ++passed;
        CHECK(r.time >= unmanaged);
        CHECK(double(r.time.count()) >=
              double(unmanaged.count()) *
                  (lower_bound(t, {.budget = r.peak, .rate_out = 1e9, .rate_in = 1e9}) - 1e-9));
        const bool left = r.counts.evictions + r.counts.offloads > 0;
        if (!left) CHECK(r.time == unmanaged);
        managed += left;
        left_with_room += left && percent == 100;
      }
    }
  }
  CHECK(passed > 0);
  CHECK(managed > 0);
  CHECK(left_with_room <= passed / 100);  // a peak is rarely too little for a new version
}

TEST_CASE("the slowest of N: as tables of normal order statistics say, and as drawn") {
  // Teichroew, "Tables of expected values of order statistics", 1956; 1 / sqrt(pi) of two.
  const std::vector<std::pair<std::uint64_t, double>> normal{
      {2, 0.56419}, {4, 1.02938}, {10, 1.53875}, {20, 1.86748}};
  constexpr double small = 1e-4;
  for (const auto& [ranks, most] : normal)
    CHECK((expected_slowest(ranks, small) - 1) / small == doctest::Approx(most).epsilon(1e-3));
  constexpr std::uint64_t steps = 3000;
  constexpr double cost = 1e9, sigma = 0.1;
  trace t;
  t.names = {"f"};
  for (std::uint32_t i = 0; i < steps; ++i) {
    t.operations.push_back({.cost = nanoseconds{std::int64_t(cost)}});
    t.events.push_back({trace::kind::run, i});
    t.events.push_back({trace::kind::end_of_step, 0});
  }
  for (const std::uint64_t seed : {1u, 2u})
    for (const std::uint64_t ranks : {2u, 8u, 64u}) {
      CAPTURE(seed);
      CAPTURE(ranks);
      const perturbation p{.seed = seed, .jitter = sigma, .ranks = ranks};
      const trace drawn = perturbed(t, p);
      CHECK(drawn == perturbed(t, p));
      CHECK(double(total_cost(drawn).count()) / (cost * steps) ==
            doctest::Approx(expected_slowest(ranks, sigma)).epsilon(0.007));
    }
  const trace ranks = with_collectives(parsed(two_layers), four);
  const trace slower = slowed(ranks, 2), drawn = perturbed(ranks, {.jitter = 0.5, .ranks = 4});
  for (std::size_t i = 0; i < ranks.operations.size(); ++i) {
    const bool collective = ranks.name(ranks.operations[i]) == "all_reduce";
    const nanoseconds was = ranks.operations[i].cost;
    CHECK(slower.operations[i].cost == (collective ? was : 2 * was));
    if (was > nanoseconds{}) CHECK((drawn.operations[i].cost == was) == collective);
  }
}

TEST_CASE("buckets are closed once they have their limit; the first has its own") {
  std::string text = "{\"delta_trace\":1}\n{\"variable\":1}\n", all;
  for (int i = 1; i <= 7; ++i) {
    text +=
        R"({"run":"back","inputs":[0],"outputs":[10],"gradients":[)" + std::to_string(i) + "]}\n";
    all += (i > 1 ? "," : "") + std::to_string(i);
  }
  text += R"({"run":"step","inputs":[)" + all + R"(],"updates":[0]})" + "\n";
  const trace t =
      with_collectives(parsed(text), {.ranks = 2, .first_bucket = 15_B, .bucket = 30_B});
  std::vector<std::uint64_t> sizes;
  for (const trace::tensor& made : t.tensors)
    if (made.producer == trace::none && made.name != trace::none) sizes.push_back(made.size.count);
  CHECK(sizes == std::vector<std::uint64_t>{20, 30, 20});
}

TEST_CASE(
    "a trace that does not say what its gradients are is refused, as is one that drops them") {
  const auto refused = [](std::string text, const char* sentence) {
    CHECK_THROWS_WITH_AS((void)with_collectives(parsed(text), four), sentence,
                         std::invalid_argument);
  };
  std::string none = two_layers;
  for (const char* key : {R"(,"gradients":[4])", R"(,"gradients":[6])"})
    none.erase(none.find(key), std::string(key).size());
  refused(none, "the trace does not say which tensors are gradients");
  refused(two_layers + R"({"mark":"end_of_step"})" + "\n", "the trace has several steps");
  std::string twice = two_layers;
  twice.replace(twice.find(R"("gradients":[6])"), 15, R"("gradients":[6,4])");
  refused(twice, "a gradient of the trace is complete twice");
  refused(R"({"delta_trace":1}
{"run":"back","outputs":[1],"gradients":[0]}
{"drop":0}
{"run":"back","outputs":[1],"gradients":[1]}
)",
          "a gradient is dropped before the last one is complete");
  CHECK_THROWS_WITH_AS(
      parsed(R"({"delta_trace":1}
{"run":"back","outputs":[1],"gradients":[1]}
)"),
      "trace.jsonl:2: a gradient that nothing has made; expected: a tensor that is "
      "there by then",
      bad_trace);
  trace unordered = parsed(two_layers);
  std::swap(unordered.gradients[0], unordered.gradients[1]);
  CHECK_THROWS_AS(check(unordered), bad_trace);
}
