// Machines that are not quite the recorded one: the costs that follow, the same every time.
#include "trace/perturb.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

using namespace delta;
using namespace delta::executor;

namespace {

trace operations(const std::vector<std::int64_t>& costs) {
  trace t;
  t.names = {"f"};
  for (const std::int64_t cost : costs) {
    t.events.push_back({trace::kind::run, std::uint32_t(t.operations.size())});
    t.operations.push_back({.cost = nanoseconds{cost}});
  }
  check(t);
  return t;
}

std::vector<std::int64_t> costs_of(const trace& t) {
  std::vector<std::int64_t> costs;
  for (const auto& o : t.operations) costs.push_back(o.cost.count());
  return costs;
}

std::vector<std::int64_t> perturbed_costs(const std::vector<std::int64_t>& costs,
                                          const perturbation& p) {
  const trace t = perturbed(operations(costs), p);
  check(t);
  return costs_of(t);
}

}  // namespace

TEST_CASE("nothing asked for: nothing changed") {
  const trace t = operations({0, 1, 1'000'000'000'000'001});
  CHECK(perturbed(t, {.seed = 7}) == t);
}

TEST_CASE("faster operators: costs are rounded, and none becomes free") {
  CHECK(perturbed_costs({0, 1, 3, 5, 1001}, {.operators_faster = 4}) ==
        std::vector<std::int64_t>{0, 1, 1, 1, 250});
  CHECK(perturbed_costs({0, 3}, {.operators_faster = 0.5}) == std::vector<std::int64_t>{0, 6});
}

TEST_CASE("noise repeats, by seed and number of the operation") {
  const std::vector<std::int64_t> costs(100, 1'000'000);
  const auto noisy = perturbed_costs(costs, {.noise = 0.3});
  CHECK(noisy == perturbed_costs(costs, {.noise = 0.3}));
  CHECK(noisy != perturbed_costs(costs, {.noise = 0.3, .seed = 2}));
  auto longer = perturbed_costs(std::vector<std::int64_t>(200, 1'000'000), {.noise = 0.3});
  longer.resize(100);
  CHECK(noisy == longer);
  // On every machine.
  const std::vector<std::int64_t> first(noisy.begin(), noisy.begin() + 4);
  CHECK(first == std::vector<std::int64_t>{629315, 880038, 819574, 1133518});
}

TEST_CASE("noise keeps the mean, and has the sigma that was asked for") {
  constexpr std::size_t count = 200'000;
  constexpr double cost = 1e9;
  for (const double sigma : {0.1, 0.5}) {
    double sum = 0, logs = 0, squares = 0;
    for (const auto c : perturbed_costs(std::vector<std::int64_t>(count, std::int64_t(cost)),
                                        {.noise = sigma, .seed = 3})) {
      const double factor = double(c) / cost;
      sum += factor;
      logs += std::log(factor);
      squares += std::log(factor) * std::log(factor);
    }
    const double mean = logs / count;
    CHECK(sum / count == doctest::Approx(1).epsilon(0.005));
    CHECK(mean == doctest::Approx(-sigma * sigma / 2).epsilon(0.03));
    CHECK(std::sqrt(squares / count - mean * mean) == doctest::Approx(sigma).epsilon(0.01));
  }
}

TEST_CASE("costs beyond 63 bits") {
  const char* const why = "the operations' costs leave 63 bits";
  for (const std::vector<std::int64_t>& costs : std::vector<std::vector<std::int64_t>>{
           {std::int64_t{1} << 62}, {1, std::int64_t{1} << 61, std::int64_t{1} << 61}})
    CHECK_THROWS_WITH_AS((void)perturbed(operations(costs), {.operators_faster = 0.5}), why,
                         std::length_error);
}
