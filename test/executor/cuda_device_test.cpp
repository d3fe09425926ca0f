// The real CUDA device on a machine without a GPU: the storage contract, and what it promises
// beyond it: events that are used again, times, copies over themselves, rates, and warnings.
// ctest-labels: long_sanitized
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "device/cuda_device.hpp"
#include "device/cuda_reserve.hpp"
#include "fake_cuda.hpp"
#include "observe/watchers.hpp"
#include "storage_contract.hpp"
#include "storage_program.hpp"

using namespace delta;
using namespace delta::test;
using namespace std::chrono_literals;
using delta::executor::cuda_device;
using delta::executor::cuda_device_options;
using delta::executor::cuda_error;
using delta::executor::cuda_failure;
using delta::executor::machine;

namespace {

executor::cuda_stream new_stream(fake_cuda& cuda) {
  executor::cuda_stream s = nullptr;
  REQUIRE(cuda.stream_create(&s, false).ok());
  return s;
}
cuda_device_options timed_by(fake_cuda& cuda, cuda_device_options o = {}) {
  o.clock = [&cuda] { return cuda.now(); };
  return o;
}

/// A GPU, its device and two memories.
struct setup {
  explicit setup(bytes device_bytes = 1_MiB, bytes host_bytes = 1_MiB,
                 const cuda_device_options& o = {}, const fake_cuda_options& f = {})
      : cuda(f), gpu(cuda, new_stream(cuda), timed_by(cuda, o)) {
    there = gpu.device_memory(device_bytes);
    here = gpu.host_memory(host_bytes);
  }
  /// One operator of that length, which touches nothing.
  stamp operate(nanoseconds cost, const fence& after = {}) {
    gpu.begin(after);
    cuda.kernel_time = cost;
    static_cast<fake_cuda::stream*>(gpu.native_stream())->launch({}, {}, [] {});
    return gpu.end();
  }
  void check() {
    cuda.drain();
    for (const auto& text : cuda.violations()) FAIL_CHECK(text);
  }
  fake_cuda cuda;
  cuda_device gpu;
  std::byte* there;
  std::byte* here;
};

/// How the arena is told of the device: as itself or behind virtual functions; with copies on
/// streams of their own or not; in its own time or with a virtual clock.
template <class D, bool Overlap, bool Virtual = false>
struct cuda_subject : subject_base<clocked_arena<D, Virtual>, fake_cuda::stream> {
  explicit cuda_subject(subject_sizes o = {}, wait_reason ignored = wait_reason::none)
      : device({.seed = o.seed, .ignored = ignored}),
        gpu(device, new_stream(device),
            timed_by(device, {.overlap = Overlap, .scratch = bytes{96 + o.seed % 3 * 160}})),
        storage(gpu, {.capacity = o.capacity, .host_capacity = o.host_capacity}) {}
  [[nodiscard]] std::vector<std::string> complaints() {
    device.drain();
    return device.violations();
  }
  fake_cuda device;
  cuda_device gpu;
  clocked_arena<D, Virtual> storage;
};
using plain_subject = cuda_subject<cuda_device, true>;
using machine_subject = cuda_subject<machine, true>;
using serial_subject = cuda_subject<machine, false>;
using virtual_subject = cuda_subject<machine, true, true>;

}  // namespace

TYPE_TO_STRING(plain_subject);
TYPE_TO_STRING(machine_subject);
TYPE_TO_STRING(serial_subject);
TYPE_TO_STRING(virtual_subject);
DELTA_TEST_STORAGE_CONTRACT(plain_subject, machine_subject, serial_subject, virtual_subject);

TEST_CASE("cuda arena: random programs keep data, bytes and order") {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) trace_of<machine_subject>(seed, 80);
}
TEST_CASE("cuda arena: random programs keep data, bytes and order on one stream") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) trace_of<serial_subject>(seed, 80);
}
TEST_CASE("cuda arena: with a virtual clock it decides and times as the simulated storage does") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    CHECK(trace_of<virtual_subject>(seed, 120) == trace_of<simulated_subject>(seed, 120));
  }
}

TEST_CASE("cuda arena: every wait that it asks for is made, and needed") {
  check_that_every_wait_is_needed<machine_subject>();
}

TEST_CASE("cuda device: a hundred thousand operators and copies need few events") {
  setup s(4_KiB, 4_KiB);
  for (int i = 0; i < 100'000; ++i) {
    const stamp done = s.operate(1us);
    if (i % 10 == 0) {
      const stamp out = s.gpu.copy(direction::out, s.here, s.there, 64_B, fence{}.join(done));
      const stamp in = s.gpu.copy(direction::in, s.there, s.here, 64_B, fence{}.join(out));
      s.operate(1us, fence{}.join(in));
    }
    if (i % 100 == 0) static_cast<void>(s.gpu.elapsed(done));
  }
  CHECK(s.gpu.events() < 8000);
  MESSAGE(s.gpu.events(), " events");
  CHECK(s.cuda.live_events() == s.gpu.events());
  s.check();
}

TEST_CASE("cuda device: events are used again as soon as they are known to be reached") {
  setup s(4_KiB, 4_KiB);
  for (int i = 0; i < 10'000; ++i) s.gpu.wait(s.operate(1us));
  CHECK(s.gpu.events() < 10);
}

TEST_CASE("cuda device: the host runs ahead by a bounded number of stamps") {
  setup s(4_KiB, 4_KiB);
  stamp last;
  for (int i = 0; i < 5'000; ++i) {
    last = s.gpu.copy(direction::out, s.here, s.there, 64_B, {});
    CHECK(s.gpu.events() <= 2 * 1024 + 4);
  }
  CHECK(last.point == 5'000);
  s.gpu.wait(last);
  CHECK(s.gpu.reached({lane::copy_out, 1}));
  CHECK(s.gpu.elapsed(last));
  CHECK(s.gpu.elapsed({lane::copy_out, 5'000 - 1'023}));
  CHECK_FALSE(s.gpu.elapsed({lane::copy_out, 5'000 - 1'024}));
  CHECK_FALSE(s.gpu.elapsed({lane::copy_out, 0}));
  s.check();
}

TEST_CASE("cuda device: times of operators and copies are the GPU's, on the host's clock") {
  setup s(1_MiB, 1_MiB, {}, {.punctual = true});
  const nanoseconds before = s.gpu.now();
  const stamp a = s.operate(300us);
  const stamp b = s.gpu.copy(direction::out, s.here, s.there, 200_KiB, fence{}.join(a));
  const stamp c = s.operate(100us, fence{}.join(b));
  CHECK(s.gpu.backlog(direction::out) > nanoseconds{});
  s.gpu.wait(c);
  CHECK(s.gpu.reached(a));
  CHECK(s.gpu.reached(b));
  CHECK(s.gpu.backlog(direction::out) == nanoseconds{});
  const auto near = [](std::optional<nanoseconds> t, nanoseconds expected) {
    REQUIRE(t);
    CHECK(*t >= expected - 1us);
    CHECK(*t <= expected + 3us);
  };
  near(s.gpu.elapsed(a), 300us);
  near(s.gpu.elapsed(b), nanoseconds{5'000 + 10'240});
  near(s.gpu.elapsed(c), 100us);
  REQUIRE(s.gpu.began(a));
  CHECK(*s.gpu.began(a) >= before);
  near(s.gpu.began(b), *s.gpu.began(a) + 300us);
  near(s.gpu.began(c), *s.gpu.began(b) + *s.gpu.elapsed(b));
  CHECK(*s.gpu.began(c) + *s.gpu.elapsed(c) <= s.gpu.now());
  s.check();
}

TEST_CASE("cuda device: an operator behind one that is not over begins with that one's end") {
  setup s(1_MiB, 1_MiB, {}, {.punctual = true});
  const auto recorded = [&] { return s.cuda.calls("cudaEventRecord"); };
  s.cuda.pass(1ms);
  const auto first = recorded();
  std::vector<stamp> row;
  for (int i = 1; i <= 20; ++i) row.push_back(s.operate(100us * i));
  CHECK(recorded() - first == 20 + 1);
  const auto near = [](std::optional<nanoseconds> t, nanoseconds expected) {
    REQUIRE(t);
    CHECK(*t >= expected - 1us);
    CHECK(*t <= expected + 3us);
  };
  // Whichever is asked about first, and whatever was used again since.
  for (const std::size_t asked : {4u, 5u, 19u}) s.gpu.wait(row[asked]);
  for (int i = 0; i < 20; ++i) near(s.gpu.elapsed(row[std::size_t(i)]), 100us * (i + 1));
  for (std::size_t i = 1; i < 20; ++i)
    near(s.gpu.began(row[i]), *s.gpu.began(row[i - 1]) + *s.gpu.elapsed(row[i - 1]));

  const auto again = [&](std::uint64_t events, const auto& between) {
    const fence after = between(s.operate(200us));
    const auto before = recorded();
    const stamp b = s.operate(50us, after);
    CHECK(recorded() - before == events);
    s.gpu.wait(b);
    near(s.gpu.elapsed(b), 50us);
  };
  again(1, [](stamp) { return fence{}; });
  again(2, [&](stamp) {  // the stream is idle, which is no time of the operator's
    s.cuda.pass(5ms);
    return fence{};
  });
  again(2, [&](stamp) {  // something else was put between
    s.gpu.map(s.there, 1_KiB, false);
    s.gpu.unmap(true);
    return fence{};
  });
  again(3, [&](stamp) {  // a copy is waited for, from when on one event more says
    return fence{}.join(s.gpu.copy(direction::in, s.there, s.here, 1_MiB, {}));
  });
  for (int i = 0; i < 30; ++i) {
    again(2, [&](stamp) {  // an operator never ended; who knows what was launched
      s.gpu.begin({});
      return fence{};
    });
    again(2, [&](stamp a) {  // the same, and what it began with is over
      s.gpu.begin({});
      s.gpu.wait(a);
      return fence{};
    });
  }
  CHECK(s.gpu.events() < 30);
  // No event is in use twice.
  for (int i = 0; i < 20; ++i) row[std::size_t(i)] = s.operate(100us * (i + 1));
  for (int i = 0; i < 20; ++i) {
    s.gpu.wait(row[std::size_t(i)]);
    near(s.gpu.elapsed(row[std::size_t(i)]), 100us * (i + 1));
  }
  s.check();
}

TEST_CASE("cuda device: an event that CUDA does not call ready with its successors is waited for") {
  setup s(1_MiB, 1_MiB, {}, {.punctual = true, .forgetful = true});
  const stamp a = s.operate(300us);
  const stamp b = s.gpu.copy(direction::out, s.here, s.there, 200_KiB, fence{}.join(a));
  const stamp c = s.operate(100us, fence{}.join(b));
  s.gpu.wait(c);
  for (const stamp done : {a, b, c}) CHECK(s.gpu.reached(done));
  REQUIRE(s.gpu.elapsed(a));
  CHECK(*s.gpu.elapsed(a) >= 299us);
  CHECK(*s.gpu.elapsed(a) <= 303us);
  s.check();
}

TEST_CASE("cuda device: an hour of operators stays on the host's clock, though the GPU's is fast") {
  setup s(4_KiB, 4_KiB, {}, {.drift = 20e-6, .punctual = true});  // 72 ms in an hour
  for (int i = 0; i < 3600; ++i) {
    s.cuda.pass(900ms);
    const nanoseconds queued = s.gpu.now();
    const stamp a = s.operate(100ms);
    s.gpu.wait(a);
    REQUIRE(s.gpu.began(a));
    REQUIRE(s.gpu.elapsed(a));
    REQUIRE(*s.gpu.began(a) >= queued - 10us);
    REQUIRE(*s.gpu.began(a) <= queued + 10us);
    REQUIRE(*s.gpu.began(a) + *s.gpu.elapsed(a) <= s.gpu.now() + 10us);
  }
}

TEST_CASE("cuda device: waited() is the host's waits for copies and the compute stream's") {
  setup s(1_MiB, 1_MiB, {}, {.punctual = true});
  const nanoseconds copying{5'000 + 52'428};  // 1 MiB
  SUBCASE("the host waits") {
    s.gpu.wait(s.gpu.copy(direction::out, s.here, s.there, 1_MiB, {}));
    CHECK(s.gpu.waited() > copying - 2us);
    CHECK(s.gpu.waited() < copying + 3us);
    CHECK(s.gpu.host_waited() == s.gpu.waited());
  }
  SUBCASE("the compute stream waits, the host does not") {
    const stamp in = s.gpu.copy(direction::in, s.there, s.here, 1_MiB, {});
    const stamp a = s.operate(20us);
    CHECK(s.gpu.host_waited() == nanoseconds{});
    const stamp b = s.operate(20us, fence{}.join(in));
    const stamp c = s.operate(20us, fence{}.join(in));  // comes after b: waits for nothing
    s.gpu.wait(c);
    const nanoseconds stalled = *s.gpu.began(b) - *s.gpu.began(a) - *s.gpu.elapsed(a);
    CHECK(s.gpu.waited() > stalled - 3us);
    CHECK(s.gpu.waited() <= stalled);
    CHECK(s.gpu.waited() > 20us);
    CHECK(s.gpu.host_waited() > s.gpu.waited());
  }
  SUBCASE("a copy that is over in time costs nothing, however late the host is") {
    const stamp in = s.gpu.copy(direction::in, s.there, s.here, 64_KiB, {});
    const stamp a = s.operate(500us);
    const stamp b = s.operate(20us, fence{}.join(in));
    s.cuda.pass(10ms);
    s.gpu.wait(b);
    CHECK(s.gpu.reached(a));
    CHECK(s.gpu.waited() < 2us);
  }
  SUBCASE("the host waits for operators") {
    s.gpu.wait(s.operate(1ms));
    CHECK(s.gpu.waited() == nanoseconds{});
    CHECK(s.gpu.host_waited() > 900us);
  }
  s.check();
}

TEST_CASE("cuda device: on one stream copies are waits") {
  setup s(1_MiB, 1_MiB, {.overlap = false});
  CHECK(s.cuda.live_streams() == 1);
  const stamp out = s.gpu.copy(direction::out, s.here, s.there, 1_MiB, {});
  s.gpu.wait(s.operate(20us, fence{}.join(out)));
  CHECK(s.gpu.reached(out));
  CHECK(s.gpu.waited() > 50us);
  CHECK(s.cuda.calls("cudaStreamWaitEvent") == 0);
  s.check();
}

TEST_CASE("cuda device: what is known to be ordered is not waited for") {
  setup s(1_MiB, 1_MiB);
  const auto waits = [&] { return s.cuda.calls("cudaStreamWaitEvent"); };
  const stamp a = s.operate(20us);
  const auto before = waits();
  const stamp b = s.gpu.copy(direction::out, s.here, s.there, 64_B, fence{}.join(a));
  CHECK(waits() == before + 1);
  s.gpu.copy(direction::out, s.here, s.there, 64_B, fence{}.join(a));
  CHECK(waits() == before + 1);
  const stamp c = s.gpu.copy(direction::in, s.there, s.here, 64_B, fence{}.join(b).join(a));
  CHECK(waits() <= before + 3);
  s.gpu.wait(c);
  const auto queries = s.cuda.calls("cudaEventQuery");
  CHECK(s.gpu.reached(a));  // comes before c
  CHECK(s.gpu.reached(b));
  s.operate(20us, fence{}.join(c).join(b));
  CHECK(s.cuda.calls("cudaEventQuery") == queries);
  CHECK(waits() <= before + 3);
}

TEST_CASE("cuda device: what comes after something that is not over is not asked about") {
  setup s(1_MiB, 1_MiB, {}, {.punctual = true});
  std::vector<stamp> copies;
  for (int i = 0; i < 40; ++i)
    copies.push_back(s.gpu.copy(direction::out, s.here, s.there, 1_MiB, {}));
  s.cuda.pass(10us);  // the last "not yet" is long ago
  const auto before = s.cuda.calls("cudaEventQuery");
  for (const stamp copy : copies) CHECK_FALSE(s.gpu.reached(copy));
  CHECK(s.cuda.calls("cudaEventQuery") == before + 1);
  s.cuda.pass(5ms);
  CHECK(s.gpu.reached(copies.back()));
  SUBCASE("asked again and again it says yes at last, though no time seems to pass") {
    const stamp one = s.gpu.copy(direction::out, s.here, s.there, 64_B, {});
    int times = 0;
    while (!s.gpu.reached(one)) ++times;
    CHECK(times > 0);
  }
}

TEST_CASE("cuda device: moves over themselves leave what memmove leaves") {
  for (const std::uint64_t scratch : {0u, 1u, 7u, 64u, 100u, 4096u}) {
    setup s(512_B, 64_B, {.scratch = bytes{scratch}});
    CHECK(s.gpu.outside() == bytes{std::min<std::uint64_t>(scratch, 512)});
    for (std::size_t size : {0u, 1u, 5u, 64u, 130u, 256u})
      for (std::size_t from = 0; from + size <= 512; from += 37)
        for (std::size_t to = 0; to + size <= 512; to += 29) {
          std::vector<std::byte> expected(512);
          for (std::size_t i = 0; i < 512; ++i) s.there[i] = expected[i] = pattern(size, i);
          std::memmove(expected.data() + to, expected.data() + from, size);
          s.gpu.begin({});
          s.gpu.move(s.there + to, s.there + from, bytes{size});
          s.gpu.wait(s.gpu.end());
          REQUIRE(std::equal(expected.begin(), expected.end(), s.there));
        }
    s.check();
  }
}

TEST_CASE("cuda device: a block that slides by a granule needs few calls") {
  setup s(16_MiB, 64_B, {.scratch = 256_KiB});
  const auto before = s.cuda.calls("cudaMemcpyAsync");
  s.gpu.begin({});
  s.gpu.move(s.there, s.there + 512, bytes{12'500 << 10});
  s.gpu.end();
  CHECK(s.cuda.calls("cudaMemcpyAsync") - before == 98);
  s.gpu.begin({});
  s.gpu.move(s.there + (6 << 20), s.there, 9_MiB);  // two pieces that do not overlap
  s.gpu.end();
  CHECK(s.cuda.calls("cudaMemcpyAsync") - before == 100);
  CHECK(s.gpu.outside() == 256_KiB);
  CHECK(s.cuda.device_bytes() == 16_MiB + 256_KiB);  // nothing else is taken there
  s.check();
}

TEST_CASE("cuda device: the host gets at device memory through a pinned copy") {
  setup s(1_MiB, 64_B);
  const auto bytes_of = [](std::byte* p, std::size_t n) { return std::vector(p, p + n); };
  for (const std::size_t size : {0u, 1u, 100u, 70'000u, 300'000u, 1000u}) {
    std::byte* p = s.gpu.map(s.there + 64, bytes{size}, false);
    for (std::size_t i = 0; i < size; ++i) p[i] = pattern(size, i);
    s.cuda.host_access({p, size}, true);
    s.gpu.unmap(true);
    const auto written = bytes_of(s.there + 64, size);
    p = s.gpu.map(s.there + 64, bytes{size}, true);
    s.cuda.host_access({p, size}, false);
    CHECK(bytes_of(p, size) == written);
    for (std::size_t i = 0; i < size; ++i) p[i] = std::byte{0};
    s.gpu.unmap(false);
    CHECK(bytes_of(s.there + 64, size) == written);
    for (std::size_t i = 0; i < size; ++i) REQUIRE(written[i] == pattern(size, i));
  }
  CHECK(s.cuda.live_allocations() == 4);  // arena, scratch, host, and one buffer
  s.check();
  SUBCASE("and must wait for the stream") {
    s.cuda.synchronizes = false;
    std::byte* p = s.gpu.map(s.there, 64_KiB, true);
    s.cuda.host_access({p, 64}, false);
    s.gpu.unmap(false);
    CHECK_FALSE(s.cuda.violations().empty());
  }
}

TEST_CASE("cuda device: rates are measured at the start, alone and side by side") {
  setup s(4_MiB, 4_MiB);
  CHECK(s.gpu.now() < 500ms);
  CHECK(s.gpu.waited() == nanoseconds{});
  CHECK(s.gpu.host_waited() == nanoseconds{});
  for (const direction d : {direction::out, direction::in}) {
    CHECK(s.gpu.rate(d) == doctest::Approx(20e9).epsilon(0.05));
    CHECK(s.gpu.latency(d) >= 5us);
    CHECK(s.gpu.latency(d) < 8us);
  }
  CHECK(s.gpu.move_rate() == doctest::Approx(0.5e12).epsilon(0.3));
  s.gpu.copy(direction::in, s.there, s.here, 4_MiB, {});
  CHECK(s.gpu.rate(direction::out) == doctest::Approx(12e9).epsilon(0.05));
  CHECK(s.gpu.rate(direction::in) == doctest::Approx(20e9).epsilon(0.05));
  s.check();
}

TEST_CASE("cuda device: rates are measured without host memory, too, and nothing is kept for it") {
  for (const bytes host : {0_B, 64_B, 64_KiB}) {
    CAPTURE(host.count);
    setup s(64_MiB, host, {}, {.rate = 50e9, .rate_both = 40e9, .memory_rate = 2.6e12});
    for (const direction d : {direction::out, direction::in}) {
      CHECK(s.gpu.rate(d) == doctest::Approx(50e9).epsilon(0.05));
      CHECK(s.gpu.latency(d) < 8us);
    }
    CHECK(s.gpu.move_rate() == doctest::Approx(1.3e12).epsilon(0.05));
    s.gpu.copy(direction::in, s.there, s.there, 0_B, {});
    CHECK(s.gpu.rate(direction::out) == doctest::Approx(40e9).epsilon(0.05));
    CHECK(s.cuda.live_allocations() == (host == 0_B ? 2 : 3));  // arena, scratch, host
    CHECK(s.gpu.now() < 500ms);
    s.check();
  }
}

TEST_CASE("cuda device: on any bus the measuring takes less than half a second") {
  for (const double rate : {50e6, 100e6, 250e6, 1e9, 4e9, 60e9}) {
    CAPTURE(rate);
    setup s(4_MiB, 4_MiB, {}, {.rate = rate, .rate_both = rate * 0.6});
    CHECK(s.gpu.now() < 500ms);
    for (const direction d : {direction::out, direction::in})
      CHECK(s.gpu.rate(d) == doctest::Approx(rate).epsilon(0.1));
    s.check();
  }
}

TEST_CASE("cuda device: memories too small to measure keep everyday rates") {
  setup s(16_KiB, 16_KiB);
  CHECK(s.cuda.calls("cudaMemcpyAsync") == 0);
  for (const direction d : {direction::out, direction::in}) {
    CHECK(s.gpu.rate(d) > 1e9);
    CHECK(s.gpu.latency(d) > nanoseconds{});
  }
}

TEST_CASE("cuda device: rates follow the copies of the run") {
  setup s(16_KiB, 4_MiB);  // nothing is measured at the start
  const double before = s.gpu.rate(direction::out);
  CHECK(before == 10e9);
  setup t(4_MiB, 4_MiB, {}, {.rate = 30e9, .rate_both = 15e9});
  for (int i = 0; i < 60; ++i) t.gpu.wait(t.gpu.copy(direction::out, t.here, t.there, 4_MiB, {}));
  CHECK(t.gpu.rate(direction::out) == doctest::Approx(30e9).epsilon(0.05));
}

TEST_CASE("cuda device: the backlog is what is queued, less what has gone") {
  setup s(4_MiB, 4_MiB, {}, {.punctual = true});
  const stamp a = s.operate(50ms);
  const stamp out = s.gpu.copy(direction::out, s.here, s.there, bytes{4'000'000}, fence{}.join(a));
  CHECK(s.gpu.backlog(direction::out) > 190us);
  s.cuda.pass(100us);
  CHECK(s.gpu.backlog(direction::out) > 190us);  // it waits for the operator
  CHECK(s.gpu.backlog(direction::in) == nanoseconds{});
  s.gpu.wait(a);
  s.cuda.pass(100us);
  CHECK_FALSE(s.gpu.reached(out));
  CHECK(s.gpu.backlog(direction::out) > 80us);
  CHECK(s.gpu.backlog(direction::out) < 120us);
  s.gpu.wait(out);
  CHECK(s.gpu.backlog(direction::out) == nanoseconds{});
}

TEST_CASE("cuda device: host memory that can't be pinned is pageable, which is told once") {
  fake_cuda cuda({.rate = 5e9, .rate_both = 5e9});
  cuda.fail_function("cudaMallocHost", 2);
  {
    std::vector<std::string> warnings;
    cuda_device gpu(
        cuda, new_stream(cuda),
        timed_by(cuda, {.warn = [&](std::string_view text) { warnings.emplace_back(text); }}));
    std::byte* const there = gpu.device_memory(8_MiB);
    std::byte* const here = gpu.host_memory(8_MiB);
    CHECK_FALSE(gpu.pinned());
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0] ==
          "the host memory of 8 MiB could not be pinned (cudaMallocHost): it is pageable, and "
          "copies reach 5.0 GB/s out and 5.0 GB/s in; a smaller host budget or a higher limit on "
          "locked memory (ulimit -l) helps");
    CHECK(gpu.rate(direction::out) == doctest::Approx(5e9).epsilon(0.05));
    there[100] = std::byte{42};
    const stamp out = gpu.copy(direction::out, here, there, 1_KiB, {});
    gpu.wait(gpu.copy(direction::in, there + 4096, here, 1_KiB, fence{}.join(out)));
    CHECK(there[4196] == std::byte{42});
    CHECK(gpu.map(there, 128_B, true)[100] == std::byte{42});  // staging is pageable, too
    gpu.unmap(false);
  }
  CHECK(cuda.live() == 1);
  CHECK(cuda.violations().empty());
}

TEST_CASE("cuda device: an arena of virtual memory, where there is such a thing") {
  fake_cuda cuda;
  {
    cuda_device gpu(cuda, new_stream(cuda), timed_by(cuda, {.virtual_memory = true}));
    CHECK(gpu.device_memory(1_MiB) != nullptr);
    CHECK(cuda.calls("cuMemCreate") == 1);
  }
  CHECK(cuda.live() == 1);  // the stream that the test made
  CHECK(cuda.violations().empty());
  fake_cuda old({.virtual_memory = false});
  cuda_device gpu(old, new_stream(old), timed_by(old, {.virtual_memory = true}));
  try {
    gpu.device_memory(1_MiB);
    FAIL("it must throw");
  } catch (const cuda_error& e) {
    CHECK(e.failure.what == cuda_failure::kind::unsupported);
    CHECK(e.failure.call == "cuMemCreate");
  }
}

TEST_CASE("cuda device: an arena that is not aligned as operators count on is refused") {
  for (const bool mapped : {false, true})
    for (const std::size_t skew : {0u, 64u, 256u}) {
      CAPTURE(skew);
      fake_cuda cuda({.skew = skew});
      {
        cuda_device gpu(cuda, new_stream(cuda),
                        timed_by(cuda, {.virtual_memory = mapped, .alignment = 256}));
        if (skew % 256 == 0) {
          CHECK(gpu.device_memory(1_MiB) != nullptr);
        } else {
          CHECK_THROWS_AS(gpu.device_memory(1_MiB), cuda_error);
        }
      }
      CHECK(cuda.live() == 1);
      CHECK(cuda.violations().empty());
    }
}

TEST_CASE("cuda reserve: what kernels take when they are loaded is not there for the arena") {
  fake_cuda cuda({.total = 64_MiB});
  {
    executor::cuda_reserve reserve(cuda, 16_MiB);
    CHECK(reserve.held());
    {
      cuda_device gpu(cuda, new_stream(cuda), timed_by(cuda));
      CHECK_THROWS_AS(gpu.device_memory(48_MiB), cuda_error);  // and some beside it
      CHECK(gpu.device_memory(40_MiB) != nullptr);
      // Nobody else can have it meanwhile.
      std::byte* other = nullptr;
      CHECK_FALSE(cuda.malloc(&other, 16_MiB).ok());
      reserve.give_back();
      reserve.give_back();
      CHECK_FALSE(reserve.held());
      CHECK(cuda.malloc(&other, 16_MiB).ok());
      CHECK(cuda.free(other).ok());
      gpu.host_memory(0_B);
    }
    CHECK_THROWS_AS(executor::cuda_reserve(cuda, 65_MiB), cuda_error);
  }
  CHECK(cuda.live() == 1);  // the stream that the test made
  { const executor::cuda_reserve reserve(cuda, 16_MiB); }
  CHECK(cuda.live() == 1);
  CHECK(cuda.violations().empty());
}

TEST_CASE("cuda device: says what it is") {
  setup s;
  CHECK(s.gpu.name() == "a GPU that is none");
  CHECK_FALSE(s.gpu.computes_at_once());
  CHECK(s.gpu.native_stream() != nullptr);
  CHECK(s.gpu.pinned());
}

TEST_CASE("cuda device: a profiler's timeline has the numbers of our decisions") {
  setup s;
  std::ostringstream lanes;
  {
    executor::watchers told(&lanes, nullptr, &s.gpu);
    event e;
    e.label = "conv1";
    e.what = event_kind::offload;
    told.on(e);
    e.what = event_kind::copy_out;  // work: no decision
    told.on(e);
    e.what = event_kind::wait;
    e.label = "";
    told.on(e);
  }
  CHECK(s.cuda.marks == std::vector<std::string>{"1 offload conv1", "2 wait"});
  CHECK(lanes.str().find("\"decision\":2") != std::string::npos);
}
