// In-place updates, effects, random numbers: what a replay may and may not do.
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "delta/presets.hpp"
#include "machine.hpp"

using namespace delta;
using namespace delta::test;

TEST_CASE(
    "what was computed from the old version comes back before an update, and can't be evicted") {
  machine it(6, 6);
  manager m{obeying(says_evict), it.storage};
  const tensor_id w = variable_of(m, 1);
  const tensor_id y = m.run({.inputs = {w}, .outputs = {unit}}, sums(1, 10));
  const tensor_id z = m.run({.inputs = {y}, .outputs = {unit}}, sums(1, 100));
  m.drop(y);
  squeeze(m, 6);
  CHECK(m.where(z) == residency::evicted);
  m.run<0>({.updates = {w}}, adds(1));
  CHECK(m.live_records() == 0);
  CHECK(m.where(z) == residency::resident);
  squeeze(m, 6);
  CHECK(m.where(z) == residency::host);  // although the decider says evict
  CHECK(read(m, z) == 111);
  CHECK(read(m, w) == 2);
}

TEST_CASE("an update of an operator's output: its producer can't make the new version") {
  machine it(6, 6);
  manager m{obeying(says_evict), it.storage};
  const tensor_id g = m.run({.outputs = {unit}}, gives(5));
  m.run<0>({.updates = {g}}, adds(1));
  squeeze(m, 6);
  CHECK(read(m, g) == 6);
}

TEST_CASE("an update of one output: its siblings, and what came from them, stay right") {
  for (const bool drop_sibling : {false, true}) {
    CAPTURE(drop_sibling);
    machine it(6, 6);
    manager m{obeying(says_evict), it.storage};
    const auto two = m.run<2>({.outputs = {unit, unit}}, gives(5, 2));
    const tensor_id z = m.run({.inputs = {two[1]}, .outputs = {unit}}, sums(1, 10));
    if (drop_sibling) m.drop(two[1]);
    squeeze(m, 6);
    m.run<0>({.updates = {two[0]}}, adds(1));
    squeeze(m, 6);
    CHECK(read(m, two[0]) == 6);
    CHECK(read(m, z) == 16);
    if (!drop_sibling) {
      CHECK(read(m, two[1]) == 6);
      m.drop(two[1]);
    }
    m.drop(z);
    m.drop(two[0]);
    CHECK(m.live_records() == 0);
    CHECK(m.live_tensors() == 0);
    CHECK(it.storage.used() == bytes{});
    CHECK(it.storage.host_used() == bytes{});
  }
}

TEST_CASE("an update twice in a row, and of a tensor on the host") {
  machine it(4, 4);
  manager m{obeying(says_offload), it.storage};
  const tensor_id w = variable_of(m, 1);
  m.run<0>({.updates = {w}}, adds(1));
  squeeze(m, 4);
  m.run<0>({.updates = {w}}, adds(1));
  squeeze(m, 4);
  CHECK(read(m, w) == 3);
}

TEST_CASE("an effect happens once; the replay gets null for it") {
  machine it(6, 6);
  manager m{obeying(says_evict), it.storage};
  const tensor_id x = variable_of(m, 3), statistics = variable_of(m, 0);
  int nulls = 0, runs = 0;
  const tensor_id y = m.run(
      {.inputs = {x}, .outputs = {unit}, .updates = {statistics}, .traits = trait::effect_once},
      [&](call& c) {
        ++runs;
        put(c.out(0), number(c.in(0)) * 2);
        CHECK(c.replaying() == (c.update(0) == nullptr));
        if (c.update(0) == nullptr)
          ++nulls;
        else
          put(c.update(0), number(c.update(0)) + 1);
      });
  for (int i = 0; i < 3; ++i) {
    squeeze(m, 6);
    CHECK(read(m, y) == 6);
  }
  CHECK(read(m, statistics) == 1);
  CHECK(runs == 4);
  CHECK(nulls == 3);
}

TEST_CASE("without the trait, an operator that updates is not run again") {
  machine it(6, 6);
  manager m{obeying(says_evict), it.storage};
  const tensor_id w = variable_of(m, 3);
  const tensor_id y = m.run({.outputs = {unit}, .updates = {w}}, [](call& c) {
    put(c.out(0), number(c.update(0)));
    put(c.update(0), 9);
  });
  CHECK(m.live_records() == 0);
  squeeze(m, 6);
  CHECK(m.where(y) == residency::host);
  CHECK(read(m, y) == 3);
  CHECK(read(m, w) == 9);
}

TEST_CASE("an input that is also an update: what was read has changed, so no replay") {
  machine it(6, 6);
  manager m{obeying(says_evict), it.storage};
  const tensor_id w = variable_of(m, 3);
  const tensor_id y =
      m.run({.inputs = {w}, .outputs = {unit}, .updates = {w}, .traits = trait::effect_once},
            [](call& c) {
              put(c.out(0), number(c.in(0)));
              if (c.update(0) != nullptr) put(c.update(0), 9);
            });
  squeeze(m, 6);
  CHECK(read(m, y) == 3);
  CHECK(read(m, w) == 9);
}

TEST_CASE("an operator that found no room, or whose kernel threw, uses no number up") {
  machine it(2, 0);
  manager m{obeying(says_evict), it.storage};
  std::vector<std::uint64_t> drawn;
  const auto draw = [&](call& c) { drawn.push_back(c.sequence()); };
  m.drop(m.run({.outputs = {unit}, .traits = trait::random}, draw));
  CHECK_THROWS_AS(m.run({.outputs = {unit * 3}, .traits = trait::random}, draw), budget_exceeded);
  CHECK_THROWS_AS(m.run({.outputs = {unit}, .traits = trait::random}, [](call&) { throw 1; }), int);
  m.drop(m.run({.outputs = {unit}, .traits = trait::random}, draw));
  REQUIRE(drawn.size() == 2);
  CHECK(drawn[1] == drawn[0] + 1);
}

TEST_CASE("a random operator draws the same numbers again") {
  machine it(6, 0);
  manager m{obeying(says_evict), it.storage};
  std::vector<std::uint64_t> drawn;
  const auto draw = [&](call& c) {
    drawn.push_back(c.sequence());
    put(c.out(0), c.sequence());
  };
  const tensor_id a = m.run({.outputs = {unit}, .traits = trait::random}, draw);
  const tensor_id b = m.run({.outputs = {unit}, .traits = trait::random}, draw);
  squeeze(m, 6);
  read(m, b);
  read(m, a);
  REQUIRE(drawn.size() == 4);
  CHECK(drawn[0] != drawn[1]);
  CHECK(drawn[2] == drawn[1]);
  CHECK(drawn[3] == drawn[0]);
}

TEST_CASE("what may not run again is offloaded, or stays") {
  {
    machine it(4, 4);
    manager m{obeying(says_evict), it.storage};
    const tensor_id y = m.run({.outputs = {unit}, .traits = trait::never_replay}, gives(8));
    squeeze(m, 4);
    CHECK(m.where(y) == residency::host);
    CHECK(read(m, y) == 8);
  }
  machine it(4, 4);
  manager m{recompute_only(), it.storage};
  const tensor_id y = m.run({.outputs = {unit}, .traits = trait::never_replay}, gives(8));
  CHECK_THROWS_AS(squeeze(m, 4), budget_exceeded);
  CHECK(read(m, y) == 8);
}

TEST_CASE("the ids may be written over the list of inputs") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  std::array<tensor_id, 1> x{m.run({.outputs = {unit}}, gives(2))};
  const tensor_id first = x[0];
  const std::array<bytes, 1> sizes{unit};
  m.run(operation_span{.inputs = x, .outputs = sizes}, x, sums(1, 1));
  CHECK(x[0] != first);
  squeeze(m, 4);
  CHECK(read(m, x[0]) == 3);
}

TEST_CASE("a kernel larger than the cell, and one that can only be moved") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const std::array<std::uint64_t, 8> many{1, 2, 3, 4, 5, 6, 7, 8};
  const tensor_id a = m.run({.outputs = {unit}}, [many](call& c) { put(c.out(0), many[7]); });
  auto owned = std::make_unique<std::uint64_t>(4);
  const tensor_id b =
      m.run({.outputs = {unit}}, [p = std::move(owned)](call& c) { put(c.out(0), *p); });
  squeeze(m, 4);
  CHECK(read(m, a) == 8);
  CHECK(read(m, b) == 4);
}
