// What recomputation is priced at, and what answering that costs. Counts and virtual times, which
// repeat exactly.
// ctest-labels: slow
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/engine/engine.hpp"
#include "delta/engine/manager_of.hpp"
#include "delta/learning_report.hpp"
#include "delta/storage/simulated.hpp"
#include "dense_program.hpp"

using namespace delta;
using namespace delta::test;

namespace {

/// Three steps in a part of what they hold at most; checks the work of all of them.
void check_work(const char* name, bytes peak, double part) {
  const auto budget = static_cast<std::uint64_t>(part * static_cast<double>(peak.count));
  simulated storage({.capacity = bytes{budget}, .host_capacity = peak * 4});
  const auto managed = make_manager(name, over(storage));
  manager_interface& m = *managed;
  dense_program program(m, 1);  // so fast that copies seldom pay: closures get long
  std::size_t operators = 0;
  for (int step = 0; step < 3; ++step) operators += program.step();
  const double walked = static_cast<double>(m.walked()) / static_cast<double>(m.evaluations());
  const double asked = static_cast<double>(m.evaluations()) / static_cast<double>(operators);
  std::printf("%-9s at %.2f: %.2f records an answer, %.1f answers an operator, %llu decisions\n",
              name, part, walked, asked, static_cast<unsigned long long>(m.counts().decisions));
  CAPTURE(name);
  CAPTURE(part);
  CHECK(m.counts().decisions > 200);
  CHECK(walked <= 8);
  CHECK(asked <= 64);
}

/// A chain and back. On the way back every operator makes two tensors of the gradient and of its
/// layer, and both are dropped: the next gradient, and one that is read eight operators later.
void closure_dies(manager_interface& m, tensor_id x) {
  constexpr std::size_t layers = 200, later = 8;
  constexpr bytes unit{1 << 20};
  const auto run = [&](std::initializer_list<tensor_id> inputs, bytes size, std::int64_t us) {
    return m.run({.inputs = inputs, .outputs = {size}, .cost = nanoseconds{us * 1000}},
                 [](call&) {});
  };
  std::vector<tensor_id> a{run({x}, unit, 40)}, kept(layers);
  while (a.size() < layers) a.push_back(run({a.back()}, unit, 40));
  tensor_id gradient = run({a.back()}, unit, 40);
  const auto use = [&](std::size_t i) {
    m.drop(run({kept[i]}, bytes{4096}, 20));
    m.drop(kept[i]);
  };
  for (std::size_t i = layers; i-- > 0;) {
    const tensor_id next = run({gradient, a[i]}, unit, 40);
    kept[i] = run({gradient, a[i]}, unit * 2, 2);
    m.drop(gradient), m.drop(a[i]);
    gradient = next;
    if (i + later < layers) use(i + later);
  }
  for (std::size_t i = later; i-- > 0;) use(i);
  m.drop(gradient);
  m.end_of_step();
}

/// The last of three steps under the default, over its operators' time.
double closure_dies_under_default(bytes peak, double part) {
  const auto budget = static_cast<std::uint64_t>(part * static_cast<double>(peak.count));
  simulated storage({.capacity = bytes{budget},
                     .host_capacity = peak * 4,
                     .rate_out = 12e9,
                     .rate_in = 12e9,
                     .latency = nanoseconds{10'000}});
  const auto m = make_manager("adaptive", over(storage));
  const tensor_id x = m->variable(bytes{1 << 20});
  for (int step = 0; step < 3; ++step) closure_dies(*m, x);
  return m->learned().measured;
}

simulated_options dense_machine(double part, bool places) {
  static const bytes peak = dense_peak();
  return {.capacity = bytes{std::uint64_t(double(peak.count) * part)},
          .host_capacity = peak * 4,
          .places = places};
}
/// What the fourth step of the dense program takes, or another one, in ms of virtual time; and what
/// has been learned by then.
struct step_taken {
  double ms;
  learning_report learned;
};
step_taken last_step(const auto& policy, const simulated_options& on, int steps = 4) {
  simulated storage(on);
  const auto m = make_manager(policy, over(storage));
  dense_program program(*m, 1);
  for (int i = 1; i < steps; ++i) (void)program.step();
  const nanoseconds began = storage.now();
  (void)program.step();
  return {double((storage.now() - began).count()) / 1e6, m->learned()};
}

}  // namespace

TEST_CASE("a program of many operators, tensors and shared closures: few records an answer") {
  const bytes peak = dense_peak();
  for (const double part : {0.45, 0.12}) {
    // In the smaller one `paper` thrashes, and its Decider walks far more often than anybody
    // answers.
    if (part > 0.4) check_work("paper", peak, part);
    for (const char* policy : {"dtr", "online", "adaptive"}) check_work(policy, peak, part);
  }
}

TEST_CASE("what the program does not use again is kept where others are recomputed from it") {
  // Features of the dense program: read on the way there, and by whoever joins them once more.
  for (const double part : {0.45, 0.3, 0.12}) {
    const simulated_options on = dense_machine(part, false);
    const double untaught = last_step("online", on).ms, taught = last_step("adaptive", on).ms;
    std::printf("dense program at %.2f: online %.1f ms, adaptive %.1f\n", part, untaught, taught);
    CHECK(taught <= untaught);
    // A plan saves 1 % here, and costs three steps: for who asks for so little, and trains long.
    adaptive patient;
    patient.worth = 512, patient.least_gain = 0;
    if (part < 0.3) CHECK(last_step(patient, on).ms < untaught);
  }
}

TEST_CASE("in memory with places the default is rehearsed with every block where it lies") {
  for (const double part : {0.45, 0.12}) {
    simulated_options on = dense_machine(part, true);
    on.rate_move = 8e9;
    const double untaught = last_step("online", on).ms;
    const auto [fifth, l] = last_step("adaptive", on, 5);
    CHECK(fifth <= 1.005 * untaught);
    for (std::size_t i = 3; i < l.outcomes.size(); ++i)
      if (const auto& o = l.outcomes[i]; o.predicted > 0)
        CHECK(o.predicted == doctest::Approx(o.measured).epsilon(1e-3));
  }
}

TEST_CASE("a closure that dies before the next use is not cheap") {
  simulated storage(ample_room);
  const auto alone = with_ample_room(storage);
  const tensor_id x = alone->variable(bytes{1 << 20});
  closure_dies(*alone, x), closure_dies(*alone, x);
  const bytes peak = alone->learned().peak;
  const double low = closure_dies_under_default(peak, 0.2);
  const double more = closure_dies_under_default(peak, 0.3);
  std::printf("closures that die: %.3f at 0.2 of %.0f MB, %.3f at 0.3\n", low,
              static_cast<double>(peak.count) / 1e6, more);
  CHECK(low <= 1.21);
  CHECK(more <= 1.15);
}
