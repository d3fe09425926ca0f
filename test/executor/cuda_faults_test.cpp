// Faults: CUDA fails at any one of its calls, once or from then on, over a whole small run. Always
// a cuda_error of one line, never a crash, a hang or a leak.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "delta/presets.hpp"
#include "device/cuda_device.hpp"
#include "fake_cuda.hpp"
#include "machine.hpp"
#include "seeds.hpp"

using namespace delta;
using namespace delta::test;
using delta::executor::cuda_device;
using delta::executor::cuda_device_options;
using delta::executor::cuda_error;
using delta::executor::cuda_failure;
using kind = delta::executor::cuda_failure::kind;

namespace {

constexpr bytes size{512};         // of every tensor
constexpr bytes budget{32 << 10};  // enough to measure rates on; all but eight tensors is taken

cuda_device_options options_of(fake_cuda& cuda, std::vector<std::string>* warnings = nullptr) {
  cuda_device_options o;
  o.clock = [&cuda] { return cuda.now(); };
  if (warnings != nullptr) o.warn = [=](std::string_view s) { warnings->emplace_back(s); };
  return o;
}

/// The first number of a tensor becomes that of its input and one more.
auto adds_one(fake_cuda::stream* s) {
  return [s](call& c) {
    std::byte* const from = c.in(0);
    std::byte* const to = c.out(0);
    s->launch({{from, size.count}}, {{to, size.count}}, [=] { put(to, number(from) + 1); });
  };
}

/// From the first call to the last: the device is made and measured, two steps of a chain of
/// operators run forwards and back at half the memory that they need, the host writes and reads.
std::uint64_t whole_run(fake_cuda& cuda, const cuda_device_options& o) {
  executor::cuda_stream compute = nullptr;
  executor::check("cudaStreamCreateWithPriority", cuda.stream_create(&compute, false));
  struct owner {
    fake_cuda& cuda;
    executor::cuda_stream stream;
    ~owner() { cuda.stream_destroy(stream); }
  } const owner{cuda, compute};
  cuda_device gpu(cuda, compute, o);
  arena<executor::machine> storage(gpu, {.capacity = budget, .host_capacity = budget});
  manager m{policy<lru, offload_only, no_prefetch>{}, storage};
  const auto kernel = adds_one(static_cast<fake_cuda::stream*>(gpu.native_stream()));
  std::uint64_t sum = 0;
  static_cast<void>(m.constant(bytes{budget.count - 8 * size.count}));
  const tensor_id x = m.variable(size);
  for (std::uint64_t step = 0; step < 2; ++step) {
    {
      const auto view = m.acquire(x, access::write);
      put(gpu.map(view.data(), size, false), step);
      gpu.unmap(true);
    }
    std::vector<tensor_id> chain{x};
    for (int i = 0; i < 14; ++i)
      chain.push_back(m.run({.inputs = {chain.back()}, .outputs = {size}}, kernel));
    for (; chain.size() > 1; chain.pop_back()) {
      const tensor_id y = m.run({.inputs = {chain.back()}, .outputs = {size}}, kernel);
      const auto view = m.acquire(y);
      sum += number(gpu.map(view.data(), size, true));
      gpu.unmap(false);
      m.drop(chain.back());
      m.drop(y);
    }
    m.end_of_step();
  }
  return sum;
}

/// The error of a run in which something fails; nothing if it came to its end.
std::optional<cuda_error> failure_of(fake_cuda& cuda, std::vector<std::string>* warnings = {}) {
  std::optional<cuda_error> error;
  try {
    whole_run(cuda, options_of(cuda, warnings));
  } catch (const cuda_error& e) {
    error = e;
  }
  CHECK(cuda.live() == 0);
  return error;
}

void check_text(const cuda_error& e) {
  const std::string text = e.what();
  CAPTURE(text);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.find(e.failure.call + " failed: " + std::to_string(e.failure.code) + " (" +
                  e.failure.name + "): ") == 0);
  CHECK(text.size() < 400);
}

}  // namespace

TEST_CASE("cuda faults: without one the run is right and leaves nothing behind") {
  fake_cuda cuda;
  // Two steps of the numbers 2 to 15 over x, and x itself.
  CHECK(whole_run(cuda, options_of(cuda)) == 2 * (14 * 17 / 2) + 14);
  CHECK(cuda.live() == 0);
  CHECK(cuda.violations().empty());
  CHECK(cuda.calls("cudaMemcpyAsync") > 80);
}

TEST_CASE("cuda faults: each call fails in turn, once or from then on") {
  fake_cuda counting;
  whole_run(counting, options_of(counting));
  const std::uint64_t calls = counting.calls();
  CHECK(calls > 1000);
  MESSAGE(calls, " calls in a run");
  std::uint64_t passed = 0, lost = 0;
  struct way {
    int code;
    bool sticky;
  };
  // All of them, or fewer where fewer seeds are asked for.
  const std::uint64_t every =
      std::max<std::uint64_t>(1000 / std::max<std::uint64_t>(seeds(1000), 1), 1);
  std::uint64_t first = 1;  // another one in each way, where not all calls fail
  for (const auto& [code, sticky] : {way{1, false}, {2, false}, {1, true}, {700, true}})
    for (std::uint64_t n = first++ % every + 1; n <= calls; n += every) {
      CAPTURE(sticky);
      CAPTURE(code);
      CAPTURE(n);
      fake_cuda cuda;
      cuda.fail_call(n, code, sticky);
      std::vector<std::string> warnings;  // where it is pinning that fails
      const auto error = failure_of(cuda, &warnings);
      CHECK_FALSE(cuda.failed().empty());
      // Calls that give back, and the host's memory, may fail without an error. All that was
      // taken is given back, in a bounded number of calls.
      if (!error) {
        ++passed;
        const bool expected =
            cuda.failed().find("Destroy") != std::string::npos || cuda.failed() == "cudaFree" ||
            cuda.failed() == "cudaFreeHost" || cuda.failed() == "cudaMallocHost" ||
            cuda.failed() == "cudaStreamSynchronize" || cuda.failed() == "cudaGetLastError";
        CHECK_MESSAGE(expected, cuda.failed());
        continue;
      }
      check_text(*error);
      CHECK(error->failure.code == code);
      CHECK(error->failure.call.find(cuda.failed()) != std::string::npos);
      if (sticky) CHECK(cuda.calls() < n + 2500);
      if (code == 700 || (sticky && n > 1)) {
        CHECK(error->failure.what == kind::lost);
        ++lost;
      }
    }
  MESSAGE(passed, " runs came to their end all the same, in ", lost, " the GPU was lost");
}

TEST_CASE("cuda faults: no driver, one that is too old, no device") {
  const auto finding = [](fake_cuda& cuda) {
    try {
      executor::count_devices(cuda);
    } catch (const cuda_error& e) {
      check_text(e);
      return std::optional(e);
    }
    return std::optional<cuda_error>();
  };
  fake_cuda cuda;
  CHECK_FALSE(finding(cuda));
  cuda.fail_function("cudaGetDeviceCount", 35);
  auto e = finding(cuda);
  REQUIRE(e);
  CHECK(e->failure.what == kind::driver_too_old);
  CHECK(e->failure.name == "cudaErrorInsufficientDriver");
  CHECK(std::string(e->what()).find("install a newer driver") != std::string::npos);
  cuda.driver = 0;
  e = finding(cuda);
  REQUIRE(e);
  CHECK(e->failure.what == kind::no_device);
  CHECK(std::string(e->what()).find("no NVIDIA driver is installed") != std::string::npos);
  cuda.fail_function("cudaGetDeviceCount", 100);
  e = finding(cuda);
  REQUIRE(e);
  CHECK(e->failure.what == kind::no_device);
  cuda.fail_function("cudaGetDeviceCount", 0);
  cuda.devices = 0;
  e = finding(cuda);
  REQUIRE(e);
  CHECK(e->failure.what == kind::no_device);
  CHECK(std::string(e->what()).find("nvidia-smi") != std::string::npos);
}

TEST_CASE("cuda faults: CUDA's own runtime answers, or says what is missing") {
  const auto cuda = executor::make_cuda_runtime();
  if (!cuda) return;  // a build without CUDA
  try {
    const int count = executor::count_devices(*cuda);
    CHECK(count > 0);
  } catch (const cuda_error& e) {
    check_text(e);
    CHECK((e.failure.what == kind::no_device || e.failure.what == kind::driver_too_old));
  }
}

TEST_CASE("cuda faults: the arena does not fit into what is free") {
  fake_cuda cuda({.total = 64_MiB});
  cuda.occupy(64_MiB - bytes{40 << 10});
  const auto e = failure_of(cuda);  // 32 KiB and as much beside it
  REQUIRE(e);
  check_text(*e);
  CHECK(e->failure.what == kind::out_of_memory);
  CHECK(e->failure.call == "cudaMalloc");
  CHECK(cuda.calls("cudaMalloc") == 0);
  CHECK(std::string(e->what()) ==
        "cudaMalloc failed: 2 (cudaErrorMemoryAllocation): out of memory; the budget of 1 MiB and "
        "1 MiB beside it were asked for, 1 MiB of 64 MiB are free; free memory by ending other "
        "programs on the GPU, or ask for a smaller budget");
  SUBCASE("or the allocator finds it in pieces") {
    fake_cuda pieces;
    pieces.fail_function("cudaMalloc", 2);
    const auto f = failure_of(pieces);
    REQUIRE(f);
    CHECK(f->failure.what == kind::out_of_memory);
    CHECK(std::string(f->what()).find("are free") != std::string::npos);
  }
}

TEST_CASE("cuda faults: pinned memory that is refused costs speed, not the run") {
  fake_cuda cuda;
  cuda.fail_function("cudaMallocHost", 2);
  std::vector<std::string> warnings;
  CHECK_FALSE(failure_of(cuda, &warnings));
  CHECK(warnings.size() == 1);
  CHECK(cuda.violations().empty());
}

TEST_CASE("cuda faults: a launch that failed is found at the end of its operator") {
  fake_cuda cuda;
  executor::cuda_stream compute = nullptr;
  REQUIRE(cuda.stream_create(&compute, false).ok());
  cuda_device gpu(cuda, compute, options_of(cuda));
  gpu.device_memory(4_KiB);
  gpu.begin({});
  cuda.fail_launch(209);
  try {
    gpu.end();
    FAIL("it must throw");
  } catch (const cuda_error& e) {
    check_text(e);
    CHECK(e.failure.what == kind::unsupported);
    CHECK(std::string(e.what()).find("a kernel's launch") == 0);
  }
  gpu.begin({});  // such an error does not stay
  gpu.wait(gpu.end());
}

TEST_CASE("cuda faults: a lost GPU is known by a call that takes no error away") {
  // CUDA has more numbers for that than are known here; the one of the failed call is consumed.
  for (const bool gone : {false, true}) {
    CAPTURE(gone);
    fake_cuda cuda;
    executor::cuda_stream compute = nullptr;
    REQUIRE(cuda.stream_create(&compute, false).ok());
    cuda_device gpu(cuda, compute, options_of(cuda));
    std::byte* const there = gpu.device_memory(4_KiB);
    std::byte* const here = gpu.host_memory(4_KiB);
    cuda.fail_call(cuda.calls() + 3, 12'345, gone);  // the copy: an event is made, recorded
    try {
      gpu.copy(direction::out, here, there, 64_B, {});
      FAIL("it must throw");
    } catch (const cuda_error& e) {
      check_text(e);
      CHECK(e.failure.code == 12'345);
      CHECK(e.failure.call == "cudaMemcpyAsync");
      CHECK(e.failure.what == (gone ? kind::lost : kind::failed));
    }
    CHECK(cuda.last_error().ok());
  }
}

TEST_CASE("cuda faults: a library that fails on a lost GPU tells of the loss") {
  for (const bool gone : {false, true}) {
    CAPTURE(gone);
    fake_cuda cuda;
    if (gone) cuda.lose(700);
    const executor::cuda_status execution_failed{5000, "CUDNN_STATUS_EXECUTION_FAILED", "no"};
    try {
      executor::naming_loss(cuda, [&] {
        executor::raise(kind::failed, "cudnnConvolutionForward", execution_failed);
      });
      FAIL("it must throw");
    } catch (const cuda_error& e) {
      check_text(e);
      CHECK(e.failure.what == (gone ? kind::lost : kind::failed));
      CHECK(e.failure.code == 5000);
      CHECK(e.failure.call == "cudnnConvolutionForward");
      const std::string text = e.what();
      CHECK((text.find("700 (cudaErrorIllegalAddress)") != text.npos) == gone);
    }
  }
  fake_cuda cuda;
  CHECK(executor::naming_loss(cuda, [] { return 7; }) == 7);
  CHECK(cuda.calls() == 0);  // nothing is asked where nothing failed
}

TEST_CASE("cuda faults: the GPU is lost in the middle of a step") {
  fake_cuda cuda;
  {
    executor::cuda_stream compute = nullptr;
    REQUIRE(cuda.stream_create(&compute, false).ok());
    cuda_device gpu(cuda, compute, options_of(cuda));
    arena<executor::machine> storage(gpu, {.capacity = 4_KiB, .host_capacity = 16_KiB});
    manager m{policy<lru, offload_only, no_prefetch>{}, storage};
    const auto kernel = adds_one(static_cast<fake_cuda::stream*>(gpu.native_stream()));
    tensor_id x = m.variable(size);
    for (int i = 0; i < 12; ++i) x = m.run({.inputs = {x}, .outputs = {size}}, kernel);
    cuda.lose(719);
    bool thrown = false;
    try {
      for (int i = 0; i < 12; ++i) x = m.run({.inputs = {x}, .outputs = {size}}, kernel);
    } catch (const cuda_error& e) {
      thrown = true;
      check_text(e);
      CHECK(e.failure.what == kind::lost);
      CHECK(e.failure.code == 719);
    }
    CHECK(thrown);
    CHECK_THROWS_AS(m.end_of_step(), poisoned);
  }
  CHECK(cuda.live() == 1);                          // the stream that the test made
  CHECK(cuda.calls("cudaStreamSynchronize") == 0);  // a lost GPU is not waited for
}
