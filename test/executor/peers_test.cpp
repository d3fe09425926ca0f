// Published rules as presets: on small programs in virtual time it is plain what each must do; on
// random ones no byte is lost.
// ctest-labels: slow
#include "peers/peers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "delta/engine/manager_of.hpp"
#include "delta/storage/simulated.hpp"
#include "machine.hpp"
#include "peers/make_manager.hpp"
#include "peers/offline_plan.hpp"
#include "peers/peer_names.hpp"
#include "random_program.hpp"
#include "storage_check.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

template <class Policy, class H, class D, class P>
constexpr bool is_made_of = std::same_as<Policy, policy<H, D, P>>;

static_assert(
    is_made_of<decltype(vdnn()), convolution_inputs_first, offload_only, convolution_inputs_out>);
static_assert(is_made_of<decltype(superneurons()), lru, by_layer, reverse_prefetch>);
static_assert(is_made_of<decltype(chen()), sqrt_segments, evict_only, no_prefetch>);
// These are one object each.
static_assert(std::same_as<decltype(capuchin()), planned_swaps<swap_plan>>);
static_assert(std::same_as<decltype(chameleon()), planned_swaps<swaps_only_plan>>);

/// What a name stands for, by its type. `find` is with_activations_peer or the other one.
template <class Find, class Expected>
void check_found(const Find& find, std::string_view name, const Expected&) {
  CAPTURE(name);
  bool same = false;
  CHECK(find(name, [&](auto p) { same = std::same_as<decltype(p), Expected>; }));
  CHECK(same);
}

/// The peers, and the preset that is a rule as simple as theirs.
std::vector<preset> rules() {
  std::vector<preset> all(peer_policies.begin(), peer_policies.end());
  all.push_back(*std::ranges::find(named_policies, "swap_lru", &preset::name));
  return all;
}
/// Whose rule may leave a program without room though the host has it: who never offloads, and who
/// releases nothing in the backward pass.
bool may_fail(std::string_view peer) {
  return peer == "chen" || peer == "paper-strict";
}

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

/// What the manager that `make` makes, over a storage and with somebody to tell, decides in each of
/// `steps` steps.
std::vector<sentences> decided_by(auto&& make, const chain& what, bytes budget, int steps,
                                  double rate = 1e9) {
  simulated storage(
      {.capacity = budget, .host_capacity = 64_KiB, .rate_out = rate, .rate_in = rate});
  decisions decided;
  const auto m = make(over(storage), decided);
  std::vector<sentences> result;
  for (int i = 0; i < steps; ++i) {
    step(*m, what);
    result.push_back(std::exchange(decided.told, {}));
  }
  return result;
}
std::vector<sentences> follow(const char* peer, const chain& what, bytes budget, int steps,
                              double rate = 1e9) {
  return decided_by(
      [&](auto storage, decisions& told) {
        return make_any_manager(peer, std::move(storage), {.observer = &told});
      },
      what, budget, steps, rate);
}
std::vector<sentences> follow_plan(const offline_plan& plan, const chain& what, bytes budget,
                                   int steps, double rate = 1e9) {
  return decided_by(
      [&](auto storage, decisions& told) {
        return make_manager(delta::executor::follow(plan), std::move(storage), {.observer = &told});
      },
      what, budget, steps, rate);
}

constexpr bytes plenty = 64_KiB;

/// A network that is trained: layers of "conv" (with weights and a running mean, which it changes)
/// and "relu"; backward in reverse order; then the weights' updates, each with a state of its own.
/// In numbers, so that it is known what everything should be.
class trainer {
 public:
  static constexpr bytes size{100};
  /// Each update right behind its gradient.
  bool at_once = false;
  /// Called when an operator runs.
  std::function<void(const char* name)> at_run = [](const char*) {};

  trainer(manager_interface& m, std::size_t layers) : m_(&m) {
    for (std::size_t k = 0; k < layers; ++k) {
      const auto source = [&](const char* what) -> tensor_id {
        const tensor_id t = m.variable(size, name(what, k));
        const auto bytes_of = m.acquire(t, access::write);
        if (bytes_of.data() != nullptr) put(bytes_of.data(), k + 1);
        return t;
      };
      weights_.push_back(source("weight"));
      means_.push_back(source("mean"));
      states_.push_back(source("state"));
      expected_.push_back({k + 1, k + 1, k + 1});
    }
  }
  trainer(const trainer&) = delete;
  trainer& operator=(const trainer&) = delete;

  void step() {
    const std::size_t layers = weights_.size();
    std::vector<tensor_id> inner, border{run("data", 0, {}, {}, 1)[0]}, gradients(layers);
    for (std::size_t k = 0; k < layers; ++k) {
      inner.push_back(run("conv", k, {border[k], weights_[k]}, {means_[k]}, 1)[0]);
      border.push_back(run("relu", k, {inner[k]}, {}, 1)[0]);
    }
    m_->backward();
    tensor_id down = run("loss", 0, {border[layers]}, {}, 1)[0];
    m_->drop(border[layers]);
    for (std::size_t k = layers; k-- > 0;) {
      const tensor_id through = run("relu_back", k, {down, inner[k]}, {}, 1)[0];
      m_->drop(down), m_->drop(inner[k]);
      const auto made = run("conv_back", k, {through, border[k], weights_[k]}, {}, 2);
      gradients[k] = made[0], down = made[1];
      m_->drop(through), m_->drop(border[k]);
      if (at_once) update(k, gradients[k]);
    }
    m_->drop(down);
    for (std::size_t k = 0; k < layers && !at_once; ++k) update(k, gradients[k]);
    m_->end_of_step();
    expect();
  }
  /// Is everything that stays what it should be? Of a storage with bytes.
  [[nodiscard]] bool right() {
    for (std::size_t k = 0; k < weights_.size(); ++k)
      for (std::size_t i = 0; i < 3; ++i) {
        const tensor_id t = std::array{weights_[k], means_[k], states_[k]}[i];
        const auto held = m_->acquire(t);
        if (number(held.data()) != expected_[k][i]) return false;
      }
    return true;
  }

 private:
  using numbers = std::vector<std::uint64_t>;

  // Of all that it reads and changes; the i-th thing that it makes or changes.
  static std::uint64_t result(const numbers& read, std::size_t i) {
    std::uint64_t sum = i + 1;
    for (const std::uint64_t x : read) sum = mix(sum, x);
    return sum;
  }
  void update(std::size_t k, tensor_id gradient) {
    run("update", k, {gradient}, {weights_[k], states_[k]}, 0);
    m_->drop(gradient);
  }
  static const char* name(const char* what, std::size_t k) {
    return names_.insert(what + std::to_string(k)).first->c_str();
  }
  std::vector<tensor_id> run(const char* what, std::size_t k, const std::vector<tensor_id>& inputs,
                             const std::vector<tensor_id>& updates, std::size_t outputs) {
    const std::vector<bytes> sizes(outputs, size);
    std::vector<tensor_id> made(outputs);
    m_->run(operation_span{.inputs = inputs,
                           .outputs = sizes,
                           .updates = updates,
                           .traits = updates.empty() ? trait::pure : trait::effect_once,
                           .cost = nanoseconds{1000},
                           .name = name(what, k)},
            made,
            [this, named = name(what, k), ins = inputs.size(), changes = updates.size(),
             outputs](call& c) {
              at_run(named);
              if ((outputs > 0 ? c.out(0) : c.update(0)) == nullptr) return;
              numbers read;
              for (std::size_t i = 0; i < ins; ++i) read.push_back(number(c.in(i)));
              // What an output is made of does not change with its side effects.
              for (std::size_t i = 0; i < outputs; ++i) put(c.out(i), result(read, i));
              if (c.replaying()) return;
              for (std::size_t i = 0; i < changes; ++i) read.push_back(number(c.update(i)));
              for (std::size_t i = 0; i < changes; ++i) put(c.update(i), result(read, outputs + i));
            });
    return made;
  }
  // The same step in numbers alone.
  void expect() {
    const std::size_t layers = weights_.size();
    numbers inner, border{result({}, 0)}, gradients(layers);
    for (std::size_t k = 0; k < layers; ++k) {
      auto& [weight, mean, state] = expected_[k];
      inner.push_back(result({border[k], weight}, 0));
      mean = result({border[k], weight, mean}, 1);
      border.push_back(result({inner[k]}, 0));
    }
    std::uint64_t down = result({border[layers]}, 0);
    for (std::size_t k = layers; k-- > 0;) {
      const std::uint64_t through = result({down, inner[k]}, 0);
      gradients[k] = result({through, border[k], expected_[k][0]}, 0);
      down = result({through, border[k], expected_[k][0]}, 1);
    }
    for (std::size_t k = 0; k < layers; ++k) {
      auto& [weight, mean, state] = expected_[k];
      const numbers read{gradients[k], weight, state};
      weight = result(read, 0), state = result(read, 1);
    }
  }

  manager_interface* m_;
  std::vector<tensor_id> weights_, means_, states_;
  std::vector<std::array<std::uint64_t, 3>> expected_;  // by layer: weight, mean, state
  static inline std::set<std::string> names_;           // the manager's for as long as it lives
};

/// What happens in each of `steps` steps of a training, its operators ("conv0") included.
std::vector<sentences> follow_training(const char* peer, std::size_t layers, bytes budget,
                                       int steps, bool at_once = false) {
  simulated storage({.capacity = budget, .host_capacity = 64_KiB, .rate_out = 1e9, .rate_in = 1e9});
  decisions decided;
  const auto m = make_any_manager(peer, over(storage), {.observer = &decided});
  trainer trained(*m, layers);
  trained.at_once = at_once;
  trained.at_run = [&](const char* name) { decided.told.push_back(name); };
  std::vector<sentences> result;
  for (int i = 0; i < steps; ++i) {
    trained.step();
    result.push_back(std::exchange(decided.told, {}));
  }
  return result;
}

/// What a step takes under that peer, the third one, and the most memory while its operators run.
struct third_step {
  nanoseconds time{};
  bytes most{};
};
third_step third_of(const char* peer, std::size_t layers, bytes budget, double rate = 1e9) {
  simulated storage(
      {.capacity = budget, .host_capacity = 64_KiB, .rate_out = rate, .rate_in = rate});
  const auto m = make_any_manager(peer, over(storage));
  trainer trained(*m, layers);
  trained.step(), trained.step();
  third_step third;
  const nanoseconds began = storage.now();
  trained.at_run = [&](const char*) { third.most = std::max(third.most, storage.used()); };
  trained.step();
  third.time = storage.now() - began;
  return third;
}

/// SwapAdvisor's policy, and what it expects of a step.
struct watched_search : swapadvisor_policy {
  swap_search plan;
  double* begun = nullptr;
  double* expected = nullptr;

  void end_of_step(const context& c) {
    swapadvisor_policy::end_of_step(c);
    plan.make(c);
    *begun = plan.expected_at_first(), *expected = plan.expected();
  }
};

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
  const auto managed = make_any_manager("vdnn", over(storage), {.observer = &decided});
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

TEST_CASE("chameleon: as capuchin where copies hide, and never recomputes") {
  const chain what{std::vector<const char*>(10, "relu")};
  CHECK(follow("chameleon", what, 550_B, 3) == follow("capuchin", what, 550_B, 3));
  const auto said = follow("chameleon", what, 750_B, 3, 1e6);  // a copy takes 100 operators
  for (const sentences& s : said) {
    CHECK(std::ranges::count(s, "evict relu") == 0);
    CHECK(std::ranges::count(s, "recompute relu") == 0);
    CHECK(std::ranges::count(s, "offload relu") >= 3);
  }
}

TEST_CASE("a given plan is carried out, and nothing else moves") {
  using enum offline_plan::way;
  // a to e are operators 0 to 4, their gradients 9 to 5 in that order. A copy takes an operator.
  const chain what{{"a", "b", "c", "d", "e"}};
  const offline_plan plan{.operators = 10,
                          .absences = {{.tensor = {0}, .from = 1, .to = 9},
                                       {.tensor = {1}, .from = 2, .to = 8, .how = offload},
                                       {.tensor = {2}, .from = 3, .to = 7, .how = offload}}};
  const auto said = follow_plan(plan, what, plenty, 3, 1e8);
  CHECK(said[0].empty());  // nothing is known of the step yet
  for (std::size_t i : {1u, 2u})
    CHECK(said[i] == sentences{"evict a", "offload b", "offload c", "prefetch c", "prefetch b",
                               "recompute a"});
}

TEST_CASE("a given plan that does not match the step is not followed, and does no harm") {
  const chain what{{"a", "b", "c", "d", "e"}};
  const offline_plan::absence a{.tensor = {0}, .from = 1, .to = 9};
  for (const sentences& s : follow_plan({.operators = 9, .absences = {a}}, what, plenty, 3))
    CHECK(s.empty());
  // Outputs and operators that are not there.
  const offline_plan strange{.operators = 10,
                             .absences = {{.tensor = {0, 7}, .from = 1, .to = 9},
                                          {.tensor = {70}, .from = 71, .to = 72},
                                          {.tensor = {0}, .from = -11, .to = 9},
                                          {.tensor = {0}, .from = 1, .to = 21},
                                          {.tensor = {5}, .from = 6, .to = 9}}};
  for (const sentences& s : follow_plan(strange, what, plenty, 3)) CHECK(s.empty());
}

TEST_CASE("what a given plan does not cover leaves as under dtr, or online if it offloads") {
  using enum offline_plan::way;
  const chain what{std::vector<const char*>(10, "relu")};
  CHECK(follow_plan({.operators = 20}, what, 550_B, 3) == follow("dtr", what, 550_B, 3));
  // Its only absence has gone by before memory is short.
  const offline_plan early{.operators = 20,
                           .absences = {{.tensor = {0}, .from = 0, .to = 1, .how = offload}}};
  const auto said = follow_plan(early, what, 550_B, 2), online = follow("online", what, 550_B, 2);
  CHECK(said[0] == online[0]);
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

TEST_CASE("zero_offload: state and gradients are on the host until their update, the rest stays") {
  const auto said = follow_training("zero_offload", 3, plenty, 3);
  const sentences forward{"data0", "conv0", "relu0", "conv1", "relu1", "conv2", "relu2"};
  // Gradients are named after what made them. That of the first layer is updated next: it stays.
  const sentences backward{"loss0",
                           "relu_back2",
                           "conv_back2",
                           "offload conv_back2",
                           "relu_back1",
                           "conv_back1",
                           "offload conv_back1",
                           "relu_back0",
                           "prefetch state0",
                           "conv_back0",
                           "prefetch state1",
                           "prefetch conv_back1",
                           "update0",
                           "offload state0",
                           "prefetch state2",
                           "prefetch conv_back2",
                           "update1",
                           "offload state1",
                           "update2",
                           "offload state2"};
  const auto both = [&](sentences first) {
    first.insert(first.end(), backward.begin(), backward.end());
    return first;
  };
  CHECK(said[2] == both(forward));
  // The first step is watched; what it has left on the device leaves in the second one.
  for (const std::string& s : said[0]) CHECK_MESSAGE(s.find(' ') == std::string::npos, s);
  sentences second = forward;
  second.insert(second.begin() + 1, {"offload state0", "offload state1", "offload state2"});
  CHECK(said[1] == both(second));
}

TEST_CASE("zero_offload: where each update is next to its gradient, state alone travels") {
  const auto said = follow_training("zero_offload", 3, plenty, 3, true);
  sentences moved;
  for (const std::string& s : said[2])
    if (s.find(' ') != std::string::npos) moved.push_back(s);
  CHECK(moved == sentences{"prefetch state2", "offload state2", "prefetch state1", "offload state1",
                           "prefetch state0", "offload state0"});
}

TEST_CASE("zero_offload: state that operators of its own change, before parameters read it") {
  simulated storage({.capacity = plenty, .host_capacity = plenty, .rate_out = 1e9, .rate_in = 1e9});
  decisions decided;
  const auto managed = make_any_manager("zero_offload", over(storage), {.observer = &decided});
  manager_interface& m = *managed;
  const tensor_id weight = m.variable(100_B, "weight"), state = m.variable(100_B, "state");
  const tensor_id buffer = m.variable(100_B, "buffer");
  const nanoseconds cost{1000};
  for (int i = 0; i < 3; ++i) {
    decided.told.clear();
    // The buffer is changed in both passes: it is no state, and who changes it no optimizer.
    const tensor_id y = m.run(
        {.inputs = {weight}, .outputs = {100_B}, .updates = {buffer}, .cost = cost}, [](call&) {});
    const tensor_id z =
        m.run({.inputs = {y, weight}, .outputs = {100_B}, .cost = cost}, [](call&) {});
    const tensor_id gradient = m.run(
        {.inputs = {y, z}, .outputs = {100_B}, .cost = cost, .name = "gradient"}, [](call&) {});
    for (const tensor_id t : {y, z}) m.drop(t);
    m.run<0>({.cost = cost}, [](call&) {});
    m.run<0>({.updates = {buffer}, .cost = cost}, [](call&) {});
    m.run<0>({.cost = cost}, [](call&) {});
    m.run<0>({.inputs = {gradient}, .updates = {state}, .cost = cost}, [](call&) {});
    m.drop(gradient);
    m.run<0>({.inputs = {state}, .updates = {weight}, .cost = cost}, [](call&) {});
    m.end_of_step();
  }
  CHECK(decided.told ==
        sentences{"offload gradient", "prefetch state", "prefetch gradient", "offload state"});
}

TEST_CASE("zero_offload: without an optimizer it swaps on demand, as swap_lru") {
  const chain what{{"a", "b", "c", "d", "e"}};
  const auto said = follow("zero_offload", what, 250_B, 3);
  CHECK(!said[2].empty());
  CHECK(said == follow("swap_lru", what, 250_B, 3));
}

TEST_CASE("l2l: parameters are there for their layer, and come while the one before runs") {
  const auto said = follow_training("l2l", 3, plenty, 3);
  for (const std::string& s : said[0]) CHECK_MESSAGE(s.find(' ') == std::string::npos, s);
  // Layers: data, conv0, relu0 | conv1, relu1 | conv2, relu2, loss, relu_back2 | conv_back2,
  // relu_back1 | conv_back1, relu_back0 | conv_back0 | update0 | update1 | update2. What is two
  // layers away leaves: weights without a copy where they have not changed. What relu0 made is
  // read by the next layer, so it goes to the host; what conv0 made is not, so it is made again.
  CHECK(said[2] == sentences{"data0",
                             "conv0",
                             "drop weight0",
                             "offload mean0",
                             "evict data0",
                             "relu0",
                             "evict conv0",
                             "prefetch weight2",
                             "prefetch mean2",
                             "conv1",
                             "drop weight1",
                             "offload mean1",
                             "offload relu0",
                             "relu1",
                             "prefetch relu0",
                             "prefetch weight1",
                             "conv2",
                             "offload mean2",
                             "relu2",
                             "loss0",
                             "relu_back2",
                             "conv_back2",
                             "drop weight2",
                             "offload conv_back2",
                             "relu_back1",
                             "prefetch weight0",
                             "conv_back1",
                             "drop weight1",
                             "offload conv_back1",
                             "data0",
                             "recompute data0",
                             "conv0",
                             "recompute conv0",
                             "relu_back0",
                             "prefetch state0",
                             "conv_back0",
                             "prefetch conv_back1",
                             "prefetch weight1",
                             "prefetch state1",
                             "update0",
                             "offload weight0",
                             "offload state0",
                             "prefetch conv_back2",
                             "prefetch weight2",
                             "prefetch state2",
                             "update1",
                             "offload weight1",
                             "offload state1",
                             "prefetch weight0",
                             "prefetch mean0",
                             "update2",
                             "offload weight2",
                             "offload state2",
                             "prefetch weight1",
                             "prefetch mean1"});
}

TEST_CASE("l2l: memory does not grow with the layers") {
  const bytes few = third_of("l2l", 4, plenty).most, many = third_of("l2l", 16, plenty).most;
  CHECK(few > bytes{});
  CHECK(few == many);
  CHECK(many * 4 < third_of("unmanaged", 16, plenty).most);
}

TEST_CASE("swapadvisor: nothing moves where the step fits") {
  for (const sentences& s : follow("swapadvisor", {{"a", "b", "c", "d"}}, plenty, 3))
    CHECK(s.empty());
}

TEST_CASE("swapadvisor: what must leave is swapped behind the operators, the same every time") {
  // Ten times 100 bytes, of which five fit. A copy takes a tenth of an operator.
  const chain what{std::vector<const char*>(10, "relu")};
  const auto said = follow("swapadvisor", what, 550_B, 3);
  for (int i : {1, 2}) {
    CHECK(std::ranges::count(said[std::size_t(i)], "offload relu") == 5);
    CHECK(std::ranges::count(said[std::size_t(i)], "prefetch relu") == 5);
    CHECK(said[std::size_t(i)].size() == 10);
  }
  CHECK(follow("swapadvisor", what, 550_B, 3) == said);
}

TEST_CASE(
    "swapadvisor: the search improves on what it begins with, and its clock is the machine's") {
  for (const double rate : {1e9, 1e8, 3e7}) {
    CAPTURE(rate);
    simulated storage(
        {.capacity = 1700_B, .host_capacity = plenty, .rate_out = rate, .rate_in = rate});
    double begun = 0, expected = 0;
    const auto managed =
        delta::make_manager(watched_search{{}, {}, &begun, &expected}, over(storage));
    trainer trained(*managed, 6);
    trained.step();
    CHECK(expected < begun);
    const auto took = double(third_of("swapadvisor", 6, 1700_B, rate).time.count());
    CHECK(took == doctest::Approx(expected).epsilon(0.15));
    CHECK(took < double(third_of("swap_lru", 6, 1700_B, rate).time.count()));
  }
}

TEST_CASE("swap_lru: the oldest goes to the host, and comes back on demand") {
  const chain what{{"a", "b", "c", "d"}};
  CHECK(follow("swap_lru", what, 250_B, 1)[0] ==
        sentences{"offload a", "offload b", "reload b", "reload a"});
}

TEST_CASE("a step without operators changes no decision") {
  const chain what{{"data", "conv", "relu", "conv", "relu", "addmm"}};
  for (const preset& peer : rules()) {
    CAPTURE(peer.name);
    const auto decided = [&](bool empty_steps) {
      simulated storage({.capacity = what.size * 3, .host_capacity = plenty});
      decisions all;
      const auto m = make_any_manager(peer.name, over(storage), {.observer = &all});
      try {
        for (int i = 0; i < 3; ++i) {
          if (empty_steps) m->end_of_step();
          step(*m, what);
        }
      } catch (const budget_exceeded& e) {
        CHECK_MESSAGE(may_fail(peer.name), e.what());
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
      for (const preset& peer : rules()) {
        CAPTURE(seed);
        CAPTURE(peer.name);
        const bool offloading = !may_fail(peer.name);
        immediate device;
        timed_arena<immediate> storage(device, {.capacity = budget, .host_capacity = 64_KiB},
                                       copy_rates{.out = 2e9, .in = 3e9, .move = 5e8});
        const auto managed = make_any_manager(peer.name, over(storage));
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

TEST_CASE("trainings: parameters, state and running means are what they should be, in any budget") {
  for (const preset& peer : rules()) {
    for (const std::uint64_t budget : {1100u, 1400u, 2200u, 4000u}) {
      CAPTURE(peer.name);
      CAPTURE(budget);
      immediate device;
      timed_arena<immediate> storage(
          device, {.capacity = round_up(bytes{budget}, 64), .host_capacity = 64_KiB},
          copy_rates{.out = 2e9, .in = 2e9});
      const auto m = make_any_manager(peer.name, over(storage));
      try {
        trainer trained(*m, 4);
        for (int i = 0; i < 5; ++i) {
          trained.step();
          CHECK(check_invariants(storage) == "");
        }
        CHECK(trained.right());
      } catch (const budget_exceeded& e) {
        CHECK_MESSAGE(may_fail(peer.name), e.what());
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
    for (const preset& peer : rules()) {
      CAPTURE(seed);
      CAPTURE(peer.name);
      const bool offloading = !may_fail(peer.name);
      immediate device;
      timed_arena<immediate> storage(
          device, {.capacity = round_up(bytes{least.count * 5 / 4}, 64), .host_capacity = 64_KiB},
          copy_rates{.out = 2e9, .in = 2e9});
      const auto managed = make_any_manager(peer.name, over(storage));
      manager_interface& m = *managed;
      try {
        chain what;
        for (std::size_t i = 0; i < 4 + seed % 29; ++i)
          what.names.push_back(names[(seed + i * i) % names.size()]);
        what.size = bytes{std::min<std::uint64_t>(64, least.count / 4)};
        for (int i = 0; i < 5; ++i) {
          step(m, what, seed % 3 != 0);
          CHECK(check_invariants(storage) == "");
        }
      } catch (const budget_exceeded& e) {
        CHECK_MESSAGE(!offloading, e.what());
      }
    }
  }
}

TEST_CASE("a peer's name stands for that policy and no other") {
  const auto keeps = [](std::string_view name, const auto& f) {
    return with_activations_peer(name, f);
  };
  const auto moves = [](std::string_view name, const auto& f) {
    return with_parameters_peer(name, f);
  };
  check_found(keeps, "paper-strict", paper_strict());
  CHECK(paper_strict().decider.strict);
  check_found(keeps, "paper-lru", paper_lru());
  check_found(keeps, "paper-greedy", paper_greedy());
  check_found(keeps, "vdnn", vdnn());
  check_found(keeps, "superneurons", superneurons());
  check_found(keeps, "capuchin", capuchin());
  check_found(keeps, "chameleon", chameleon());
  check_found(keeps, "chen", chen());
  check_found(moves, "zero_offload", zero_offload());
  check_found(moves, "l2l", l2l());
  check_found(moves, "swapadvisor", swapadvisor());
  CHECK(peer_policies.size() == 11);
  CHECK(!with_activations_peer("online", [](const auto&) { FAIL("called"); }));
}
