// Where steps begin in programs that do not say so.
// ctest-labels: long_sanitized
#include "delta/detail/history/step_recorder.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <span>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"

using namespace delta;
using namespace delta::literals;
using namespace std::chrono_literals;

namespace {

constexpr auto weight = tensor_id{0}, other = tensor_id{1}, batch = tensor_id{2};
bool anything(tensor_id) {
  return true;
}

// A step of `layers` operators whose outputs stay until a backward pass has read each once.
void train(auto& manager, tensor_id weights, int layers) {
  const tensor_id x = manager.constant(64_B, "batch");
  std::vector<tensor_id> made;
  for (int i = 0; i < layers; ++i) {
    const std::array in{i == 0 ? x : made.back(), weights};
    const std::array size{100_B};
    std::array<tensor_id, 1> out{};
    manager.run(operation_span{.inputs = in, .outputs = size, .cost = 100us, .name = "layer"}, out,
                [](call&) {});
    made.push_back(out[0]);
  }
  for (; !made.empty(); made.pop_back()) {
    const std::array in{made.back()};
    manager.run(operation_span{.inputs = in, .cost = 200us, .name = "backward"}, {}, [](call&) {});
    manager.drop(made.back());
  }
  manager.drop(x);
}

}  // namespace

TEST_CASE("the first operator on the same parameter begins a step when little is left") {
  detail::step_detector steps;
  const std::array first{batch, weight};
  const std::array second{other};
  const std::array another_batch{tensor_id{7}, weight};
  CHECK_FALSE(steps.begins("embed", first, anything));
  for (int i = 0; i < 10; ++i) {
    steps.made(100_B);
    CHECK_FALSE(steps.begins("layer", second, anything));
  }
  // In the middle of a step: as in a recurrent network.
  CHECK_FALSE(steps.begins("embed", first, anything));
  for (int i = 0; i < 9; ++i) steps.dropped(100_B);
  CHECK_FALSE(steps.begins("layer", first, anything));
  CHECK_FALSE(steps.begins("embed", second, anything));
  CHECK(steps.begins("embed", another_batch, anything));
  // It has begun: not again at once.
  CHECK_FALSE(steps.begins("embed", first, anything));
}

TEST_CASE("who marks steps is not watched") {
  detail::step_detector steps;
  const std::array first{batch, weight};
  steps.mark();
  for (int i = 0; i < 40; ++i) CHECK_FALSE(steps.begins("embed", first, anything));
}

TEST_CASE("a program without marks is learned") {
  simulated storage{
      {.capacity = 1000_B, .host_capacity = 10'000_B, .rate_out = 1e6, .rate_in = 1e6}};
  delta::manager manager{adaptive(), storage};
  const tensor_id weights = manager.variable(200_B, "weights");
  for (int step = 0; step < 5; ++step) {
    CHECK(manager.past().steps() == std::uint64_t(step > 0 ? step - 1 : 0));
    train(manager, weights, 20);
  }
  CHECK(manager.past().steps() == 4);
  CHECK(manager.past().records() == 1);
  CHECK(manager.past().follows());
}
