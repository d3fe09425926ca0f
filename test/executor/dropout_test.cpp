// Dropout in a training run: in the training graph alone, a new mask in each step, and the same
// mask again where an operator runs again.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu_backend.hpp"
#include "delta/engine/engine.hpp"
#include "delta/testing/timed_arena.hpp"
#include "device/cpu_machine.hpp"
#include "interpreter.hpp"
#include "model/builder.hpp"
#include "model/models.hpp"
#include "train/feasibility.hpp"
#include "train/session.hpp"
#include "training.hpp"

using namespace delta::executor;
using delta::test::interpreter;
using delta::test::sample_batch;

namespace {

// Dropout between convolutions, where much that is larger comes after: worth dropping.
graph dropping_net(std::uint64_t seed) {
  builder b(4);
  value_id x = b.images(16, 16, 3);
  const value_id labels = b.labels();
  for (int i = 0; i < 6; ++i) {
    const std::string n = std::to_string(i);
    x = b.relu("relu" + n, b.batch_norm("bn" + n, b.conv2d("conv" + n, x, 8, 3, 1, 1)));
    x = b.dropout("dropout" + n, x, 0.5);
  }
  b.softmax_cross_entropy("loss", b.linear("fc", b.global_avg_pool("avg", x), 10), labels);
  return bound_to_cpu(std::move(b).finish({.seed = seed}), 2);
}

class fixed_batch final : public batch_source {
 public:
  explicit fixed_batch(const graph& g) : batch_(g, 7) {}
  void fill(float* images, std::int32_t* labels) override {
    std::ranges::copy(batch_.images, images);
    std::ranges::copy(batch_.labels, labels);
  }

 private:
  sample_batch batch_;
};

/// Losses and last parameters of three steps.
struct trace {
  std::vector<float> losses;
  std::vector<std::vector<std::byte>> parameters;
  bool operator==(const trace&) const = default;
};

trace run(const graph& g, std::string_view policy, delta::bytes budget) {
  cpu_machine device({});
  // In virtual time, so that the same operators run again in every run of this test.
  const delta::copy_rates rates{
      .out = default_copy_rate, .in = default_copy_rate, .move = default_copy_rate};
  delta::timed_arena<machine> storage(
      device, {.capacity = budget, .host_capacity = budget, .granularity = cpu_granularity}, rates);
  thread_pool pool(g.threads);
  session trainee(g, make_manager(policy, over(storage)), {.device = &device, .pool = &pool});
  trainee.create(1);
  fixed_batch batch(g);
  trace t;
  for (int step = 0; step < 3; ++step) t.losses.push_back(trainee.train(&batch));
  for (const value_id p : g.parameters) {
    trainee.read(p, t.parameters.emplace_back(g[p].bytes));
  }
  return t;
}

/// Counts dropout's replays, and gives them `shift` more than the sequence that they should have.
graph watched(std::uint64_t seed, int& replays, std::uint64_t shift) {
  graph g = dropping_net(seed);
  for (node& n : g.nodes) {
    if (n.type != operator_type::dropout_forward) continue;
    n.run = [inner = n.run, &replays, shift](const kernel_args& a) {
      replays += a.replaying;
      kernel_args changed = a;
      changed.sequence += a.replaying ? shift : 0;
      inner(changed);
    };
  }
  return g;
}

}  // namespace

TEST_CASE("a replayed dropout draws its mask again: the bits of a budget are those without") {
  int replays = 0;
  const graph g = watched(3, replays, 0);
  const delta::bytes peak{unmanaged_peak(g).total};
  const trace whole = run(g, "unmanaged", peak + peak);
  REQUIRE(replays == 0);
  for (const std::string policy : {"online", "paper", "dtr"}) {
    CAPTURE(policy);
    replays = 0;
    CHECK(run(g, policy, delta::bytes{peak.count * 60 / 100}) == whole);
    MESSAGE(policy << ": replays of dropout: " << replays);
  }
  CHECK(replays > 0);  // dtr has no other way

  // Another sequence number in the replays is another mask, and that would show.
  const graph shifted = watched(3, replays, 1);
  CHECK(run(shifted, "unmanaged", peak + peak) == whole);
  CHECK(run(shifted, "dtr", delta::bytes{peak.count * 60 / 100}) != whole);
}

TEST_CASE("the seed decides the masks, and so do the step and the layer") {
  const graph g = dropping_net(3), other = dropping_net(4);
  const sample_batch batch(g, 7);
  interpreter a(g, 1), b(g, 1), c(other, 1);
  const auto mask = [](const graph& of, interpreter& i, const char* name) {
    const auto bytes = i.bytes(of.find(name));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  a.step(batch.images, batch.labels);
  b.step(batch.images, batch.labels);
  c.step(batch.images, batch.labels);
  const auto first = mask(g, a, "dropout2.mask");
  CHECK(first == mask(g, b, "dropout2.mask"));
  CHECK(first != mask(other, c, "dropout2.mask"));
  CHECK(first != mask(g, a, "dropout3.mask"));
  a.step(batch.images, batch.labels);
  CHECK(first != mask(g, a, "dropout2.mask"));
  const auto kept = std::ranges::count(first, std::byte{1});
  CHECK(double(kept) == doctest::Approx(0.5 * double(first.size())).epsilon(0.05));
}

TEST_CASE("a model's dropout stands before its last layer, and only where it trains") {
  for (const std::string& name : model_names()) {
    CAPTURE(name);
    model_options o{.batch = 2, .image = 64, .dropout = 0.25};
    const graph g = make_model(name, o);
    const auto at = std::ranges::find(g.nodes, "fc.forward", &node::name);
    REQUIRE(at != g.nodes.end());
    const node& dropout = *(at - 1);
    CHECK(dropout.type == operator_type::dropout_forward);
    CHECK(dropout.random);
    CHECK(std::get<dropout_shape>(dropout.shape).probability == 0.25f);
    CHECK(at->inputs[0] == dropout.outputs[0]);
    CHECK(std::ranges::count(g.nodes, true, &node::random) == 1);

    o.what = purpose::inference;
    const graph inference = make_model(name, o);
    CHECK(std::ranges::count(inference.nodes, operator_type::dropout_forward, &node::type) == 0);
    o.what = purpose::training;
    o.dropout = 0;
    CHECK(std::ranges::count(make_model(name, o).nodes, operator_type::dropout_forward,
                             &node::type) == 0);
  }
}

TEST_CASE("a probability that is none is refused with the layer's name") {
  builder b(2);
  const value_id x = b.images(4, 4, 3);
  for (const double p : {-0.1, 1.0, 0.99999999999, double(NAN)}) {
    CHECK_THROWS_WITH_AS(b.dropout("drop", x, p), "drop: a probability is at least 0 and below 1",
                         std::invalid_argument);
  }
  CHECK(b.dropout("none", x, 0) == x);
}
