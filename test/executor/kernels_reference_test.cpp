// Every kernel against PyTorch's operators (test/reference/kernels.json.gz, written by
// make_kernel_reference.py in double precision).
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "data/byte_source.hpp"
#include "kernel_testing.hpp"
#include "kernels/kernels.hpp"

using namespace delta::executor;
using namespace kernel_testing;
using nlohmann::json;

namespace {

/// Float arithmetic on sums of up to some thousand terms (the longest: 4608).
constexpr double tolerance = 3e-6;

const json& reference() {
  static const json all =
      json::parse(delta::executor::read_all(DELTA_SOURCE_DIR "/test/reference/kernels.json.gz"));
  return all;
}

thread_pool& pool() {
  static thread_pool instance(2);
  return instance;
}

/// The largest difference at the recorded places, relative to the largest value of the whole.
double error(const floats& got, const json& want) {
  if (got.size() != want["size"].get<std::size_t>()) return 1e9;
  double worst = 0.0;
  for (std::size_t i = 0; i < want["at"].size(); ++i) {
    const double value = got[want["at"][i].get<std::size_t>()];
    const double difference = std::abs(value - want["values"][i].get<double>());
    if (!(difference <= worst)) worst = difference;
    if (std::isnan(difference)) return 1e9;
  }
  return worst / want["largest"].get<double>();
}

/// Entries of shapes, outputs and gradients; a shape of ten numbers ends with the groups.
void check_convolutions(const json& entries) {
  REQUIRE(!entries.empty());
  for (const auto& c : entries) {
    const auto v = c["shape"].get<std::vector<int>>();
    const int groups = v.size() > 9 ? v[9] : 1;
    const conv_shape s{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], groups};
    CAPTURE(c["shape"].dump());
    const auto x = random_floats(s.in_size(), 1), filter = random_floats(s.filter_size(), 2);
    const auto dy = random_floats(s.out_size(), 3);
    auto y = poisoned(s.out_size()), dx = poisoned(s.in_size());
    auto dfilter = poisoned(s.filter_size());
    poisoned_workspace forward(conv_forward_workspace(s, 2));
    poisoned_workspace data(conv_backward_data_workspace(s, 2));
    poisoned_workspace weights(conv_backward_filter_workspace(s, 2));
    conv_forward(pool(), s, x.data(), filter.data(), y.data(), forward.data());
    conv_backward_data(pool(), s, dy.data(), filter.data(), dx.data(), data.data());
    conv_backward_filter(pool(), s, x.data(), dy.data(), dfilter.data(), weights.data());
    CHECK(error(y, c["y"]) < tolerance);
    CHECK(error(dx, c["dx"]) < tolerance);
    CHECK(error(dfilter, c["dfilter"]) < tolerance);
  }
}

}  // namespace

TEST_CASE("convolution") {
  check_convolutions(reference()["convolution"]);
}

TEST_CASE("convolution with groups") {
  check_convolutions(reference()["grouped_convolution"]);
}

TEST_CASE("batch norm") {
  for (const auto& r : reference()["batch_norm"]) {
    const bn_shape s{r["rows"], r["c"], r["epsilon"], r["momentum"]};
    const auto c = std::size_t(s.c), n = s.rows * c;
    CAPTURE(s.rows);
    const auto x = random_floats(n, 1, 0.5f), gamma = random_floats(c, 2, 1.5f);
    const auto beta = random_floats(c, 3), dy = random_floats(n, 6);
    auto running_mean = random_floats(c, 4), running_var = random_floats(c, 5, 2.0f);
    auto y = poisoned(n), mean = poisoned(c), invstd = poisoned(c), inferred = poisoned(n);
    auto dx = poisoned(n), dgamma = poisoned(c), dbeta = poisoned(c);
    poisoned_workspace forward(bn_forward_workspace(s, 2)), backward(bn_backward_workspace(s, 2));
    bn_forward(pool(), s, x.data(), gamma.data(), beta.data(), y.data(), mean.data(), invstd.data(),
               running_mean.data(), running_var.data(), forward.data());
    bn_backward(pool(), s, x.data(), dy.data(), gamma.data(), mean.data(), invstd.data(), dx.data(),
                dgamma.data(), dbeta.data(), backward.data());
    bn_inference(pool(), s, x.data(), gamma.data(), beta.data(), running_mean.data(),
                 running_var.data(), inferred.data());
    CHECK(error(y, r["y"]) < tolerance);
    CHECK(error(running_mean, r["running_mean"]) < tolerance);
    CHECK(error(running_var, r["running_var"]) < tolerance);
    CHECK(error(dx, r["dx"]) < tolerance);
    CHECK(error(dgamma, r["dgamma"]) < tolerance);
    CHECK(error(dbeta, r["dbeta"]) < tolerance);
    CHECK(error(inferred, r["inferred"]) < tolerance);
  }
}

TEST_CASE("max pooling") {
  for (const auto& c : reference()["max_pool"]) {
    const auto v = c["shape"].get<std::vector<int>>();
    const pool_shape s{v[0], v[1], v[2], v[3], v[4], v[5], v[6]};
    CAPTURE(c["shape"].dump());
    const auto x = random_floats(s.in_size(), 1), dy = random_floats(s.out_size(), 2);
    auto y = poisoned(s.out_size()), dx = poisoned(s.in_size());
    std::vector<std::uint8_t> argmax(s.out_size(), 255);
    max_pool_forward(pool(), s, x.data(), y.data(), argmax.data());
    max_pool_backward(pool(), s, dy.data(), argmax.data(), dx.data());
    CHECK(error(y, c["y"]) < 1e-9);  // nothing is computed; the file has ten digits
    CHECK(error(dx, c["dx"]) < tolerance);
  }
}

TEST_CASE("average pooling, linear layer and loss") {
  for (const auto& r : reference()["head"]) {
    const int n = r["n"], pixels = r["pixels"], c = r["c"], classes = r["classes"];
    CAPTURE(classes);
    const auto images = std::size_t(n);
    const auto x = random_floats(product_of(n, pixels, c), 1);
    const auto weight = random_floats(product_of(classes, c), 2);
    const auto bias = random_floats(std::size_t(classes), 3);
    std::vector<std::int32_t> labels;
    labels.reserve(images);
    for (int i = 0; i < n; ++i) labels.push_back(i * 7 % classes);
    auto pooled = poisoned(product_of(n, c)), dpooled = pooled, dx = poisoned(x.size());
    auto logits = poisoned(product_of(n, classes)), probabilities = logits, dlogits = logits;
    auto dweight = poisoned(weight.size()), dbias = poisoned(bias.size());
    float loss = std::numeric_limits<float>::quiet_NaN();
    global_avg_pool_forward(pool(), n, pixels, c, x.data(), pooled.data());
    linear_forward(pool(), n, c, classes, pooled.data(), weight.data(), bias.data(), logits.data());
    softmax_cross_entropy_forward(pool(), n, classes, logits.data(), labels.data(), &loss,
                                  probabilities.data());
    softmax_cross_entropy_backward(pool(), n, classes, probabilities.data(), labels.data(),
                                   dlogits.data());
    linear_backward_weight(pool(), n, c, classes, pooled.data(), dlogits.data(), dweight.data(),
                           dbias.data());
    linear_backward_data(pool(), n, c, classes, dlogits.data(), weight.data(), dpooled.data());
    global_avg_pool_backward(pool(), n, pixels, c, dpooled.data(), dx.data());
    CHECK(std::abs(loss / r["loss"].get<double>() - 1.0) < tolerance);
    CHECK(error(pooled, r["pooled"]) < tolerance);
    CHECK(error(logits, r["logits"]) < tolerance);
    CHECK(error(probabilities, r["probabilities"]) < tolerance);
    CHECK(error(dlogits, r["dlogits"]) < tolerance);
    CHECK(error(dweight, r["dweight"]) < tolerance);
    CHECK(error(dbias, r["dbias"]) < tolerance);
    CHECK(error(dpooled, r["dpooled"]) < tolerance);
    CHECK(error(dx, r["dx"]) < tolerance);
  }
}

TEST_CASE("sgd") {
  for (const auto& r : reference()["sgd"]) {
    const std::size_t n = r["n"];
    auto w = random_floats(n, 1);
    floats v(n, 0.0f);
    for (std::uint32_t step = 0; step < r["steps"].get<std::uint32_t>(); ++step) {
      const auto g = random_floats(n, 2 + step);
      sgd_update(pool(), n, r["lr"], r["momentum"], r["decay"], g.data(), w.data(), v.data());
    }
    CHECK(error(w, r["w"]) < tolerance);
    CHECK(error(v, r["v"]) < tolerance);
  }
}

TEST_CASE("adam") {
  for (const auto& r : reference()["adam"]) {
    const std::size_t n = r["n"];
    auto w = random_floats(n, 1);
    floats m(n, 0.0f), v(n, 0.0f);
    adam_step step{r["lr"], r["beta1"], r["beta2"], r["epsilon"], r["decay"], 0};
    while (step.step < r["steps"].get<std::uint64_t>()) {
      const auto g = random_floats(n, 2 + std::uint32_t(step.step));
      ++step.step;
      adam_update(pool(), n, step, g.data(), w.data(), m.data(), v.data());
    }
    CHECK(error(w, r["w"]) < tolerance);
    CHECK(error(m, r["m"]) < tolerance);
    CHECK(error(v, r["v"]) < tolerance);
  }
}

TEST_CASE("dropout, backward") {
  for (const auto& r : reference()["dropout"]) {
    const std::size_t n = r["n"];
    const auto dy = random_floats(n, 1);
    std::vector<std::uint8_t> mask(n);
    for (std::size_t i = 0; i < n; ++i) mask[i] = i * 7 % 10 < 6;
    auto dx = poisoned(n);
    dropout_backward(pool(), n, r["probability"], dy.data(), mask.data(), dx.data());
    CHECK(error(dx, r["dx"]) < tolerance);
  }
}
