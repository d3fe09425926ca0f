// What a training step asks of CUDA, to the call: launches per operator, events, waits, copies,
// bytes. Whoever changes one of these numbers does it knowingly, and makes
// docs/results/gpu_counted.md anew (bench/gpu_step.cpp).
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <string>

#include "counted_step.hpp"
#include "model/models.hpp"
#include "train/feasibility.hpp"

using namespace delta;
using namespace delta::test;
using delta::executor::cuda_copy;

namespace {

executor::graph resnet20() {
  return executor::resnet20({.batch = 128, .image = 32, .classes = 10});
}
executor::graph resnet50(executor::fusion fuse = executor::fusion::none, bytes group = {}) {
  return executor::resnet50({.batch = 128,
                             .image = 224,
                             .classes = 1000,
                             .hyper = {.update_group = group.count},
                             .fuse = fuse});
}
/// More than an unmanaged step takes.
bytes plenty(const executor::graph& g) {
  return bytes{executor::unmanaged_peak(g, 512).total} * 2 + 1_GiB;
}
fake_cuda::traffic of(const counted_step& c, cuda_copy way) {
  return c.copies[static_cast<std::size_t>(way)];
}
launch_counts launches(const counted_step& c, const char* type) {
  const auto it = c.by_type.find(type);
  REQUIRE(it != c.by_type.end());
  return it->second.launches;
}
double moved(const counted_step& c) {
  double sum = 0;
  for (const auto& [name, n] : c.by_type)
    if (!name.starts_with("conv_") && !name.starts_with("linear_")) sum += n.moved;
  return sum;
}

}  // namespace

TEST_CASE("what an unmanaged step of ResNet-20 asks of the GPU") {
  const executor::graph g = resnet20();
  const counted_step c = count_step(g, {.budget = plenty(g)});
  CHECK(c.violations.empty());
  CHECK(launches(c, "bn_forward") == launch_counts{3 * 21, 0});
  CHECK(launches(c, "bn_backward") == launch_counts{3 * 21, 0});
  CHECK(launches(c, "relu_forward") == launch_counts{19, 0});
  CHECK(launches(c, "relu_backward") == launch_counts{19, 0});
  CHECK(launches(c, "add") == launch_counts{18, 0});
  CHECK(launches(c, "sgd_update") == launch_counts{65, 0});
  CHECK(launches(c, "linear_backward_weight") == launch_counts{1, 1});
  CHECK(launches(c, "softmax_cross_entropy_forward") == launch_counts{2, 0});
  CHECK(c.launches == 319);
  CHECK(c.events == 252);
  CHECK(c.stream_waits == 0);
  CHECK(c.host_waits == 1);
  CHECK(of(c, cuda_copy::to_device).calls == 2);
  CHECK(of(c, cuda_copy::to_device).size == bytes{128 * (32 * 32 * 3 + 1) * 4});
  CHECK(of(c, cuda_copy::to_host).calls == 1);
  CHECK(of(c, cuda_copy::on_device).calls == 0);
}

TEST_CASE("our own convolutions gather and multiply, block by block") {
  const executor::graph g = resnet20();
  const counted_step c = count_step(g, {.budget = plenty(g), .library_convolutions = false});
  // What six layers gather is more than a block.
  CHECK(launches(c, "conv_forward") == launch_counts{21 + 6, 21 + 6});
  CHECK(launches(c, "conv_backward_filter") == launch_counts{21 + 6, 21 + 6});
  // 18 filters are turned, and two strided layers gather in blocks, too: for all pixels of x.
  CHECK(launches(c, "conv_backward_data") == launch_counts{47, 29});
}

TEST_CASE("under a budget the waits of the host stay few") {
  const executor::graph g = resnet20();
  const counted_step plain = count_step(g, {.budget = plenty(g)});
  const counted_step c = count_step(g, {.policy = "adaptive",
                                        .budget = bytes{plain.peak.count * 6 / 10},
                                        .host_budget = plain.peak,
                                        .steps = 8});
  CHECK(c.violations.empty());
  CHECK(c.peak.count <= plain.peak.count * 6 / 10);
  CHECK(c.counts.evictions + c.counts.offloads > 0);
  CHECK(c.host_waits <= 2);
}

TEST_CASE("a step of ResNet-50: what fusion and updating together save") {
  struct row {
    executor::fusion fuse;
    bytes group;
    std::uint64_t launches, updates, events;
    double moved_gb;
  };
  for (const row& r : {row{executor::fusion::none, 0_MiB, 779, 161, 579, 88.93},
                       {executor::fusion::none, 16_MiB, 625, 7, 424, 88.93},
                       {executor::fusion::batch_norm, 0_MiB, 665, 161, 465, 64.33},
                       {executor::fusion::batch_norm, 16_MiB, 511, 7, 310, 64.33}}) {
    CAPTURE(r.launches);
    const executor::graph g = resnet50(r.fuse, r.group);
    const counted_step c = count_step(g, {.budget = plenty(g)});
    CHECK(c.launches == r.launches);
    CHECK(launches(c, "sgd_update") == launch_counts{r.updates, 0});
    CHECK(c.events == r.events);
    CHECK(c.stream_waits == 1);  // the images' copy, for the operators whose bytes it gets
    CHECK(c.host_waits == 1);
    CHECK(moved(c) * 1e-9 == doctest::Approx(r.moved_gb).epsilon(0.0001));
  }
}

TEST_CASE("gradients that wait for each other cost ResNet-50 no larger budget") {
  const executor::graph apart = resnet50(), together = resnet50(executor::fusion::none, 16_MiB);
  const auto peak = [](const executor::graph& g) { return executor::unmanaged_peak(g, 512).total; };
  CHECK(peak(together) - peak(apart) < 8_MiB .count);
  CHECK(peak(together) > peak(apart));
  const auto smallest = [&](const executor::graph& g) {
    return executor::smallest_budget(g, {.host_budget = bytes{peak(g)}, .granularity = 512});
  };
  CHECK(smallest(together) == smallest(apart));
}
