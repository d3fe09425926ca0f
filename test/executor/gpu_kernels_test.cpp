// The GPU's own operators, run on the host (support/gpu_host_engine.hpp), against the CPU's.
//
// What this can't show is what a GPU alone has: launches, its memory, cuBLAS and cuDNN;
// cuda_backend_test.cpp does, where there is one.
#include <doctest/doctest.h>

#include <variant>

#include "cuda/bind.hpp"
#include "gpu_host_engine.hpp"
#include "operator_cases.hpp"
#include "seeds.hpp"

using namespace operator_cases;
using gpu_host::engine;
using gpu_host::order;

namespace {

/// Sums of up to some thousand products in float, in another order than the CPU's.
constexpr double tolerance = 1e-5;

gpu::bound_operator bound(const operator_case& c, const graph& g, order o) {
  return std::visit(
      [&](const auto& shape) { return gpu::bind_operator(engine(o), g.hyper, c.type, shape); },
      c.shape);
}

results run(const operator_case& c, order o, std::size_t shift = 0, bool replay = false) {
  const graph g = c.make_graph();
  const auto operation = bound(c, g, o);
  return run_on_host(c, operation.workspace, operation.run, shift, replay);
}

/// What is computed is a selection, not a sum: the same bits as the CPU's.
bool exact(operator_type type) {
  return type == operator_type::relu_forward || type == operator_type::relu_backward ||
         type == operator_type::add || type == operator_type::max_pool_forward ||
         type == operator_type::max_pool_backward || type == operator_type::dropout_forward ||
         type == operator_type::dropout_backward;
}

void check_case(const operator_case& c) {
  CAPTURE(c.text);
  const auto expected = run_on_cpu(c);
  const auto got = run(c, order::ascending);
  CHECK(difference(c, got, expected) < tolerance);
  if (exact(c.type)) CHECK(got == expected);
  CHECK(run(c, order::descending) == got);
  CHECK(run(c, order::scattered) == got);
  CHECK(difference(c, run(c, order::scattered, 1), expected) < tolerance);  // not aligned
}

}  // namespace

TEST_CASE("operators on chosen shapes") {
  for (const auto& c : fixed_cases()) check_case(c);
}

TEST_CASE("operators on random shapes") {
  for (std::uint64_t seed = 1; seed <= delta::test::seeds(100); ++seed) {
    CAPTURE(seed);
    for (const auto& c : random_cases(seed)) check_case(c);
  }
}

TEST_CASE("convolutions in blocks of rows, down to a single one") {
  delta::test::dice dice(3);
  for (int i = 0; i < 60; ++i) {
    std::vector<operator_case> cases;
    const conv_shape s = random_convolution(dice);
    if (gpu::is_depthwise(s)) continue;
    add_convolution(cases, s);
    const engine e(order::scattered);
    const std::size_t limit = i % 3 == 0 ? 1 : 1000 + 500 * std::size_t(i);
    using gpu::in;
    using gpu::out;
    const std::function<void(const kernel_args&)> passes[] = {
        [&](const kernel_args& a) {
          gpu::conv_forward(e, s, in(a, 0), in(a, 1), out(a, 0), a.workspace, limit);
        },
        [&](const kernel_args& a) {
          gpu::conv_backward_data(e, s, in(a, 0), in(a, 1), out(a, 0), a.workspace, limit);
        },
        [&](const kernel_args& a) {
          gpu::conv_backward_filter(e, s, in(a, 0), in(a, 1), out(a, 0), a.workspace, limit);
        }};
    for (std::size_t pass = 0; pass < 3; ++pass) {
      CAPTURE(cases[pass].text);
      const auto workspace = gpu::conv_workspace(e, s, pass == 1, limit);
      CHECK(difference(cases[pass], run_on_host(cases[pass], workspace, passes[pass]),
                       run_on_cpu(cases[pass])) < tolerance);
    }
  }
}

TEST_CASE("a replay of batch norm leaves the running statistics alone") {
  std::vector<operator_case> cases;
  add_batch_norm(cases, 2, 9, 9, 12);
  const auto& forward = cases[0];
  const auto first = run(forward, order::ascending),
             again = run(forward, order::ascending, 0, true);
  for (std::size_t i = 0; i < forward.outputs.size(); ++i) CHECK(first[i] == again[i]);
  CHECK(again[3] == forward.updates[0].draw(4));
  CHECK(again[4] == forward.updates[1].draw(5));
}

TEST_CASE("a mean far from zero costs no digits of the variance") {
  std::vector<operator_case> cases;
  add_batch_norm(cases, 4, 32, 32, 8);
  cases[0].inputs[0].offset = 1000.0f;
  CHECK(difference(cases[0], run(cases[0], order::ascending), run_on_cpu(cases[0])) < tolerance);
}

TEST_CASE("NaN passes through, and wins in max pooling") {
  const engine e;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float x[4] = {1.0f, nan, -1.0f, 2.0f};
  float y[4] = {};
  gpu::relu_forward(e, 4, x, y);
  CHECK(std::isnan(y[1]));
  CHECK(y[2] == 0.0f);
  std::uint8_t argmax = 9;
  gpu::max_pool_forward(e, {1, 2, 2, 1, 2, 1, 0}, x, y, &argmax);
  CHECK(std::isnan(y[0]));
  CHECK(argmax == 1);
}

TEST_CASE("a label outside the classes makes the loss a NaN, and touches nothing") {
  std::vector<operator_case> cases;
  add_linear(cases, {3, 2, 5});
  for (const int below : {-7, 900}) {
    auto c = cases[3];
    c.inputs[1].below = below;
    CAPTURE(below);
    const auto got = run(c, order::ascending);
    float loss = 0.0f;
    std::memcpy(&loss, got[0].data(), sizeof loss);
    CHECK(std::isnan(loss));
    auto gradient = cases[4];
    gradient.inputs[1].below = below;
    run(gradient, order::ascending);
  }
}

TEST_CASE("what cannot be is refused when it is bound") {
  const engine e;
  CHECK_THROWS_AS(gpu::conv_workspace(e, {1, 4, 4, 6, 6, 3, 3, 1, 1, 4}, false),
                  std::invalid_argument);
  const auto hyper = std::make_shared<const hyper_parameters>();
  CHECK_THROWS_AS(
      gpu::bind_operator(e, hyper, operator_type::dropout_forward, dropout_shape{4, 1.5f}),
      std::invalid_argument);
}
