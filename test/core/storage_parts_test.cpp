// The parts that storages are made of, each alone: stretches of a memory, past users of addresses,
// copy rates, virtual lanes. What a storage does with them is in its own test.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <new>
#include <vector>

#include "delta/detail/storage/address_fences.hpp"
#include "delta/detail/storage/regions.hpp"
#include "delta/storage/arena.hpp"
#include "delta/storage/host_device.hpp"
#include "delta/storage/simulated.hpp"
#include "storage_check.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DELTA_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define DELTA_SANITIZED
#endif
#endif

using namespace delta;
using namespace delta::literals;
using namespace std::chrono_literals;
using detail::address_fences;
using detail::region;
using detail::storage_check;

namespace {

// What is told to whoever moves bytes.
struct told_lanes {
  struct moved {
    std::uint64_t to, from, size;
    bool operator==(const moved&) const = default;
  };
  fence after;
  std::vector<moved> moves;
  bytes all{};
  void begin(const fence& f) { after = f; }
  void move(std::uint64_t to, std::uint64_t from, std::uint64_t n) {
    moves.push_back({to, from, n});
  }
  stamp end_moves(bytes n) {
    all = n;
    return {lane::compute, 9};
  }
};

// The points at which compute has used the stretches, by address.
std::map<std::uint64_t, std::uint64_t> written(const region& r) {
  std::map<std::uint64_t, std::uint64_t> points;
  r.walk([&](std::uint32_t, const detail::stretch& s) {
    points[s.offset] = s.written.point[static_cast<std::size_t>(lane::compute)];
  });
  return points;
}

// Three stretches of 100 bytes; the outer ones are free again.
struct three {
  region r{300_B};
  std::uint32_t low = *r.place(100, lifetime::persistent);
  std::uint32_t middle = *r.place(100, lifetime::persistent);
  std::uint32_t high = *r.place(100, lifetime::persistent);
  three() { r.release(low), r.release(high); }
};

}  // namespace

TEST_CASE("region: work that has used bytes is waited for where these were, and nowhere else") {
  struct use {
    std::uint64_t from, size;
    std::array<std::uint64_t, 2> waits;  // the hole at 0, and at 200
  };
  for (const use u : {use{0, 100, {5, 0}}, use{200, 100, {0, 5}}, use{100, 100, {0, 0}},
                      use{99, 1, {5, 0}}, use{99, 102, {5, 5}}, use{100, 101, {0, 5}}}) {
    three t;
    t.r.note_use(u.from, u.size, {lane::compute, 5});
    CHECK(written(t.r) ==
          std::map<std::uint64_t, std::uint64_t>{{0, u.waits[0]}, {100, 0}, {200, u.waits[1]}});
  }
}

TEST_CASE("region: holes are joined at the end that is asked for, and what moves is counted") {
  bool down = false;
  SUBCASE("towards the low end") {
    down = true;
  }
  SUBCASE("towards the high end") {}
  three t;
  const auto w = t.r.cheapest_window(150, [](const detail::stretch&) { return false; });
  REQUIRE(w);
  CHECK(w->moved == 100);
  told_lanes lanes;
  const auto life = down ? lifetime::transient : lifetime::persistent;
  CHECK(t.r.close(*w, life, lanes) == 1);
  CHECK(lanes.all == 100_B);
  const std::uint64_t to = down ? 0 : 200;
  CHECK(lanes.moves == std::vector<told_lanes::moved>{{to, 100, 100}});
  CHECK(t.r[t.middle].offset == to);
  CHECK(t.r.largest_hole() == 200_B);
  CHECK(storage_check::of(t.r) == "");
  for (const auto& [at, point] : written(t.r)) CHECK(point == 9);
}

TEST_CASE("past users: as many ranges as there is room for, then all of them for everybody") {
  address_fences past;
  const auto users = [](std::uint64_t n) { return fence{}.join({lane::copy_out, n}); };
  for (std::uint64_t i = 0; i < address_fences::most; ++i)
    past.add(10 * i, 10 * i + 5, users(i + 1));
  CHECK(storage_check::of(past) == "");
  CHECK(storage_check::knows(past, 10, 11));
  CHECK_FALSE(storage_check::knows(past, 5, 10));
  past.add(5, 10, users(7));  // one too many
  CHECK(storage_check::of(past) == "");
  CHECK_FALSE(storage_check::knows(past, 10, 11));
  CHECK(past.take(50000, 50001).point[static_cast<std::size_t>(lane::copy_out)] ==
        address_fences::most);
}

TEST_CASE("copy rates: each way has its own, and time is rounded up") {
  const copy_rates r{.out = 1e9, .in = 2e9, .move = 4e9, .latency = 10ns};
  CHECK(r.of(direction::out) == 1e9);
  CHECK(r.of(direction::in) == 2e9);
  CHECK(r.cost(direction::out, 1000_B) == 1010ns);
  CHECK(r.cost(direction::in, 1001_B) == 511ns);
  CHECK(r.move_cost(1000_B) == 250ns);
  CHECK(copy_rates{.out = 0, .latency = 3ns}.cost(direction::out, 1_MiB) == 3ns);
}

TEST_CASE("virtual lanes: an operator is slower while copies go on, by what each takes") {
  // How long an operator takes beside a copy out of 100 ns and one in of 300 ns.
  const auto took = [](double out, double in, nanoseconds cost) {
    detail::virtual_lanes lanes{{.out = 1e9, .in = 1e9, .burden_out = out, .burden_in = in}};
    lanes.copy(direction::out, 0, 0, 100_B, {});
    lanes.copy(direction::in, 0, 0, 300_B, {});
    lanes.begin({});
    lanes.end(cost);
    return lanes.now();
  };
  CHECK(took(0, 0, 1000ns) == 1000ns);
  CHECK(took(0.5, 0.25, 25ns) == 100ns);     // a quarter of its speed beside both
  CHECK(took(0.5, 0.25, 1000ns) == 1125ns);  // then three quarters, then all
  CHECK(took(0, 0.875, 13ns) == 104ns);  // the half ns that is left takes four beside the second
  CHECK(took(1, 0, 50ns) == 150ns);      // it waits for the copy out
}

TEST_CASE(
    "host device: bytes that no machine has are refused; those that are there are read and "
    "written") {
  host_device machine;
  constexpr bytes most{std::numeric_limits<std::uint64_t>::max()};
  CHECK_THROWS_AS(machine.device_memory(most), std::bad_alloc);
#if !defined(DELTA_SANITIZED)  // sanitizers end who asks for so much
  CHECK_THROWS_AS(machine.device_memory(bytes{most.count / 4}), std::bad_alloc);
#endif
  arena storage{machine, {.capacity = 4_KiB, .host_capacity = 4_KiB}};
  auto b = storage.allocate(1_KiB, lifetime::persistent);
  REQUIRE(b);
  const std::array<std::byte, 2> sent{std::byte{1}, std::byte{2}};
  std::array<std::byte, 2> got{};
  CHECK(storage.write_bytes(*b, 5, sent));
  CHECK(storage.read_bytes(*b, 5, got));
  CHECK(got == sent);
  storage.free(std::move(*b));
}
