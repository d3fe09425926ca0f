// Operators whose times are known only later, as on a device with events.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <deque>
#include <optional>

#include "delta/adaptive.hpp"
#include "delta/manager.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"

using namespace delta;
using namespace delta::literals;

namespace {

constexpr std::size_t behind = 3;

// The times of the last operators are not known yet.
class late : public simulated {
 public:
  using simulated::simulated;
  stamp end_operator(nanoseconds cost) {
    const stamp done = simulated::end_operator(cost);
    last_.push_back(done);
    if (last_.size() > behind) last_.pop_front();
    return done;
  }
  std::optional<nanoseconds> elapsed(stamp s) {
    for (const stamp l : last_)
      if (l == s) return std::nullopt;
    return simulated::elapsed(s);
  }
  std::optional<nanoseconds> alone(stamp s) { return elapsed(s); }

 private:
  std::deque<stamp> last_;
};

/// What replays took in a program in which some are needed, on that storage.
template <class S>
nanoseconds replayed() {
  S storage{{.capacity = 40_B, .granularity = 1}};
  delta::manager manager{lru{}, evict_only{}, no_prefetch{}, storage};
  const auto nothing = [](call&) {};
  std::array<tensor_id, 6> made{};
  for (std::size_t i = 0; i < made.size(); ++i)
    made[i] = manager.run({.outputs = {10_B}, .cost = nanoseconds{100 + int(i)}}, nothing);
  for (const tensor_id t : made) {
    manager.template run<0>({.inputs = {t}, .cost = nanoseconds{1}}, nothing);
    manager.drop(t);
  }
  for (std::size_t i = 0; i < behind; ++i)
    manager.template run<0>({.cost = nanoseconds{1}}, nothing);
  manager.end_of_step();
  return manager.counts().recompute_time;
}

}  // namespace

TEST_CASE("replays whose times come late are counted with what they took") {
  const nanoseconds at_once = replayed<simulated>();
  CHECK(at_once > nanoseconds{100});
  CHECK(replayed<late>() == at_once);
}

TEST_CASE("times that come late are learned, those that never come are the step's before") {
  late storage{{.capacity = 10'000_B, .host_capacity = 10'000_B}};
  delta::manager manager{adaptive(), storage};
  const tensor_id x = manager.variable(10_B, "x");
  constexpr int length = 12;
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < length; ++i) {
      const std::array in{x};
      manager.run(operation_span{.inputs = in, .cost = nanoseconds{100 + i}, .name = "work"}, {},
                  [](call&) {});
    }
    manager.end_of_step();
    const step_record& seen = manager.past().last();
    REQUIRE(seen.length() == length);
    for (int i = 0; i < length; ++i) CHECK(seen.operations[std::size_t(i)].cost == 100 + i);
  }
}

// The next step's record is shorter than the places of the times that are still to come.
TEST_CASE("times that come after the end of a step that nobody has marked are nobody's") {
  late storage{{.capacity = 10'000_B, .host_capacity = 10'000_B}};
  delta::manager manager{adaptive(), storage};
  const tensor_id x = manager.variable(10_B, "x");
  constexpr int length = 12, steps = 4;
  const auto nothing = [](call&) {};
  for (int step = 0; step < steps; ++step) {
    tensor_id last = x;
    for (int i = 0; i < length; ++i) {
      const tensor_id made = manager.run({.inputs = {last},
                                          .outputs = {100_B},
                                          .cost = nanoseconds{1000 * step + 100 + i},
                                          .name = i == 0 ? "first" : "next"},
                                         nothing);
      if (last != x) manager.drop(last);
      last = made;
    }
    manager.drop(last);
    REQUIRE(manager.past().steps() == std::uint64_t(step));
    if (step == 0) continue;
    const step_record& seen = manager.past().last();
    REQUIRE(seen.length() == length);
    for (int i = 0; i < length; ++i)
      CHECK(seen.operations[std::size_t(i)].cost == 1000 * (step - 1) + 100 + i);
  }
}

TEST_CASE("without a word of the program the last ones take what they took before") {
  detail::graph tensors;
  const std::array touched{tensors.add_tensor(10_B, 10_B)};
  detail::step_recorder past;
  past.created(touched[0], 10_B, false, false);
  for (int step = 0; step < 2; ++step) {
    past.begin("work", touched, 1, {}, tensors);
    past.end({}, {}, trait::pure, step == 0 ? 70.0 : -1.0, tensors);
    past.begin("rest", touched, 1, {}, tensors);
    past.end({}, {}, trait::pure, -1.0, tensors);
    if (step == 0) past.measured(1, 30.0, true);
    past.end_of_step(nanoseconds{100 * (step + 1)}, tensors);
    CHECK(past.last().operations[0].cost == 70.0);
    CHECK(past.last().operations[1].cost == 30.0);
  }
}
