// What is recorded of operators on a GPU is their own time there, without that of launching them,
// and the host waits for none of them. On a machine without a GPU, whose events are stamped as
// CUDA's.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "delta/engine/engine.hpp"
#include "device/cuda_device.hpp"
#include "fake_cuda.hpp"
#include "model/models.hpp"
#include "train/session.hpp"

using namespace delta;
using namespace delta::executor;
using namespace std::chrono_literals;
using delta::test::fake_cuda;

namespace {

constexpr nanoseconds launch = 7us;

class no_images final : public batch_source {
 public:
  void fill(float*, std::int32_t*) override {}
};

/// What an operator of that name takes: most are over sooner than the next one is launched.
nanoseconds time_of(std::string_view name) {
  return name.find("conv") != name.npos ? 30us : 2us;
}

struct gpu {
  gpu() : stream(made(cuda)), device(cuda, stream, {.clock = [this] { return cuda.now(); }}) {}
  static cuda_stream made(fake_cuda& cuda) {
    cuda_stream s = nullptr;
    REQUIRE(cuda.stream_create(&s, false).ok());
    return s;
  }
  void launch_kernel(nanoseconds t) {
    cuda.kernel_time = t;
    reinterpret_cast<fake_cuda::stream*>(stream)->launch({}, {}, [] {});
  }
  fake_cuda cuda{{.launch = launch, .punctual = true}};
  cuda_stream stream;
  cuda_device device;
};

/// A small network whose kernels do nothing for that long.
executor::graph network(gpu& on) {
  executor::graph g = resnet20({.batch = 2, .image = 8});
  g.threads = 1;
  for (node& n : g.nodes) {
    n.workspace = 0;
    n.expected_ns = 1e6;
    n.run = [&on, t = time_of(n.name)](const kernel_args&) { on.launch_kernel(t); };
  }
  return g;
}

/// Trains for three steps, of which the recorder is told where there is one.
void train(gpu& on, const executor::graph& g, std::string_view policy, bytes budget,
           trace_recorder* recorder) {
  arena<machine> storage(on.device,
                         {.capacity = budget, .host_capacity = 64_MiB, .granularity = 512});
  thread_pool pool(1);
  session s(g, make_manager(policy, over(storage)),
            {.device = &on.device, .pool = &pool, .recorder = recorder});
  s.create(1);
  no_images images;
  for (int i = 0; i < 3; ++i) s.train(&images);
  on.cuda.drain();
  for (const std::string& text : on.cuda.violations()) FAIL_CHECK(text);
}

trace record(gpu& on, const executor::graph& g, std::string_view policy, bytes budget) {
  trace_recorder recorder(trace_recorder::costs::measured);
  train(on, g, policy, budget, &recorder);
  return recorder.take({.device = "fake", .granularity = 512});
}

void check_times(const trace& t, std::size_t operators) {
  REQUIRE(t.operations.size() % operators == 0);
  for (const auto& o : t.operations) {
    const nanoseconds own = time_of(t.names[o.name]);
    CHECK(o.cost >= own - 10ns);
    CHECK(o.cost <= own + 500ns);
  }
}

}  // namespace

TEST_CASE("a recorded operator's time has no launch in it, and is not waited for") {
  gpu on;
  const executor::graph g = network(on);
  const trace t = record(on, g, "unmanaged", 64_MiB);
  check_times(t, g.nodes.size());
  // A run that nobody records waits as often, but for the end of each step and its two inputs.
  gpu plain;
  train(plain, network(plain), "unmanaged", 64_MiB, nullptr);
  for (const char* wait : {"cudaEventSynchronize", "cudaStreamSynchronize"})
    CHECK(on.cuda.calls(wait) <= plain.cuda.calls(wait) + 3 * 3);
}

TEST_CASE("nor where tensors leave and operators are run again") {
  gpu on;
  const executor::graph g = network(on);
  const trace t = record(on, g, "online", 4_MiB);
  check_times(t, g.nodes.size());
}

TEST_CASE("a GPU on which operators are not timed is not paused; one where they are says which") {
  for (const bool timing : {false, true}) {
    CAPTURE(timing);
    gpu on;
    if (timing) on.device.time_operators();
    stamp last;
    for (int i = 0; i < 200; ++i) {
      on.device.begin({});
      on.launch_kernel(2us);
      last = on.device.end();
    }
    on.device.wait(last);
    CHECK((on.cuda.calls("cudaLaunchHostFunc") > 0) == timing);
    CHECK(on.cuda.calls("cudaLaunchHostFunc") < 20);
    CHECK(on.device.measured(last).has_value() == timing);
    // On an idle stream an operator's begin is stamped before its kernel is launched.
    if (timing) {
      CHECK(*on.device.elapsed(last) < 3us);
    } else {
      CHECK(*on.device.elapsed(last) > launch);
    }
    if (timing) {
      // An operator that takes longer to launch than all that is under way is not measured.
      on.device.begin({});
      on.cuda.pass(10ms);
      on.launch_kernel(2us);
      last = on.device.end();
      on.device.wait(last);
      CHECK_FALSE(on.device.measured(last));
      CHECK(on.device.elapsed(last));
    }
  }
}
