// The whole manager on the real CUDA device, on a GPU that does everything as late as its events
// allow: random programs under every preset leave what plain evaluation leaves, nothing is touched
// by two that no event orders, and without any one of the waits something is.
// ctest-labels: slow
#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "delta/engine/engine.hpp"
#include "device/cuda_device.hpp"
#include "fake_cuda.hpp"
#include "random_program.hpp"
#include "seeds.hpp"
#include "storage_check.hpp"

using namespace delta;
using namespace delta::test;
using delta::executor::cuda_device;

namespace {

/// Queues a kernel's body on the stream, for a time that follows from what it touches.
struct launch_late {
  fake_cuda* cuda;
  fake_cuda::stream* where;
  template <class F>
  void operator()(std::span<const std::span<std::byte>> reads,
                  std::span<const std::span<std::byte>> writes, F&& body) const {
    std::size_t size = 0;
    const auto ranges = [&](std::span<const std::span<std::byte>> list) {
      std::vector<range> r;
      for (const auto& s : list) r.push_back({s.data(), s.size()}), size += s.size();
      return r;
    };
    auto from = ranges(reads), to = ranges(writes);
    cuda->kernel_time = nanoseconds{static_cast<std::int64_t>(1000 + mix(size, 1) % 40'000)};
    where->launch(std::move(from), std::move(to), std::forward<F>(body));
  }
};

/// The host touches tensors through the device's staging buffer.
struct touch_staged {
  fake_cuda* cuda;
  cuda_device* gpu;
  template <class F>
  void operator()(std::byte* at, std::size_t size, bool writing, F&& f) const {
    std::byte* const p = gpu->map(at, bytes{size}, !writing);
    cuda->host_access({p, size}, writing);
    f(p);
    gpu->unmap(writing);
  }
};

struct total {
  std::uint64_t evictions = 0, offloads = 0, reloads = 0, recomputes = 0, moves = 0;
  std::uint64_t passed = 0, failed = 0, waits = 0;
};

/// One program under one policy. Gives the violations; all else is checked here, unless a wait is
/// missing: then the data may be wrong.
std::vector<std::string> race(std::uint64_t seed, std::string_view preset, wait_reason ignored,
                              total& sum) {
  const bool again = seed % 2 != 0;  // what learns needs to see a step twice
  const program_shape shape{.operators = again ? 16 : 24,
                            .steps = again ? 1 : 2,
                            .largest = 200,
                            .updates_made = seed % 3 == 0};
  const program p = again ? repeated(random_program(seed, shape), 4) : random_program(seed, shape);
  const std::uint64_t percent = std::array<std::uint64_t, 4>{100, 130, 200, 1200}[seed / 2 % 4];
  const bytes budget = round_up(bytes{largest_footprint(p, 64).count * percent / 100}, 64);
  fake_cuda cuda({.seed = seed, .ignored = ignored});
  executor::cuda_stream compute = nullptr;
  REQUIRE(cuda.stream_create(&compute, false).ok());
  {
    cuda_device gpu(cuda, compute,
                    {.overlap = seed % 8 != 7, .scratch = bytes{64 + seed % 5 * 64}, .clock = [&] {
                       return cuda.now();
                     }});
    arena<executor::machine> storage(gpu, {.capacity = budget, .host_capacity = 32_KiB});
    {
      const auto managed = make_manager(preset, over(storage));
      manager_interface& m = *managed;
      try {
        const auto left = run_program(
            m, p, launch_late{&cuda, reinterpret_cast<fake_cuda::stream*>(compute)},
            [&] { CHECK(check_invariants(storage) == ""); },
            seed % 5 == 4 ? manner::open : manner::whole, touch_staged{&cuda, &gpu});
        if (ignored == wait_reason::none) CHECK(left == evaluate(p));
        ++sum.passed;
      } catch (const budget_exceeded&) {
        ++sum.failed;
      }
      const counters c = m.counts();
      sum.evictions += c.evictions, sum.offloads += c.offloads, sum.reloads += c.reloads;
      sum.recomputes += c.recomputes, sum.moves += storage.moves();
    }
    CHECK(storage.used() == bytes{});
    CHECK(storage.host_used() == bytes{});
    sum.waits += cuda.calls("cudaStreamWaitEvent");
    CHECK(gpu.events() < 1000);
  }
  CHECK(cuda.stream_destroy(compute).ok());
  CHECK(cuda.live() == 0);
  return cuda.violations();
}

total races(std::string_view preset) {
  total sum;
  const std::uint64_t count = seeds(10'000) / named_policies.size() + 1;
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    CAPTURE(seed);
    for (const auto& text : race(seed, preset, wait_reason::none, sum)) FAIL_CHECK(text);
  }
  MESSAGE(preset, ": ", sum.passed, " passed, ", sum.failed, " do not fit; ", sum.evictions,
          " evictions, ", sum.offloads, " offloads, ", sum.recomputes, " recomputations, ",
          sum.moves, " moves, ", sum.waits, " waits");
  CHECK(sum.passed > count / 5);
  return sum;
}

}  // namespace

TEST_CASE("cuda races: unmanaged") {
  CHECK(races("unmanaged").evictions == 0);
}
TEST_CASE("cuda races: dtr") {
  CHECK(races("dtr").recomputes > 0);
}
TEST_CASE("cuda races: paper") {
  const total sum = races("paper");
  CHECK(sum.failed == 0);
  CHECK(sum.reloads > 0);
  CHECK(sum.recomputes > 0);
  CHECK(sum.moves > 0);
}
TEST_CASE("cuda races: those that choose by costs") {
  for (const std::string preset : {"online", "adaptive"}) {
    CAPTURE(preset);
    const total sum = races(preset);
    CHECK(sum.failed == 0);
    CHECK(sum.offloads > 0);
    CHECK(sum.reloads > 0);
    CHECK(sum.recomputes > 0);
    CHECK(sum.moves > 0);
  }
}

TEST_CASE("cuda races: without any one of the waits something is touched too early") {
  for (std::size_t w = 0; w < wait_reasons; ++w) {
    const auto ignored = static_cast<wait_reason>(w);
    // A manager brings back only what it knows to have left: cuda_device_test finds this one.
    if (ignored == wait_reason::copy_in_after_own_copy_out) continue;
    const std::string name = name_of(ignored);
    CAPTURE(name);
    std::vector<std::string> found;
    std::uint64_t seed = 0;
    total sum;
    while (found.empty() && ++seed <= 5000) found = race(seed, "paper", ignored, sum);
    CHECK_FALSE(found.empty());
    if (!found.empty()) MESSAGE(name, " ignored, seed ", seed, ": ", found.front());
  }
}
