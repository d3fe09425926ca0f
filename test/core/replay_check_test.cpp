// replay_check: kernels that do not keep to what a replay takes are named, with output and first
// byte; those that do pass, and nothing of the check is left behind.
#include "delta/testing/replay_check.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "delta/any_manager.hpp"
#include "delta/manager.hpp"
#include "delta/presets.hpp"
#include "delta/storage/arena.hpp"
#include "delta/storage/host_device.hpp"
#include "delta/storage/simulated.hpp"
#include "storage_check.hpp"

using namespace delta;
using namespace delta::literals;

namespace {

constexpr bytes unit = 4_KiB;

struct checked {
  host_device machine;
  arena<host_device> storage;
  manager<decltype(online()), arena<host_device>, replay_check<>> m;
  explicit checked(std::uint64_t units = 16)
      : storage(machine, {.capacity = unit * units, .host_capacity = unit * 64}),
        m(online(), storage, replay_check{}) {}
  tensor_id filled(int value) {
    const tensor_id t = m.variable(unit);
    const auto v = m.acquire(t, access::write);
    std::memset(v.data(), value, unit.count);
    return t;
  }
  // What is thrown by an operator that reads `in` and makes one output.
  template <class F>
  std::optional<replay_differs> finds(tensor_id in, const F& kernel, trait traits = trait::pure) {
    try {
      (void)m.run({.inputs = {in}, .outputs = {unit}, .traits = traits, .name = "suspect"}, kernel);
    } catch (const replay_differs& e) {
      CHECK(std::string(e.what()).find("'suspect'") != std::string::npos);
      return e;
    }
    return std::nullopt;
  }
  bool has(tensor_id t, int value) {
    const auto v = m.acquire(t);
    for (std::size_t i = 0; i < unit.count; ++i)
      if (v.data()[i] != std::byte(value)) return false;
    return true;
  }
};

void copy(call& c) {
  std::memcpy(c.out(0), c.in(0), unit.count);
}

}  // namespace

TEST_CASE("replay_check: right kernels pass, and are counted") {
  checked it;
  const tensor_id x = it.filled(1);
  const tensor_id y =
      it.m.run({.inputs = {x, x}, .outputs = {unit}, .workspace = unit}, [](call& c) {
        std::memcpy(c.workspace(), c.in(1), unit.count);
        std::memcpy(c.out(0), c.workspace(), unit.count);
      });
  CHECK(!it.finds(
      x, [](call& c) { std::memset(c.out(0), int(c.sequence()), unit.count); }, trait::random));
  CHECK(it.m.counts().replays_checked == 2);
  CHECK(it.m.counts().recomputes == 0);
  CHECK(it.has(x, 1));
  CHECK(it.has(y, 1));
  // Not to be replayed: not checked, and not counted.
  int calls = 0;
  CHECK(!it.finds(
      x, [&](call& c) { std::memset(c.out(0), ++calls, unit.count); }, trait::never_replay));
  it.m.run<0>({.updates = {x}}, [](call& c) { c.update(0)[0] ^= std::byte{1}; });
  CHECK(calls == 1);
  CHECK(it.m.counts().replays_checked == 2);
  CHECK(it.m.counts().replays_unchecked == 0);
  CHECK(check_invariants(it.storage) == "");
}

TEST_CASE("replay_check: a byte that is not written, at its offset") {
  checked it;
  const tensor_id x = it.filled(1);
  const auto e = it.finds(x, [](call& c) { std::memset(c.out(0), 1, unit.count - 7); });
  REQUIRE(e);
  CHECK(e->where.what == replay_difference::unwritten);
  CHECK(e->where.index == 0);
  CHECK(e->where.offset == unit - 7_B);
  CHECK(std::string(e->what()).find("does not write its output 0, from byte 4089 on") !=
        std::string::npos);
  // As if the kernel had thrown: no output, the number is given back, the manager can be used on.
  CHECK(it.m.live_tensors() == 1);
  CHECK(it.m.counts().operators == 0);
  CHECK(it.has(x, 1));
  CHECK(it.has(it.m.run({.inputs = {x}, .outputs = {unit}}, copy), 1));
  CHECK(check_invariants(it.storage) == "");
}

TEST_CASE("replay_check: an output that is added to without being cleared") {
  checked it;
  const tensor_id x = it.filled(1);
  const auto e = it.finds(x, [](call& c) {
    for (std::size_t i = 0; i < unit.count; ++i)
      c.out(0)[i] = std::byte(std::to_integer<int>(c.out(0)[i]) + 1);
  });
  REQUIRE(e);
  CHECK(e->where.offset == 0_B);
}

TEST_CASE("replay_check: a workspace that is read before it is written") {
  checked it;
  const tensor_id x = it.filled(1);
  try {
    (void)it.m.run({.inputs = {x}, .outputs = {unit}, .workspace = unit, .name = "suspect"},
                   [](call& c) {
                     if (!c.replaying()) c.workspace()[5] = std::byte{77};  // happens to be there
                     copy(c);
                     c.out(0)[5] = c.workspace()[5];
                   });
    FAIL("not found");
  } catch (const replay_differs& e) {
    CHECK(e.where.offset == 5_B);
    CHECK(e.expected == std::byte{77});
  }
}

TEST_CASE("replay_check: an update in secret is named, whether or not it changes the output") {
  checked it;
  const tensor_id x = it.filled(1);
  // Once more gives the same: only the input tells.
  auto e = it.finds(x, [](call& c) {
    c.in(0)[100] = std::byte{9};
    copy(c);
  });
  REQUIRE(e);
  CHECK(e->where.what == replay_difference::input);
  CHECK(e->where.index == 0);
  CHECK(e->where.offset == 100_B);
  CHECK(e->expected == std::byte{1});
  CHECK(e->found == std::byte{9});
  CHECK(std::string(e->what()).find("input 0 in secret, from byte 100 on") != std::string::npos);
}

TEST_CASE("replay_check: numbers from a global generator") {
  checked it;
  const tensor_id x = it.filled(1);
  std::mt19937 generator(1);
  const auto e = it.finds(
      x,
      [&](call& c) {
        std::memset(c.out(0), 5, unit.count);
        const auto drawn = generator();
        std::memcpy(c.out(0) + 64, &drawn, sizeof drawn);
      },
      trait::random);
  REQUIRE(e);
  CHECK(e->where.what != replay_difference::input);
  CHECK(e->where.offset >= 64_B);
  CHECK(e->where.offset < 68_B);
  CHECK(std::string(e->what()).find("call::sequence()") != std::string::npos);
}

TEST_CASE("replay_check: addresses that are kept, of an input and of an output") {
  checked it;
  const tensor_id x = it.filled(1);
  const std::byte* in = nullptr;
  auto e = it.finds(x, [&](call& c) {
    if (in == nullptr) in = c.in(0);
    std::memcpy(c.out(0), in, unit.count);  // a view that dangles once x has moved
  });
  REQUIRE(e);
  CHECK(e->where.what == replay_difference::output);
  CHECK(e->where.offset == 0_B);
  CHECK(it.has(x, 1));
  std::byte* out = nullptr;
  e = it.finds(x, [&](call& c) {
    if (out == nullptr) out = c.out(0);
    std::memset(c.out(0), 2, 128);
    std::memset(out + 128, 2, unit.count - 128);
  });
  REQUIRE(e);
  CHECK(e->where.what == replay_difference::unwritten);
  CHECK(e->where.offset == 128_B);
}

TEST_CASE("replay_check: the second output, an open operator with several workspaces") {
  checked it;
  const tensor_id x = it.filled(1);
  const auto run = [&](int second) {
    auto op = it.m.begin({.inputs = {x}, .name = "open"});
    op.workspace(unit);
    op.allocate(unit);
    op.workspace(64_B);
    op.allocate(unit);
    int runs = 0;
    const auto body = [&runs, second](call& c) {
      std::memset(c.workspace(0), 3, unit.count);
      std::memset(c.workspace(1), 4, 64);
      std::memcpy(c.out(0), c.workspace(0), unit.count);
      std::memset(c.out(1), ++runs == 1 ? 4 : second, unit.count);
    };
    call c = op.arguments();
    body(c);
    std::array<tensor_id, 2> made{};
    op.end(std::span(made), body);
    for (const tensor_id t : made) it.m.drop(t);
  };
  try {
    run(5);
    FAIL("not found");
  } catch (const replay_differs& e) {
    CHECK(e.where.index == 1);
    CHECK(e.where.offset == 0_B);
  }
  CHECK(it.m.live_tensors() == 1);
  CHECK(it.storage.used() == unit);
  run(4);
  CHECK(it.m.counts().replays_checked == 1);
  CHECK(it.m.counts().operators == 1);
  CHECK(check_invariants(it.storage) == "");
}

TEST_CASE("replay_check: a kernel that throws when it runs again") {
  checked it;
  const tensor_id x = it.filled(1);
  int runs = 0;
  CHECK_THROWS_AS((void)it.m.run({.inputs = {x}, .outputs = {unit}},
                                 [&](call& c) {
                                   if (++runs == 2) throw runs;
                                   copy(c);
                                 }),
                  int);
  CHECK(it.has(x, 1));
  CHECK(it.storage.used() == unit);
}

TEST_CASE("replay_check: one that throws when it runs again, of an open operator, is still open") {
  checked it;
  const tensor_id x = it.filled(1);
  {
    auto op = it.m.begin({.inputs = {x}});
    op.allocate(unit);
    int runs = 0;
    const auto body = [&](call& c) {
      if (++runs == 2) throw runs;
      copy(c);
    };
    call c = op.arguments();
    body(c);
    CHECK_THROWS_AS((void)op.end(body), int);
    CHECK(op.allocate(64_B) == 1);
    CHECK(op.arguments().in(0) != nullptr);
  }
  CHECK(it.storage.used() == unit);
  CHECK(check_invariants(it.storage) == "");
  CHECK(it.has(x, 1));
}

TEST_CASE("replay_check: little room: inputs stay where they are, or nothing is checked") {
  checked it(3);
  const tensor_id x = it.filled(1);
  // Input, output, and the output's second: no room for the input elsewhere.
  const tensor_id y = it.m.run({.inputs = {x}, .outputs = {unit}}, copy);
  CHECK(it.m.counts().replays_checked == 1);
  // Both are needed, and a third: none for a second run.
  const tensor_id z = it.m.run({.inputs = {x, y}, .outputs = {unit}}, copy);
  CHECK(it.m.counts().replays_checked == 1);
  CHECK(it.m.counts().replays_unchecked == 1);
  for (const tensor_id t : {x, y, z}) CHECK(it.has(t, 1));
}

TEST_CASE("replay_check: a storage without bytes checks nothing, and counts that") {
  simulated storage{{.capacity = 1_MiB, .host_capacity = 1_MiB}};
  manager m{online(), storage, replay_check{}};
  const tensor_id x = m.variable(unit);
  (void)m.run({.inputs = {x}, .outputs = {unit}}, [](call&) {});
  CHECK(m.counts().replays_checked == 0);
  CHECK(m.counts().replays_unchecked == 1);
}

TEST_CASE("replay_check: under a budget, with another observer, random programs stay right") {
  struct counting {
    int* events;
    void on(const event&) { ++*events; }
  };
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    host_device machine;
    arena storage{machine, {.capacity = unit * 9, .host_capacity = unit * 100}};
    int events = 0;
    manager m{online(), storage, replay_check{counting{&events}}};
    std::vector<std::pair<tensor_id, int>> made{{m.variable(unit), 1}};
    {
      const auto v = m.acquire(made[0].first, access::write);
      std::memset(v.data(), 1, unit.count);
    }
    for (int k = 0; k < 60; ++k) {
      const auto [a, va] = made[random() % made.size()];
      const auto [b, vb] = made[random() % made.size()];
      const tensor_id t = m.run({.inputs = {a, b}, .outputs = {unit}}, [](call& c) {
        for (std::size_t i = 0; i < unit.count; ++i)
          c.out(0)[i] =
              std::byte(std::to_integer<int>(c.in(0)[i]) + 3 * std::to_integer<int>(c.in(1)[i]));
      });
      made.emplace_back(t, (va + 3 * vb) & 255);
    }
    for (const auto& [t, value] : made) {
      const auto v = m.acquire(t);
      CHECK(v.data()[0] == std::byte(value));
      CHECK(v.data()[unit.count - 1] == std::byte(value));
    }
    CHECK(m.counts().replays_checked == 60);
    CHECK(events > 60);
    CHECK(storage.peak() <= unit * 9);
    CHECK(check_invariants(storage) == "");
  }
}
