// Three training steps of the models against PyTorch's values in double precision
// (test/reference/training.json.gz, written by make_training_reference.py).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/cpu_backend.hpp"
#include "data/byte_source.hpp"
#include "interpreter.hpp"
#include "model/models.hpp"

using namespace delta::executor;
using delta::test::interpreter;
using delta::test::sample_batch;
using nlohmann::json;

namespace {

const json& reference() {
  static const json all =
      json::parse(delta::executor::read_all(DELTA_SOURCE_DIR "/test/reference/training.json.gz"));
  return all;
}

model_options options_of(const json& c, purpose what = purpose::training) {
  model_options o;
  o.batch = c["batch"];
  o.image = c["image"];
  o.channels = c["channels"];
  o.classes = c["classes"];
  o.what = what;
  o.hyper.learning_rate = c["learning_rate"];
  o.hyper.decay = c["decay"];
  if (c["optimizer"] == "adam") {
    o.hyper.optimizer = optimizer_kind::adam;
    o.hyper.beta1 = c["beta1"];
    o.hyper.beta2 = c["beta2"];
    o.hyper.epsilon = c["epsilon"];
  } else {
    o.hyper.momentum = c["momentum"];
  }
  return o;
}

// Root mean square error of the samples, relative to the root mean square of the whole tensor. Not
// the largest error: where an activation lies so near zero that rounding decides its sign, single
// elements of a gradient differ much, and which do depends on the instructions that a processor
// has.
double sample_error(std::span<const float> got, const json& want) {
  const std::size_t count = want["samples"].size();
  const double scale = double(want["norm"]) / std::sqrt(double(got.size()));
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double error = got[i * got.size() / count] - double(want["samples"][i]);
    squares += error * error;
  }
  return std::sqrt(squares / double(count)) / (scale + 1e-12);
}

double norm_error(std::span<const float> got, const json& want) {
  double sum = 0;
  for (const float x : got) sum += double(x) * double(x);
  return std::fabs(std::sqrt(sum) / double(want["norm"]) - 1);
}

// Compares every recorded tensor; returns the worst error of one, for the log.
double check_all(interpreter& run, const json& wanted, const std::string& suffix,
                 double tolerance) {
  double worst = 0;
  for (const auto& [name, want] : wanted.items()) {
    const auto got = run.floats(name + suffix);
    const double error = sample_error(got, want);
    CAPTURE(name);
    CHECK(error < tolerance);
    CHECK(norm_error(got, want) < tolerance);
    worst = std::max(worst, error);
  }
  return worst;
}

// Scales the residual branches of bottlenecks; the script says why.
void set_residual_gamma(const graph& g, interpreter& run, float gamma) {
  for (const value_id p : g.parameters) {
    if (g[p].name.ends_with(".bn3.weight")) std::ranges::fill(run.floats(p), gamma);
  }
}

}  // namespace

TEST_CASE("training follows PyTorch") {
  for (const json& c : reference()["cases"]) {
    const std::string model = c["model"];
    CAPTURE(model);
    const graph g = bound_to_cpu(make_model(model, options_of(c)), 2);
    const std::uint64_t seed = c["seed"];
    std::size_t parameters = 0;
    for (const value_id p : g.parameters) parameters += g[p].bytes / sizeof(float);
    CHECK(parameters == c["parameter_count"].get<std::size_t>());

    const sample_batch batch(g, seed);
    interpreter run(g, seed);
    set_residual_gamma(g, run, c["residual_gamma"]);
    const double loss_tolerance = c["loss_tolerance"], tolerance = c["tensor_tolerance"];
    double gradient_error = 0, loss_error = 0;
    for (std::size_t step = 0; step < c["losses"].size(); ++step) {
      const double loss = double(run.step(batch.images, batch.labels));
      const double error = std::fabs(loss / double(c["losses"][step]) - 1);
      CAPTURE(step);
      CHECK(error < loss_tolerance);
      loss_error = std::max(loss_error, error);
      if (step == 0) gradient_error = check_all(run, c["first_gradients"], ".gradient", 0.02);
    }
    const double parameter_error = check_all(run, c["final_parameters"], "", tolerance);
    const double state_error = check_all(run, c["final_states"], "", tolerance);
    const double statistic_error = check_all(run, c["final_statistics"], "", tolerance);

    // The inference graph, by name from the trained state.
    const graph inference = bound_to_cpu(make_model(model, options_of(c, purpose::inference)), 2);
    interpreter infer(inference, seed);
    for (const value& v : inference.values) {
      if (v.persistent()) std::ranges::copy(run.floats(v.name), infer.floats(v.name).begin());
    }
    const double loss = double(infer.step(batch.images, batch.labels));
    const double inference_error = std::fabs(loss / double(c["inference_loss"]) - 1);
    CHECK(inference_error < loss_tolerance);
    MESSAGE(model << " " << c["optimizer"].get<std::string>() << ", worst relative errors: losses "
                  << loss_error << ", gradients " << gradient_error << ", parameters "
                  << parameter_error << ", optimizer " << state_error << ", statistics "
                  << statistic_error << ", inference loss " << inference_error);
  }
}

TEST_CASE("the bits do not depend on the number of threads") {
  model_options o;
  o.batch = 4;
  std::vector<float> losses, weights;
  for (const int threads : {1, 2, 3}) {
    const graph g = bound_to_cpu(resnet20(o), threads);
    const sample_batch batch(g, 1);
    interpreter run(g, 1);
    run.step(batch.images, batch.labels);
    const float loss = run.step(batch.images, batch.labels);
    const auto stem = run.floats("conv1.weight");
    if (threads == 1) {
      losses = {loss};
      weights.assign(stem.begin(), stem.end());
    }
    CHECK(loss == losses[0]);
    CHECK(std::ranges::equal(stem, weights));
  }
}
