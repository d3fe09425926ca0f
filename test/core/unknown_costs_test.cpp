// Operators of which nobody says what they take: the program gives no cost, and the device measures
// none, or late. They are priced by the bytes that they touch, not as free.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/manager.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"

using namespace delta;
using namespace delta::literals;
using namespace std::chrono_literals;

namespace {

// A machine in virtual time whose operators take what their kernels say to it. It knows the times
// of all but the last `behind` operators.
class machine : public simulated {
 public:
  static constexpr std::size_t at_once = 0, never = std::size_t(-1);
  machine(const simulated_options& o, std::size_t behind) : simulated(o), behind_(behind) {}
  void take(nanoseconds t) { takes_ = t; }
  stamp end_operator(nanoseconds) {
    const stamp done = simulated::end_operator(std::exchange(takes_, {}));
    if (behind_ != never) last_.push_back(done);
    if (last_.size() > behind_) last_.pop_front();
    return done;
  }
  std::optional<nanoseconds> elapsed(stamp s) {
    if (s.where == lane::compute &&
        (behind_ == never || std::find(last_.begin(), last_.end(), s) != last_.end()))
      return std::nullopt;
    return simulated::elapsed(s);
  }
  std::optional<nanoseconds> alone(stamp s) { return elapsed(s); }

 private:
  std::size_t behind_;
  nanoseconds takes_{};
  std::deque<stamp> last_;
};

// Training steps of a residual network of random widths, in which convolutions take ten times as
// long per byte as the operators between them.
class network {
 public:
  static constexpr bytes ample{std::uint64_t{1} << 40};
  explicit network(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    std::uint64_t width = 4 + below(8);
    for (std::uint64_t i = 24 + below(16); i-- > 0;) {
      if (below(4) == 0) width = std::max<std::uint64_t>(5, width + below(7)) - 3;
      layers_.push_back({bytes{width << 18}, bytes{(1 + below(8)) << 14}, below(3) == 0});
    }
  }
  // What is recomputed: how many operators, and how long they took.
  struct outcome {
    counters counts;
    nanoseconds replayed{}, ran{};
    bytes peak{};
    int warnings = 0;
    [[nodiscard]] double replayed_share() const {
      return double(replayed.count()) / double(ran.count());
    }
  };
  // `behind`: as the machine's. Gives what happened in so many steps.
  outcome train(bytes budget, bytes host, std::size_t behind, int steps,
                bool says_costs = false) const {
    machine storage{{.capacity = budget, .host_capacity = host}, behind};
    outcome o;
    struct listener {
      int* warnings;
      void on(const event& e) const { *warnings += e.what == event_kind::costs_unknown; }
    };
    delta::manager m{online(), storage, listener{&o.warnings}};
    const auto size = [&](std::size_t i) { return layers_[std::min(i, layers_.size() - 1)].size; };
    // `slowness`: of 1 it reads and writes 20 GB/s.
    const auto run = [&](std::vector<tensor_id> in, bytes read, bytes out, double slowness,
                         const char* name) {
      const nanoseconds took{std::int64_t(double((read + out).count) * slowness / 20)};
      tensor_id made{};
      m.run(operation_span{.inputs = in,
                           .outputs = std::span(&out, 1),
                           .cost = says_costs ? took : nanoseconds{},
                           .name = name},
            std::span(&made, 1), [&storage, &o, took](call& c) {
              storage.take(took);
              (c.replaying() ? o.replayed : o.ran) += took;
            });
      return made;
    };
    std::vector<tensor_id> weights;
    for (const layer& l : layers_) weights.push_back(m.variable(l.weight, "weight"));
    for (int step = 0; step < steps; ++step) {
      struct kept {
        tensor_id in, conv, norm, out;
      };
      std::vector<kept> saved;
      tensor_id x = m.variable(size(0), "images");
      for (std::size_t i = 0; i < layers_.size(); ++i) {
        const bytes before = size(i == 0 ? 0 : i - 1), n = size(i);
        kept k{x, {}, {}, {}};
        k.conv = run({x, weights[i]}, before + layers_[i].weight, n, 10, "conv");
        k.norm = run({k.conv}, n, n, 2, "norm");
        k.out = layers_[i].residual && before == n ? run({k.norm, x}, n + n, n, 1, "add and relu")
                                                   : run({k.norm}, n, n, 1, "relu");
        x = k.out;
        saved.push_back(k);
      }
      tensor_id dy = run({x}, size(layers_.size()), size(layers_.size()), 1, "loss");
      for (std::size_t i = layers_.size(); i-- > 0;) {
        const bytes before = size(i == 0 ? 0 : i - 1), n = size(i), w = layers_[i].weight;
        const kept k = saved[i];
        const auto next = [&](tensor_id made) { m.drop(std::exchange(dy, made)); };
        next(run({dy, k.out}, n + n, n, 1, "relu's gradient"));
        m.drop(k.out), m.drop(k.norm);
        next(run({dy, k.conv}, n + n, n, 3, "norm's gradient"));
        m.drop(k.conv);
        const tensor_id dw = run({dy, k.in}, n + before, w, 10, "weights' gradient");
        m.drop(std::exchange(weights[i], run({weights[i], dw}, w + w, w, 1, "descent")));
        m.drop(dw);
        next(run({dy, weights[i]}, n + w, before, 10, "conv's gradient"));
      }
      m.drop(dy), m.drop(saved.front().in);
      m.end_of_step();
    }
    o.counts = m.counts(), o.peak = storage.peak();
    return o;
  }
  [[nodiscard]] bytes half_of_peak() const {
    return bytes{train(ample, {}, machine::at_once, 1).peak.count / 2};
  }

 private:
  struct layer {
    bytes size, weight;
    bool residual;
  };
  std::vector<layer> layers_;
};

// Costs that an observer was told of a tensor that went, and the warnings.
struct told {
  double cost = -1;
  int warnings = 0;
  void on(const event& e) {
    if (e.what == event_kind::evict && cost < 0) cost = e.cost;
    warnings += e.what == event_kind::costs_unknown;
  }
};
constexpr std::size_t enough = 40;  // operators, to be sure of a machine

// 800 bytes made of a variable of 800 in 5 us, which have to go after `between` other operators.
// Gives what it was thought to cost to make them again.
double cost_of_first(machine& storage, nanoseconds said, std::size_t between = enough) {
  told t;
  delta::manager m{lru{}, evict_only{}, no_prefetch{}, storage, observed_by{&t}};
  const tensor_id x = m.variable(800_B);
  const auto takes = [&](nanoseconds n) { return [&storage, n](call&) { storage.take(n); }; };
  const tensor_id y =
      m.run({.inputs = {x, x}, .outputs = {800_B}, .cost = said, .name = "first"}, takes(5us));
  for (std::size_t i = 0; i < between; ++i) m.run<0>({.cost = 1us, .name = "other"}, takes(1us));
  m.run<0>({.workspace = 1000_B, .cost = 1us, .name = "squeeze"}, takes(1us));
  REQUIRE(m.where(y) == residency::evicted);
  CHECK(t.warnings == 0);
  return t.cost;
}

}  // namespace

TEST_CASE("without costs online recomputes hardly more than with measured ones") {
  std::printf("seed  budget  replays: measured, guessed  of the time: measured, guessed\n");
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    const network net(seed);
    const bytes peak = net.train(network::ample, {}, machine::at_once, 1).peak;
    for (const double part : {0.3, 0.4, 0.5, 0.6, 0.7}) {
      CAPTURE(part);
      const bytes budget{std::uint64_t(double(peak.count) * part)};
      for (const bytes host : {bytes{}, peak}) {
        CAPTURE(host.count);
        const auto measured = net.train(budget, host, machine::at_once, 3);
        const auto guessed = net.train(budget, host, machine::never, 3);
        const auto n = measured.counts.recomputes, without = guessed.counts.recomputes;
        std::printf("%4d  %.1f%s  %17d  %7d  %21.3f  %7.3f\n", int(seed), part,
                    host == peak ? " host" : "     ", int(n), int(without),
                    measured.replayed_share(), guessed.replayed_share());
        CHECK(double(without) <= 1.5 * double(n));
        // By bytes a convolution is no dearer than what is beside it: it may be run again.
        CHECK(guessed.replayed_share() <= measured.replayed_share() + 0.2);
        CHECK(measured.warnings == 0);
        CHECK(measured.counts.guessed_costs == 0);
        // Unmeasured is everything that may be recomputed.
        CHECK(guessed.warnings == 1);
        CHECK(guessed.counts.guessed_costs == guessed.counts.operators);
      }
    }
  }
}

TEST_CASE("a program that says its costs is not warned, nor one with room for everything") {
  const network net(1);
  const bytes half = net.half_of_peak();
  const auto said = net.train(half, {}, machine::never, 2, true);
  CHECK(said.counts.recomputes > 0);
  CHECK(said.counts.guessed_costs == 0);
  CHECK(said.warnings == 0);
  const auto roomy = net.train(network::ample, {}, machine::never, 2);
  CHECK(roomy.counts.guessed_costs == roomy.counts.operators);
  CHECK(roomy.warnings == 0);
}

TEST_CASE("times that come late take the place of guesses, and nobody is warned") {
  const network net(2);
  const bytes half = net.half_of_peak();
  const auto measured = net.train(half, {}, machine::at_once, 3);
  for (const std::size_t behind : {1u, 8u, 30u}) {
    CAPTURE(behind);
    const auto late = net.train(half, {}, behind, 3);
    CHECK(late.counts.guessed_costs == 0);
    CHECK(late.warnings == 0);
    CHECK(double(late.counts.recomputes) <= 1.5 * double(measured.counts.recomputes));
    CHECK(double(measured.counts.recomputes) <= 1.5 * double(late.counts.recomputes));
  }
}

TEST_CASE("a cost is what was measured, else what was said, else the bytes touched over a rate") {
  const simulated_options o{.capacity = 2000_B, .rate_move = 1e9};
  const auto cost = [&](std::size_t behind, nanoseconds said, std::size_t between = enough) {
    machine storage{o, behind};
    return cost_of_first(storage, said, between);
  };
  CHECK(cost(machine::at_once, {}) == 5000);
  CHECK(cost(machine::at_once, 7us) == 5000);
  CHECK(cost(3, {}) == 5000);
  CHECK(cost(3, 7us) == 5000);
  CHECK(cost(3, 7us, 0) == 7000);
  CHECK(cost(machine::never, 7us) == 7000);
  // A launch of 1 us, and 1600 bytes: what is read twice counts once.
  CHECK(cost(3, {}, 0) == 1000 + 1600);
  CHECK(cost(machine::never, {}) == 1000 + 1600);
  machine unknown_rate{{.capacity = 2000_B}, machine::never};
  CHECK(cost_of_first(unknown_rate, {}) == 1000 + 1600 / 8);
}

TEST_CASE("operators that are begun and ended are priced alike, a few of them when the step ends") {
  machine storage{{.capacity = 2000_B, .rate_move = 1e9}, machine::never};
  told t;
  delta::manager m{lru{}, evict_only{}, no_prefetch{}, storage, observed_by{&t}};
  const tensor_id x = m.variable(800_B);
  auto op = m.begin({.inputs = {x}, .name = "opened"});
  op.allocate(400_B);
  op.workspace(100_B);
  const tensor_id y = op.end([](call&) {});
  m.run<0>({.workspace = 1100_B, .cost = 1us, .name = "squeeze"}, [](call&) {});
  CHECK(m.where(y) == residency::evicted);
  CHECK(t.cost == 1000 + 800 + 400 + 100);
  // One operator is not enough to be sure.
  CHECK(m.counts().guessed_costs == 0);
  m.drop(y);
  m.end_of_step();
  CHECK(m.counts().guessed_costs == 1);
  CHECK(t.warnings == 1);
  m.end_of_step();
  CHECK(t.warnings == 1);
}

TEST_CASE("nobody is warned before the first operator that was guessed is over") {
  machine storage{{.capacity = 100_B}, machine::never};
  detail::guess_watch watch;
  counters c;
  c.decisions = 1;
  const auto warns = [&] {
    return watch.warns(
        storage, c, [&](stamp s) { return storage.elapsed(s); }, true);
  };
  watch.guessed(c, {lane::compute, 1000});
  CHECK_FALSE(warns());
  CHECK(c.guessed_costs == 0);
  storage.begin_operator({}, {});
  storage.take(2us);
  storage.end_operator({});
  CHECK(warns());
  CHECK(c.guessed_costs == 1);
  CHECK_FALSE(warns());  // once
}

TEST_CASE("steps that are learned have guessed times where nothing else is known") {
  machine storage{{.capacity = 10'000_B, .rate_move = 1e9}, machine::never};
  delta::manager m{adaptive(), storage};
  const tensor_id x = m.variable(500_B);
  for (int step = 0; step < 2; ++step) {
    m.run<0>({.inputs = {x}, .name = "reads"}, [](call&) {});
    m.drop(m.run({.inputs = {x}, .outputs = {200_B}, .name = "makes"}, [](call&) {}));
    m.end_of_step();
    const step_record& seen = m.past().last();
    REQUIRE(seen.length() == 2);
    CHECK(seen.operations[0].cost == 1000 + 500);
    CHECK(seen.operations[1].cost == 1000 + 500 + 200);
  }
}
