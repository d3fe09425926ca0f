// What leaves the device and how, and what comes back: one behaviour at a time, with real bytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "machine.hpp"
#include "storage_check.hpp"

using namespace delta;
using namespace delta::test;

namespace {

/// A result, a variable, and what is computed from that.
template <class Manager>
std::array<tensor_id, 3> two_and_a_sum(Manager& m) {
  const tensor_id x = m.run({.outputs = {unit}}, gives(1));
  const tensor_id v = variable_of(m, 7);
  return {x, v, m.run({.inputs = {v}, .outputs = {unit}}, sums(1, 10))};
}

}  // namespace

TEST_CASE("a constant never leaves, a variable is offloaded and never evicted") {
  for (const action* word : {&says_evict, &says_offload}) {
    machine it(4, 8);
    manager m{obeying(*word), it.storage};
    const tensor_id c = m.constant(unit);
    {
      const auto held = m.acquire(c, access::write);
      put(held.data(), 5);
    }
    const tensor_id v = variable_of(m, 7);
    squeeze(m, 3);
    CHECK(m.where(c) == residency::resident);
    CHECK(m.where(v) == residency::host);
    CHECK(m.counts().evictions == 0);
    CHECK(m.counts().offloads == 1);
    CHECK(it.storage.host_used() == unit);
    CHECK(read(m, v) == 7);
    CHECK(read(m, c) == 5);
    CHECK(m.counts().bytes_out == unit.count);
    CHECK(m.counts().bytes_in == unit.count);
  }
}

TEST_CASE("an operator's output is evicted and computed again, or offloaded and reloaded") {
  machine it(4, 8);
  action word = action::evict;
  manager m{obeying(word), it.storage};
  const tensor_id v = variable_of(m, 7);
  const tensor_id y = m.run({.inputs = {v}, .outputs = {unit}}, sums(1, 10));
  squeeze(m, 4);
  CHECK(m.where(y) == residency::evicted);
  CHECK(read(m, y) == 17);
  CHECK(m.counts().recomputes == 1);
  word = action::offload;
  squeeze(m, 4);
  CHECK(m.where(y) == residency::host);
  CHECK(m.counts().offloads == 2);  // and once more the variable, which was clean
  CHECK(m.counts().clean_drops == 1);
}

TEST_CASE("a clean tensor leaves without a copy, until it is written") {
  machine it(4, 8);
  manager m{obeying(says_offload), it.storage};
  const tensor_id v = variable_of(m, 1);
  squeeze(m, 4);
  CHECK(read(m, v) == 1);
  squeeze(m, 4);
  CHECK(m.where(v) == residency::host);
  CHECK(m.counts().offloads == 1);
  CHECK(m.counts().clean_drops == 1);
  m.run<0>({.updates = {v}}, adds(1));
  CHECK(it.storage.host_used() == bytes{});  // the copy on the host was stale
  squeeze(m, 4);
  CHECK(m.counts().offloads == 2);
  CHECK(read(m, v) == 2);
  {
    const auto held = m.acquire(v, access::write);
    put(held.data(), 9);
  }
  squeeze(m, 4);
  CHECK(m.counts().offloads == 3);
  CHECK(read(m, v) == 9);
}

TEST_CASE("a replay restores every evicted output that is wanted, and no other") {
  machine it(6, 0);
  manager m{obeying(says_evict), it.storage};
  const auto three = m.run<3>({.outputs = {unit, unit, unit}}, gives(10, 3));
  squeeze(m, 6);
  CHECK(it.storage.used() == bytes{});
  m.drop(three[1]);
  CHECK(read(m, three[0]) == 10);
  CHECK(m.where(three[2]) == residency::resident);
  CHECK(it.storage.used() == unit + unit);
  CHECK(read(m, three[2]) == 12);
  CHECK(m.counts().recomputes == 1);
  // What is here already keeps its bytes, and the replay's copy goes.
  squeeze(m, 5);
  CHECK(it.storage.used() == unit);
  CHECK(read(m, three[0]) == 10);
  CHECK(read(m, three[2]) == 12);
  CHECK(m.counts().recomputes == 2);
  m.drop(three[0]);
  m.drop(three[2]);
  CHECK(m.live_records() == 0);
  CHECK(m.live_tensors() == 0);
  CHECK(it.storage.used() == bytes{});
}

TEST_CASE("each view counts; the last one to go frees the bytes") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id t = m.run({.outputs = {unit}}, gives(3));
  CHECK(m.share(t) == t);
  m.drop(t);
  CHECK(it.storage.used() == unit);
  CHECK(read(m, t) == 3);
  m.drop(t);
  CHECK(it.storage.used() == bytes{});
  CHECK_THROWS_AS(m.drop(t), unknown_tensor);
  CHECK(m.live_records() == 0);
}

TEST_CASE("dropped ancestors are computed again on the way, and stay while there is room") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id a = m.run({.outputs = {unit}}, gives(1));
  const tensor_id b = m.run({.inputs = {a}, .outputs = {unit}}, sums(1, 10));
  const tensor_id c = m.run({.inputs = {a, b}, .outputs = {unit}}, sums(2, 100));
  m.drop(a);
  m.drop(b);
  CHECK(it.storage.used() == unit);
  CHECK(m.live_records() == 3);
  squeeze(m, 4);
  CHECK(read(m, c) == 112);
  CHECK(m.counts().recomputes == 3);
  CHECK(it.storage.used() == unit + unit + unit);
  m.drop(c);
  CHECK(it.storage.used() == bytes{});
  CHECK(m.live_records() == 0);
  CHECK(m.live_tensors() == 0);
}

namespace {

/// A prefetcher that names one tensor whenever it is asked.
struct names : no_prefetch {
  const tensor_id* wanted;
  tensor_id next(const context&) const { return *wanted; }
};

}  // namespace

TEST_CASE("what comes back early moves others out of its way, where that costs little") {
  struct row {
    double rate_move;
    bool held, comes;
  };
  // One block is in the way of a copy of two: 1 / rate_move against 2 / rate_in.
  for (const row& x :
       {row{0, false, true}, row{4e9, false, true}, row{1e9, false, false}, row{0, true, false}}) {
    CAPTURE(x.rate_move);
    CAPTURE(x.held);
    simulated storage({.capacity = unit * 6,
                       .host_capacity = unit * 8,
                       .rate_out = 1e9,
                       .rate_in = 1e9,
                       .rate_move = x.rate_move});
    tensor_id wanted = tensor_id::none;
    manager m{lru{}, offload_only{}, names{{}, &wanted}, storage};
    const tensor_id t = m.variable(unit + unit);
    const tensor_id a = m.variable(unit), b = m.variable(unit), c = m.variable(unit);
    // The last two lie where the large one lay.
    for (int i = 0; i < 3; ++i) static_cast<void>(m.variable(unit));
    REQUIRE(m.where(t) == residency::host);
    m.drop(a), m.drop(c);
    REQUIRE(storage.largest_hole() == unit);
    const auto operate = [&] {
      wanted = t;
      m.run({.outputs = {0_B}}, [](call&) {});
    };
    if (x.held) {
      const auto held = m.acquire(b);
      operate();
    } else {
      operate();
    }
    CHECK(m.counts().prefetches == std::uint64_t{x.comes});
    CHECK(storage.moved_bytes() == (x.comes ? unit : 0_B));
    CHECK(check_invariants(storage) == "");
  }
}

TEST_CASE("host copies of what is on the device make room in one piece for what has none") {
  simulated storage({.capacity = unit * 6, .host_capacity = unit * 4});
  manager m{lru{}, offload_only{}, no_prefetch{}, storage};
  tensor_id four[4];
  for (tensor_id& t : four) t = m.variable(unit);
  m.make_room(unit * 6);
  const auto [a, x, b, y] = four;
  for (const tensor_id t : {x, y}) static_cast<void>(m.acquire(t, access::write)), m.drop(t);
  for (const tensor_id t : {a, b}) static_cast<void>(m.acquire(t));
  // Copies of a and b lie on the host with one unit free behind each of them.
  REQUIRE(storage.host_used() == unit * 2);
  const tensor_id large = m.variable(unit * 2);
  m.run({.inputs = {a, b}, .outputs = {unit * 4}}, [](call&) {});
  CHECK(m.where(large) == residency::host);
  CHECK(storage.host_used() == unit * 2);
  CHECK(check_invariants(storage) == "");
}

TEST_CASE("what was set aside serves the next tensor, leaves first, and is not a decision") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id a = m.run({.outputs = {unit}}, gives(1));
  const tensor_id b = m.run({.inputs = {a}, .outputs = {unit}}, sums(1, 10));
  const tensor_id c = m.run({.inputs = {b}, .outputs = {unit}}, sums(1, 100));
  const tensor_id d = m.run({.inputs = {b}, .outputs = {unit}}, sums(1, 200));
  m.drop(a);
  m.drop(b);
  squeeze(m, 4);
  CHECK(read(m, c) == 111);
  CHECK(m.counts().recomputes == 3);
  CHECK(read(m, d) == 211);
  CHECK(m.counts().recomputes == 4);  // b was still there
  CHECK(it.storage.used() == unit + unit + unit + unit);
  const auto evictions = m.counts().evictions;
  m.make_room(unit + unit);
  CHECK(m.counts().evictions == evictions);
  CHECK(m.where(c) == residency::resident);
  CHECK(m.where(d) == residency::resident);
  CHECK(it.storage.used() == unit + unit);
}

TEST_CASE("what was set aside makes way for what comes back early") {
  simulated storage({.capacity = unit * 4, .host_capacity = unit * 4});
  tensor_id wanted = tensor_id::none;
  manager m{lru{}, obedient{&says_evict}, names{{}, &wanted}, storage};
  const tensor_id v = m.variable(unit * 2);
  const tensor_id a = m.run({.outputs = {unit}}, [](call&) {});
  const tensor_id b = m.run({.inputs = {a}, .outputs = {unit}}, [](call&) {});
  m.drop(a);
  squeeze(m, 4);
  static_cast<void>(m.acquire(b));  // by way of a, which is set aside
  const tensor_id x = m.variable(unit);
  REQUIRE(storage.used() == unit * 3);
  wanted = v;
  m.run({.inputs = {b, x}, .outputs = {0_B}}, [](call&) {});
  CHECK(m.counts().prefetches == 1);
  CHECK(storage.used() == unit * 4);
}

TEST_CASE("what was set aside goes at the end of the step") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id a = m.run({.outputs = {unit}}, gives(1));
  const tensor_id b = m.run({.inputs = {a}, .outputs = {unit}}, sums(1, 10));
  m.drop(a);
  squeeze(m, 4);
  CHECK(read(m, b) == 11);
  CHECK(it.storage.used() == unit + unit);
  m.end_of_step();
  CHECK(it.storage.used() == unit);
}

TEST_CASE("a dropped variable stays while something is computed from it, and goes after") {
  machine it(4, 4);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 4);
  const tensor_id y = m.run({.inputs = {v}, .outputs = {unit}}, sums(1, 1));
  m.drop(v);
  CHECK_THROWS_AS(m.drop(v), unknown_tensor);
  CHECK(it.storage.used() == unit + unit);
  squeeze(m, 4);  // it may be offloaded still
  CHECK(it.storage.host_used() == unit);
  CHECK(read(m, y) == 5);
  m.drop(y);
  CHECK(it.storage.used() == bytes{});
  CHECK(it.storage.host_used() == bytes{});
  CHECK(m.live_tensors() == 0);
}

TEST_CASE("without a host, a dropped variable is given up when all that hangs on it is here") {
  machine it(4, 0);
  manager m{recompute_only(), it.storage};
  const tensor_id v = variable_of(m, 4);
  const tensor_id y = m.run({.inputs = {v}, .outputs = {unit}}, sums(1, 1));
  m.forbid(y, pin::evict);
  m.drop(v);
  squeeze(m, 3);
  CHECK(it.storage.used() == unit);
  CHECK(m.live_records() == 0);
  CHECK(read(m, y) == 5);
}

TEST_CASE("a program that just fits by itself gives up what it dropped, and evicts nothing") {
  machine it(3, 0);
  manager m{obeying(says_evict), it.storage};
  const auto [x, v, y] = two_and_a_sum(m);
  m.drop(v);
  const tensor_id z = m.run({.inputs = {y}, .outputs = {unit}}, sums(1, 100));
  CHECK(m.counts().evictions == 0);
  CHECK(m.where(x) == residency::resident);
  CHECK(read(m, z) == 117);
}

TEST_CASE("up to what a program has at most by itself, what it dropped stays for replays") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const auto [x, v, y] = two_and_a_sum(m);
  m.drop(v), m.drop(x);
  m.run({.inputs = {y}, .outputs = {unit}}, sums(1, 100));
  CHECK(it.storage.used() == unit * 3);  // v, too
  m.run({.inputs = {y}, .outputs = {unit}}, sums(1, 100));
  CHECK(it.storage.used() == unit * 3);
}

TEST_CASE("a look at a tensor is a use of it: who was not looked at leaves first") {
  machine it(4, 4);
  manager m{obeying(says_offload), it.storage};
  const tensor_id a = variable_of(m, 1), b = variable_of(m, 2);
  squeeze(m, 1);
  CHECK(read(m, a) == 1);
  squeeze(m, 3);
  CHECK(m.where(a) == residency::resident);
  CHECK(m.where(b) == residency::host);
}

TEST_CASE("what is used while its copy out is under way stays, and is clean; a drop is no use") {
  struct early : no_prefetch {
    const double* target;
    double early_release_bytes(const context& c) const noexcept {
      return std::max(0.0, c.used() - c.leaving() - *target);
    }
  };
  simulated storage({.capacity = 512_B,
                     .host_capacity = 512_B,
                     .rate_out = 1e6,
                     .rate_in = 1e9,
                     .granularity = 64});
  double target = 128;  // bytes that stay
  manager m{lru{}, offload_only{}, early{{}, &target}, storage};
  const auto nothing = [](call&) {};
  const tensor_id a = m.variable(unit), b = m.variable(unit), c = m.variable(unit);
  const tensor_id d = m.variable(unit);
  m.run<0>({.inputs = {c, d}}, nothing);
  CHECK(m.where(a) == residency::offloading);
  CHECK(m.where(b) == residency::offloading);
  CHECK(storage.used() == unit * 4);  // both ends count
  target = 512;
  m.run<0>({.inputs = {a}}, nothing);
  CHECK(m.counts().revivals == 1);
  CHECK(m.counts().reloads == 0);
  CHECK(storage.waited() == nanoseconds{});
  CHECK(m.where(a) == residency::resident);
  CHECK(m.where(b) == residency::offloading);
  m.drop(b);
  CHECK(m.counts().revivals == 1);
  CHECK(storage.used() == unit * 3);
  target = 128;
  m.drop(c);
  m.drop(d);
  const tensor_id e = m.variable(unit), f = m.variable(unit);
  m.run<0>({.inputs = {e, f}}, nothing);
  CHECK(m.counts().clean_drops == 1);
  CHECK(m.where(a) == residency::host);
}

TEST_CASE("no bytes, no lists, the same tensor twice") {
  machine it(4, 4);
  manager m{online(), it.storage};
  m.run<0>({}, [](call& c) { CHECK(c.workspace() == nullptr); });
  m.run<0>({.workspace = 1_B}, [](call& c) { CHECK(c.workspace() != nullptr); });
  const tensor_id none = m.variable(bytes{});
  const tensor_id v = variable_of(m, 5);
  const auto two = m.run<2>({.inputs = {none, v, v}, .outputs = {bytes{}, unit}},
                            [](call& c) { put(c.out(1), number(c.in(1)) + number(c.in(2))); });
  CHECK(it.storage.used() == unit * 2);
  squeeze(m, 4);
  CHECK(m.where(none) == residency::resident);
  CHECK(m.where(two[0]) == residency::resident);
  CHECK(read(m, two[1]) == 10);
  CHECK(m.acquire(two[0]).size() == bytes{});
  for (const tensor_id t : {none, v, two[0], two[1]}) m.drop(t);
  CHECK(it.storage.used() == bytes{});
  CHECK(m.live_tensors() == 0);
  CHECK(m.live_records() == 0);
}

TEST_CASE("what the user forbids does not happen") {
  machine it(4, 4);
  manager m{obeying(says_evict), it.storage};
  const tensor_id a = m.run({.outputs = {unit}}, gives(1));
  const tensor_id b = m.run({.outputs = {unit}}, gives(2));
  const tensor_id c = m.run({.outputs = {unit}}, gives(3));
  m.forbid(a, pin::evict);
  m.forbid(b, pin::both);
  squeeze(m, 3);
  CHECK(m.where(a) == residency::host);
  CHECK(m.where(b) == residency::resident);
  CHECK(m.where(c) == residency::evicted);
  CHECK_THROWS_AS(squeeze(m, 4), budget_exceeded);
  m.drop(b);
  squeeze(m, 4);
  CHECK(read(m, a) == 1);
  CHECK(read(m, c) == 3);
}

TEST_CASE("copies on the host of tensors that are here make way when the host is full") {
  machine it(4, 2);
  manager m{obeying(says_offload), it.storage};
  const tensor_id a = variable_of(m, 1), b = variable_of(m, 2);
  squeeze(m, 4);
  CHECK(it.storage.host_used() == unit * 2);
  const auto held_a = m.acquire(a), held_b = m.acquire(b);
  const tensor_id c = variable_of(m, 3);
  squeeze(m, 2);  // only c can go, and the host is full of copies of a and b
  CHECK(m.where(c) == residency::host);
  CHECK(number(held_a.data()) == 1);
  CHECK(number(held_b.data()) == 2);
}
