// The storage contract on the CPU's arena, and what the CPU as a device promises beyond it.
#include <chrono>

#include "device/cpu.hpp"
#include "storage_contract.hpp"
#include "storage_program.hpp"

using namespace delta;
using namespace delta::test;
using delta::executor::cpu_device;

namespace {

template <bool Virtual>
struct cpu_subject : subject_base<arena<cpu_device>, cpu_device> {
  explicit cpu_subject(subject_sizes o = {})
      : storage(device, {.capacity = o.capacity,
                         .host_capacity = o.host_capacity,
                         .virtual_clock = Virtual ? std::optional(test_rates) : std::nullopt}) {}
  [[nodiscard]] std::vector<std::string> complaints() const { return {}; }
  cpu_device device;
  arena<cpu_device> storage;
};

/// Two memories of `n` bytes and the device they are from.
struct pair_of_memories {
  explicit pair_of_memories(bytes n, executor::cpu_options o = {})
      : device(o), there(device.device_memory(n)), here(device.host_memory(n)) {}
  cpu_device device;
  std::byte* there;
  std::byte* here;
};

}  // namespace

TYPE_TO_STRING(cpu_subject<false>);
TYPE_TO_STRING(cpu_subject<true>);
DELTA_TEST_STORAGE_CONTRACT(cpu_subject<false>, cpu_subject<true>);

TEST_CASE("cpu arena: random programs keep data and bytes") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    cpu_subject<false> it({.capacity = 2_KiB, .host_capacity = 1_KiB});
    storage_program program(it, seed);
    program.run(200);
    CHECK(it.wrong() == 0);
  }
}

TEST_CASE("cpu arena: with a virtual clock it decides and times as the simulated storage does") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    const subject_sizes sizes{.capacity = 2_KiB, .host_capacity = 1_KiB};
    simulated_subject expected(sizes);
    storage_program first(expected, seed);
    first.run(200);
    cpu_subject<true> it(sizes);
    storage_program second(it, seed);
    second.run(200);
    CHECK(it.wrong() == 0);
    CHECK(second.trace() == first.trace());
  }
}

TEST_CASE("cpu device: a throttled copy takes its latency and its bytes, and is waited for") {
  using namespace std::chrono_literals;
  pair_of_memories m{4_MiB, {.copy_rate = 200e6, .latency = 5ms}};
  const auto begin = m.device.now();
  const stamp a = m.device.copy(direction::out, m.here, m.there, 4_MiB, {});
  CHECK(m.device.backlog(direction::out) > 10ms);
  CHECK_FALSE(m.device.elapsed(a));
  m.device.wait(a);
  const nanoseconds least{5'000'000 + (std::int64_t{4} << 20) * 5};
  CHECK(m.device.now() - begin >= least);
  CHECK(m.device.waited() > 10ms);
  CHECK(m.device.backlog(direction::out) == nanoseconds{});
  REQUIRE(m.device.elapsed(a));
  CHECK(*m.device.elapsed(a) >= least);
  REQUIRE(m.device.began(a));
  CHECK(*m.device.began(a) >= begin);
  CHECK(*m.device.began(a) + *m.device.elapsed(a) <= m.device.now());
  CHECK(m.device.rate(direction::out) == 200e6);
  CHECK(m.device.latency(direction::in) == 5ms);
}

TEST_CASE("cpu device: both directions run side by side, and wait for each other's fences") {
  using namespace std::chrono_literals;
  pair_of_memories m{1_MiB, {.copy_rate = 50e6}};
  m.there[0] = std::byte{42};
  const stamp out = m.device.copy(direction::out, m.here, m.there, 1_MiB, {});
  const stamp in = m.device.copy(direction::in, m.there, m.here, 1_MiB, fence{}.join(out));
  CHECK_FALSE(m.device.reached(in));
  m.device.begin(fence{}.join(in));  // compute waits in the calling thread
  CHECK(m.device.reached(out));
  CHECK(m.device.reached(in));
  CHECK(m.there[0] == std::byte{42});
  const stamp done = m.device.end();
  CHECK(m.device.reached(done));
  CHECK(m.device.elapsed(done));
  REQUIRE(m.device.began(in));
  REQUIRE(m.device.began(out));
  CHECK(*m.device.began(in) >= *m.device.began(out) + *m.device.elapsed(out));
  CHECK(*m.device.began(done) >= *m.device.began(in) + *m.device.elapsed(in));
}

TEST_CASE("cpu device: more copies than the ring was made for") {
  pair_of_memories m{64_KiB, {.copy_rate = 1e9}};
  for (std::size_t i = 0; i < 1024; ++i) m.there[i * 64] = std::byte(i % 251);
  stamp last;
  for (std::size_t i = 0; i < 1024; ++i)
    last = m.device.copy(direction::out, m.here + i * 64, m.there + i * 64, 64_B, {});
  m.device.wait(last);
  for (std::size_t i = 0; i < 1024; ++i) CHECK(m.here[i * 64] == std::byte(i % 251));
  CHECK_FALSE(m.device.elapsed({engine::copy_out, 1}));
  CHECK(m.device.elapsed(last));
}

TEST_CASE("cpu device: ends while copies are queued, without waiting for them") {
  using namespace std::chrono_literals;
  const auto begin = std::chrono::steady_clock::now();
  {
    pair_of_memories m{1_MiB, {.copy_rate = 1e5}};  // ten seconds
    m.device.copy(direction::out, m.here, m.there, 1_MiB, {});
    m.device.copy(direction::in, m.there, m.here, 1_MiB, fence{}.join(stamp{engine::copy_out, 1}));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 2s);
}

TEST_CASE("cpu device: knows its rates from the start") {
  const cpu_device device;
  CHECK(device.rate(direction::out) > 1e7);
  CHECK(device.rate(direction::in) > 1e7);
}
