// Which device a run is on, what it is refused, and that a session asks for no more than a machine
// promises: bytes of the device are mapped, times are asked for.
#include "backend/backend.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/choose_backend.hpp"
#include "backend/cpu_backend.hpp"
#include "delta/engine/engine.hpp"
#include "device/cpu_machine.hpp"
#include "model/models.hpp"
#include "train/session.hpp"

using namespace delta::executor;
using delta::bytes;
using delta::nanoseconds;
using delta::stamp;

namespace {

/// Has so much memory, and does nothing.
class small_backend final : public backend {
 public:
  explicit small_backend(bytes free) : free_(free) {}
  void bind(graph&) override {}
  std::unique_ptr<machine> open() override { return nullptr; }
  [[nodiscard]] std::uint64_t granularity() const override { return 512; }
  [[nodiscard]] std::string_view kind() const override { return "cuda"; }
  [[nodiscard]] std::string description() const override { return "a small GPU"; }
  [[nodiscard]] bytes free_memory() const override { return free_; }

 private:
  bytes free_;
};

std::string refusal(std::string_view what, bytes wanted, bytes free) {
  try {
    check_against_device(what, wanted, small_backend(free));
  } catch (const usage_error& error) {
    return error.what();
  }
  return "no error";
}

constexpr nanoseconds stated{4321};

/// As a GPU: the host sees copies of the device's bytes, its clock knows nothing of what operators
/// take, and the device's own clock says the same of all.
class far_machine final : public cpu_machine {
 public:
  far_machine() : cpu_machine({}) {}
  [[nodiscard]] bool computes_at_once() const override { return false; }
  std::optional<nanoseconds> elapsed(stamp s) override {
    if (s.where != delta::lane::compute) return cpu_machine::elapsed(s);
    asked_ += s.point != 0;
    return stated;
  }
  std::byte* map(std::byte* device, bytes n, bool reading) override {
    CHECK(at_ == nullptr);
    at_ = device;
    copy_.assign(n.count, std::byte{0x7f});
    if (reading) std::memcpy(copy_.data(), device, n.count);
    return copy_.data();
  }
  void unmap(bool writing) override {
    CHECK(at_ != nullptr);
    if (writing) std::memcpy(at_, copy_.data(), copy_.size());
    // What is written after this is lost.
    std::ranges::fill(copy_, std::byte{0x7f});
    at_ = nullptr;
  }
  [[nodiscard]] bool asked() const { return asked_ > 0; }

 private:
  std::byte* at_ = nullptr;
  std::vector<std::byte> copy_;
  std::uint64_t asked_ = 0;
};

struct result {
  std::vector<float> losses;
  std::vector<std::vector<std::byte>> parameters;
  bool operator==(const result&) const = default;
};

/// The same images every time.
class fixed_images final : public batch_source {
 public:
  explicit fixed_images(const graph& g) : g_(&g) {}
  void fill(float* images, std::int32_t* labels) override {
    const std::size_t n = (*g_)[g_->images].bytes / sizeof(float);
    for (std::size_t i = 0; i < n; ++i) images[i] = float(i % 17) * 0.1f - 0.8f;
    for (int i = 0; i < g_->batch; ++i) labels[i] = i % 10;
  }

 private:
  const graph* g_;
};

result train_on(machine& device, const graph& g, std::string_view policy, bytes budget,
                trace_recorder* recorder = nullptr) {
  delta::arena<machine> storage(device, {.capacity = budget, .host_capacity = budget});
  thread_pool pool(g.threads);
  session s(g, make_manager(policy, over(storage)),
            {.device = &device, .pool = &pool, .recorder = recorder});
  s.create(1);
  fixed_images images(g);
  result r;
  for (int i = 0; i < 2; ++i) r.losses.push_back(s.train(&images));
  for (const value_id p : g.parameters) s.read(p, r.parameters.emplace_back(g[p].bytes));
  return r;
}

graph small_net() {
  return bound_to_cpu(resnet20({.batch = 4, .image = 8}));
}

}  // namespace

TEST_CASE("a run is on the CPU unless a GPU is asked for, or left open and there") {
  train_options o;
  CHECK_FALSE(on_gpu(o));
  o.device = device_choice::automatic;
  CHECK(on_gpu(o) == cuda_answers());
  o.device = device_choice::cuda;
  CHECK(on_gpu(o));
  const auto on = choose_backend({});
  CHECK(on->kind() == "cpu");
  CHECK(on->granularity() == cpu_granularity);
  CHECK(on->description().ends_with(", 1 thread"));
}

TEST_CASE("more than the device has free is refused in a line that names both") {
  CHECK(refusal("--budget", bytes{4096}, bytes{4096}) == "no error");
  CHECK(refusal("--budget", bytes{4096}, bytes{}) == "no error");  // not known
  CHECK(
      refusal("--budget", bytes{3ull << 30}, bytes{2ull << 30}) ==
      "--budget: takes 3.00 GiB (3221225472 bytes), but 2.00 GiB are free on a small GPU; allowed: "
      "up to 2147483648 bytes");
}

TEST_CASE("a machine whose bytes the host sees as copies computes the same bits") {
  const graph g = small_net();
  const bytes whole{std::uint64_t{64} << 20};
  cpu_machine near({});
  const result expected = train_on(near, g, "unmanaged", whole);
  CHECK(std::isfinite(expected.losses.back()));
  for (const std::string_view policy : {"unmanaged", "online", "adaptive"}) {
    CAPTURE(policy);
    far_machine far;
    CHECK(train_on(far, g, policy, whole) == expected);
  }
}

TEST_CASE("where kernels run on, what is recorded is the device's time of each operator") {
  const graph g = small_net();
  far_machine far;
  trace_recorder recorder(trace_recorder::costs::measured);
  train_on(far, g, "unmanaged", bytes{std::uint64_t{64} << 20}, &recorder);
  CHECK(far.asked());
  const delta::trace t = recorder.take({.device = "far", .granularity = 64});
  REQUIRE(t.operations.size() == 2 * g.nodes.size());
  CHECK(std::ranges::all_of(t.operations, [](const auto& o) { return o.cost == stated; }));
}
