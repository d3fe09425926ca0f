// An output in the block of an input: the old version lives on as a record or as a host copy, and a
// replay has two blocks.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "delta/detail/runtime/run_in_place.hpp"
#include "delta/presets.hpp"
#include "delta/testing/replay_check.hpp"
#include "machine.hpp"
#include "storage_check.hpp"

using namespace delta;
using namespace delta::test;

namespace {

// Adds to an input in place; in a replay beside it.
auto adds_in_place(std::uint64_t n) {
  return [=](call& c) { put(c.out(0), number(c.in(0)) + n); };
}
template <class Manager, class Kernel>
tensor_id in_place(Manager& m, tensor_id x, const Kernel& kernel) {
  auto op = m.begin({.inputs = {x}, .name = "in place"});
  CHECK(op.replace(x) == 0);
  call c = op.arguments();
  CHECK(c.in(0) == c.out(0));
  CHECK(!c.replaying());
  kernel(c);
  return op.end(kernel);
}

}  // namespace

TEST_CASE("replace: no room is taken, and both versions can be made again") {
  machine it(2, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id x = m.run({.outputs = {unit}}, gives(5));
  CHECK(m.recomputable(x));
  const tensor_id y = in_place(m, x, adds_in_place(1));
  CHECK(it.storage.used() == unit);
  CHECK(m.where(x) == residency::evicted);
  CHECK(m.recomputable(x));
  CHECK(m.recomputable(y));
  CHECK(m.counts().replacements == 1);
  CHECK(m.counts().evictions == 0);
  CHECK(read(m, x) == 5);
  CHECK(read(m, y) == 6);
  squeeze(m, 2);
  CHECK(read(m, y) == 6);
  CHECK(read(m, x) == 5);
  m.drop(x);
  squeeze(m, 2);
  CHECK(read(m, y) == 6);  // through the old version, which nobody holds
  m.drop(y);
  CHECK(m.live_records() == 0);
  CHECK(m.live_tensors() == 0);
  CHECK(it.storage.used() == bytes{});
}

TEST_CASE("replace: a chain of operators in place, of which each version is dropped at once") {
  machine it(3, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 1);
  tensor_id x = m.run({.inputs = {v}, .outputs = {unit}}, sums(1));
  for (std::uint64_t i = 0; i < 50; ++i) {
    const tensor_id y = in_place(m, x, adds_in_place(1));
    m.drop(x);
    x = y;
  }
  CHECK(m.counts().recomputes == 0);
  squeeze(m, 2);
  CHECK(m.where(x) == residency::evicted);
  CHECK(read(m, x) == 51);
  CHECK(m.counts().recomputes == 51);
  m.drop(x), m.drop(v);
  CHECK(m.live_tensors() == 0);
}

TEST_CASE("replace: what was computed from the old version stays right") {
  machine it(3, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id x = m.run({.outputs = {unit}}, gives(5));
  const tensor_id z = m.run({.inputs = {x}, .outputs = {unit}}, sums(1, 10));
  squeeze(m, 3);
  const tensor_id y = in_place(m, x, adds_in_place(1));
  m.drop(x);
  squeeze(m, 3);
  CHECK(read(m, z) == 15);
  CHECK(read(m, y) == 6);
}

namespace {

// Copies out all that has no copy.
struct copies_all {
  static tensor_id next(const context&) noexcept { return tensor_id::none; }
  static tensor_id copy_ahead(const context& c) {
    for (const tensor_id t : c.candidates())
      if (!c.is_clean(t) && !c.is_copying(t)) return t;
    return tensor_id::none;
  }
};
// Takes what is on the host from there.
struct reloads_all {
  static action decide(const context&, tensor_id) noexcept { return action::evict; }
  static restoration restore(const context&, tensor_id) noexcept { return restoration::reload; }
};

}  // namespace

TEST_CASE("replace: a host copy of the old version stays valid, also one that is being made") {
  for (const double rate : {1e12, 1e3}) {
    CAPTURE(rate);
    machine it(4, 4, copy_rates{.out = rate, .in = 1e12});
    manager m{policy{lru{}, reloads_all{}, copies_all{}}, it.storage};
    const tensor_id x = m.run({.outputs = {unit}}, gives(5));
    m.run<0>({}, [](call&) {});
    CHECK(m.counts().copies_ahead == 1);
    const tensor_id y = in_place(m, x, adds_in_place(1));
    CHECK(m.where(x) == residency::host);
    CHECK(read(m, x) == 5);
    CHECK(m.counts().recomputes == 0);
    CHECK(m.counts().reloads == 1);
    CHECK(read(m, y) == 6);
    m.drop(x), m.drop(y);
    CHECK(m.live_tensors() == 0);
    CHECK(it.storage.used() == bytes{});
    CHECK(it.storage.host_used() == bytes{});
  }
}

TEST_CASE("replace: given up after the kernel has written, the old version is made again") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id x = m.run({.outputs = {unit}}, gives(5));
  for (const bool shown : {false, true}) {
    try {
      auto op = m.begin({.inputs = {x}, .name = "fails"});
      std::byte* const before = shown ? op.arguments().in(0) : nullptr;
      op.replace(x);
      call c = op.arguments();
      if (shown) CHECK(c.in(0) == before);
      put(c.out(0), 666);
      throw std::runtime_error("half way");
    } catch (const std::runtime_error&) {
    }
    CHECK(m.where(x) == residency::evicted);
    CHECK(it.storage.used() == bytes{});
    CHECK(read(m, x) == 5);
  }
  CHECK(m.counts().operators == 1);
  CHECK(check_invariants(it.storage) == "");
}

TEST_CASE("replace: several times among the inputs, with other outputs, in any order") {
  machine it(8, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id a = m.run({.outputs = {unit}}, gives(5));
  const tensor_id b = m.run({.outputs = {unit}}, gives(7));
  auto op = m.begin({.inputs = {a, b, a}, .outputs = {unit}, .name = "mixed"});
  std::byte* const at = op.arguments().in(0);
  CHECK(op.replace(a) == 1);
  CHECK(op.allocate(unit) == 2);
  CHECK(op.replace(b) == 3);
  op.workspace(unit);
  const auto kernel = [](call& c) {
    const std::uint64_t x = number(c.in(0)), y = number(c.in(1)), z = number(c.in(2));
    put(c.workspace(), x + y);
    put(c.out(0), number(c.workspace()));
    put(c.out(1), x * z);
    put(c.out(2), x + z);
    put(c.out(3), y * y);
  };
  call c = op.arguments();
  CHECK(c.in(0) == at);
  CHECK(c.in(2) == at);
  CHECK(c.out(1) == at);
  kernel(c);
  std::array<tensor_id, 4> ids{};
  op.end(ids, kernel);
  m.drop(a);
  for (int i = 0; i < 2; ++i) {
    CHECK(read(m, ids[0]) == 12);
    CHECK(read(m, ids[1]) == 25);
    CHECK(read(m, ids[2]) == 10);
    CHECK(read(m, ids[3]) == 49);
    squeeze(m, 8);
  }
  CHECK(read(m, b) == 7);
}

TEST_CASE("replace: what is no input, updated, held, pinned, or without a record is refused") {
  machine it(8, 8);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 1);
  const tensor_id x = m.run({.outputs = {unit}}, gives(5));
  const tensor_id pinned = m.run({.outputs = {unit}}, gives(6));
  const tensor_id held = m.run({.outputs = {unit}}, gives(7));
  const tensor_id other = m.run({.outputs = {unit}}, gives(8));
  m.forbid(pinned, pin::evict);
  CHECK(!m.recomputable(v));
  const auto view = m.acquire(held);
  {
    auto op = m.begin({.inputs = {v, x, pinned, held}, .updates = {v}, .traits = trait::pure});
    CHECK_THROWS_AS(op.replace(v), misuse);
    CHECK_THROWS_AS(op.replace(pinned), misuse);
    CHECK_THROWS_AS(op.replace(held), misuse);
    CHECK_THROWS_AS(op.replace(other), misuse);
    CHECK_THROWS_AS(op.replace(static_cast<tensor_id>(99)), unknown_tensor);
    CHECK(op.replace(x) == 0);
    CHECK_THROWS_AS(op.replace(x), misuse);
  }
  CHECK(number(view.data()) == 7);
  CHECK(read(m, x) == 5);
  m.end_of_step();
  CHECK(!m.recomputable(x));
  auto op = m.begin({.inputs = {x}});
  CHECK_THROWS_AS(op.replace(x), misuse);
}

TEST_CASE("replace: an operator that is never replayed, and one that updates beside") {
  machine it(4, 4);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 1);
  const tensor_id x = m.run({.outputs = {unit}}, gives(5));
  tensor_id y{};
  {
    auto op = m.begin({.inputs = {x}, .updates = {v}, .traits = trait::never_replay});
    op.replace(x);
    call c = op.arguments();
    put(c.update(0), number(c.in(0)));
    put(c.out(0), number(c.in(0)) + 1);
    y = op.end([](call&) { FAIL("it is never replayed"); });
  }
  CHECK(!m.recomputable(y));
  squeeze(m, 4);
  CHECK(read(m, y) == 6);
  CHECK(read(m, v) == 5);
  CHECK(read(m, x) == 5);
}

TEST_CASE("replace: replays are checked with the input's old bytes beside, or not at all") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage, replay_check{}};
  const tensor_id x = m.run({.outputs = {8_B}}, gives(5));
  const tensor_id y = in_place(m, x, adds_in_place(1));
  CHECK(m.counts().replays_checked == 2);
  CHECK(read(m, y) == 6);
  CHECK(read(m, x) == 5);
  m.drop(x);
  // A kernel that relies on both being one.
  auto op = m.begin({.inputs = {y}, .name = "forgets to copy"});
  op.replace(y);
  call c = op.arguments();
  const auto kernel = [](call& k) { put(k.out(0), number(k.out(0)) + 1); };
  kernel(c);
  try {
    (void)op.end(kernel);
    FAIL("it differs");
  } catch (const replay_differs& e) {
    CHECK(e.where.what == replay_difference::output);
  }
  CHECK(number(op.arguments().out(0)) == 7);
  const tensor_id z = op.end([](call& k) { put(k.out(0), number(k.in(0)) + 1); });
  CHECK(read(m, z) == 7);
  squeeze(m, 4);
  CHECK(read(m, z) == 7);
}

TEST_CASE("replace: where there is no room for the old bytes the replay is not checked") {
  machine it(2, 0);
  manager m{obeying(says_evict), it.storage, replay_check{}};
  const tensor_id x = m.run({.outputs = {8_B}}, gives(5));
  const auto unchecked = m.counts().replays_unchecked;
  const tensor_id y = in_place(m, x, adds_in_place(1));
  CHECK(m.counts().replays_unchecked == unchecked + 1);
  CHECK(read(m, y) == 6);
  CHECK(read(m, x) == 5);
}

TEST_CASE("replace: a budget that an error names holds the replay's second block") {
  // Two units do for the first run; a replay of y takes x beside it.
  machine it(2, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 5);
  tensor_id x = m.run({.inputs = {v}, .outputs = {unit}}, sums(1));
  const tensor_id y = in_place(m, x, adds_in_place(1));
  m.drop(x);
  squeeze(m, 1);
  try {
    (void)read(m, y);
    FAIL("v, x and y take three units");
  } catch (const budget_exceeded& e) {
    CHECK(e.report.smallest_budget >= unit * 3);
  }
  m.drop(y);
  CHECK(m.live_records() == 0);
}

TEST_CASE("replace: what the input is made from stays until the operator has ended") {
  machine it(8, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id s = variable_of(m, 7);
  const auto copy = [](call& c) { put(c.out(0), number(c.in(0))); };
  const tensor_id a = m.run({.inputs = {s}, .outputs = {unit}}, copy);
  const tensor_id t = m.run({.inputs = {a}, .outputs = {unit}}, copy);
  m.drop(s), m.drop(a);
  for (const bool ends : {false, true}) {
    CAPTURE(ends);
    std::array<tensor_id, 2> made{};
    {
      const tensor_id x = m.run({.inputs = {t}, .outputs = {unit}}, copy);
      auto op = m.begin({.inputs = {x}, .name = "in place"});
      op.replace(x);
      m.drop(x);
      op.allocate(unit * 2);  // what is kept for replays alone goes first, but for this
      const auto adds = adds_in_place(1);
      call c = op.arguments();
      adds(c);
      if (!ends) continue;
      op.end(made, adds);
    }
    CHECK(m.recomputable(made[0]));
    squeeze(m, 7);  // the source stays
    CHECK(m.where(made[0]) == residency::evicted);
    CHECK(read(m, made[0]) == 8);
    m.drop(made[0]), m.drop(made[1]);
  }
  m.drop(t);
  CHECK(m.live_tensors() == 0);
  CHECK(m.live_records() == 0);
  CHECK(it.storage.used() == bytes{});
}

TEST_CASE("replace: many inputs of one operator") {
  machine it(600, 0);
  manager m{obeying(says_evict), it.storage};
  std::vector<tensor_id> all;
  for (std::uint64_t i = 0; i < 300; ++i) all.push_back(m.run({.outputs = {unit}}, gives(i)));
  std::vector<tensor_id> made(all.size());
  const auto adds = [n = all.size()](call& c) {
    for (std::size_t i = 0; i < n; ++i) put(c.out(i), number(c.in(n - 1 - i)) + 1);
  };
  auto op = m.begin(operation_span{.inputs = all, .name = "foreach"});
  const tensor_id twice[] = {all[0], all[1], all[0]};
  CHECK_THROWS_WITH_AS(op.replace(twice), "replace: it is in the list twice", misuse);
  CHECK(m.counts().replacements == 0);
  for (std::size_t i = all.size(); i > 150; --i) CHECK(op.replace(all[i - 1]) == all.size() - i);
  // The others at once, in the same order.
  const std::vector<tensor_id> rest(all.rend() - 150, all.rend());
  CHECK(op.replace(rest) == 150);
  call c = op.arguments();
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(c.out(i) == c.in(all.size() - 1 - i));
  adds(c);
  op.end(made, adds);
  for (const tensor_id t : all) m.drop(t);
  squeeze(m, 600);
  for (std::size_t i = 0; i < made.size(); ++i) CHECK(read(m, made[i]) == all.size() - i);
}

TEST_CASE("in place of what can't be made again it is updated, and the output shares it") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 7), w = variable_of(m, 1);
  const std::vector<tensor_id> inputs{v, w}, old{v};
  std::vector<tensor_id> made;
  std::size_t updates = 0;
  detail::run_in_place(m, {.inputs = inputs}, old, made, [&](call& c) {
    updates = c.updates();
    if (updates == 1) put(c.update(0), number(c.update(0)) + number(c.in(0)));
  });
  CHECK(updates == 1);
  REQUIRE(made.size() == 1);
  m.drop(v);
  CHECK(read(m, made[0]) == 8);
}

TEST_CASE("replace: where nothing is ever made again it is the old version's last use") {
  machine it(3, 0);
  manager m{unmanaged(), it.storage};
  const tensor_id v = variable_of(m, 1);
  const tensor_id x = m.run({.inputs = {v}, .outputs = {unit}}, sums(1, 4));
  CHECK(!m.recomputable(x));
  const tensor_id y = in_place(m, x, adds_in_place(1));
  CHECK(it.storage.used() == unit * 2);
  CHECK(read(m, y) == 6);
  CHECK(m.where(x) == residency::dead);
  const char* const gone = "a tensor that was replaced and can't be recomputed can only be dropped";
  CHECK_THROWS_WITH_AS((void)m.acquire(x), gone, misuse);
  CHECK_THROWS_WITH_AS(m.run({.inputs = {x}, .outputs = {unit}}, sums(1)), gone, misuse);
  CHECK_THROWS_WITH_AS((void)m.begin({.updates = {x}}), gone, misuse);
  m.end_of_step();
  CHECK(m.where(x) == residency::dead);
  m.drop(x);
  CHECK(read(m, y) == 6);

  // A variable, what is a variable since the step has ended, and what is shared are updates.
  const tensor_id z = m.run({.inputs = {v}, .outputs = {unit}}, sums(1, 7));
  m.share(z);
  {
    auto op = m.begin({.inputs = {v, y, z}, .name = "refused"});
    for (const tensor_id t : {v, y, z}) CHECK_THROWS_AS(op.replace(t), misuse);
    m.drop(z);
    CHECK(op.replace(z) == 0);
  }
  CHECK(m.where(z) == residency::dead);  // also where the operator is given up
  for (const tensor_id t : {v, y, z}) m.drop(t);
  CHECK(m.live_tensors() == 0);
  CHECK(it.storage.used() == bytes{});
}

TEST_CASE("replace: a host copy of what can't be made again is kept, also of what is shared") {
  machine it(4, 4);
  manager m{policy{lru{}, offload_only{}, copies_all{}}, it.storage};
  const tensor_id x = m.run({.outputs = {unit}}, gives(5));
  m.run<0>({}, [](call&) {});
  m.share(x);
  const tensor_id y = in_place(m, x, adds_in_place(1));
  CHECK(m.where(x) == residency::host);
  CHECK(read(m, x) == 5);
  CHECK(read(m, y) == 6);
}

namespace {
struct failing_ear : arena<immediate> {
  using arena::arena;
  int left = -1;
  void on_owner_changed(const block&, tensor_id) {
    if (left >= 0 && left-- == 0) throw std::runtime_error("on_owner_changed");
  }
};
}  // namespace

TEST_CASE("replace and adoption: a storage that can't hear of owners loses no block") {
  immediate device;
  failing_ear storage{device, {.capacity = unit * 8}};
  {
    manager m{obeying(says_evict), storage};
    const tensor_id x = m.run({.outputs = {unit}}, gives(1));
    auto op = m.begin({.inputs = {x}});
    storage.left = 0;
    CHECK_THROWS_WITH(op.replace(x), "on_owner_changed");
  }
  CHECK(storage.used() == bytes{});
  {
    manager m{obeying(says_evict), storage};
    block b = m.take_block(unit);
    const std::uint32_t row = b.index();
    storage.left = 0;
    CHECK_THROWS_WITH((void)m.variable(unit, "w", std::move(b)), "on_owner_changed");
    m.give_back(block{b ? b.index() : row});  // as through the functions of C
  }
  CHECK(storage.used() == bytes{});
}

TEST_CASE("a storage that fails poisons the manager, also after a kernel that failed") {
  immediate device;
  failing_ear storage{device, {.capacity = unit * 8}};
  manager m{obeying(says_evict), storage};
  const auto fails = [](call&) { throw std::runtime_error("kernel"); };
  CHECK_THROWS_WITH((void)m.run({.outputs = {unit}}, fails), "kernel");
  m.drop(m.variable(unit));
  storage.left = 0;
  CHECK_THROWS_WITH((void)m.variable(unit), "on_owner_changed");
  CHECK_THROWS_AS((void)m.variable(unit), poisoned);
}
