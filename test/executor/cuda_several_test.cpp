// Several GPUs in one process, one manager for each: every call goes to its own device, whatever
// device the thread was on, and a device that is not there is named. On a machine without a GPU.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "delta/presets.hpp"
#include "device/cuda_device.hpp"
#include "device/cuda_fill.hpp"
#include "fake_gpus.hpp"
#include "machine.hpp"

using namespace delta;
using namespace delta::test;
using delta::executor::cuda_device;
using delta::executor::cuda_device_options;
using delta::executor::cuda_error;
using kind = delta::executor::cuda_failure::kind;

namespace {

constexpr std::uint64_t granule = 512;
constexpr bytes size{192};         // of every tensor: rounded up to a granule
constexpr bytes budget{48 << 10};  // enough to measure rates on; all but eight tensors is taken

using managing = decltype(manager{policy<lru, offload_only, no_prefetch>{},
                                  std::declval<arena<executor::machine>&>()});

/// A GPU with a manager that copies tensors out and back, and moves them together.
struct training {
  training(fake_gpus& all, int d, bool fills = false)
      : cuda(all),
        device(d),
        fills_rounding(fills),
        stream(made(all, d)),
        gpu(all, stream, options(all, d, fills)),
        storage(gpu, {.capacity = budget, .host_capacity = budget, .granularity = granule}),
        m(policy<lru, offload_only, no_prefetch>{}, storage),
        x(m.variable(size)) {
    static_cast<void>(m.constant(bytes{budget.count - 8 * granule}));
  }
  ~training() {
    executor::make_current(cuda, device);  // the stream is the test's
  }

  static executor::cuda_stream made(fake_gpus& all, int d) {
    executor::make_current(all, d);
    executor::cuda_stream s = nullptr;
    REQUIRE(all.stream_create(&s, false).ok());
    return s;
  }
  static cuda_device_options options(fake_gpus& all, int d, bool fills) {
    cuda_device_options o;
    o.device = d;
    if (fills) o.filled_to = bytes{granule};
    o.clock = [&all, d] { return all[d].now(); };
    return o;
  }

  /// A chain of operators that each add one, forwards and back: the sum of what they gave.
  std::uint64_t step(std::uint64_t first) {
    const auto kernel = [this](call& c) {
      std::byte* const from = c.in(0);
      std::byte* const to = c.out(0);
      // As cuda_backend binds it: an operator's function makes its device current.
      executor::make_current(cuda, device);
      if (fills_rounding)
        executor::check("cudaMemsetAsync",
                        executor::fill_rounding(cuda, to, size, bytes{granule}, stream));
      cuda.launch(stream, {{from, size.count}}, {{to, size.count}},
                  [=] { put(to, number(from) + 1); });
    };
    const auto elsewhere = [this] { fake_gpus::current() = device == 0 ? 1 : 0; };
    std::uint64_t sum = 0;
    {
      const auto view = m.acquire(x, access::write);
      elsewhere();
      std::byte* const at = gpu.map(view.data(), size, false);
      std::memset(at, 0, size.count);
      put(at, first);
      elsewhere();
      gpu.unmap(true);
    }
    std::vector<tensor_id> chain{x};
    for (int i = 0; i < 14; ++i) {
      elsewhere();
      chain.push_back(m.run({.inputs = {chain.back()}, .outputs = {size}}, kernel));
    }
    for (; chain.size() > 1; chain.pop_back()) {
      const auto view = m.acquire(chain.back());
      elsewhere();
      sum += number(gpu.map(view.data(), size, true));
      gpu.unmap(false);
      elsewhere();
      m.drop(chain.back());
    }
    elsewhere();
    m.end_of_step();
    return sum;
  }

  /// The variable, brought to the host as a step's loss is: behind all kernels, into a buffer that
  /// the device gives.
  std::uint64_t fetched() {
    const auto elsewhere = [this] { fake_gpus::current() = device == 0 ? 1 : 0; };
    elsewhere();
    std::byte* const to = gpu.host_buffer(size);
    const operation_span op{.inputs = {&x, 1}, .name = "fetch"};
    m.run(op, std::span<tensor_id>{}, [&](call& c) {
      elsewhere();
      gpu.fetch(to, c.in(0), size);
      elsewhere();
    });
    storage.wait(storage.last_operator());
    return number(to);
  }

  fake_gpus& cuda;
  int device;
  bool fills_rounding;
  executor::cuda_stream stream;
  cuda_device gpu;
  arena<executor::machine> storage;
  managing m;
  tensor_id x;
};

/// What step() gives: first + 1 to first + 14.
std::uint64_t expected(std::uint64_t first) {
  return 14 * first + 105;
}

void check_quiet(fake_gpus& all) {
  std::vector<std::string> found = all.violations();
  std::erase(found, "cudaMemcpyAsync: copies what was never written");
  for (const auto& text : found) FAIL_CHECK(text);
}

kind refusal(executor::cuda_api& api, int device, std::string* line = nullptr) {
  try {
    executor::check_device(api, device);
  } catch (const cuda_error& e) {
    if (line != nullptr) *line = e.what();
    return e.failure.what;
  }
  return kind::failed;
}

}  // namespace

TEST_CASE("two GPUs on one thread, by turns: each call is made with its own device current") {
  fake_gpus all(2);
  {
    training zero(all, 0), one(all, 1);
    for (std::uint64_t i = 0; i < 3; ++i) {
      CHECK(zero.step(i) == expected(i));
      CHECK(one.step(100 + i) == expected(100 + i));
    }
    CHECK(zero.fetched() == 2);
    CHECK(one.fetched() == 102);
    CHECK(zero.m.counts().offloads > 0);
    CHECK(one.m.counts().reloads > 0);
    fake_gpus::current() = 0;  // for the destructor of the second, which comes first
  }
  check_quiet(all);
  CHECK(all[1].calls("cudaMalloc") > 0);
}

TEST_CASE("two GPUs on two threads") {
  fake_gpus all(2);
  const auto work = [&all](int device) {
    training t(all, device);
    for (std::uint64_t i = 0; i < 5; ++i) CHECK(t.step(i) == expected(i));
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  check_quiet(all);
}

TEST_CASE("the current device is set only where it is another") {
  fake_gpus all(2);
  training t(all, 1);
  const std::uint64_t before = all.changes();
  for (int i = 0; i < 100; ++i) {
    t.gpu.begin({});
    static_cast<void>(t.gpu.end());
  }
  CHECK(all.changes() == before);
  fake_gpus::current() = 0;
  t.gpu.begin({});
  static_cast<void>(t.gpu.end());
  CHECK(all.changes() == before + 1);
  CHECK(all[1].calls("cudaSetDevice") == 0);
}

TEST_CASE("the machine that stands in for several GPUs reports calls on another device") {
  fake_gpus all(2);
  executor::cuda_stream s = nullptr;
  REQUIRE(all.stream_create(&s, false).ok());
  REQUIRE(all.set_device(1).ok());
  REQUIRE(all.stream_synchronize(s).ok());
  CHECK(all.violations() ==
        std::vector<std::string>{"cudaStreamSynchronize: of device 0, while the "
                                 "thread's current device is 1"});
  executor::cuda_event e = nullptr;
  REQUIRE(all.event_create(&e).ok());
  REQUIRE(all.event_record(e, s).ok());
  CHECK(all.violations().size() == 3);
  CHECK(all.set_device(2).code == 101);
}

TEST_CASE("a device that is not there is named, and how many there are") {
  fake_gpus one(1), two(2);
  CHECK_NOTHROW(executor::check_device(two, 1));
  std::string line;
  CHECK(refusal(two, 2, &line) == kind::no_such_device);
  CHECK(line.find("cuda:2 was asked for, and there are 2 devices: cuda:0 to cuda:1;") !=
        std::string::npos);
  CHECK(line.find('\n') == std::string::npos);
  CHECK(refusal(one, 7, &line) == kind::no_such_device);
  CHECK(line.find("cuda:7 was asked for, and there is 1 device: cuda:0;") != std::string::npos);
  fake_cuda none;
  none.devices = 0;
  CHECK(refusal(none, 0) == kind::no_device);
}

// Where the device is not asked to, measuring its rates writes to all of this small arena.
TEST_CASE("what rounding adds to a tensor is written where that is asked for") {
  for (const bool operators : {false, true}) {
    CAPTURE(operators);
    fake_gpus all(2);
    {
      training t(all, 0, true);
      t.fills_rounding = operators;
      for (std::uint64_t i = 0; i < 2; ++i) CHECK(t.step(i) == expected(i));
      CHECK(t.m.counts().offloads > 0);
    }
    CHECK(all.violations().empty() == operators);
  }
}
