// Random programs on the arena: data, bytes, order; and that each wait that it asks for is needed.
// ctest-labels: property
#include <doctest/doctest.h>

#include <algorithm>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "storage_check.hpp"
#include "storage_program.hpp"

using namespace delta;
using namespace delta::test;

TEST_CASE("arena: random programs keep data, bytes and order") {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) trace_of<adversary_subject<false>>(seed, 80);
}

TEST_CASE("arena: with a virtual clock it decides and times as the simulated storage does") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    const auto expected = trace_of<simulated_subject>(seed, 120);
    CHECK(trace_of<adversary_subject<true>>(seed, 120) == expected);
    CHECK(trace_of<simulated_subject>(seed, 120) == expected);
  }
}

TEST_CASE("arena: free bytes fit when nothing is held or in flight") {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    simulated s({.capacity = bytes{1 + random() % 5000}, .granularity = 1u << random() % 7});
    std::vector<block> blocks;
    std::vector<bytes> wanted;
    for (int i = 0; i < 100; ++i) {
      const bytes n{random() % (s.capacity().count / (1 + random() % 8) + 1)};
      const auto life = random() % 2 ? lifetime::transient : lifetime::persistent;
      const bool fits = s.rounded(n) <= s.capacity() - s.used();
      auto b = s.allocate(n, life);
      REQUIRE(b.has_value() == fits);
      if (b) blocks.push_back(std::move(*b));
      for (auto k = random() % 3; k > 0 && !blocks.empty(); --k) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        s.free(std::move(blocks.back()));
        blocks.pop_back();
      }
      REQUIRE(check_invariants(s) == "");
    }
  }
}

TEST_CASE("arena: moves no more than the cheapest window") {
  // Brute force over all windows between two holes, on layouts of random sizes.
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    simulated s({.capacity = 1000_B});
    std::vector<block> blocks;
    while (auto b = s.allocate(bytes{1 + random() % 60}, lifetime::persistent))
      blocks.push_back(std::move(*b));
    for (auto& b : blocks)
      if (random() % 2) s.free(std::move(b));
    const bytes n = s.largest_hole() + bytes{1 + random() % 100};
    if (n > s.capacity() - s.used()) continue;
    std::vector<std::pair<bytes, bool>> layout;
    s.walk_blocks([&](std::uint32_t, bytes size, bool used) { layout.emplace_back(size, used); });
    bytes least = s.capacity();
    for (std::size_t i = 0; i < layout.size(); ++i) {
      bytes free, moved;
      for (std::size_t k = i; k < layout.size() && !layout[i].second; ++k) {
        (layout[k].second ? moved : free) += layout[k].first;
        if (!layout[k].second && free >= n) least = std::min(least, moved);
      }
    }
    CHECK(s.bytes_to_move(n) == least);
    CHECK(s.allocate(n, lifetime::transient));
    CHECK(s.moved_bytes() == least);
  }
}

TEST_CASE("adversary: every wait that the arena asks for is needed") {
  check_that_every_wait_is_needed<adversary_subject<false>>();
}

TEST_CASE("adversary: sees a race, and sees none where a fence orders") {
  for (const bool ordered : {false, true}) {
    adversary device(1);
    std::byte* const there = device.device_memory(64_B);
    std::byte* const here = device.host_memory(64_B);
    device.begin({});
    device.launch({}, {{there, 64}}, [=] { there[0] = std::byte{9}; });
    const stamp done = device.end();
    const stamp out =
        device.copy(direction::out, here, there, 64_B, ordered ? fence{}.join(done) : fence{});
    if (ordered) device.wait(out);
    device.host_access({here, 64}, false);
    if (ordered) {
      CHECK(device.violations().empty());
      CHECK(here[0] == std::byte{9});
    } else {
      REQUIRE(device.violations().size() == 2);
      CHECK(device.violations()[0] ==
            "copy out #1 reads device byte 0, which operator #1 writes; nothing orders the two");
      CHECK(device.violations()[1] ==
            "host #0 reads host byte 0, which copy out #1 writes; nothing orders the two");
    }
    device.drain();
  }
}

TEST_CASE("arena: a copy that the device refuses leaves no trace") {
  struct refusing : adversary {
    using adversary::adversary;
    stamp copy(direction d, std::byte* to, const std::byte* from, bytes n, const fence& after) {
      if (refuse) throw std::bad_alloc{};
      return adversary::copy(d, to, from, n, after);
    }
    bool refuse = false;
  };
  refusing device(1);
  arena<refusing> s(device, {.capacity = 256_B, .host_capacity = 256_B});
  auto b = s.allocate(128_B, lifetime::transient);
  REQUIRE(b);
  device.refuse = true;
  CHECK_THROWS_AS(static_cast<void>(s.copy_out(*b)), std::bad_alloc);
  CHECK(*b);
  CHECK(s.host_used() == 0_B);
  device.refuse = false;
  auto [c, h] = s.land(std::move(*s.copy_out(*b)));
  device.refuse = true;
  CHECK_THROWS_AS(static_cast<void>(s.copy_in(std::move(h), std::move(c))), std::bad_alloc);
  CHECK(h);
  CHECK(c);
  CHECK(s.used() == 128_B);
  CHECK(check_invariants(s) == "");
  s.free(std::move(h));
  s.free(std::move(c));
  device.drain();
}
