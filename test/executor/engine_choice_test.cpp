// Which engine a convolution gets, on made-up lists: the first that is allowed and that there is
// room for; and how much room there is at each point of a step. Needs neither CUDA nor cuDNN.
#include "backend/engine_choice.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/live_bytes.hpp"
#include "model/models.hpp"
#include "train/feasibility.hpp"

using namespace delta::executor;
using delta::bytes;
using delta::operator""_GiB;
using delta::operator""_MiB;

namespace {

engine_candidate plain(std::int64_t engine, bytes workspace = {}) {
  return {.engine = engine, .workspace = workspace};
}

engine_candidate noted(std::int64_t engine, engine_notes notes, bytes workspace = {}) {
  return {.engine = engine, .workspace = workspace, .notes = notes};
}

/// The number of the engine that is chosen where all of them can be built.
std::optional<std::int64_t> chosen(const std::vector<engine_candidate>& all,
                                   const engine_rule& rule) {
  const auto at = choose_engine(all, rule, [](const engine_candidate&) { return true; });
  if (!at) return std::nullopt;
  return all[*at].engine;
}

}  // namespace

TEST_CASE("the first that is allowed: the library's order is its estimate of their speed") {
  CHECK(chosen({plain(7), plain(3)}, {}) == 7);
  CHECK(chosen({plain(3), plain(7)}, {}) == 3);
  CHECK_FALSE(chosen({}, {}));
}

TEST_CASE("tensor cores where TF32 is asked for; less precision than that never") {
  const std::vector<engine_candidate> all{
      noted(1, {.converts = true}), noted(2, {.tensor_core = true, .converts = true}),
      noted(3, {.sums_in_less = true}), noted(4, {.tensor_core = true}), plain(5)};
  CHECK(chosen(all, {.tf32 = true}) == 4);
  CHECK(chosen(all, {.tf32 = false}) == 5);
}

TEST_CASE("what gives other bits from run to run, or from machine to machine, is not taken") {
  const std::vector<engine_candidate> all{noted(1, {.nondeterministic = true}),
                                          noted(2, {.compiles = true}), noted(3, {.unknown = true}),
                                          plain(4)};
  for (const bool tf32 : {false, true}) CHECK(chosen(all, {.tf32 = tf32}) == 4);
  CHECK_FALSE(chosen({all[0], all[1], all[2]}, {.tf32 = true}));
}

TEST_CASE("a workspace that there is no room for is passed over; one that just fits is not") {
  const std::vector<engine_candidate> all{plain(1, 500_MiB), plain(2, 100_MiB), plain(3)};
  CHECK(chosen(all, {.room = 500_MiB}) == 1);
  CHECK(chosen(all, {.room = bytes{(500_MiB).count - 1}}) == 2);
  CHECK(chosen(all, {.room = 1_MiB}) == 3);
  CHECK(chosen(all, {}) == 3);
}

TEST_CASE("an engine whose plan can't be built makes way for the next") {
  const std::vector<engine_candidate> all{plain(1), noted(2, {.compiles = true}), plain(3)};
  std::vector<std::int64_t> tried;
  const auto builds = [&](const engine_candidate& c) {
    tried.push_back(c.engine);
    return c.engine != 1;
  };
  CHECK(choose_engine(all, {}, builds) == 2);
  CHECK(tried == std::vector<std::int64_t>{1, 3});
}

TEST_CASE("an engine that fails to be built is one of many; where all fail, that is the error") {
  const std::vector<engine_candidate> all{plain(1), plain(2), plain(3)};
  const auto failing_up_to = [](std::int64_t last) {
    return [last](const engine_candidate& c) -> bool {
      if (c.engine <= last) throw std::runtime_error("engine " + std::to_string(c.engine));
      return c.engine == 3;
    };
  };
  CHECK(choose_engine(all, {}, failing_up_to(2)) == 2);
  CHECK_THROWS_WITH(static_cast<void>(choose_engine(all, {}, failing_up_to(3))), "engine 1");
}

TEST_CASE("why an engine is refused: what it is comes before what it takes") {
  const engine_rule tight{.tf32 = false, .room = 1_MiB};
  using enum engine_refusal;
  CHECK(refusal_of(plain(1), tight) == none);
  CHECK(refusal_of(plain(1, 2_MiB), tight) == workspace);
  CHECK(refusal_of(noted(1, {.tensor_core = true}, 2_MiB), tight) == precision);
  CHECK(refusal_of(noted(1, {.nondeterministic = true, .tensor_core = true}), tight) ==
        nondeterministic);
  CHECK(refusal_of(noted(1, {.compiles = true}, 2_MiB), tight) == compiles);
  CHECK(refusal_of(noted(1, {.unknown = true}, 2_MiB), tight) == unknown);
}

TEST_CASE("room is what the tensors leave, a sixteenth at the least and 1 GiB at the most") {
  CHECK(workspace_room({}, 5_GiB) == 1_GiB);
  CHECK(workspace_room(8_GiB, 1_GiB) == 1_GiB);
  CHECK(workspace_room(8_GiB, bytes{(8_GiB).count - (700_MiB).count}) == 700_MiB);
  CHECK(workspace_room(8_GiB, 8_GiB) == 512_MiB);
  CHECK(workspace_room(8_GiB, 20_GiB) == 512_MiB);
  CHECK(workspace_room(64_GiB, 64_GiB) == 1_GiB);
  // A smaller budget leaves no more, whatever is alive.
  for (const bytes live : {bytes{}, 100_MiB, 3_GiB})
    for (bytes memory = 1_MiB; memory < 16_GiB; memory = memory * 2)
      CHECK(workspace_room(memory, live) <= workspace_room(memory * 2, live));
}

TEST_CASE("an engine is named with all that sets it up") {
  CHECK(to_string(plain(0)) == "engine 0");
  CHECK(to_string(engine_candidate{.engine = 68,
                                   .knobs = {{2, 0}, {13, 5}},
                                   .workspace = 1_MiB,
                                   .notes = {.tensor_core = true}}) ==
        "engine 68, knobs 2=0 13=5, tensor cores");
}

TEST_CASE("the values alive at an operator are those of a run in which nothing leaves") {
  for (const purpose what : {purpose::training, purpose::inference}) {
    const graph g = resnet20({.batch = 4, .image = 16, .what = what});
    for (const std::uint64_t granularity : {std::uint64_t{64}, std::uint64_t{512}}) {
      const auto at = live_bytes(g, granularity);
      REQUIRE(at.size() == g.nodes.size());
      CHECK(peak_of_values(g, granularity) == *std::max_element(at.begin(), at.end()));
      if (what == purpose::training)
        CHECK(peak_of_values(g, granularity) == unmanaged_peak(g, granularity).total);
    }
  }
}
