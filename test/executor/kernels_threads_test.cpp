// The same bits at 1, 2, 3 and 7 threads, from outputs and workspace that held NaN, on shapes large
// enough to be cut into many blocks (and some into few).
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <vector>

#include "kernel_testing.hpp"
#include "kernels/kernels.hpp"

using namespace delta::executor;
using namespace kernel_testing;

namespace {

/// `run(pool)` gives all outputs in one vector.
void check_same_for_any_pool(const std::function<floats(thread_pool&)>& run) {
  static const auto pools = [] {
    std::vector<std::unique_ptr<thread_pool>> made;
    for (const int threads : {1, 2, 3, 7}) made.push_back(std::make_unique<thread_pool>(threads));
    return made;
  }();
  const auto expected = run(*pools[0]);
  CHECK(std::none_of(expected.begin(), expected.end(), [](float v) { return std::isnan(v); }));
  for (const auto& pool : pools) {
    CAPTURE(pool->threads());
    CHECK(same_bits(run(*pool), expected));
  }
}

floats joined(std::initializer_list<floats> parts) {
  floats all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

TEST_CASE("convolution") {
  for (const auto& s : {
           conv_shape{2, 112, 112, 3, 64, 7, 7, 2, 3},
           conv_shape{2, 56, 56, 64, 64, 3, 3, 1, 1},
           conv_shape{1, 56, 56, 128, 128, 3, 3, 2, 1},
           conv_shape{4, 28, 28, 256, 128, 1, 1, 1, 0},
           conv_shape{2, 28, 28, 512, 256, 1, 1, 2, 0},
           conv_shape{4, 7, 7, 512, 512, 3, 3, 1, 1},
           conv_shape{8, 7, 7, 512, 2048, 1, 1, 1, 0},
           conv_shape{8, 7, 7, 2048, 512, 1, 1, 1, 0},
           conv_shape{2, 14, 14, 512, 512, 3, 3, 2, 1},
           conv_shape{1, 31, 29, 37, 53, 3, 3, 2, 1},
           conv_shape{2, 56, 56, 128, 128, 3, 3, 1, 1, 32},
           conv_shape{1, 28, 28, 512, 512, 3, 3, 2, 1, 32},
           conv_shape{3, 7, 7, 1024, 1024, 3, 3, 1, 1, 32},
           conv_shape{1, 31, 29, 21, 35, 3, 3, 2, 1, 7},
           conv_shape{2, 56, 56, 144, 144, 3, 3, 1, 1, 144},
           conv_shape{3, 15, 14, 571, 571, 5, 5, 2, 2, 571},
       }) {
    CAPTURE(s.h);
    CAPTURE(s.c);
    CAPTURE(s.k);
    CAPTURE(s.kh);
    CAPTURE(s.groups);
    const auto x = random_floats(s.in_size(), 1), filter = random_floats(s.filter_size(), 2);
    const auto dy = random_floats(s.out_size(), 3);
    check_same_for_any_pool([&](thread_pool& pool) {
      auto y = poisoned(s.out_size()), dx = poisoned(s.in_size());
      auto dfilter = poisoned(s.filter_size());
      const int threads = pool.threads();
      poisoned_workspace forward(conv_forward_workspace(s, threads));
      conv_forward(pool, s, x.data(), filter.data(), y.data(), forward.data());
      CHECK(forward.guard_intact());
      poisoned_workspace data(conv_backward_data_workspace(s, threads));
      conv_backward_data(pool, s, dy.data(), filter.data(), dx.data(), data.data());
      CHECK(data.guard_intact());
      poisoned_workspace weights(conv_backward_filter_workspace(s, threads));
      conv_backward_filter(pool, s, x.data(), dy.data(), dfilter.data(), weights.data());
      CHECK(weights.guard_intact());
      return joined({y, dx, dfilter});
    });
  }
}

TEST_CASE("batch norm") {
  for (const auto& s : {bn_shape{8 * 56 * 56, 64}, bn_shape{8 * 49, 2048}, bn_shape{1003, 37}}) {
    CAPTURE(s.c);
    const auto c = std::size_t(s.c), n = s.rows * c;
    const auto x = random_floats(n, 1), dy = random_floats(n, 2), gamma = random_floats(c, 3);
    const auto beta = random_floats(c, 4);
    check_same_for_any_pool([&](thread_pool& pool) {
      auto y = poisoned(n), mean = poisoned(c), invstd = poisoned(c), inferred = poisoned(n);
      auto running_mean = random_floats(c, 5), running_var = random_floats(c, 6, 2.0f);
      auto dx = poisoned(n), dgamma = poisoned(c), dbeta = poisoned(c);
      poisoned_workspace forward(bn_forward_workspace(s, pool.threads()));
      bn_forward(pool, s, x.data(), gamma.data(), beta.data(), y.data(), mean.data(), invstd.data(),
                 running_mean.data(), running_var.data(), forward.data());
      CHECK(forward.guard_intact());
      bn_inference(pool, s, x.data(), gamma.data(), beta.data(), running_mean.data(),
                   running_var.data(), inferred.data());
      poisoned_workspace backward(bn_backward_workspace(s, pool.threads()));
      bn_backward(pool, s, x.data(), dy.data(), gamma.data(), mean.data(), invstd.data(), dx.data(),
                  dgamma.data(), dbeta.data(), backward.data());
      CHECK(backward.guard_intact());
      return joined({y, mean, invstd, inferred, running_mean, running_var, dx, dgamma, dbeta});
    });
  }
}

TEST_CASE("element by element, and the optimiser") {
  const std::size_t n = 1'000'003;
  const auto a = random_floats(n, 1), b = random_floats(n, 2);
  check_same_for_any_pool([&](thread_pool& pool) {
    auto y = poisoned(n), dx = poisoned(n), sum = poisoned(n);
    relu_forward(pool, n, a.data(), y.data());
    relu_backward(pool, n, y.data(), b.data(), dx.data());
    add(pool, n, a.data(), b.data(), sum.data());
    auto w = a, v = b;
    sgd_update(pool, n, 0.1f, 0.9f, 1e-4f, b.data(), w.data(), v.data());
    auto adam_w = a, m = b, square = random_floats(n, 3, 1.0f);
    const adam_step step{1e-3f, 0.9f, 0.999f, 1e-8f, 1e-2f, 2};
    adam_update(pool, n, step, b.data(), adam_w.data(), m.data(), square.data());
    return joined({y, dx, sum, w, v, adam_w, m, square});
  });
}

TEST_CASE("dropout") {
  const std::size_t n = 1'000'003;
  const auto x = random_floats(n, 1);
  check_same_for_any_pool([&](thread_pool& pool) {
    auto y = poisoned(n), dx = poisoned(n);
    std::vector<std::uint8_t> mask(n, 255);
    dropout_forward(pool, n, 0.3f, 5, 6, x.data(), y.data(), mask.data());
    dropout_backward(pool, n, 0.3f, x.data(), mask.data(), dx.data());
    return joined({y, dx, floats(mask.begin(), mask.end())});
  });
}

TEST_CASE("pooling") {
  const pool_shape s{4, 56, 56, 64, 3, 2, 1};
  const auto x = random_floats(s.in_size(), 1), dy = random_floats(s.out_size(), 2);
  check_same_for_any_pool([&](thread_pool& pool) {
    auto y = poisoned(s.out_size()), dx = poisoned(s.in_size());
    std::vector<std::uint8_t> argmax(s.out_size(), 255);
    max_pool_forward(pool, s, x.data(), y.data(), argmax.data());
    max_pool_backward(pool, s, dy.data(), argmax.data(), dx.data());
    auto mean = poisoned(std::size_t(s.n) * s.c), spread = poisoned(s.in_size());
    global_avg_pool_forward(pool, s.n, s.h * s.w, s.c, x.data(), mean.data());
    global_avg_pool_backward(pool, s.n, s.h * s.w, s.c, mean.data(), spread.data());
    return joined({y, dx, floats(argmax.begin(), argmax.end()), mean, spread});
  });
}

TEST_CASE("linear layer and loss") {
  const int n = 32, in = 2048, out = 1000;
  const auto x = random_floats(std::size_t(n) * in, 1);
  const auto weight = random_floats(std::size_t(out) * in, 2), bias = random_floats(out, 3);
  std::vector<std::int32_t> labels;
  labels.reserve(n);
  for (int i = 0; i < n; ++i) labels.push_back(i * 31 % out);
  check_same_for_any_pool([&](thread_pool& pool) {
    auto logits = poisoned(std::size_t(n) * out), probabilities = logits, dlogits = logits;
    auto dx = poisoned(x.size()), dweight = poisoned(weight.size()), dbias = poisoned(out);
    auto loss = poisoned(1);
    linear_forward(pool, n, in, out, x.data(), weight.data(), bias.data(), logits.data());
    softmax_cross_entropy_forward(pool, n, out, logits.data(), labels.data(), loss.data(),
                                  probabilities.data());
    softmax_cross_entropy_backward(pool, n, out, probabilities.data(), labels.data(),
                                   dlogits.data());
    linear_backward_data(pool, n, in, out, dlogits.data(), weight.data(), dx.data());
    linear_backward_weight(pool, n, in, out, x.data(), dlogits.data(), dweight.data(),
                           dbias.data());
    return joined({logits, probabilities, dlogits, dx, dweight, dbias, loss});
  });
}
