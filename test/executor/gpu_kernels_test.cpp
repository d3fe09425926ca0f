// The GPU's own operators, run on the host (support/gpu_host_engine.hpp), against the CPU's.
//
// What this can't show is what a GPU alone has: launches, its memory, cuBLAS and cuDNN;
// cuda_backend_test.cpp does, where there is one.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <array>
#include <variant>

#include "cuda/bind.hpp"
#include "gpu_host_engine.hpp"
#include "kernels/gpu/column_major.hpp"
#include "operator_cases.hpp"
#include "seeds.hpp"

using namespace operator_cases;
using gpu_host::engine;
using gpu_host::order;

namespace {

/// Sums of up to some thousand products in float, in another order than the CPU's.
constexpr double tolerance = 1e-5;

gpu::bound_operator bound(const operator_case& c, const graph& g, const engine& e) {
  return std::visit(
      [&](const auto& shape) { return gpu::bind_operator(e, g.hyper, c.type, shape); }, c.shape);
}

results run(const operator_case& c, order o, std::size_t shift = 0, bool replay = false) {
  const graph g = c.make_graph();
  const auto operation = bound(c, g, engine(o));
  return run_on_host(c, operation.workspace, operation.run, shift, replay);
}

/// What is computed is a selection, not a sum: the same bits as the CPU's.
bool exact(operator_type type) {
  return type == operator_type::relu_forward || type == operator_type::relu_backward ||
         type == operator_type::add || type == operator_type::max_pool_forward ||
         type == operator_type::max_pool_backward || type == operator_type::dropout_forward ||
         type == operator_type::dropout_backward;
}

void blas_by_definition(const gpu::column_major_product& p) {
  for (std::int64_t batch = 0; batch < p.batch; ++batch) {
    const float *a = p.a + batch * p.a_step, *b = p.b + batch * p.b_step;
    for (std::int64_t column = 0; column < p.n; ++column) {
      for (std::int64_t row = 0; row < p.m; ++row) {
        double sum = 0.0;
        for (std::int64_t i = 0; i < p.k; ++i) {
          sum += double(p.turn_a ? a[row * p.lda + i] : a[i * p.lda + row]) *
                 double(p.turn_b ? b[i * p.ldb + column] : b[column * p.ldb + i]);
        }
        float& c = p.c[batch * p.c_step + column * p.ldc + row];
        c = float(sum + (p.beta == 0.0f ? 0.0 : double(p.beta) * double(c)));
      }
    }
  }
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
  for (std::size_t i = 0; i < 60; ++i) {
    std::vector<operator_case> cases;
    add_convolution(cases, random_convolution(dice));
    const std::size_t limit = i % 3 == 0 ? 1 : 1000 + 500 * i;
    for (const auto& c : cases) {
      CAPTURE(c.text);
      const graph g = c.make_graph();
      const auto some = bound(c, g, engine(order::scattered, limit));
      CHECK(difference(c, run_on_host(c, some.workspace, some.run), run_on_cpu(c)) < tolerance);
    }
  }
}

TEST_CASE("whoever multiplies asks for the workspace of the engine at hand, and stays within it") {
  CHECK(gpu::blas_workspace(8) == std::size_t(4) << 20);
  CHECK(gpu::blas_workspace(9) == std::size_t(32) << 20);
  std::vector<operator_case> cases;
  add_convolution(cases, {2, 8, 8, 16, 16, 3, 3, 1, 1});
  add_linear(cases, {4, 20, 10});
  for (const auto& c : cases) {
    CAPTURE(c.text);
    if (c.type == operator_type::softmax_cross_entropy_forward) break;
    const graph g = c.make_graph();
    const auto little = bound(c, g, engine(order::ascending, 1 << 20, 512));
    const auto much = bound(c, g, engine(order::ascending, 1 << 20, 8192));
    CHECK(much.workspace == little.workspace + 8192 - 512);
    CHECK(run_on_host(c, much.workspace, much.run) == run_on_host(c, little.workspace, little.run));
  }
}

// cuBLAS counts by columns; what it is told is tried out on a BLAS of three loops.
TEST_CASE("a product of rows is the same product of columns") {
  delta::test::dice dice(5);
  const engine e;
  std::vector<std::byte> workspace(e.product_workspace());
  for (int i = 0; i < 100; ++i) {
    const auto upto = [&](std::uint64_t most) { return 1 + std::size_t(dice.below(most)); };
    const std::size_t m = upto(6), n = upto(6), k = upto(6), batch = upto(3);
    const bool turn_a = dice.one_in(2), turn_b = dice.one_in(2);
    const std::size_t lda = (turn_a ? m : k) + upto(3), ldb = (turn_b ? k : n) + upto(3);
    const auto a = kernel_testing::random_floats(batch * 100, 1);
    const auto b = kernel_testing::random_floats(batch * 100, 2);
    auto expected = kernel_testing::random_floats(batch * 100, 3), got = expected;
    gpu::matrix_product p{.m = m,
                          .n = n,
                          .k = k,
                          .a = {a.data(), lda, 100, turn_a},
                          .b = {b.data(), ldb, 100, turn_b},
                          .c = {expected.data(), n + upto(3), 100},
                          .beta = dice.one_in(2) ? 1.0f : 0.0f,
                          .batch = batch};
    e.multiply(p, workspace.data());
    p.c.at = got.data();
    const auto by_columns = gpu::column_major(p);
    blas_by_definition(by_columns);
    CHECK(kernel_testing::relative_error(got, expected) < 1e-6);
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

namespace {

/// Parameters of these sizes, whose addresses are off their alignment where `shift` says, updated
/// by one operator and by one each. Gives the number of launches of the one.
void check_group(operator_type type, const std::vector<std::size_t>& sizes, std::size_t shift,
                 order o) {
  const std::size_t states = type == operator_type::adam_update ? 3 : 2;
  operator_case together{type, update_shape{sizes}, "updates", {}, {}};
  std::vector<operator_case> alone;
  for (const std::size_t n : sizes) {
    const operand x{{int(n)}}, above{{int(n)}, element::floats, 1.0f};
    operator_case one{type, element_count{n}, "update", {x}, {}};
    one.updates.assign(states, x);
    one.updates.back() = above;
    together.inputs.push_back(x);
    together.updates.insert(together.updates.end(), one.updates.begin(), one.updates.end());
    alone.push_back(std::move(one));
  }
  const graph g = together.make_graph();
  const auto all = bound(together, g, engine(o));
  const auto on_cpu = run_on_cpu(together);
  const auto got = run_on_host(together, all.workspace, all.run, shift);
  CHECK(difference(together, got, on_cpu) < tolerance);
  // Each alone, on what it had among the others.
  std::uint32_t seed = 1;
  std::vector<contents> memory;
  std::vector<const std::byte*> in;
  std::vector<std::byte*> update;
  for (const auto* list : {&together.inputs, &together.updates})
    for (const operand& x : *list) memory.push_back(x.draw(seed++));
  auto cpu = memory;
  thread_pool pool(1);
  const auto each = [&](std::vector<contents>& from, const auto& bind) {
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      const graph one = alone[k].make_graph();
      const std::byte* const gradient = from[k].data();
      std::array<std::byte*, 3> to{};
      for (std::size_t i = 0; i < states; ++i) to[i] = from[sizes.size() + k * states + i].data();
      bind(alone[k], one)({&gradient, nullptr, to.data(), nullptr, false, 77, pool});
    }
    return results(from.begin() + std::ptrdiff_t(sizes.size()), from.end());
  };
  CHECK(got == each(memory, [](const operator_case& c, const graph& one) {
          return bound(c, one, engine()).run;
        }));
  CHECK(on_cpu == each(cpu, [](const operator_case&, graph one) {
          bind_cpu(one, 1);
          return one.nodes[0].run;
        }));
}

/// Counts launches, and runs nothing.
struct launches_only {
  std::size_t* launches;
  template <class F>
  void blocks(std::size_t, const F&) const {
    ++*launches;
  }
};

}  // namespace

TEST_CASE("updates of many parameters in one operator are those of each, to the bit") {
  constexpr std::size_t piece = 16384;
  std::vector<std::size_t> mixed{1, 3, 4, 5, 64, 1000, 4097, piece - 1, piece, piece + 1, 40'001};
  std::vector<std::size_t> many;  // more than the tables of a launch have room for
  for (std::size_t i = 0; i < 130; ++i) many.push_back(1 + i * 37 % 300);
  many[60] = 3 * piece + 2;
  for (const operator_type type : {operator_type::sgd_update, operator_type::adam_update}) {
    for (const order o : {order::ascending, order::descending, order::scattered})
      for (const std::size_t shift : {0u, 1u}) {
        check_group(type, mixed, shift, o);
        check_group(type, many, shift, o);
      }
    check_group(type, {7, 512 * piece + 5, 9}, 0, order::ascending);  // longer than a launch
  }
}

TEST_CASE("updates of many parameters take a launch for what the tables hold") {
  const auto count = [](std::vector<std::size_t> sizes) {
    std::size_t launches = 0;
    std::byte nothing{};  // is not read
    const std::vector<const std::byte*> in(sizes.size(), &nothing);
    const std::vector<std::byte*> update(2 * sizes.size(), &nothing);
    gpu::update_all(launches_only{&launches}, sizes, gpu::sgd_rule{}, in.data(), update.data());
    return launches;
  };
  CHECK(count({5}) == 1);
  CHECK(count(std::vector<std::size_t>(48, 1000)) == 1);
  CHECK(count(std::vector<std::size_t>(49, 1000)) == 2);
  CHECK(count({512 * 16384}) == 1);
  CHECK(count({512 * 16384, 1}) == 2);
  CHECK(count({3 * 512 * 16384 + 1}) == 4);
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
