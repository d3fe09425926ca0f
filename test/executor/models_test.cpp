// The models as graphs: sizes, order and lifetimes. No kernel runs here.
#include "model/models.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "backend/cpu_backend.hpp"
#include "cli/options.hpp"
#include "liveness.hpp"

using namespace delta::executor;

namespace {

std::size_t count(const graph& g, const std::vector<value_id>& ids) {
  std::size_t n = 0;
  for (const value_id v : ids) n += g[v].bytes / sizeof(float);
  return n;
}

// Sums layer by layer: a convolution without bias, and its batch norm's gamma and beta.
std::size_t conv_bn(std::size_t in, std::size_t out, std::size_t kernel) {
  return in * out * kernel * kernel + 2 * out;
}

std::size_t resnet20_parameters(std::size_t channels, std::size_t classes) {
  std::size_t n = conv_bn(channels, 16, 3);
  n += 6 * conv_bn(16, 16, 3);
  n += conv_bn(16, 32, 3) + 5 * conv_bn(32, 32, 3) + conv_bn(16, 32, 1);
  n += conv_bn(32, 64, 3) + 5 * conv_bn(64, 64, 3) + conv_bn(32, 64, 1);
  return n + 64 * classes + classes;
}

model_options small(purpose what = purpose::training) {
  model_options o;
  o.batch = 2;
  o.image = 64;
  o.what = what;
  return o;
}

bool is_update(const node& n) {
  return n.type == operator_type::sgd_update || n.type == operator_type::adam_update;
}

// Where each value is made and last read; persistent values and inputs are made before node 0.
void check_order(const graph& g) {
  std::map<value_id, int> made;
  std::set<value_id> final;
  for (value_id v = 0; v < value_id(g.values.size()); ++v) {
    if (g[v].persistent() || g[v].what == value_class::input) made[v] = 1;
  }
  for (const node& n : g.nodes) {
    CAPTURE(n.name);
    for (const value_id v : n.inputs) {
      CAPTURE(g[v].name);
      CHECK(made[v] == 1);
      CHECK_FALSE(final.contains(v));  // nobody reads a weight after its update
    }
    for (const value_id v : n.outputs) CHECK(made[v]++ == 0);
    for (const value_id v : n.updates) CHECK(final.insert(v).second);
  }
}

}  // namespace

TEST_CASE("ResNet-50 has the parameters that the literature counts") {
  model_options o;
  o.image = 224;
  o.classes = 1000;
  const graph g = resnet50(o);
  CHECK(count(g, g.parameters) == 25'557'032);
  CHECK(count(g, g.optimizer_states) == 25'557'032);
  CHECK(count(g, g.running_statistics) == 53'120);  // as PyTorch's model zoo has
  double forward = 0, backward = 0;
  for (const node& n : g.nodes) {
    if (!std::holds_alternative<conv_shape>(n.shape)) continue;
    (n.backward ? backward : forward) += n.flops;
  }
  CHECK(forward / 2e9 == doctest::Approx(4.087).epsilon(0.001));  // multiply-adds, without fc
  const conv_shape stem = std::get<conv_shape>(g.nodes[0].shape);
  CHECK(backward == doctest::Approx(2 * forward - stem.flops()));  // no gradient of the images
}

TEST_CASE("the models for ImageNet have the parameters that the literature counts") {
  const std::map<std::string, std::size_t> parameters{{"resnet18", 11'689'512},
                                                      {"resnet50", 25'557'032},
                                                      {"resnet101", 44'549'160},
                                                      {"resnext50_32x4d", 25'028'904}};
  // Multiply-adds of the convolutions on 224 x 224, in thousands of millions.
  const std::map<std::string, double> work{
      {"resnet18", 1.814}, {"resnet50", 4.087}, {"resnet101", 7.799}, {"resnext50_32x4d", 4.228}};
  model_options o;
  o.image = 224;
  o.classes = 1000;
  o.what = purpose::inference;
  for (const auto& [name, count_of] : parameters) {
    CAPTURE(name);
    const graph g = make_model(name, o);
    CHECK(count(g, g.parameters) == count_of);
    double flops = 0;
    for (const node& n : g.nodes)
      flops += std::holds_alternative<conv_shape>(n.shape) ? n.flops : 0;
    CHECK(flops / 2e9 == doctest::Approx(work.at(name)).epsilon(0.001));
  }
}

TEST_CASE("ResNeXt-50's groups stand in the 3x3 convolutions of its blocks, and nowhere else") {
  const graph g = resnext50_32x4d(small());
  int grouped = 0;
  for (const node& n : g.nodes) {
    const auto* s = std::get_if<conv_shape>(&n.shape);
    if (s == nullptr || n.backward) continue;
    CAPTURE(n.name);
    CHECK((s->groups == 32) == n.name.ends_with(".conv2.forward"));
    grouped += s->groups == 32;
  }
  CHECK(grouped == 16);
  CHECK(g[g.find("layer1.0.conv2.weight")].shape == std::vector<int>{128, 3, 3, 4});
  CHECK(g[g.find("layer4.2.conv2.weight")].shape == std::vector<int>{1024, 3, 3, 32});
  CHECK(g[g.find("layer4.2.conv3.weight")].shape == std::vector<int>{2048, 1, 1, 1024});
}

TEST_CASE("the command line knows the models that can be built and their smallest images") {
  const auto names = model_names();
  REQUIRE(known_models().size() == names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const model_choice& model = known_models()[i];
    CAPTURE(model.name);
    CHECK(model.name == names[i]);
    CHECK_NOTHROW((void)make_model(model.name, {.batch = 1, .image = model.smallest_alone}));
    if (model.smallest_alone > model.smallest_image) {
      CHECK_THROWS_AS((void)make_model(model.name, {.batch = 1, .image = model.smallest_alone - 1}),
                      std::invalid_argument);
    }
    for (const purpose what : {purpose::training, purpose::inference}) {
      CHECK_NOTHROW(
          (void)make_model(model.name, {.batch = 2, .image = model.smallest_image, .what = what}));
    }
  }
}

TEST_CASE("ResNet-20 has the parameters of its layers") {
  model_options o;
  const graph colour = resnet20(o);
  CHECK(count(colour, colour.parameters) == resnet20_parameters(3, 10));
  CHECK(resnet20_parameters(3, 10) == 272'474);
  o.channels = 1;
  o.image = 28;
  const graph grey = resnet20(o);
  CHECK(count(grey, grey.parameters) == resnet20_parameters(1, 10));
}

TEST_CASE("every value is made once, before it is read, and no weight is read after its update") {
  for (const auto& name : model_names()) {
    for (const purpose what : {purpose::training, purpose::inference}) {
      CAPTURE(name);
      const graph g = make_model(name, small(what));
      check_order(g);
      CHECK_NOTHROW(validate(g));
    }
  }
}

TEST_CASE("each parameter is updated once, right after its gradient is complete") {
  for (const auto& name : model_names())
    for (const optimizer_kind optimizer : {optimizer_kind::sgd, optimizer_kind::adam}) {
      CAPTURE(name);
      model_options o = small();
      o.hyper.optimizer = optimizer;
      const graph g = make_model(name, o);
      const std::size_t kept = optimizer == optimizer_kind::adam ? 2 : 1;
      REQUIRE(g.optimizer_states.size() == kept * g.parameters.size());
      std::set<value_id> updated;
      for (std::size_t i = 0; i < g.nodes.size(); ++i) {
        const node& n = g.nodes[i];
        if (!is_update(n)) continue;
        CAPTURE(n.name);
        REQUIRE(n.updates.size() == 1 + kept);
        CHECK(updated.insert(n.updates[0]).second);
        const auto at = std::find(g.parameters.begin(), g.parameters.end(), n.updates[0]);
        REQUIRE(at != g.parameters.end());
        const auto states =
            g.optimizer_states.begin() + std::ptrdiff_t(kept) * (at - g.parameters.begin());
        CHECK(std::equal(n.updates.begin() + 1, n.updates.end(), states));
        CHECK(g[n.inputs[0]].name == g[n.updates[0]].name + ".gradient");
        // Only other updates (bn's gamma, then beta) stand between the gradient and its use.
        std::size_t maker = i - 1;
        while (is_update(g.nodes[maker])) --maker;
        const auto& outputs = g.nodes[maker].outputs;
        CHECK(std::find(outputs.begin(), outputs.end(), n.inputs[0]) != outputs.end());
      }
      CHECK(updated.size() == g.parameters.size());
    }
}

TEST_CASE("running statistics are effects that happen once; an update is no such effect") {
  const graph g = resnet20(small());
  std::set<value_id> touched;
  for (const node& n : g.nodes) {
    CHECK(n.effect_once == (n.type == operator_type::bn_forward));
    if (n.effect_once) touched.insert(n.updates.begin(), n.updates.end());
  }
  CHECK(touched == std::set<value_id>(g.running_statistics.begin(), g.running_statistics.end()));
}

TEST_CASE("last uses: every short-lived value dies once, after its last reader") {
  for (const auto& name : model_names()) {
    for (const purpose what : {purpose::training, purpose::inference}) {
      CAPTURE(name);
      const graph g = make_model(name, small(what));
      const auto dying = last_uses(g);
      REQUIRE(dying.size() == g.nodes.size());
      std::set<value_id> dead;
      for (std::size_t n = 0; n < g.nodes.size(); ++n) {
        for (const value_id v : g.nodes[n].inputs) CHECK_FALSE(dead.contains(v));
        for (const value_id v : g.nodes[n].outputs) CHECK_FALSE(dead.contains(v));
        for (const value_id v : dying[n]) {
          CHECK_FALSE(g[v].persistent());
          CHECK(dead.insert(v).second);
        }
      }
      std::size_t kept = 0;
      for (const value& v : g.values) kept += v.persistent();
      CHECK(dead.size() + kept + 2 == g.values.size());  // 2: loss, probabilities
      CHECK_FALSE(dead.contains(g.loss));
      CHECK_FALSE(dead.contains(g.probabilities));
    }
  }
}

TEST_CASE("the inference graph finds its parameters and statistics by name in the training graph") {
  for (const auto& name : model_names()) {
    CAPTURE(name);
    const graph training = make_model(name, small());
    const graph inference = make_model(name, small(purpose::inference));
    CHECK(inference.optimizer_states.empty());
    CHECK(inference.parameters.size() == training.parameters.size());
    CHECK(inference.running_statistics.size() == training.running_statistics.size());
    for (const value& v : inference.values) {
      if (!v.persistent()) continue;
      CAPTURE(v.name);
      const value_id there = training.find(v.name);
      REQUIRE(there != no_value);
      CHECK(training[there].shape == v.shape);
      CHECK(training[there].what == v.what);
    }
    for (const node& n : inference.nodes) {
      CHECK_FALSE(n.backward);
      CHECK(n.updates.empty());
    }
  }
}

TEST_CASE("costs: every operator moves bytes, and only updates and bn write in place") {
  const graph g = bound_to_cpu(resnet50(small()));
  for (const node& n : g.nodes) {
    CAPTURE(n.name);
    CHECK(n.flops > 0);
    CHECK(n.moved_bytes > 0);
    CHECK(bool(n.run));
    CHECK((n.updates.empty() || is_update(n) || n.type == operator_type::bn_forward));
  }
}

TEST_CASE("the liveness peak counts what is alive: a chain by hand") {
  // Each value is 2 x 8 x 8 x 3 floats = 1,536 bytes.
  builder b(2, purpose::inference);
  value_id x = b.images(8, 8, 3);
  const value_id labels = b.labels();
  for (const char* name : {"a", "b", "c"}) x = b.relu(name, x);
  b.softmax_cross_entropy("loss", b.linear("fc", b.global_avg_pool("pool", x), 4), labels);
  const graph g = std::move(b).finish();
  // Largest while a relu runs: its input and output, the labels (8), weight and bias (48 + 16).
  CHECK(delta::test::liveness_peak(g, 1) == 2 * 1536 + 8 + 64);
  CHECK(delta::test::liveness_peak(g, 64) == 2 * 1536 + 64 + 2 * 64);
}

TEST_CASE("an inference step needs less than half of a training step") {
  const auto training = delta::test::liveness_peak(bound_to_cpu(resnet50(small())), 64);
  const auto inference =
      delta::test::liveness_peak(bound_to_cpu(resnet50(small(purpose::inference))), 64);
  MESSAGE("ResNet-50, batch 2, 64 x 64: training " << training << ", inference " << inference);
  CHECK(2 * inference < training);
}

TEST_CASE("an unknown model is refused with the list of known ones") {
  CHECK_THROWS_WITH_AS(static_cast<void>(make_model("vgg", {})),
                       "no model 'vgg'; there are resnet20, resnet18, resnet50, resnet101, "
                       "resnext50_32x4d",
                       std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(make_model("resnext50", {})), std::invalid_argument);
}

TEST_CASE("shapes that do not fit are refused with the layer's name") {
  builder b(2);
  const value_id x = b.images(4, 4, 3);
  CHECK_THROWS_WITH_AS(b.conv2d("stem", x, 8, 7, 1, 0),
                       "stem: an image of 2 x 4 x 4 x 3 is smaller than the kernel",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(b.conv2d("groups", x, 8, 3, 1, 1, 2),
                       "groups: 2 groups do not divide 3 input and 8 output channels",
                       std::invalid_argument);
  CHECK_THROWS_AS(b.conv2d("groups", x, 8, 3, 1, 1, 3), std::invalid_argument);
  CHECK_THROWS_AS(b.conv2d("groups", x, 8, 3, 1, 1, 0), std::invalid_argument);
  CHECK_THROWS_WITH_AS(b.add("sum", x, b.conv2d("conv", x, 8, 3, 1, 1)),
                       "sum: adds 2 x 4 x 4 x 3 to 2 x 4 x 4 x 8", std::invalid_argument);
  CHECK_THROWS_WITH_AS(b.linear("fc", x, 10), "fc: expects 2 extents, not 2 x 4 x 4 x 3",
                       std::invalid_argument);
  CHECK_THROWS_AS(builder(0), std::invalid_argument);
}

TEST_CASE("a graph in the wrong order is refused") {
  graph g = resnet20(small());
  std::swap(g.nodes[0], g.nodes[1]);
  CHECK_THROWS_WITH_AS(validate(g),
                       "invalid graph: bn1.forward reads conv1.output before it is made",
                       std::logic_error);
  graph late = resnet20(small());
  node again = late.nodes[0];
  again.name = "again";
  again.outputs = {late.add_value({"late", {1}, 4})};
  late.append(again);
  CHECK_THROWS_WITH_AS(validate(late), "invalid graph: again reads conv1.weight after its update",
                       std::logic_error);
}
