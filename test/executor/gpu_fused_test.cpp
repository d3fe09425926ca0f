// Batch norm fused with the ReLU or the addition and ReLU behind it, on the GPU: the bits of the
// operators that it stands for. The functors run on the host (support/gpu_host_engine.hpp).
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gpu_host_engine.hpp"
#include "kernel_testing.hpp"
#include "kernels/gpu/batch_norm.hpp"
#include "kernels/gpu/elementwise.hpp"

using namespace delta::executor;
using gpu_host::engine;
using gpu_host::order;
using kernel_testing::floats;

namespace {

/// A tensor, `shift` floats beyond a multiple of 16 bytes.
class tensor {
 public:
  tensor(const floats& values, std::size_t shift) : n_(values.size()), shift_(shift) {
    memory_.resize(n_ / 4 + 2);
    if (n_ > 0) std::memcpy(at(), values.data(), n_ * sizeof(float));
  }
  tensor(std::size_t n, std::size_t shift) : tensor(kernel_testing::poisoned(n), shift) {}
  float* at() { return memory_.data()->at + shift_; }
  [[nodiscard]] std::vector<std::byte> bits() {
    const auto* first = reinterpret_cast<const std::byte*>(at());
    return {first, first + n_ * sizeof(float)};
  }

 private:
  std::size_t n_, shift_;
  std::vector<gpu::pack<float, 4>> memory_;
};

using all_bits = std::vector<std::vector<std::byte>>;

/// One batch norm with what it reads; forward and backward, fused or by single operators.
struct subject {
  bn_shape s;
  std::size_t shift;
  floats x, gamma, beta, residual, dy;

  subject(std::size_t rows, int c, std::size_t shift_by) : s{rows, c}, shift(shift_by) {
    const std::size_t n = rows * std::size_t(c);
    x = kernel_testing::random_floats(n, 1, 0.5f);
    gamma = kernel_testing::random_floats(std::size_t(c), 2, 0.25f);
    beta = kernel_testing::random_floats(std::size_t(c), 3);
    residual = kernel_testing::random_floats(n, 4);
    dy = kernel_testing::random_floats(n, 5);
  }

  [[nodiscard]] all_bits run(const engine& e, bool add, bool fused, bool replay = false) const {
    const std::size_t n = x.size(), c = gamma.size();
    tensor in(x, shift), scale(gamma, shift), offset(beta, shift), more(residual, shift),
        slope(dy, shift);
    tensor normal(n, shift), sum(n, shift), y(n, shift), mean(c, shift), invstd(c, shift);
    tensor running_mean(beta, shift), running_var(gamma, shift);
    tensor gated(n, shift), dx(n, shift), dgamma(c, shift), dbeta(c, shift);
    kernel_testing::poisoned_workspace workspace(gpu::bn_workspace(s));
    auto* kept_mean = replay ? nullptr : running_mean.at();
    auto* kept_var = replay ? nullptr : running_var.at();
    if (!fused) {
      gpu::bn_forward(e, s, in.at(), scale.at(), offset.at(), normal.at(), mean.at(), invstd.at(),
                      kept_mean, kept_var, workspace.data());
      if (add) gpu::add(e, n, normal.at(), more.at(), sum.at());
      gpu::relu_forward(e, n, add ? sum.at() : normal.at(), y.at());
      gpu::relu_backward(e, n, y.at(), slope.at(), gated.at());
      gpu::bn_backward(e, s, in.at(), gated.at(), scale.at(), mean.at(), invstd.at(), dx.at(),
                       dgamma.at(), dbeta.at(), workspace.data());
    } else if (add) {
      gpu::bn_add_relu_forward(e, s, in.at(), scale.at(), offset.at(), more.at(), y.at(), mean.at(),
                               invstd.at(), kept_mean, kept_var, workspace.data());
      gpu::bn_add_relu_backward(e, s, in.at(), slope.at(), y.at(), scale.at(), mean.at(),
                                invstd.at(), dx.at(), gated.at(), dgamma.at(), dbeta.at(),
                                workspace.data());
    } else {
      gpu::bn_relu_forward(e, s, in.at(), scale.at(), offset.at(), y.at(), mean.at(), invstd.at(),
                           kept_mean, kept_var, workspace.data());
      gpu::bn_relu_backward(e, s, in.at(), slope.at(), scale.at(), offset.at(), mean.at(),
                            invstd.at(), dx.at(), dgamma.at(), dbeta.at(), workspace.data());
    }
    CHECK(workspace.guard_intact());
    all_bits all;
    for (auto* t : {&y, &mean, &invstd, &running_mean, &running_var, &dx, &dgamma, &dbeta}) {
      all.push_back(t->bits());
    }
    if (add) all.push_back(gated.bits());
    return all;
  }
};

void check(const subject& of) {
  CAPTURE(of.s.rows);
  CAPTURE(of.s.c);
  CAPTURE(of.shift);
  for (const bool add : {false, true}) {
    CAPTURE(add);
    const auto expected = of.run(engine(), add, false);
    for (const auto o : {order::ascending, order::descending, order::scattered}) {
      CHECK(of.run(engine(o), add, true) == expected);
    }
    CHECK(of.run(engine(), add, true, true) == of.run(engine(), add, false, true));
  }
}

}  // namespace

TEST_CASE("fused batch norm has the bits of single operators") {
  for (const std::size_t rows : {1u, 2u, 31u, 33u, 700u, 4097u}) {
    for (const int c : {1, 3, 4, 5, 33, 64}) {
      for (const std::size_t shift : {0u, 1u}) check(subject(rows, c, shift));
    }
  }
}

TEST_CASE("what cannot be loaded in packs has the same bits") {
  const subject packed(700, 64, 0), single(700, 64, 1);
  for (const bool add : {false, true}) {
    CHECK(packed.run(engine(), add, true) == single.run(engine(), add, true));
  }
}

TEST_CASE("NaN and infinity go through fused batch norm as through single operators") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {nan, infinity, -infinity, -0.0f}) {
    CAPTURE(value);
    for (const std::size_t at : {0u, 13u, 38u}) {
      subject of(10, 4, 0);
      of.x[at] = value;
      check(of);
      of = subject(10, 4, 0);
      of.residual[at] = value;
      check(of);
      of = subject(10, 4, 0);
      of.dy[at] = value;
      check(of);
      of = subject(10, 4, 0);
      of.beta[at % 4] = value;
      check(of);
    }
  }
}

TEST_CASE("a NaN in x is one in its channel's results, and in no other's") {
  subject of(50, 4, 0);
  of.x[4 * 7 + 2] = std::numeric_limits<float>::quiet_NaN();
  const auto all = of.run(engine(), false, true);
  for (std::size_t i = 0; i < 200; ++i) {
    float y = 0.0f;
    std::memcpy(&y, all[0].data() + 4 * i, 4);
    CHECK(std::isnan(y) == (i % 4 == 2));
  }
  for (const std::size_t statistic : {1u, 2u, 3u, 4u}) {
    for (std::size_t channel = 0; channel < 4; ++channel) {
      float value = 0.0f;
      std::memcpy(&value, all[statistic].data() + 4 * channel, 4);
      CAPTURE(statistic);
      CHECK(std::isnan(value) == (channel == 2));
    }
  }
}
