// Gradients: against central differences of a double-precision forward pass, and in structure.
#include "model/autograd.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "backend/cpu_backend.hpp"
#include "interpreter.hpp"
#include "model/builder.hpp"
#include "oracle.hpp"

using namespace delta::executor;
using delta::test::interpreter;
using delta::test::oracle;
using delta::test::sample_batch;

namespace {

constexpr std::uint64_t seed = 42;

// Every operator once, but for groups; a residual, and a value with three readers.
graph small_net(const hyper_parameters& hyper = {}) {
  builder b(3);
  const value_id images = b.images(9, 8, 3);
  const value_id labels = b.labels();
  value_id x = b.relu("relu1", b.batch_norm("bn1", b.conv2d("conv1", images, 5, 3, 1, 1)));
  const value_id left = b.batch_norm("bn2", b.conv2d("conv2", x, 5, 3, 1, 1));
  const value_id right = b.conv2d("conv3", x, 5, 1, 1, 0);
  x = b.relu("relu2", b.add("add2", b.add("add1", left, right), x));
  x = b.max_pool("pool", x, 3, 2, 1);
  x = b.relu("relu3", b.batch_norm("bn3", b.conv2d("conv4", x, 7, 3, 2, 1)));
  x = b.dropout("dropout", x, 0.25);
  b.softmax_cross_entropy("loss", b.linear("fc", b.global_avg_pool("avg", x), 4), labels);
  return bound_to_cpu(std::move(b).finish(hyper), 2);
}

// Three inputs in each of two groups, a group per channel with one and with two outputs each, and
// the residual block that ResNeXt has.
graph grouped_net(int stride) {
  builder b(3);
  const value_id images = b.images(9, 8, 6);
  const value_id labels = b.labels();
  value_id x = b.relu("relu1", b.batch_norm("bn1", b.conv2d("conv1", images, 4, 3, 1, 1, 2)));
  value_id y = b.relu("relu2", b.batch_norm("bn2", b.conv2d("depthwise", x, 4, 3, stride, 1, 4)));
  y = b.batch_norm("bn3", b.conv2d("doubling", y, 8, 3, 1, 1, 4));
  x = b.add("add", y, b.conv2d("downsample", x, 8, 1, stride, 0));
  b.softmax_cross_entropy("loss", b.linear("fc", b.global_avg_pool("avg", x), 4), labels);
  return bound_to_cpu(std::move(b).finish(), 2);
}

// Graph and oracle with the same inputs and parameters. Gammas and betas move off 1 and 0, so that
// every term of bn's derivative counts.
struct twin {
  graph g;
  interpreter run;
  oracle exact;

  explicit twin(graph built) : g(std::move(built)), run(g, seed), exact(g) {
    const sample_batch batch(g, seed);
    for (const value_id p : g.parameters) {
      const auto data = run.floats(p);
      if (g[p].initial.what == initial_contents::distribution::one ||
          g[p].initial.what == initial_contents::distribution::zero) {
        for (std::size_t i = 0; i < data.size(); ++i) data[i] += 0.05f * float(i % 7) - 0.1f;
      }
      exact[p].assign(data.begin(), data.end());  // before the step's update
    }
    exact[g.images].assign(batch.images.begin(), batch.images.end());
    exact[g.labels].assign(batch.labels.begin(), batch.labels.end());
    run.step(batch.images, batch.labels);
    for (const node& n : g.nodes) {
      if (n.type != operator_type::dropout_forward) continue;
      const auto mask = run.bytes(n.outputs[1]);
      std::ranges::transform(mask, exact[n.outputs[1]].begin(),
                             [](std::byte b) { return double(std::to_integer<int>(b)); });
    }
  }

  double numerical(value_id p, std::size_t i) {
    constexpr double h = 1e-5;
    double& w = exact[p][i];
    const double at = w;
    w = at + h;
    const double above = exact.loss();
    w = at - h;
    const double below = exact.loss();
    w = at;
    return (above - below) / (2 * h);
  }
};

int count(const graph& g, operator_type type) {
  return int(std::count_if(g.nodes.begin(), g.nodes.end(),
                           [type](const node& n) { return n.type == type; }));
}

// Compares with central differences of the double-precision forward pass.
void check_gradients(graph built) {
  twin t(std::move(built));
  for (const value_id p : t.g.parameters) {
    const auto gradient = t.run.floats(t.g[p].name + ".gradient");
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double want = t.numerical(p, i);
      error += (double(gradient[i]) - want) * (double(gradient[i]) - want);
      norm += want * want;
    }
    CAPTURE(t.g[p].name);
    CAPTURE(std::sqrt(error));
    CAPTURE(std::sqrt(norm));
    CHECK(std::sqrt(norm) > 1e-4);  // not vacuous
    CHECK(std::sqrt(error) < 2e-5 * std::sqrt(norm) + 2e-8);
  }
}

}  // namespace

TEST_CASE("the loss and every activation agree with the double-precision forward pass") {
  for (const graph& g : std::array{small_net(), grouped_net(1), grouped_net(2)}) {
    twin t(g);
    CHECK(double(t.run.floats(t.g.loss)[0]) == doctest::Approx(t.exact.loss()).epsilon(1e-6));
    for (const node& n : t.g.nodes) {
      if (n.backward || n.outputs[0] == t.g.loss) continue;
      CAPTURE(n.name);
      const auto got = t.run.floats(n.outputs[0]);
      const auto& want = t.exact[n.outputs[0]];
      REQUIRE(got.size() == want.size());
      double worst = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        worst = std::fmax(worst, std::fabs(double(got[i]) - want[i]));
      }
      CHECK(worst < 2e-5);
    }
  }
}

TEST_CASE("every element of every gradient agrees with central differences") {
  check_gradients(small_net());
}

TEST_CASE("grouped and depthwise convolutions: every element of every gradient") {
  for (const int stride : {1, 2}) {
    CAPTURE(stride);
    check_gradients(grouped_net(stride));
  }
}

TEST_CASE("sgd moves each parameter by its gradient and decay; the velocity starts at zero") {
  twin t(small_net());
  const auto& h = *t.g.hyper;
  for (std::size_t k = 0; k < t.g.parameters.size(); ++k) {
    const value_id p = t.g.parameters[k];
    const auto gradient = t.run.floats(t.g[p].name + ".gradient");
    const auto after = t.run.floats(p);
    const auto velocity = t.run.floats(t.g.optimizer_states[k]);
    CAPTURE(t.g[p].name);
    for (std::size_t i = 0; i < after.size(); ++i) {
      const double before = t.exact[p][i];
      const double v = double(gradient[i]) + double(h.decay) * before;
      CHECK(double(velocity[i]) == doctest::Approx(v).epsilon(1e-5));
      CHECK(double(after[i]) ==
            doctest::Approx(before - double(h.learning_rate) * v).epsilon(1e-5));
    }
  }
}

TEST_CASE("adam moves each parameter by its moments, corrected by the step's number") {
  const hyper_parameters hyper{.learning_rate = 0.01f,
                               .decay = 1e-2f,
                               .optimizer = optimizer_kind::adam,
                               .beta1 = 0.8f,
                               .beta2 = 0.95f,
                               .epsilon = 1e-6f};
  const double lr = double(hyper.learning_rate), beta1 = double(hyper.beta1),
               beta2 = double(hyper.beta2);
  const graph g = small_net(hyper);
  const sample_batch batch(g, seed);
  interpreter run(g, seed);
  REQUIRE(g.optimizer_states.size() == 2 * g.parameters.size());
  CHECK(count(g, operator_type::sgd_update) == 0);
  CHECK(count(g, operator_type::adam_update) == int(g.parameters.size()));
  std::vector<std::vector<double>> means, squares, values;
  for (const value_id p : g.parameters) {
    const auto now = run.floats(p);
    means.emplace_back(now.size());
    squares.emplace_back(now.size());
    values.emplace_back(now.begin(), now.end());
  }
  for (int step = 1; step <= 3; ++step) {
    run.step(batch.images, batch.labels);
    CHECK(g.hyper->step == std::uint64_t(step));
    for (std::size_t k = 0; k < g.parameters.size(); ++k) {
      const std::string name = g[g.parameters[k]].name;
      CAPTURE(step);
      CAPTURE(name);
      CHECK(g[g.optimizer_states[2 * k]].name == name + ".exp_avg");
      CHECK(g[g.optimizer_states[2 * k + 1]].name == name + ".exp_avg_sq");
      const auto gradient = run.floats(name + ".gradient");
      const auto mean = run.floats(name + ".exp_avg"), square = run.floats(name + ".exp_avg_sq");
      const auto after = run.floats(g.parameters[k]);
      for (std::size_t i = 0; i < after.size(); ++i) {
        double &m = means[k][i], &v = squares[k][i], &w = values[k][i];
        const double slope = double(gradient[i]) + double(hyper.decay) * w;
        m = beta1 * m + (1 - beta1) * slope;
        v = beta2 * v + (1 - beta2) * slope * slope;
        w -= lr * m / (1 - std::pow(beta1, step)) /
             (std::sqrt(v / (1 - std::pow(beta2, step))) + double(hyper.epsilon));
        CHECK(std::fabs(double(mean[i]) - m) < 1e-5 * std::fabs(m) + 1e-8);
        CHECK(std::fabs(double(square[i]) - v) < 1e-5 * v + 1e-12);
        CHECK(std::fabs(double(after[i]) - w) < 1e-5 * std::fabs(w) + 1e-6);
        w = double(after[i]);
      }
    }
  }
}

namespace {

// Without dropout, whose draws follow the numbers of operators.
graph plain_net(const hyper_parameters& hyper) {
  builder b(3);
  const value_id images = b.images(9, 8, 3);
  const value_id labels = b.labels();
  value_id x = b.relu("relu1", b.batch_norm("bn1", b.conv2d("conv1", images, 5, 3, 1, 1)));
  x = b.add("add", x, b.batch_norm("bn2", b.conv2d("conv2", x, 5, 3, 1, 1)));
  x = b.relu("relu2", b.conv2d("conv3", x, 7, 3, 2, 1));
  b.softmax_cross_entropy("loss", b.linear("fc", b.global_avg_pool("avg", x), 4), labels);
  return bound_to_cpu(std::move(b).finish(hyper), 2);
}

}  // namespace

TEST_CASE("parameters that are updated together get the same bits as each by itself") {
  for (const optimizer_kind kind : {optimizer_kind::sgd, optimizer_kind::adam}) {
    const hyper_parameters alone{.learning_rate = 0.01f, .optimizer = kind};
    const graph apart = plain_net(alone);
    const sample_batch batch(apart, seed);
    interpreter expected(apart, seed);
    for (int step = 0; step < 3; ++step) expected.step(batch.images, batch.labels);
    const auto type =
        kind == optimizer_kind::sgd ? operator_type::sgd_update : operator_type::adam_update;
    // Of 16 to 1260 bytes: each by itself, some, most, and all together.
    for (const auto& [size, operators] : {std::pair{1, 9}, {100, 4}, {1500, 2}, {1 << 20, 1}}) {
      CAPTURE(size);
      hyper_parameters together = alone;
      together.update_group = std::uint64_t(size);
      const graph g = plain_net(together);
      CHECK(count(g, type) == operators);
      std::vector<value_id> updated;
      for (const node& n : g.nodes) {
        if (n.type != type) continue;
        const std::size_t each = n.updates.size() / n.inputs.size();
        std::size_t gradients = 0;
        for (std::size_t k = 0; k < n.inputs.size(); ++k) {
          updated.push_back(n.updates[k * each]);
          CHECK(g[n.inputs[k]].name == g[updated.back()].name + ".gradient");
          gradients += g[n.inputs[k]].bytes;
        }
        const bool last = &n == &g.nodes.back();
        CHECK((last || gradients >= together.update_group));
        CHECK(n.moved_bytes == double(gradients) * (kind == optimizer_kind::sgd ? 5 : 7));
      }
      std::ranges::sort(updated);
      auto all = g.parameters;
      std::ranges::sort(all);
      CHECK(updated == all);
      interpreter run(g, seed);
      for (int step = 0; step < 3; ++step) run.step(batch.images, batch.labels);
      for (const auto* list : {&g.parameters, &g.optimizer_states})
        for (const value_id v : *list) {
          CAPTURE(g[v].name);
          const auto got = run.bytes(v), want = expected.bytes(apart.find(g[v].name));
          CHECK(std::equal(got.begin(), got.end(), want.begin(), want.end()));
        }
    }
  }
}

TEST_CASE("the learning rate is read at run time") {
  twin t(small_net());
  t.g.hyper->learning_rate = 0;
  const auto weight = t.run.floats("conv2.weight");
  const std::vector<float> before(weight.begin(), weight.end());
  const sample_batch batch(t.g, seed);
  t.run.step(batch.images, batch.labels);
  CHECK(std::equal(before.begin(), before.end(), weight.begin()));
}

TEST_CASE("a replayed operator writes the same bits and has no effect") {
  twin t(small_net());
  const graph& g = t.g;
  std::vector<std::vector<float>> statistics;
  statistics.reserve(g.running_statistics.size());
  for (const value_id v : g.running_statistics) {
    statistics.emplace_back(t.run.floats(v).begin(), t.run.floats(v).end());
  }
  t.g.hyper->learning_rate = 0;  // the weights stay those of the values to replay
  const sample_batch batch(g, seed);
  t.run.step(batch.images, batch.labels);
  CHECK_FALSE(std::equal(statistics[0].begin(), statistics[0].end(),
                         t.run.floats(g.running_statistics[0]).begin()));
  for (std::size_t i = 0; i < statistics.size(); ++i) {
    const auto now = t.run.floats(g.running_statistics[i]);
    statistics[i].assign(now.begin(), now.end());
  }
  for (const node& n : g.nodes) {
    if (n.type == operator_type::sgd_update) continue;
    CAPTURE(n.name);
    std::vector<std::vector<std::byte>> before;
    before.reserve(n.outputs.size());
    for (const value_id v : n.outputs) {
      before.emplace_back(t.run.bytes(v).begin(), t.run.bytes(v).end());
    }
    t.run.run(n, true);
    for (std::size_t i = 0; i < before.size(); ++i) {
      const auto after = t.run.bytes(n.outputs[i]);
      CHECK(std::memcmp(before[i].data(), after.data(), after.size()) == 0);
    }
  }
  for (std::size_t i = 0; i < statistics.size(); ++i) {
    const auto now = t.run.floats(g.running_statistics[i]);
    CHECK(std::equal(now.begin(), now.end(), statistics[i].begin()));
  }
}

TEST_CASE("gradients of a value with several readers are joined in reverse order of the readers") {
  const graph g = small_net();
  // relu1's output is read by conv2, conv3 and add2: two joins. add passes its gradient on as it
  // is.
  std::vector<const node*> joins;
  for (const node& n : g.nodes) {
    if (n.backward && n.type == operator_type::add) joins.push_back(&n);
  }
  REQUIRE(joins.size() == 2);
  const auto name = [&g](value_id v) { return g[v].name; };
  CHECK(name(joins[0]->inputs[0]) == "add2.output.gradient");
  CHECK(name(joins[0]->inputs[1]) == "relu1.output.gradient.from.conv3.backward_data");
  CHECK(joins[1]->inputs[0] == joins[0]->outputs[0]);
  CHECK(name(joins[1]->inputs[1]) == "relu1.output.gradient.from.conv2.backward_data");
  CHECK(name(joins[1]->outputs[0]) == "relu1.output.gradient");
}

TEST_CASE("only the gradients that lead to a parameter are made") {
  const graph g = small_net();
  CHECK(count(g, operator_type::conv_backward_filter) == 4);
  CHECK(count(g, operator_type::conv_backward_data) == 3);  // none for the images
  CHECK(g.find("images.gradient") == no_value);
  CHECK(g.find("conv1.backward_data") == no_value);
}

TEST_CASE("relu's derivative needs its output alone, so its input may die") {
  const graph g = small_net();
  for (const node& n : g.nodes) {
    if (n.type != operator_type::relu_backward) continue;
    const auto maker = std::ranges::find_if(
        g.nodes, [&n](const node& m) { return std::ranges::count(m.outputs, n.inputs[0]) > 0; });
    CHECK(maker->type == operator_type::relu_forward);
  }
}

TEST_CASE("a weight that two layers share is updated once, by the sum of both gradients") {
  graph g;  // by hand: the builder makes a weight per layer
  const auto start = initial_contents{initial_contents::distribution::normal, 0.5};
  const auto make = [&g](const char* name, std::vector<int> shape, value_class what) {
    std::size_t bytes = sizeof(float);
    for (const int extent : shape) bytes *= std::size_t(extent);
    return g.add_value({name, std::move(shape), bytes, what});
  };
  g.batch = 2;
  g.images = make("images", {2, 3}, value_class::input);
  g.labels = make("labels", {2}, value_class::input);
  const value_id w = make("weight", {3, 3}, value_class::parameter);
  const value_id b = make("bias", {3}, value_class::parameter);
  g.values[std::size_t(w)].initial = start;
  const value_id x = make("first", {2, 3}, value_class::activation);
  g.logits = make("logits", {2, 3}, value_class::activation);
  g.loss = make("loss", {1}, value_class::activation);
  g.probabilities = make("probabilities", {2, 3}, value_class::activation);
  const linear_shape s{2, 3, 3};
  g.append({"first.forward", operator_type::linear_forward, s, {g.images, w, b}, {x}});
  g.append({"second.forward", operator_type::linear_forward, s, {x, w, b}, {g.logits}});
  g.append({"loss.forward",
            operator_type::softmax_cross_entropy_forward,
            s,
            {g.logits, g.labels},
            {g.loss, g.probabilities}});
  differentiate(g, g.loss);
  bind_cpu(g, 1);
  CHECK_NOTHROW(validate(g));
  CHECK(count(g, operator_type::sgd_update) == 2);

  twin t(std::move(g));
  const auto gradient = t.run.floats("weight.gradient");
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    CHECK(double(gradient[i]) == doctest::Approx(t.numerical(w, i)).epsilon(1e-4));
  }
}

TEST_CASE("a branch that does not reach the loss has no backward") {
  builder b(2);
  const value_id images = b.images(4, 4, 2);
  const value_id labels = b.labels();
  const value_id x = b.conv2d("conv", images, 3, 1, 1, 0);
  b.relu("dead", x);
  b.softmax_cross_entropy("loss", b.linear("fc", b.global_avg_pool("avg", x), 3), labels);
  const graph g = bound_to_cpu(std::move(b).finish());
  CHECK(count(g, operator_type::relu_backward) == 0);
  CHECK(g.find("conv.output.gradient") != no_value);
  CHECK(count(g, operator_type::sgd_update) == 3);
}

TEST_CASE("a value added to itself gets its gradient twice") {
  builder b(2);
  const value_id images = b.images(4, 4, 2);
  const value_id labels = b.labels();
  const value_id x = b.conv2d("conv", images, 3, 1, 1, 0);
  const value_id y = b.global_avg_pool("avg", b.add("twice", x, x));
  b.softmax_cross_entropy("loss", b.linear("fc", y, 3), labels);
  twin t(bound_to_cpu(std::move(b).finish()));
  const value_id w = t.g.find("conv.weight");
  const auto gradient = t.run.floats("conv.weight.gradient");
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    CHECK(double(gradient[i]) == doctest::Approx(t.numerical(w, i)).epsilon(1e-4));
  }
}

TEST_CASE("batch norm on the images themselves: the gradient of the images dies unread") {
  builder b(2);
  const value_id images = b.images(4, 4, 2);
  const value_id labels = b.labels();
  const value_id y = b.global_avg_pool("avg", b.relu("relu", b.batch_norm("bn", images)));
  b.softmax_cross_entropy("loss", b.linear("fc", y, 3), labels);
  twin t(bound_to_cpu(std::move(b).finish()));
  const value_id gamma = t.g.find("bn.weight");
  const auto gradient = t.run.floats("bn.weight.gradient");
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    CHECK(double(gradient[i]) == doctest::Approx(t.numerical(gamma, i)).epsilon(1e-4));
  }
}

TEST_CASE("only the loss can be differentiated") {
  builder b(2);
  b.conv2d("conv", b.images(4, 4, 2), 3, 1, 1, 0);
  CHECK_THROWS_AS(static_cast<void>(std::move(b).finish()), std::invalid_argument);
}
