// The storage contract on the CPU's arena, and what the CPU as a device promises beyond it.
#include <chrono>
#include <thread>

#include "device/cpu.hpp"
#include "device/interference.hpp"
#include "kernels/thread_pool.hpp"
#include "storage_contract.hpp"
#include "storage_program.hpp"

using namespace delta;
using namespace delta::test;
using delta::executor::cpu_device;

namespace {

// Copiers: cpu_options::copy_threads.
template <bool Virtual, int Copiers = 2>
struct cpu_subject : subject_base<clocked_arena<cpu_device, Virtual>, cpu_device> {
  explicit cpu_subject(subject_sizes o = {})
      : storage(device, {.capacity = o.capacity, .host_capacity = o.host_capacity}) {}
  [[nodiscard]] std::vector<std::string> complaints() const { return {}; }
  cpu_device device{{.copy_rate = 0, .latency = {}, .copy_threads = Copiers}};
  clocked_arena<cpu_device, Virtual> storage;
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
using no_copiers = cpu_subject<false, 0>;
using virtual_no_copiers = cpu_subject<true, 0>;
TYPE_TO_STRING(no_copiers);
TYPE_TO_STRING(virtual_no_copiers);
DELTA_TEST_STORAGE_CONTRACT(cpu_subject<false>, cpu_subject<true>, no_copiers, virtual_no_copiers);

TEST_CASE_TEMPLATE("cpu arena: random programs keep data and bytes", Subject, cpu_subject<false>,
                   no_copiers) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    Subject it({.capacity = 2_KiB, .host_capacity = 1_KiB});
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
  CHECK_FALSE(m.device.elapsed({lane::copy_out, 1}));
  CHECK(m.device.elapsed(last));
}

TEST_CASE("cpu device: ends while copies are queued, without waiting for them") {
  using namespace std::chrono_literals;
  const auto begin = std::chrono::steady_clock::now();
  {
    pair_of_memories m{1_MiB, {.copy_rate = 1e5}};  // ten seconds
    m.device.copy(direction::out, m.here, m.there, 1_MiB, {});
    m.device.copy(direction::in, m.there, m.here, 1_MiB, fence{}.join(stamp{lane::copy_out, 1}));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 2s);
}

TEST_CASE("cpu device: its clock stands still, with no copy under way") {
  pair_of_memories m(1_MiB, {.copy_rate = 1e8});  // 10 ms
  const stamp out = m.device.copy(direction::out, m.here, m.there, 1_MiB, {});
  bool done = false;
  nanoseconds before{};
  const nanoseconds waited = m.device.stand_still([&] {
    done = m.device.reached(out);
    before = m.device.now();
    std::this_thread::sleep_for(std::chrono::milliseconds{400});
  });
  CHECK(done);
  CHECK(waited > nanoseconds{});
  CHECK(waited < std::chrono::milliseconds{350});
  CHECK(m.device.now() - before < std::chrono::milliseconds{350});
  CHECK(*m.device.elapsed(out) >= std::chrono::milliseconds{10});
}

TEST_CASE("cpu device: knows its rates from the start") {
  const cpu_device device;
  CHECK(device.rate(direction::out) > 1e7);
  CHECK(device.rate(direction::in) > 1e7);
}

TEST_CASE("cpu device: without threads that copy a copy is over when it is queued") {
  using namespace std::chrono_literals;
  executor::thread_pool idle(3);
  for (const bool lent : {false, true}) {
    pair_of_memories m{4_MiB, {.copy_rate = 0, .latency = {}, .copy_threads = 0}};
    if (lent) m.device.lend(&idle);
    for (std::size_t i = 0; i < (std::size_t{4} << 20); ++i) m.there[i] = std::byte(i * 7 % 251);
    const stamp out = m.device.copy(direction::out, m.here, m.there, 4_MiB, {});
    CHECK(m.device.reached(out));
    CHECK(std::equal(m.here, m.here + (4 << 20), m.there));
    REQUIRE(m.device.elapsed(out));
    CHECK(m.device.waited() == *m.device.elapsed(out));  // nobody computed meanwhile
    const stamp in = m.device.copy(direction::in, m.there, m.here, 1_MiB, fence{}.join(out));
    CHECK(m.device.reached(in));
    CHECK(m.device.backlog(direction::in) == 0ns);
    CHECK(m.device.rate(direction::out) > 1e7);
    for (const direction d : {direction::out, direction::in}) CHECK(m.device.burden(d) == 1);
    const stamp none = m.device.copy(direction::in, m.there, m.here, 0_B, {});
    CHECK(none.point == in.point + 1);
  }
}

TEST_CASE("cpu device: an operator's time without the copies beside it") {
  using namespace std::chrono_literals;
  // A copy of 20 ms that kernels are said to lose half a nanosecond by each.
  pair_of_memories m{1_MiB, {.copy_rate = 50e6, .latency = {}, .burden = 0.5}};
  const auto operate = [&](auto body) {
    m.device.begin({});
    body();
    return m.device.end();
  };
  const stamp before = operate([] {});
  CHECK(m.device.alone(before) == m.device.elapsed(before));
  const stamp beside =
      operate([&] { m.device.wait(m.device.copy(direction::out, m.here, m.there, 1_MiB, {})); });
  const auto took = m.device.elapsed(beside), alone = m.device.alone(beside);
  REQUIRE(took);
  REQUIRE(alone);
  CHECK(*alone <= *took - 10ms);
  CHECK(*alone >= *took / 4);
  CHECK_FALSE(m.device.alone({lane::compute, beside.point + 1}));
  // Of a measured rate a slow copy loses the part in which it does not sleep.
  const cpu_device slow({.copy_rate = 1e9, .latency = {}, .expected_rate = 4e9, .burden = 0.5});
  CHECK(slow.burden(direction::in) == 0.125);
}

TEST_CASE("cpu device: moves down and up keep every byte, with idle threads and without") {
  constexpr std::size_t size = std::size_t{6} << 20;
  executor::thread_pool idle(2);
  const auto value = [](std::size_t i) { return std::byte(i * 13 % 255); };
  for (const bool lent : {false, true})
    for (const std::size_t apart : {std::size_t{0}, std::size_t{1}, std::size_t{48},
                                    std::size_t{4096} + 8, size / 5, size / 2, size})
      for (const bool down : {true, false}) {
        CAPTURE(apart);
        CAPTURE(down);
        pair_of_memories m{bytes{2 * size + 64}};
        if (lent) m.device.lend(&idle);
        std::byte* const low = m.there + 3;
        std::byte* const from = down ? low + apart : low;
        std::byte* const to = down ? low : low + apart;
        for (std::size_t i = 0; i < size; ++i) from[i] = value(i);
        m.device.begin({});
        m.device.move(to, from, bytes{size});
        m.device.end();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < size; ++i) wrong += to[i] != value(i);
        CHECK(wrong == 0);
      }
}

TEST_CASE("what copies cost kernels is measured, and the cheaper way is taken") {
  using executor::copy_behaviour, executor::copy_ways;
  executor::thread_pool pool(2);
  const copy_ways found = executor::measure_copies(pool);
  for (const copy_behaviour& b : {found.threads, found.caller}) {
    CHECK(b.burden >= 0);
    CHECK(b.burden <= 1);
    CHECK(b.rate > 1e7);
    CHECK(b.waited > 1e7);
  }
  CHECK(found.caller.burden == 1);
  // 10 GB/s at a loss of a half are dearer, by bytes, than 20 at a full one; at none not, if who
  // waits has as much.
  CHECK(copy_ways{{10e9, 10e9, 0.5}, {20e9, 20e9, 1}}.better() == 0);
  CHECK(copy_ways{{10e9, 20e9, 0.1}, {20e9, 20e9, 1}}.better() == 2);
  CHECK(copy_ways{{10e9, 20e9, 0.1}, {20e9, 20e9, 1}, false}.better() == 0);
}
