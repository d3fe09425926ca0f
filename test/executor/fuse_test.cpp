// Fused operators: a batch norm with the addition and the ReLU behind it. The same bits as apart,
// kernel by kernel and training by training, for fewer bytes.
#include "model/fuse.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "dice.hpp"
#include "kernel_testing.hpp"
#include "liveness.hpp"
#include "model/autograd.hpp"
#include "model/models.hpp"
#include "seeds.hpp"
#include "training.hpp"

using namespace delta::executor;
using kernel_testing::floats;

namespace {

/// Element for element the same bits: NaN equals NaN, -0 is not 0.
bool same(const floats& a, const floats& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
         });
}

/// What one operator is called with and leaves; outputs begin as NaN.
struct batch_norm_run {
  bn_shape s;
  std::size_t n, c;
  thread_pool& pool;
  floats x, gamma, beta, residual, dy;
  floats running_mean, running_var;

  batch_norm_run(const bn_shape& shape, thread_pool& p, std::uint32_t seed)
      : s(shape),
        n(shape.rows * std::size_t(shape.c)),
        c(std::size_t(shape.c)),
        pool(p),
        x(kernel_testing::random_floats(n, seed, 0.3f)),
        gamma(kernel_testing::random_floats(c, seed + 1)),
        beta(kernel_testing::random_floats(c, seed + 2)),
        residual(kernel_testing::random_floats(n, seed + 3)),
        dy(kernel_testing::random_floats(n, seed + 4)),
        running_mean(c, 0.25f),
        running_var(c, 2.0f) {}

  struct results {
    floats y, mean, invstd, running_mean, running_var, dx, dresidual, dgamma, dbeta;
    [[nodiscard]] bool equals(const results& r) const {
      return same(y, r.y) && same(mean, r.mean) && same(invstd, r.invstd) &&
             same(running_mean, r.running_mean) && same(running_var, r.running_var) &&
             same(dx, r.dx) && same(dresidual, r.dresidual) && same(dgamma, r.dgamma) &&
             same(dbeta, r.dbeta);
    }
  };
  [[nodiscard]] results empty() const {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const floats image(n, nan), channel(c, nan);
    return {image, channel, channel, running_mean, running_var, image, image, channel, channel};
  }

  [[nodiscard]] results apart(bool adds) const {
    results r = empty();
    floats normal = r.y, sum = r.y;
    std::vector<std::byte> workspace(std::max(bn_forward_workspace(s, pool.threads()),
                                              bn_backward_workspace(s, pool.threads())));
    bn_forward(pool, s, x.data(), gamma.data(), beta.data(), normal.data(), r.mean.data(),
               r.invstd.data(), r.running_mean.data(), r.running_var.data(), workspace.data());
    if (adds) add(pool, n, normal.data(), residual.data(), sum.data());
    relu_forward(pool, n, adds ? sum.data() : normal.data(), r.y.data());
    relu_backward(pool, n, r.y.data(), dy.data(), r.dresidual.data());
    bn_backward(pool, s, x.data(), r.dresidual.data(), gamma.data(), r.mean.data(), r.invstd.data(),
                r.dx.data(), r.dgamma.data(), r.dbeta.data(), workspace.data());
    if (!adds) r.dresidual = empty().dresidual;  // which is only a means there
    return r;
  }

  [[nodiscard]] results together(bool adds) const {
    results r = empty();
    std::vector<std::byte> forward(bn_forward_workspace(s, pool.threads()));
    if (adds) {
      std::vector<std::byte> backward(bn_backward_workspace(s, pool.threads()));
      bn_add_relu_forward(pool, s, x.data(), gamma.data(), beta.data(), residual.data(), r.y.data(),
                          r.mean.data(), r.invstd.data(), r.running_mean.data(),
                          r.running_var.data(), forward.data());
      bn_add_relu_backward(pool, s, x.data(), dy.data(), r.y.data(), gamma.data(), r.mean.data(),
                           r.invstd.data(), r.dx.data(), r.dresidual.data(), r.dgamma.data(),
                           r.dbeta.data(), backward.data());
      return r;
    }
    std::vector<std::byte> backward(bn_relu_backward_workspace(s, pool.threads()));
    bn_relu_forward(pool, s, x.data(), gamma.data(), beta.data(), r.y.data(), r.mean.data(),
                    r.invstd.data(), r.running_mean.data(), r.running_var.data(), forward.data());
    bn_relu_backward(pool, s, x.data(), dy.data(), gamma.data(), beta.data(), r.mean.data(),
                     r.invstd.data(), r.dx.data(), r.dgamma.data(), r.dbeta.data(),
                     backward.data());
    return r;
  }
};

std::map<operator_type, int> count_types(const graph& g) {
  std::map<operator_type, int> count;
  for (const node& n : g.nodes) ++count[n.type];
  return count;
}

graph model(std::string_view name, fusion f, int batch = 2, int image = 64) {
  return make_model(name, {.batch = batch, .image = image, .fuse = f});
}

/// A forward graph of one batch norm, and what `behind` puts behind it.
template <class F>
graph small(F behind) {
  builder b(2);
  const value_id x = b.conv2d("conv", b.images(8, 8, 3), 4, 3, 1, 1);
  const value_id labels = b.labels();
  const value_id y = behind(b, x, b.batch_norm("bn", x));
  b.softmax_cross_entropy("loss", b.linear("fc", b.global_avg_pool("pool", y), 3), labels);
  return std::move(b).finish({}, fusion::batch_norm);
}

}  // namespace

TEST_CASE("a fused operator gives the bits of those that it stands for, on any number of threads") {
  const std::uint64_t first = 1;
  for (std::uint64_t seed = first; seed < first + delta::test::seeds(60); ++seed) {
    CAPTURE(seed);
    delta::test::dice dice(seed);
    bn_shape s{1 + dice.below(seed % 4 == 0 ? 5000 : 70), int(1 + dice.below(130))};
    thread_pool pool(int(1 + dice.below(3)));
    batch_norm_run run(s, pool, std::uint32_t(10 * seed));
    CAPTURE(s.rows);
    CAPTURE(s.c);
    if (dice.one_in(3)) {
      run.residual[dice.below(run.n)] = std::numeric_limits<float>::quiet_NaN();
      run.residual[dice.below(run.n)] = std::numeric_limits<float>::infinity();
    }
    if (dice.one_in(5)) run.x[dice.below(run.n)] = std::numeric_limits<float>::quiet_NaN();
    for (const bool adds : {false, true}) {
      CAPTURE(adds);
      const auto together = run.together(adds);
      CHECK(together.equals(run.apart(adds)));
      thread_pool other(4);
      batch_norm_run again(s, other, std::uint32_t(10 * seed));
      again.x = run.x, again.residual = run.residual;
      CHECK(again.together(adds).equals(together));
    }
  }
}

TEST_CASE("running statistics are left alone where null is given") {
  thread_pool pool(1);
  batch_norm_run run({37, 5}, pool, 1);
  auto r = run.empty();
  std::vector<std::byte> workspace(bn_forward_workspace(run.s, 1));
  bn_relu_forward(pool, run.s, run.x.data(), run.gamma.data(), run.beta.data(), r.y.data(),
                  r.mean.data(), r.invstd.data(), nullptr, nullptr, workspace.data());
  CHECK(same(r.y, run.together(false).y));
}

TEST_CASE("in the models every batch norm takes in the ReLU behind it, or addition and ReLU") {
  struct expected {
    const char* name;
    int relu, add;  // fused with a ReLU; with an addition, too
    int alone;      // projections: behind them is an addition that has a batch norm already
  };
  for (const expected& e : {expected{"resnet20", 10, 9, 2}, expected{"resnet18", 9, 8, 3},
                            expected{"resnet50", 33, 16, 4}, expected{"resnext50_32x4d", 33, 16, 4},
                            expected{"resnet101", 67, 33, 4}}) {
    CAPTURE(e.name);
    const graph apart = model(e.name, fusion::none), together = model(e.name, fusion::batch_norm);
    auto count = count_types(together);
    CHECK(count[operator_type::bn_relu_forward] == e.relu);
    CHECK(count[operator_type::bn_relu_backward] == e.relu);
    CHECK(count[operator_type::bn_add_relu_forward] == e.add);
    CHECK(count[operator_type::bn_add_relu_backward] == e.add);
    CHECK(count[operator_type::bn_forward] == e.alone);
    CHECK(count[operator_type::bn_backward] == e.alone);
    CHECK(count[operator_type::relu_forward] == 0);
    CHECK(count[operator_type::relu_backward] == 0);
    auto before = count_types(apart);
    CHECK(before[operator_type::relu_forward] == e.relu + e.add);
    CHECK(before[operator_type::bn_forward] == e.relu + e.add + e.alone);
    CHECK(count[operator_type::conv_forward] == before[operator_type::conv_forward]);
    CHECK(count[operator_type::sgd_update] == before[operator_type::sgd_update]);
    // The same parameters, by name and order.
    std::vector<std::string> names, names_before;
    for (const value_id v : together.parameters) names.push_back(together[v].name);
    for (const value_id v : apart.parameters) names_before.push_back(apart[v].name);
    CHECK(names == names_before);
  }
}

TEST_CASE("a fused operator is named after what it does, and changes running statistics once") {
  const graph g = model("resnet20", fusion::batch_norm);
  for (const char* name : {"bn1+relu.forward", "layer1.0.bn1+relu1.forward",
                           "layer1.0.bn2+relu2.forward", "layer1.0.bn2+relu2.backward"}) {
    CAPTURE(name);
    CHECK(std::ranges::count(g.nodes, std::string(name), &node::name) == 1);
  }
  for (const node& n : g.nodes) {
    const bool normalises = n.type == operator_type::bn_forward ||
                            n.type == operator_type::bn_relu_forward ||
                            n.type == operator_type::bn_add_relu_forward;
    CHECK(n.effect_once == normalises);
    CHECK(n.updates.size() == (normalises ? 2 : n.updates.size()));
  }
  CHECK(g.find("layer1.0.relu2.output") != no_value);
  CHECK(g.find("layer1.0.bn2.output") == no_value);
  CHECK(g.find("layer1.0.add.output") == no_value);
}

TEST_CASE("nothing is fused across a value that has another reader") {
  const auto plain = [](builder& b, value_id, value_id y) { return b.relu("relu", y); };
  CHECK(count_types(small(plain))[operator_type::bn_relu_forward] == 1);
  const auto read_twice = [](builder& b, value_id, value_id y) {
    return b.add("sum", b.relu("relu", y), y);
  };
  CHECK(count_types(small(read_twice))[operator_type::bn_forward] == 1);
  const auto sum_read_twice = [](builder& b, value_id, value_id y) {
    const value_id other = b.conv2d("other", y, 4, 1, 1, 0);
    const value_id sum = b.add("sum", b.batch_norm("bn2", other), y);
    return b.add("again", b.relu("relu", sum), sum);
  };
  CHECK(count_types(small(sum_read_twice))[operator_type::bn_add_relu_forward] == 0);
}

TEST_CASE("a batch norm is not fused with an addition of what it reads") {
  const auto own_input = [](builder& b, value_id x, value_id y) {
    return b.relu("relu", b.add("sum", y, x));
  };
  CHECK(count_types(small(own_input))[operator_type::bn_add_relu_forward] == 0);
}

TEST_CASE("either term of a sum may be the batch norm; of two it is the first") {
  const auto second = [](builder& b, value_id x, value_id y) {
    return b.relu("relu", b.add("sum", b.relu("r", x), y));
  };
  auto count = count_types(small(second));
  CHECK(count[operator_type::bn_add_relu_forward] == 1);
  CHECK(count[operator_type::relu_forward] == 1);
  const auto both = [](builder& b, value_id x, value_id y) {
    const value_id other = b.batch_norm("bn2", b.conv2d("other", x, 4, 1, 1, 0));
    return b.relu("relu", b.add("sum", y, other));
  };
  const graph g = small(both);
  CHECK(g.nodes[3].name == "bn+relu.forward");  // behind conv, other, bn2
  CHECK(count_types(g)[operator_type::bn_forward] == 1);
}

TEST_CASE("a graph that is differentiated already is refused") {
  const graph g = model("resnet20", fusion::none);
  CHECK_THROWS_AS(static_cast<void>(fused(g)), std::invalid_argument);
}

TEST_CASE("inference is not fused: running statistics are constants there") {
  const graph g = make_model("resnet20", {.what = purpose::inference, .fuse = fusion::batch_norm});
  CHECK(count_types(g)[operator_type::bn_inference] == 21);
  CHECK(count_types(g)[operator_type::relu_forward] == 19);
}

TEST_CASE(
    "a training with fused operators gives the bits of one without, with a budget or without") {
  using delta::test::train;
  for (const std::string_view name : {"resnet20", "resnet18", "resnet50", "resnext50_32x4d"}) {
    CAPTURE(std::string(name));
    auto o = delta::test::unmanaged({name, 32, name == "resnet20" ? 16 : 4, 3});
    if (name == "resnet18") o.optimizer = "adam", o.lr = 0.001;
    o.virtual_clock = true;
    const train_report apart = train(o);
    o.fuse = true;
    const train_report together = train(o);
    CHECK(delta::test::same_bits(apart, together));
    CHECK(apart.fused == false);
    CHECK(together.fused == true);
    if (name != "resnet20") continue;  // of the others most of the memory is parameters
    for (const char* policy : {"dtr", "adaptive"}) {
      CAPTURE(std::string(policy));
      const train_report managed = train(delta::test::managed(o, policy, delta::test::percent(60)));
      CHECK(delta::test::same_bits(apart, managed));
      CHECK(managed.peak_bytes <= managed.budget_bytes);
      CHECK(managed.evictions + managed.offloads > 0);
    }
  }
}

TEST_CASE(
    "fused, a step moves a fifth fewer bytes, and holds no more than a tensor more at its worst") {
  for (const char* name : {"resnet20", "resnet50"}) {
    const graph apart = model(name, fusion::none, 64),
                together = model(name, fusion::batch_norm, 64);
    const auto moved = [](const graph& g) {
      double sum = 0;
      for (const node& n : g.nodes) sum += n.moved_bytes;
      return sum;
    };
    std::size_t largest = 0;
    for (const value& v : apart.values) largest = std::max(largest, v.bytes);
    const auto before = delta::test::liveness_peak(apart, 64),
               after = delta::test::liveness_peak(together, 64);
    MESSAGE(std::string(name) << ": peak " << double(before) / 1e6 << " MB, fused "
                              << double(after) / 1e6 << "; moved " << moved(apart) / 1e9
                              << " GB, fused " << moved(together) / 1e9);
    CHECK(after <= before + largest);
    CHECK(moved(together) < 0.81 * moved(apart));
  }
}
