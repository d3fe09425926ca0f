// What the program has dropped and a restore has computed again: it stays while there is room, and
// is in nobody's way. And what the program holds can be had, whatever was pinned, dropped or
// updated meanwhile.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "delta/manager.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "do_anything.hpp"
#include "lifo_prefetch.hpp"
#include "seeds.hpp"
#include "tested_policy.hpp"

using namespace delta;
using namespace delta::test;

namespace {

constexpr auto nothing = [](call&) {};

/// x -> a -> b, of 10, 30 and 30 bytes in 100; b is evicted, and a if it was not dropped.
struct chain {
  simulated storage{{.capacity = 100_B, .host_capacity = 40_B, .rate_out = 1e9, .rate_in = 1e9}};
  std::unique_ptr<manager_interface> managed = make_manager("dtr", over(storage));
  manager_interface& m = *managed;
  tensor_id x = m.variable(10_B);
  tensor_id a = m.run({.inputs = {x}, .outputs = {30_B}, .cost = nanoseconds{100}}, nothing);
  tensor_id b = m.run({.inputs = {a}, .outputs = {30_B}, .cost = nanoseconds{100}}, nothing);

  void look_at(tensor_id t) { (void)m.acquire(t); }
};

}  // namespace

TEST_CASE("a dropped tensor leaves, whatever its pins say") {
  for (const pin p : {pin::none, pin::evict, pin::offload, pin::both}) {
    CAPTURE(int(p));
    chain c;
    c.m.make_room(90_B);
    c.m.forbid(c.a, p);
    c.m.drop(c.a);
    c.look_at(c.b);
    CHECK(c.storage.used() == 70_B);
    const tensor_id big = c.m.run({.outputs = {80_B}}, nothing);
    CHECK(c.m.where(big) == residency::resident);
  }
}

TEST_CASE("constants count once, however often a dropped one was computed again") {
  chain c;
  c.m.make_room(90_B);
  c.m.forbid(c.a, pin::both);
  c.m.drop(c.a);
  for (int i = 0; i < 3; ++i) {
    c.look_at(c.b);
    c.m.make_room(90_B);
  }
  std::optional<memory_report> report;
  try {
    c.m.run({.outputs = {200_B}}, nothing);
  } catch (const budget_exceeded& e) {
    report = e.report;
  }
  REQUIRE(report);
  CHECK(report->smallest_budget >= 200_B);
  CHECK(report->smallest_budget <= 300_B);
}

TEST_CASE("what is dropped while an operator or a view has it goes at their end") {
  chain c;
  {
    const auto view = c.m.acquire(c.a);
    c.m.drop(c.a);
    CHECK(c.storage.used() == 70_B);
  }
  CHECK(c.storage.used() == 40_B);
  {
    auto op = c.m.begin({.inputs = {c.b}});
    c.m.drop(c.b);
    op.end({}, nothing);
  }
  CHECK(c.storage.used() == 10_B);
}

TEST_CASE("taking back what is cached asks nobody") {
  simulated storage{{.capacity = 1000_B}};
  const auto managed = make_manager("dtr", over(storage));
  manager_interface& m = *managed;
  const tensor_id x = m.variable(10_B);
  std::vector<tensor_id> links{m.run({.inputs = {x}, .outputs = {10_B}}, nothing)};
  while (links.size() < 50)
    links.push_back(m.run({.inputs = {links.back()}, .outputs = {10_B}}, nothing));
  m.make_room(990_B);
  for (std::size_t i = 0; i + 1 < links.size(); ++i) m.drop(links[i]);
  const auto before = m.counts();
  const auto asked = m.evaluations();
  (void)m.acquire(links.back());
  CHECK(m.counts().recomputes - before.recomputes == 50);
  CHECK(storage.used() == 510_B);
  m.make_room(980_B);
  CHECK(storage.used() == 20_B);
  CHECK(m.where(links.back()) == residency::resident);
  CHECK(m.counts().evictions == before.evictions);
  CHECK(m.counts().decisions == before.decisions);
  CHECK(m.evaluations() == asked);
}

TEST_CASE("what is cached has no host copy") {
  simulated storage{{.capacity = 100_B, .host_capacity = 40_B, .rate_out = 1e9, .rate_in = 1e9}};
  const auto managed = make_manager("swap_lru", over(storage));
  manager_interface& m = *managed;
  const tensor_id a = m.run({.outputs = {30_B}}, nothing);
  m.make_room(100_B);
  CHECK(storage.host_used() == 30_B);
  {
    const auto view = m.acquire(a);
    m.drop(a);
  }
  CHECK(storage.host_used() == 0_B);
  CHECK(storage.used() == 0_B);
}

TEST_CASE("an update brings back what was pinned after it had left") {
  chain c;
  c.m.drop(c.a);
  c.m.make_room(90_B);
  c.m.forbid(c.b, pin::evict);
  CHECK(c.m.where(c.b) == residency::evicted);
  c.m.run<0>({.updates = {c.x}}, nothing);
  CHECK(c.m.where(c.b) == residency::resident);
  c.look_at(c.b);
  c.m.drop(c.b);
  CHECK(c.storage.used() == 10_B);
}

TEST_CASE("random programs: what the program holds can be had, or a typed error says why not") {
  int had = 0, refused = 0;
  const auto play = [&](std::uint64_t seed, const tested_policy& policy) {
    CAPTURE(policy.name);
    std::mt19937_64 rng(seed);
    // Without moving, free bytes may lie in pieces: the ways that do without them are tried, too.
    simulated storage{{.capacity = 400_B,
                       .host_capacity = bytes{rng() % 3 * 100},
                       .rate_out = 1e9,
                       .rate_in = 1e9,
                       .moving = seed % 2 == 0}};
    {
      const auto managed = policy.manage(over(storage));
      manager_interface& m = *managed;
      const std::vector<tensor_id> held = do_anything(m, rng, 300);
      for (const tensor_id t : held) had_room([&] { (void)m.acquire(t); }) ? ++had : ++refused;
      for (const tensor_id t : held) m.drop(t);
    }
    CHECK(storage.used() == 0_B);
    CHECK(storage.host_used() == 0_B);
  };
  for (std::uint64_t seed = 0; seed < seeds(150); ++seed) {
    CAPTURE(seed);
    for (const char* name : {"dtr", "online", "paper"}) play(seed, by_name(name));
    play(seed, own("lru cheaper lifo", policy<lru, cheaper, lifo_prefetch>{}));
  }
  MESSAGE(had << " had, " << refused << " refused");
  CHECK(had > refused);
}

TEST_CASE("a dropped source is not copied where what hangs on it could be") {
  struct row {
    bytes hanging;
    bool evicted;
    bool copied;
  };
  // The last: nothing but the source makes it again.
  for (const row& r : {row{30_B, false, false},
                       {80_B, false, false},
                       {100_B, false, true},
                       row{30_B, true, true}}) {
    CAPTURE(r.hanging.count);
    CAPTURE(r.evicted);
    simulated storage{{.capacity = 200_B, .host_capacity = 200_B, .rate_out = 1, .rate_in = 1}};
    const auto managed = make_manager("online", over(storage));
    manager_interface& m = *managed;
    const tensor_id x = m.variable(40_B);
    {  // The program does not fit by itself.
      const tensor_id y = m.run({.outputs = {60_B}}, nothing);
      m.drop(m.run({.outputs = {150_B}}, nothing));
      m.drop(y);
    }
    const tensor_id a = m.run({.inputs = {x}, .outputs = {r.hanging}}, nothing);
    if (r.evicted) m.make_room(150_B);
    CHECK((m.where(a) == residency::evicted) == r.evicted);
    m.forbid(a, pin::both);
    m.drop(x);
    m.make_room(200_B - (r.evicted ? bytes{} : r.hanging));
    CHECK(storage.host_used() == (r.copied ? 40_B : 0_B));
    CHECK(m.counts().offloads == (r.copied ? 1u : 0u));
    (void)m.acquire(a);
    CHECK(m.where(a) == residency::resident);
  }
}
