// Every kernel, forward and backward, against a reference in double precision: outputs directly,
// gradients by numerical differences of the reference. Shapes are small and odd on purpose.
// ctest-labels: slow;long
#include <doctest/doctest.h>

#include <array>
#include <stdexcept>

#include "kernel_reference.hpp"
#include "kernel_testing.hpp"
#include "kernels/kernels.hpp"

using namespace delta::executor;
using namespace kernel_testing;
namespace reference = kernel_reference;

namespace {

// A float has 24 bits, so one rounding is 6e-8; sums here have up to some hundred terms.
constexpr double tolerance = 2e-6;

thread_pool& pool() {
  static thread_pool instance(2);
  return instance;
}

void check_convolution(const conv_shape& s) {
  CAPTURE(s.n);
  CAPTURE(s.h);
  CAPTURE(s.w);
  CAPTURE(s.c);
  CAPTURE(s.k);
  CAPTURE(s.kh);
  CAPTURE(s.kw);
  CAPTURE(s.stride);
  CAPTURE(s.pad);
  CAPTURE(s.groups);
  const auto x = random_floats(s.in_size(), 1), filter = random_floats(s.filter_size(), 2);
  const auto dy = random_floats(s.out_size(), 3);
  const auto xd = to_double(x), filterd = to_double(filter), dyd = to_double(dy);
  const int threads = pool().threads();

  auto y = poisoned(s.out_size());
  poisoned_workspace forward(conv_forward_workspace(s, threads));
  conv_forward(pool(), s, x.data(), filter.data(), y.data(), forward.data());
  CHECK(relative_error(y, reference::convolution(s, xd, filterd)) < tolerance);
  CHECK(forward.guard_intact());

  // The reference is linear in each argument, so any step is exact but for rounding.
  auto dx = poisoned(s.in_size());
  poisoned_workspace data(conv_backward_data_workspace(s, threads));
  conv_backward_data(pool(), s, dy.data(), filter.data(), dx.data(), data.data());
  const auto expected_dx = numerical_gradient(
      xd, [&](const doubles& at) { return dot(reference::convolution(s, at, filterd), dyd); }, 1.0);
  CHECK(relative_error(dx, expected_dx) < tolerance);
  CHECK(data.guard_intact());

  auto dfilter = poisoned(s.filter_size());
  poisoned_workspace weights(conv_backward_filter_workspace(s, threads));
  conv_backward_filter(pool(), s, x.data(), dy.data(), dfilter.data(), weights.data());
  const auto expected_dfilter = numerical_gradient(
      filterd, [&](const doubles& at) { return dot(reference::convolution(s, xd, at), dyd); }, 1.0);
  CHECK(relative_error(dfilter, expected_dfilter) < tolerance);
  CHECK(weights.guard_intact());
}

}  // namespace

TEST_CASE("convolution: kernels, strides, padding and odd sizes") {
  for (const int kernel : {1, 3, 7})
    for (const int stride : {1, 2, 3})
      for (const int pad : {0, 1, 3}) {
        if (pad > kernel) continue;
        // Fewer output channels under 49 taps: the reference is slow.
        check_convolution({2, 8, 7, 3, kernel == 7 ? 2 : 5, kernel, kernel, stride, pad});
      }
}

TEST_CASE("convolution: rectangular kernels and images, one pixel, one channel") {
  check_convolution({1, 5, 11, 2, 3, 3, 1, 1, 1});
  check_convolution({1, 11, 5, 2, 3, 1, 3, 2, 1});
  check_convolution({1, 1, 1, 1, 1, 1, 1, 1, 0});
  check_convolution({3, 1, 1, 9, 7, 1, 1, 1, 0});
  check_convolution({2, 2, 2, 5, 4, 3, 3, 2, 1});
  check_convolution({1, 8, 8, 1, 1, 3, 3, 2, 1});
  check_convolution({1, 3, 3, 2, 2, 1, 1, 4, 0});
}

TEST_CASE("convolution: wide enough for the paths that take filters by taps and rows") {
  check_convolution({1, 3, 3, 11, 259, 3, 3, 1, 1});
  check_convolution({1, 3, 2, 6, 261, 3, 3, 2, 1});
  check_convolution({1, 3, 3, 530, 3, 3, 3, 1, 1});
  check_convolution({1, 2, 2, 530, 2, 1, 1, 1, 0});
}

TEST_CASE("convolution with groups: kernels, strides and padding") {
  for (const int groups : {2, 6})
    for (const int kernel : {1, 3})
      for (const int stride : {1, 2, 3})
        for (const int pad : {0, 1, 3}) {
          if (pad > kernel) continue;
          check_convolution({2, 7, 6, 6, 12, kernel, kernel, stride, pad, groups});
          check_convolution({2, 7, 6, 12, 6, kernel, kernel, stride, pad, groups});
        }
  check_convolution({1, 8, 7, 4, 6, 5, 5, 1, 2, 2});
  check_convolution({1, 8, 7, 4, 4, 5, 5, 2, 2, 4});
  check_convolution({1, 5, 11, 4, 6, 3, 1, 1, 1, 2});
  check_convolution({1, 11, 5, 4, 6, 1, 3, 2, 1, 2});
  check_convolution({1, 11, 5, 6, 6, 3, 1, 2, 1, 6});
  check_convolution({1, 3, 3, 4, 4, 1, 1, 4, 0, 2});
  check_convolution({1, 1, 1, 2, 2, 3, 3, 1, 1, 2});
}

TEST_CASE("convolution with groups: narrower, wider and as wide as vectors, the last block short") {
  check_convolution({1, 3, 4, 36, 36, 3, 3, 1, 1, 9});  // four and four channels, in blocks of four
  check_convolution({1, 3, 3, 24, 48, 3, 3, 1, 1, 3});  // 8 and 16
  check_convolution({1, 3, 3, 38, 34, 3, 3, 2, 1, 2});  // 19 and 17
  check_convolution({1, 2, 3, 40, 6, 3, 3, 1, 1, 2});   // 20 and 3
  check_convolution({1, 2, 3, 6, 40, 3, 3, 1, 1, 2});   // 3 and 20
  check_convolution({2, 3, 16, 3, 6, 3, 3, 1, 1, 3});   // rows of 14 pixels and two
  check_convolution({1, 2, 23, 4, 4, 3, 3, 1, 1, 2});   // rows of 14 and nine
  check_convolution({1, 5, 5, 21, 42, 3, 3, 2, 1, 21});  // a channel multiplier of two
}

TEST_CASE("convolution, depthwise: channels that do and do not fill vectors") {
  for (const int channels : {2, 5, 16, 23, 37}) {
    for (const int stride : {1, 2}) {
      check_convolution({1, 4, 9, channels, channels, 3, 3, stride, 1, channels});
    }
  }
  check_convolution({1, 3, 3, 83, 83, 3, 3, 1, 1, 83});
  check_convolution({2, 2, 2, 3, 3, 5, 5, 1, 2, 3});  // a kernel wider than the image
  check_convolution({1, 6, 6, 3, 3, 2, 2, 3, 0, 3});  // a stride wider than the kernel
}

TEST_CASE("convolution: groups that do not divide the channels are refused") {
  const floats some(64, 1.0f);
  floats out(64);
  for (const auto& s : {conv_shape{1, 1, 1, 4, 6, 1, 1, 1, 0, 3}, {1, 1, 1, 6, 4, 1, 1, 1, 0, 3}}) {
    CHECK_THROWS_AS(conv_forward_workspace(s, 1), std::invalid_argument);
    CHECK_THROWS_AS(conv_backward_data_workspace(s, 1), std::invalid_argument);
    CHECK_THROWS_AS(conv_backward_filter_workspace(s, 1), std::invalid_argument);
    CHECK_THROWS_AS(conv_forward(pool(), s, some.data(), some.data(), out.data(), nullptr),
                    std::invalid_argument);
    CHECK_THROWS_AS(conv_backward_data(pool(), s, some.data(), some.data(), out.data(), nullptr),
                    std::invalid_argument);
    CHECK_THROWS_AS(conv_backward_filter(pool(), s, some.data(), some.data(), out.data(), nullptr),
                    std::invalid_argument);
  }
}

TEST_CASE("convolution: many blocks of rows, against the reference's values") {
  // Too large for numerical gradients; the backward passes are checked through
  // <conv(x, f), dy> = <x, data(dy, f)> = <f, filter(x, dy)>.
  for (const auto& s :
       {conv_shape{3, 33, 31, 13, 17, 3, 3, 1, 1}, conv_shape{2, 40, 38, 11, 24, 3, 3, 2, 1},
        conv_shape{2, 45, 47, 3, 19, 7, 7, 2, 3}, conv_shape{3, 31, 29, 30, 21, 1, 1, 1, 0},
        conv_shape{2, 30, 27, 17, 33, 1, 1, 2, 0}, conv_shape{2, 56, 55, 32, 32, 3, 3, 1, 1, 8},
        conv_shape{2, 41, 57, 34, 68, 3, 3, 2, 1, 2}, conv_shape{3, 57, 58, 35, 35, 3, 3, 1, 1, 35},
        conv_shape{2, 57, 58, 80, 80, 5, 5, 2, 2, 80}}) {
    CAPTURE(s.h);
    CAPTURE(s.c);
    CAPTURE(s.kh);
    CAPTURE(s.stride);
    CAPTURE(s.groups);
    const auto x = random_floats(s.in_size(), 4), filter = random_floats(s.filter_size(), 5);
    const auto dy = random_floats(s.out_size(), 6);
    auto y = poisoned(s.out_size()), dx = poisoned(s.in_size());
    auto dfilter = poisoned(s.filter_size());
    poisoned_workspace forward(conv_forward_workspace(s, 2));
    poisoned_workspace data(conv_backward_data_workspace(s, 2));
    poisoned_workspace weights(conv_backward_filter_workspace(s, 2));
    conv_forward(pool(), s, x.data(), filter.data(), y.data(), forward.data());
    conv_backward_data(pool(), s, dy.data(), filter.data(), dx.data(), data.data());
    conv_backward_filter(pool(), s, x.data(), dy.data(), dfilter.data(), weights.data());
    const auto expected = reference::convolution(s, to_double(x), to_double(filter));
    CHECK(relative_error(y, expected) < tolerance);
    const double product = dot(expected, to_double(dy));
    const double scale = std::sqrt(dot(expected, expected) * dot(to_double(dy), to_double(dy)));
    CHECK(std::abs(dot(to_double(dx), to_double(x)) - product) < 1e-6 * scale);
    CHECK(std::abs(dot(to_double(dfilter), to_double(filter)) - product) < 1e-6 * scale);
    CHECK(forward.guard_intact());
    CHECK(data.guard_intact());
    CHECK(weights.guard_intact());
  }
}

TEST_CASE("batch norm: values, running statistics and gradients") {
  for (const auto& s :
       {bn_shape{37, 5}, bn_shape{8, 3, 1e-3f, 0.3f}, bn_shape{3, 19}, bn_shape{50, 67}}) {
    CAPTURE(s.rows);
    CAPTURE(s.c);
    const auto n = s.rows * std::size_t(s.c), c = std::size_t(s.c);
    const auto x = random_floats(n, 1, 0.5f), dy = random_floats(n, 2);
    const auto gamma = random_floats(c, 3, 1.5f), beta = random_floats(c, 4);
    const auto xd = to_double(x), gammad = to_double(gamma), betad = to_double(beta);
    const auto dyd = to_double(dy);

    auto y = poisoned(n), mean = poisoned(c), invstd = poisoned(c);
    auto running_mean = random_floats(c, 5), running_var = random_floats(c, 6, 2.0f);
    const auto old_mean = to_double(running_mean), old_var = to_double(running_var);
    poisoned_workspace forward(bn_forward_workspace(s, 2));
    bn_forward(pool(), s, x.data(), gamma.data(), beta.data(), y.data(), mean.data(), invstd.data(),
               running_mean.data(), running_var.data(), forward.data());
    const auto m = reference::channel_moments(s.rows, s.c, xd);
    CHECK(relative_error(y, reference::normalise(s.rows, s.c, xd, m, gammad, betad, s.epsilon)) <
          tolerance);
    CHECK(relative_error(mean, m.mean) < tolerance);
    doubles expected_invstd(c), expected_mean(c), expected_var(c);
    for (std::size_t i = 0; i < c; ++i) {
      const double unbiased = m.variance[i] * double(s.rows) / double(s.rows - 1);
      expected_invstd[i] = 1.0 / std::sqrt(m.variance[i] + double(s.epsilon));
      expected_mean[i] = old_mean[i] + double(s.momentum) * (m.mean[i] - old_mean[i]);
      expected_var[i] = old_var[i] + double(s.momentum) * (unbiased - old_var[i]);
    }
    CHECK(relative_error(invstd, expected_invstd) < tolerance);
    CHECK(relative_error(running_mean, expected_mean) < tolerance);
    CHECK(relative_error(running_var, expected_var) < tolerance);
    CHECK(forward.guard_intact());

    auto dx = poisoned(n), dgamma = poisoned(c), dbeta = poisoned(c);
    poisoned_workspace backward(bn_backward_workspace(s, 2));
    bn_backward(pool(), s, x.data(), dy.data(), gamma.data(), mean.data(), invstd.data(), dx.data(),
                dgamma.data(), dbeta.data(), backward.data());
    const auto loss = [&](const doubles& in, const doubles& g, const doubles& b) {
      const auto statistics = reference::channel_moments(s.rows, s.c, in);
      return dot(reference::normalise(s.rows, s.c, in, statistics, g, b, s.epsilon), dyd);
    };
    // Cancellation in dx (three terms of dy's size) takes a digit; differences are good to 1e-7.
    CHECK(relative_error(dx, numerical_gradient(xd, [&](const doubles& at) {
                           return loss(at, gammad, betad);
                         })) < 1e-5);
    CHECK(relative_error(dgamma, numerical_gradient(gammad, [&](const doubles& at) {
                           return loss(xd, at, betad);
                         })) < tolerance);
    CHECK(relative_error(dbeta, numerical_gradient(betad, [&](const doubles& at) {
                           return loss(xd, gammad, at);
                         })) < tolerance);
    CHECK(backward.guard_intact());

    auto inferred = poisoned(n);
    bn_inference(pool(), s, x.data(), gamma.data(), beta.data(), running_mean.data(),
                 running_var.data(), inferred.data());
    const reference::moments running{to_double(running_mean), to_double(running_var)};
    CHECK(relative_error(inferred, reference::normalise(s.rows, s.c, xd, running, gammad, betad,
                                                        s.epsilon)) < tolerance);
  }
}

TEST_CASE("batch norm: a replay leaves the running statistics alone, and repeats the bits") {
  const bn_shape s{29, 6};
  const auto x = random_floats(29 * 6, 1), gamma = random_floats(6, 2), beta = random_floats(6, 3);
  auto y = poisoned(x.size()), mean = poisoned(6), invstd = poisoned(6);
  auto again = poisoned(x.size()), mean_again = poisoned(6), invstd_again = poisoned(6);
  auto running_mean = random_floats(6, 4), running_var = random_floats(6, 5, 2.0f);
  poisoned_workspace workspace(bn_forward_workspace(s, 2));
  bn_forward(pool(), s, x.data(), gamma.data(), beta.data(), y.data(), mean.data(), invstd.data(),
             running_mean.data(), running_var.data(), workspace.data());
  bn_forward(pool(), s, x.data(), gamma.data(), beta.data(), again.data(), mean_again.data(),
             invstd_again.data(), nullptr, nullptr, workspace.data());
  CHECK(same_bits(y, again));
  CHECK(same_bits(mean, mean_again));
  CHECK(same_bits(invstd, invstd_again));
}

TEST_CASE("batch norm: a mean a thousand deviations from zero keeps its variance") {
  const bn_shape s{4001, 3};
  const auto x = random_floats(s.rows * 3, 1, 600.0f);
  const auto gamma = random_floats(3, 2, 2.0f), beta = random_floats(3, 3);
  auto y = poisoned(x.size()), mean = poisoned(3), invstd = poisoned(3);
  poisoned_workspace workspace(bn_forward_workspace(s, 2));
  bn_forward(pool(), s, x.data(), gamma.data(), beta.data(), y.data(), mean.data(), invstd.data(),
             nullptr, nullptr, workspace.data());
  const auto m = reference::channel_moments(s.rows, 3, to_double(x));
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(std::abs(double(invstd[i]) * std::sqrt(m.variance[i] + 1e-5) - 1.0) < tolerance);
  }
}

TEST_CASE("relu and add") {
  for (const std::size_t n : {std::size_t(1), std::size_t(77), std::size_t(100003)}) {
    auto a = random_floats(n, 1);
    const auto b = random_floats(n, 2);
    a[0] = 0.0f;
    auto y = poisoned(n), dx = poisoned(n), sum = poisoned(n);
    relu_forward(pool(), n, a.data(), y.data());
    relu_backward(pool(), n, y.data(), b.data(), dx.data());
    add(pool(), n, a.data(), b.data(), sum.data());
    bool right = true;
    for (std::size_t i = 0; i < n; ++i) {
      right = right && y[i] == std::max(a[i], 0.0f) && dx[i] == (a[i] > 0 ? b[i] : 0.0f) &&
              sum[i] == a[i] + b[i];
    }
    CHECK(right);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float out = 0.0f;
  relu_forward(pool(), 1, &nan, &out);
  CHECK(std::isnan(out));
}

TEST_CASE("max pooling: values, positions and gradients") {
  for (const auto& s : {pool_shape{2, 9, 7, 5, 3, 2, 1}, pool_shape{1, 8, 8, 19, 2, 2, 0},
                        pool_shape{2, 7, 9, 3, 3, 1, 1}, pool_shape{1, 5, 5, 2, 5, 3, 2},
                        pool_shape{1, 6, 6, 65, 2, 3, 0}}) {
    CAPTURE(s.h);
    CAPTURE(s.c);
    CAPTURE(s.window);
    CAPTURE(s.stride);
    const auto x = random_floats(s.in_size(), 1, -3.0f), dy = random_floats(s.out_size(), 2);
    auto y = poisoned(s.out_size()), dx = poisoned(s.in_size());
    std::vector<std::uint8_t> argmax(s.out_size(), 255);
    max_pool_forward(pool(), s, x.data(), y.data(), argmax.data());
    CHECK(relative_error(y, reference::max_pool(s, to_double(x))) == 0.0);
    max_pool_backward(pool(), s, dy.data(), argmax.data(), dx.data());
    // A step too short to change which value is the greatest (values are 2^-23 apart at least).
    const auto expected = numerical_gradient(
        to_double(x),
        [&](const doubles& at) { return dot(reference::max_pool(s, at), to_double(dy)); }, 1e-8);
    CHECK(relative_error(dx, expected) < 1e-5);
  }
}

TEST_CASE("max pooling: the first of equal values wins, a NaN shows") {
  const pool_shape s{1, 2, 2, 1, 2, 2, 0};
  float y = 0.0f;
  std::uint8_t argmax = 255;
  const floats equal{1.0f, 1.0f, 1.0f, 1.0f};
  max_pool_forward(pool(), s, equal.data(), &y, &argmax);
  CHECK(y == 1.0f);
  CHECK(argmax == 0);
  const float infinity = std::numeric_limits<float>::infinity();
  const floats lowest{-infinity, -infinity, -infinity, -infinity};
  max_pool_forward(pool(), s, lowest.data(), &y, &argmax);
  CHECK(y == -infinity);
  CHECK(argmax == 0);
  const floats with_nan{1.0f, std::numeric_limits<float>::quiet_NaN(), 2.0f, 0.0f};
  max_pool_forward(pool(), s, with_nan.data(), &y, &argmax);
  CHECK(std::isnan(y));
}

TEST_CASE("global average pooling") {
  for (const auto& [n, pixels, c] : {std::array{3, 49, 67}, std::array{1, 1, 5}, {2, 5, 130}}) {
    const auto x = random_floats(product_of(n, pixels, c), 1);
    const auto dy = random_floats(product_of(n, c), 2);
    auto y = poisoned(dy.size()), dx = poisoned(x.size());
    global_avg_pool_forward(pool(), n, pixels, c, x.data(), y.data());
    global_avg_pool_backward(pool(), n, pixels, c, dy.data(), dx.data());
    doubles mean(y.size()), spread(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto image = i / product_of(pixels, c), at = product_of(image, c) + i % std::size_t(c);
      mean[at] += x[i] / double(pixels);
      spread[i] = dy[at] / double(pixels);
    }
    CHECK(relative_error(y, mean) < tolerance);
    CHECK(relative_error(dx, spread) < tolerance);
  }
}

TEST_CASE("linear: values and gradients") {
  for (const auto& [n, in, out] : {std::array{3, 7, 5}, std::array{1, 1, 1}, {2, 11, 259}}) {
    CAPTURE(n);
    CAPTURE(in);
    CAPTURE(out);
    const auto x = random_floats(product_of(n, in), 1);
    const auto weight = random_floats(product_of(out, in), 2);
    const auto bias = random_floats(std::size_t(out), 3), dy = random_floats(product_of(n, out), 4);
    const auto xd = to_double(x), wd = to_double(weight), bd = to_double(bias), dyd = to_double(dy);
    auto y = poisoned(dy.size()), dx = poisoned(x.size());
    auto dweight = poisoned(weight.size()), dbias = poisoned(bias.size());
    linear_forward(pool(), n, in, out, x.data(), weight.data(), bias.data(), y.data());
    linear_backward_data(pool(), n, in, out, dy.data(), weight.data(), dx.data());
    linear_backward_weight(pool(), n, in, out, x.data(), dy.data(), dweight.data(), dbias.data());
    const auto loss = [&](const doubles& a, const doubles& w, const doubles& b) {
      return dot(reference::linear(n, in, out, a, w, b), dyd);
    };
    CHECK(relative_error(y, reference::linear(n, in, out, xd, wd, bd)) < tolerance);
    CHECK(relative_error(dx, numerical_gradient(
                                 xd, [&](const doubles& at) { return loss(at, wd, bd); }, 1.0)) <
          tolerance);
    CHECK(relative_error(dweight, numerical_gradient(
                                      wd, [&](const doubles& at) { return loss(xd, at, bd); },
                                      1.0)) < tolerance);
    CHECK(relative_error(dbias, numerical_gradient(
                                    bd, [&](const doubles& at) { return loss(xd, wd, at); }, 1.0)) <
          tolerance);
  }
}

TEST_CASE("softmax cross-entropy: loss and gradient") {
  for (const auto& [n, classes] : {std::array{5, 7}, std::array{1, 2}, {3, 1000}}) {
    auto logits = random_floats(product_of(n, classes), 1);
    for (auto& z : logits) z *= 5.0f;
    std::vector<std::int32_t> labels;
    labels.reserve(std::size_t(n));
    for (int i = 0; i < n; ++i) labels.push_back(i * 3 % classes);
    float loss = std::numeric_limits<float>::quiet_NaN();
    auto probabilities = poisoned(logits.size()), dlogits = poisoned(logits.size());
    softmax_cross_entropy_forward(pool(), n, classes, logits.data(), labels.data(), &loss,
                                  probabilities.data());
    softmax_cross_entropy_backward(pool(), n, classes, probabilities.data(), labels.data(),
                                   dlogits.data());
    const auto expected = [&](const doubles& at) {
      return reference::cross_entropy(n, classes, at, labels);
    };
    CHECK(std::abs(double(loss) / expected(to_double(logits)) - 1.0) < tolerance);
    CHECK(relative_error(dlogits, numerical_gradient(to_double(logits), expected)) < tolerance);
    for (int i = 0; i < n; ++i) {
      double sum = 0.0;
      for (int j = 0; j < classes; ++j) {
        sum += probabilities[product_of(i, classes) + std::size_t(j)];
      }
      CHECK(std::abs(sum - 1.0) < 1e-5);
    }
  }
}

TEST_CASE("softmax cross-entropy: extreme logits stay finite, a wrong label is refused") {
  const floats logits{1000.0f, -1000.0f, 0.0f};
  floats probabilities = poisoned(3);
  float loss = 0.0f;
  const std::int32_t unlikely = 1, outside = 3;
  softmax_cross_entropy_forward(pool(), 1, 3, logits.data(), &unlikely, &loss,
                                probabilities.data());
  CHECK(loss == 2000.0f);
  CHECK(probabilities[0] == 1.0f);
  CHECK(probabilities[1] == 0.0f);
  CHECK_THROWS_AS(softmax_cross_entropy_forward(pool(), 1, 3, logits.data(), &outside, &loss,
                                                probabilities.data()),
                  std::invalid_argument);
}

TEST_CASE("sgd: three steps as PyTorch's") {
  const std::size_t n = 70001;
  auto w = random_floats(n, 1);
  auto wd = to_double(w);
  floats v(n, 0.0f);
  doubles vd(n, 0.0);
  for (std::uint32_t step = 0; step < 3; ++step) {
    const auto g = random_floats(n, 2 + step);
    sgd_update(pool(), n, 0.1f, 0.9f, 1e-2f, g.data(), w.data(), v.data());
    for (std::size_t i = 0; i < n; ++i) {
      vd[i] = double(0.9f) * vd[i] + double(g[i]) + double(1e-2f) * wd[i];
      wd[i] -= double(0.1f) * vd[i];
    }
  }
  CHECK(relative_error(w, wd) < tolerance);
  CHECK(relative_error(v, vd) < tolerance);
}

TEST_CASE("adam: steps as its definition has them, with and without decay") {
  const std::size_t n = 70001;
  for (const float decay : {0.0f, 1e-2f}) {
    CAPTURE(decay);
    auto w = random_floats(n, 1);
    auto wd = to_double(w);
    floats m(n, 0.0f), v(n, 0.0f);
    doubles md(n, 0.0), vd(n, 0.0);
    const adam_step base{0.01f, 0.9f, 0.999f, 1e-4f, decay, 0};
    for (std::uint32_t t = 1; t <= 4; ++t) {
      const auto g = random_floats(n, 2 + t);
      adam_step step = base;
      step.step = t;
      adam_update(pool(), n, step, g.data(), w.data(), m.data(), v.data());
      const double beta1 = double(base.beta1), beta2 = double(base.beta2);
      for (std::size_t i = 0; i < n; ++i) {
        const double slope = double(g[i]) + double(decay) * wd[i];
        md[i] = beta1 * md[i] + (1.0 - beta1) * slope;
        vd[i] = beta2 * vd[i] + (1.0 - beta2) * slope * slope;
        const double mean = md[i] / (1.0 - std::pow(beta1, t));
        const double root = std::sqrt(vd[i] / (1.0 - std::pow(beta2, t)));
        wd[i] -= double(base.lr) * mean / (root + double(base.epsilon));
      }
    }
    CHECK(relative_error(w, wd) < tolerance);
    CHECK(relative_error(m, md) < tolerance);
    CHECK(relative_error(v, vd) < tolerance);
  }
}

TEST_CASE("adam: the first step goes lr against the gradient's sign, whatever its size") {
  floats w{1.0f, 1.0f, 1.0f, 1.0f, 1.0f}, m(5, 0.0f), v(5, 0.0f);
  const floats g{1e-3f, -1e-3f, 7.0f, -7.0f, 0.0f};
  adam_update(pool(), 5, {0.25f, 0.9f, 0.999f, 1e-12f, 0.0f, 1}, g.data(), w.data(), m.data(),
              v.data());
  CHECK(relative_error(w, doubles{0.75, 1.25, 0.75, 1.25, 1.0}) < tolerance);
}
