// Published rules as presets: on small programs in virtual time it is plain what each must do; on
// random ones no byte is lost.
// ctest-labels: slow
#include "delta/engine/engine.hpp"
#include "delta/peers/peer_presets.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "delta/storage/simulated.hpp"
#include "machine.hpp"
#include "random_program.hpp"

using namespace delta;
using namespace delta::test;

namespace {

/// What was decided: "offload a", in order.
struct decisions final : any_observer {
  std::vector<std::string> told;
  void on(const event& e) override {
    const char* const what = e.what == event_kind::evict        ? "evict "
                             : e.what == event_kind::offload    ? "offload "
                             : e.what == event_kind::clean_drop ? "drop "
                             : e.what == event_kind::prefetch   ? "prefetch "
                             : e.what == event_kind::reload     ? "reload "
                             : e.what == event_kind::recompute  ? "recompute "
                                                                : nullptr;
    if (what != nullptr) told.push_back(what + std::string(e.label));
  }
};
using sentences = std::vector<std::string>;

/// How a chain of operators is run forth and back: each output is read by the next operator, and by
/// its gradient in reverse order, after which it goes.
struct chain {
  std::vector<const char*> names;
  bytes size{100};
  nanoseconds cost{1000};
};

/// One step of it. `backward` operators have names of their own.
void step(manager_interface& m, const chain& what, bool marked = true) {
  std::vector<tensor_id> made;
  const bytes size = what.size;
  // What each output holds, where the storage has bytes: made from the input's.
  std::vector<std::uint64_t> contents;
  const auto made_from = [](std::uint64_t last, std::size_t i) { return mix(last, i + 1); };
  for (const char* name : what.names) {
    const tensor_id last = made.empty() ? tensor_id::none : made.back();
    const operation_span op{.inputs = std::span(&last, made.empty() ? 0 : 1),
                            .outputs = std::span(&what.size, 1),
                            .cost = what.cost,
                            .name = name};
    tensor_id t{};
    const std::size_t i = made.size();
    contents.push_back(made_from(i == 0 ? 0 : contents.back(), i));
    m.run(op, std::span(&t, 1), [=](call& c) {
      if (c.out(0) == nullptr) return;
      const std::uint64_t read = i == 0 ? 0 : number(c.in(0));
      expand(made_from(read, i), {c.out(0), size.count});
      put(c.out(0), made_from(read, i));
    });
    made.push_back(t);
  }
  if (marked) m.backward();
  for (; !made.empty(); made.pop_back(), contents.pop_back()) {
    const operation_span op{
        .inputs = std::span(&made.back(), 1), .cost = what.cost, .name = "gradient"};
    const std::uint64_t right = contents.back();
    m.run(op, {}, [=](call& c) {
      if (c.in(0) == nullptr) return;
      std::vector<std::byte> whole(size.count);
      expand(right, whole);
      put(whole.data(), right);
      CHECK(std::equal(whole.begin(), whole.end(), c.in(0)));
    });
    m.drop(made.back());
  }
  m.end_of_step();
}

/// What is decided in each of `steps` steps.
std::vector<sentences> follow(const char* peer, const chain& what, bytes budget, int steps,
                              double rate = 1e9) {
  simulated storage(
      {.capacity = budget, .host_capacity = 64_KiB, .rate_out = rate, .rate_in = rate});
  decisions decided;
  const auto m = make_manager(peer, over(storage), {.observer = &decided});
  std::vector<sentences> result;
  for (int i = 0; i < steps; ++i) {
    step(*m, what);
    result.push_back(std::exchange(decided.told, {}));
  }
  return result;
}

constexpr bytes plenty = 64_KiB;

}  // namespace

TEST_CASE("kinds of operators, by their names") {
  for (const char* name :
       {"conv2d", "cudnn_convolution", "aten::convolution_backward", "layer1.0.conv2.forward",
        "ConvolutionBackward0", "slow_conv_dilated2d", "_convolution"})
    CHECK_MESSAGE(layer_of(name) == layer::convolution, name);
  for (const char* name : {"mm", "bmm", "addmm", "aten::addmm", "AddmmBackward0", "matmul",
                           "linear_forward", "fc.backward_data"})
    CHECK_MESSAGE(layer_of(name) == layer::product, name);
  for (const char* name : {"", "add", "upsample_bilinear2d", "convert", "gamma", "summary",
                           "commit", "relu_", "1", "."})
    CHECK_MESSAGE(layer_of(name) == layer::other, name);
}

TEST_CASE("vdnn: inputs of convolutions leave at once, and come back in reverse order") {
  const chain what{{"data", "conv", "relu", "conv", "relu"}};
  const auto said = follow("vdnn", what, plenty, 2);
  // What `data` and `relu` made was read by a convolution; the last has no other reader.
  for (const sentences& s : said)
    CHECK(s == sentences{"offload data", "offload relu", "prefetch relu", "prefetch data"});
}

TEST_CASE("vdnn: what the forward pass needs again stays; without the mark nothing comes early") {
  simulated storage({.capacity = plenty, .host_capacity = plenty, .rate_out = 1e9, .rate_in = 1e9});
  decisions decided;
  const auto managed = make_manager("vdnn", over(storage), {.observer = &decided});
  manager_interface& m = *managed;
  for (int i = 0; i < 2; ++i) {
    const tensor_id x =
        m.run({.outputs = {100_B}, .cost = nanoseconds{1000}, .name = "data"}, [](call&) {});
    const tensor_id y =
        m.run({.inputs = {x}, .outputs = {100_B}, .cost = nanoseconds{1000}, .name = "conv"},
              [](call&) {});
    const tensor_id z =
        m.run({.inputs = {x, y}, .outputs = {200_B}, .cost = nanoseconds{1000}, .name = "add"},
              [](call&) {});
    m.run<0>({.inputs = {z}, .cost = nanoseconds{1000}, .name = "gradient"}, [](call&) {});
    m.run<0>({.inputs = {x}, .cost = nanoseconds{1000}, .name = "gradient"}, [](call&) {});
    for (const tensor_id t : {x, y, z}) m.drop(t);
    m.end_of_step();
    // The first step does not know yet that the addition will read it.
    CHECK(decided.told.empty() == (i > 0));
    decided.told.clear();
  }
}

TEST_CASE("vdnn: what no convolution reads goes to the host when memory is short") {
  const auto said = follow("vdnn", {{"relu", "relu", "relu", "relu"}}, 250_B, 1);
  CHECK(said[0].front() == "offload relu");
  for (const std::string& s : said[0]) CHECK(!s.starts_with("evict"));
}

TEST_CASE("superneurons: convolutions and products to the host, the rest is recomputed") {
  const chain what{{"data", "conv", "relu", "addmm", "relu", "relu"}};
  CHECK(follow("superneurons", what, plenty, 1)[0].empty());
  const sentences said = follow("superneurons", what, 250_B, 1)[0];
  REQUIRE(said.size() > 4);
  CHECK(sentences(said.begin(), said.begin() + 4) ==
        sentences{"evict data", "offload conv", "evict relu", "offload addmm"});
  for (const std::string& s : said) {
    const bool dear = s.ends_with("conv") || s.ends_with("addmm");
    CHECK_MESSAGE(!(dear && (s.starts_with("evict") || s.starts_with("recompute"))), s);
    CHECK_MESSAGE(!(!dear && (s.starts_with("offload") || s.starts_with("reload"))), s);
  }
}

TEST_CASE("reverse_prefetch: in backward, last offloaded first, what left before it began") {
  const chain what{{"conv", "conv", "conv", "conv", "conv", "relu"}};
  sentences back;
  const auto said = follow("superneurons", what, 310_B, 1);
  for (const std::string& s : said[0])
    if (s.starts_with("prefetch") || s.starts_with("reload")) back.push_back(s);
  CHECK(back == sentences(back.size(), "prefetch conv"));
  CHECK(back.size() == 3);
}

TEST_CASE("capuchin: the first step swaps on demand, the next ones swap what is hidden") {
  // Ten times 100 bytes, of which five fit. A copy takes a tenth of an operator.
  const chain what{std::vector<const char*>(10, "relu")};
  const auto said = follow("capuchin", what, 550_B, 3);
  const auto count = [](const sentences& s, const std::string& what_of) {
    return std::ranges::count(s, what_of + " relu");
  };
  CHECK(count(said[0], "prefetch") == 0);
  CHECK(count(said[0], "reload") == count(said[0], "offload"));
  for (int i : {1, 2}) {
    CHECK(count(said[std::size_t(i)], "offload") == 5);
    CHECK(count(said[std::size_t(i)], "prefetch") == 5);
    CHECK(count(said[std::size_t(i)], "reload") == 0);
    CHECK(count(said[std::size_t(i)], "evict") == 0);
  }
}

TEST_CASE("capuchin: where copies can't be hidden it recomputes, most bytes per second first") {
  const chain what{std::vector<const char*>(10, "relu")};
  const auto said = follow("capuchin", what, 750_B, 2, 1e6);  // a copy takes 100 operators
  CHECK(std::ranges::count(said[0], "evict relu") == 0);
  CHECK(std::ranges::count(said[1], "evict relu") >= 3);
  CHECK(std::ranges::count(said[1], "offload relu") == 0);
}

TEST_CASE("capuchin: one late copy, and its in-trigger is earlier from then on") {
  // A copy takes 0.99 of an operator: one operator ahead is just enough.
  const chain what{std::vector<const char*>(12, "relu")};
  const auto said = follow("capuchin", what, 1150_B, 6, 100.0 / 990e-9);
  for (std::size_t i = 1; i < said.size(); ++i)
    CHECK(said[i] == sentences{"offload relu", "prefetch relu"});
}

TEST_CASE("chen: from the second step on every sqrt(n)-th operator's outputs stay") {
  // Nine operators whose outputs the way back needs: the third, the sixth and the ninth stay.
  const chain what{{"a", "b", "c", "d", "e", "f", "g", "h", "i"}};
  const auto said = follow("chen", what, 550_B, 3);
  for (std::size_t i : {1u, 2u}) {
    CHECK(!said[i].empty());
    for (const std::string& s : said[i])
      CHECK_MESSAGE((s != "evict c" && s != "evict f" && s != "evict i"), s);
    // The forward pass lets go what it needs no more, the oldest first.
    CHECK(sentences(said[i].begin(), said[i].begin() + 4) ==
          sentences{"evict a", "evict b", "evict d", "evict e"});
  }
  // The first step knows nothing: the oldest, whoever made it.
  CHECK(sentences(said[0].begin(), said[0].begin() + 3) ==
        sentences{"evict a", "evict b", "evict c"});
}

TEST_CASE("swap_lru: the oldest goes to the host, and comes back on demand") {
  const chain what{{"a", "b", "c", "d"}};
  CHECK(follow("swap_lru", what, 250_B, 1)[0] ==
        sentences{"offload a", "offload b", "reload b", "reload a"});
}

TEST_CASE("a step without operators changes no decision") {
  const chain what{{"data", "conv", "relu", "conv", "relu", "addmm"}};
  for (const preset& peer : peer_presets) {
    CAPTURE(peer.name);
    const auto decided = [&](bool empty_steps) {
      simulated storage({.capacity = what.size * 3, .host_capacity = plenty});
      decisions all;
      const auto m = make_manager(peer.name, over(storage), {.observer = &all});
      for (int i = 0; i < 3; ++i) {
        if (empty_steps) m->end_of_step();
        step(*m, what);
      }
      return all.told;
    };
    const sentences without = decided(false);
    CHECK(!without.empty());
    CHECK(decided(true) == without);
  }
}

TEST_CASE("random programs: within the budget, and no byte is lost") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const program p = random_program(seed, {.steps = 4, .updates_made = true});
    const auto expected = evaluate(p);
    const bytes least = largest_footprint(p, 64);
    for (const std::uint64_t percent : {100u, 140u}) {
      const bytes budget = round_up(bytes{least.count * percent / 100}, 64);
      for (const preset& peer : peer_presets) {
        CAPTURE(seed);
        CAPTURE(peer.name);
        const bool offloading = peer.name != "chen";
        immediate device;
        arena<immediate> storage(device,
                                 {.capacity = budget,
                                  .host_capacity = 64_KiB,
                                  .virtual_clock = copy_rates{.out = 2e9, .in = 3e9, .move = 5e8}});
        const auto managed = make_manager(peer.name, over(storage));
        manager_interface& m = *managed;
        try {
          const auto left = run_program(m, p, run_now{}, [&] { CHECK(storage.used() <= budget); });
          CHECK(left == expected);
        } catch (const budget_exceeded& e) {
          CHECK_MESSAGE(!offloading, e.what());
        }
      }
    }
  }
}

// Repetitions of one step, so that what was learned is acted upon.
TEST_CASE("repeated programs: the same program again and again, and no byte is lost") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const program once = random_program(seed, {.steps = 1});
    const auto names = std::to_array<const char*>({"conv2d", "relu", "addmm", "batch_norm"});
    const bytes least = largest_footprint(once, 64);
    for (const preset& peer : peer_presets) {
      CAPTURE(seed);
      CAPTURE(peer.name);
      const bool offloading = peer.name != "chen";
      immediate device;
      arena<immediate> storage(device, {.capacity = round_up(bytes{least.count * 5 / 4}, 64),
                                        .host_capacity = 64_KiB,
                                        .virtual_clock = copy_rates{.out = 2e9, .in = 2e9}});
      const auto managed = make_manager(peer.name, over(storage));
      manager_interface& m = *managed;
      try {
        chain what;
        for (std::size_t i = 0; i < 4 + seed % 29; ++i)
          what.names.push_back(names[(seed + i * i) % names.size()]);
        what.size = bytes{std::min<std::uint64_t>(64, least.count / 4)};
        for (int i = 0; i < 5; ++i) {
          step(m, what, seed % 3 != 0);
          CHECK(storage.check_invariants() == "");
        }
      } catch (const budget_exceeded& e) {
        CHECK_MESSAGE(!offloading, e.what());
      }
    }
  }
}
