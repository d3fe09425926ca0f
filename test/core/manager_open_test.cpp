// Operators that the program begins and ends, learning sizes on the way: what they leave is what
// `run` leaves; what is given up leaves nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "machine.hpp"
#include "random_program.hpp"
#include "storage_check.hpp"

using namespace delta;
using namespace delta::test;

TEST_CASE("open: an output is made on the way, and made again when it was evicted") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 7);
  auto op = m.begin({.inputs = {v}, .name = "sum"});
  CHECK(op.allocate(unit) == 0);
  op.workspace(unit);
  const auto kernel = [](call& c) {
    put(c.workspace(), number(c.in(0)) + 1);
    put(c.out(0), number(c.workspace()));
  };
  call c = op.arguments();
  kernel(c);
  CHECK(!c.replaying());
  CHECK(it.storage.used() == unit * 3);
  const tensor_id y = op.end(kernel);
  CHECK(it.storage.used() == unit * 2);  // the workspace went
  CHECK(m.counts().operators == 1);
  CHECK(read(m, y) == 8);
  squeeze(m, 3);
  CHECK(m.where(y) == residency::evicted);
  CHECK(read(m, y) == 8);
  CHECK(m.counts().recomputes == 1);
  m.drop(y);
  CHECK(m.live_records() == 0);
}

TEST_CASE(
    "open: ended without a kernel, an output can leave for the host, and is never made again") {
  const auto made_of = [](auto& m, tensor_id v) {
    auto op = m.begin({.inputs = {v}, .name = "found out late"});
    op.allocate(unit);
    put(op.arguments().out(0), 8);
    tensor_id y{};
    op.end(std::span(&y, 1));
    return y;
  };
  SUBCASE("with a host") {
    machine it(4, 4);
    manager m{obeying(says_offload), it.storage};
    const tensor_id y = made_of(m, variable_of(m, 7));
    CHECK(!m.recomputable(y));
    squeeze(m, 4);
    CHECK(m.where(y) == residency::host);
    CHECK(read(m, y) == 8);
  }
  SUBCASE("where tensors are only evicted") {
    machine it(4, 0);
    manager m{obeying(says_evict), it.storage};
    const tensor_id y = made_of(m, variable_of(m, 7));
    CHECK(m.live_records() == 0);
    CHECK_THROWS_AS(squeeze(m, 3), budget_exceeded);
    CHECK(m.where(y) == residency::resident);
    CHECK(read(m, y) == 8);
  }
  SUBCASE("behind an input whose block it has taken over") {
    machine it(4, 0);
    manager m{obeying(says_evict), it.storage};
    const tensor_id v = variable_of(m, 7), x = m.run({.inputs = {v}, .outputs = {unit}}, gives(9));
    auto op = m.begin({.inputs = {x}});
    op.replace(x);
    put(op.arguments().out(0), 8);
    tensor_id y{};
    op.end(std::span(&y, 1));
    CHECK(read(m, y) == 8);
    CHECK(!m.recomputable(y));
    CHECK(read(m, x) == 9);  // made again
  }
}

TEST_CASE("open: several outputs, some known from the beginning, addresses that stay") {
  machine it(6, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 1);
  auto op = m.begin({.inputs = {v}, .outputs = {unit}});
  std::byte* const in = op.arguments().in(0);
  std::byte* const first = op.arguments().out(0);
  CHECK(op.allocate(unit * 2) == 1);
  CHECK(op.allocate(unit) == 2);
  CHECK(op.arguments().in(0) == in);
  CHECK(op.arguments().out(0) == first);
  const auto kernel = sums(1, 10, 3);
  call c = op.arguments();
  kernel(c);
  std::array<tensor_id, 3> ids{};
  std::array<tensor_id, 2> too_few{};
  CHECK_THROWS_AS(op.end(too_few, kernel), misuse);
  op.end(ids, kernel);
  squeeze(m, 5);
  CHECK(read(m, ids[2]) == 31);
  CHECK(read(m, ids[1]) == 21);
  CHECK(read(m, ids[0]) == 11);
}

TEST_CASE("open: any number of workspaces, which a replay sees one by one, too") {
  machine it(8, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 7);
  auto op = m.begin({.inputs = {v}, .workspace = bytes{1}, .name = "several"});
  CHECK(op.workspace(unit) == 1);
  const std::byte* const first = op.arguments().workspace(1);  // from here on it stays
  CHECK(op.allocate(unit) == 0);
  CHECK(op.workspace(unit) == 2);
  std::size_t seen = 0;
  const auto kernel = [&seen](call& c) {
    seen = c.workspaces();
    *c.workspace(0) = std::byte{1};
    put(c.workspace(1), number(c.in(0)) + 1);
    put(c.workspace(2), number(c.workspace(1)) + 1);
    put(c.out(0),
        number(c.workspace(1)) + number(c.workspace(2)) + static_cast<unsigned>(*c.workspace(0)));
  };
  call c = op.arguments();
  CHECK(c.workspace(1) == first);
  CHECK(c.workspace(3) == nullptr);
  kernel(c);
  CHECK(it.storage.used() == unit * 5);
  const tensor_id y = op.end(kernel);
  CHECK(it.storage.used() == unit * 2);
  CHECK(read(m, y) == 18);
  squeeze(m, 7);
  CHECK(m.where(y) == residency::evicted);
  seen = 0;
  CHECK(read(m, y) == 18);
  CHECK(seen == 3);
  CHECK(m.counts().recomputes == 1);
  CHECK(check_invariants(it.storage) == "");
}

TEST_CASE("open: given up, it leaves nothing, and its number to the next") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 7);
  const bytes before = it.storage.used();
  std::uint64_t number_of_first = 0;
  try {
    auto op = m.begin({.inputs = {v}});
    op.allocate(unit);
    op.workspace(unit);
    number_of_first = op.arguments().sequence();
    throw std::runtime_error("half way");
  } catch (const std::runtime_error&) {
  }
  CHECK(it.storage.used() == before);
  CHECK(check_invariants(it.storage) == "");
  CHECK(m.counts().operators == 0);
  CHECK(m.live_tensors() == 1);
  auto op = m.begin({.inputs = {v}});
  CHECK(op.arguments().sequence() == number_of_first);
  op.allocate(unit);
  m.drop(v);  // still locked, still there
  CHECK(number(op.arguments().in(0)) == 7);
  call c = op.arguments();
  sums(1)(c);
  const tensor_id y = op.end(sums(1));
  squeeze(m, 3);
  CHECK(read(m, y) == 7);  // from a source that the program has dropped
}

TEST_CASE("open: nothing else runs meanwhile") {
  machine it(4, 4);
  manager m{online(), it.storage};
  const tensor_id v = variable_of(m, 7);
  {
    auto op = m.begin({.inputs = {v}});
    CHECK_THROWS_AS((void)m.begin({.inputs = {v}}), misuse);
    CHECK_THROWS_AS(m.run<0>({}, [](call&) {}), misuse);
    CHECK_THROWS_AS((void)m.acquire(v), misuse);
    CHECK_THROWS_AS((void)m.variable(unit), misuse);
    CHECK_THROWS_AS((void)m.constant(unit), misuse);
    CHECK_THROWS_AS(m.end_of_step(), misuse);
    m.make_room(unit);
    m.drop(m.share(v));
    m.forbid(v, pin::offload);
    CHECK(op.workspace(unit) == 0);
    CHECK(number(op.arguments().in(0)) == 7);
    const auto moved = std::move(op);
  }
  m.end_of_step();
  CHECK(read(m, v) == 7);
}

TEST_CASE("open: no room for an output; with some released it goes on") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 7);
  const tensor_id w = m.variable(unit * 2);
  auto op = m.begin({.inputs = {v}, .name = "grower"});
  op.allocate(unit);
  std::string said;
  try {
    op.allocate(unit * 2);
  } catch (const budget_exceeded& e) {
    said = e.what();
    CHECK(e.report.smallest_budget == unit * 6);
  }
  CHECK(said.starts_with(
      "operator 'grower' needs 128 bytes more, but 256 bytes of the budget of 256 "));
  m.drop(w);
  CHECK(op.allocate(unit * 2) == 1);
  call c = op.arguments();
  sums(1, 1, 2)(c);
  std::array<tensor_id, 2> ids{};
  op.end(ids, sums(1, 1, 2));
  CHECK(read(m, ids[1]) == 9);
  // What is known at the beginning and has no room: nothing is open afterwards.
  CHECK_THROWS_AS((void)m.begin({.inputs = {v}, .outputs = {unit, unit * 4}}), budget_exceeded);
  CHECK(read(m, v) == 7);
  CHECK(check_invariants(it.storage) == "");
}

TEST_CASE("open: outputs that are allocated together are the operator's own to an error") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 7);
  auto op = m.begin({.inputs = {v}});
  op.allocate(std::array{unit, unit});
  try {
    op.allocate(unit * 2);
    FAIL_CHECK("there is no room");
  } catch (const budget_exceeded& e) {
    CHECK(e.report.smallest_budget == unit * 5);
    CHECK(e.report.foreign == bytes{});
  }
}

TEST_CASE("open: an input that is updated, too, is no output's block") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 7);
  const tensor_id y = m.run({.inputs = {v}, .outputs = {unit}}, sums(1, 1));
  auto op = m.begin({.inputs = {y}, .updates = {y}});
  CHECK_THROWS_WITH_AS((void)op.replace(y), "replace: it is updated", misuse);
}

namespace {
struct hears_ends : no_prefetch {
  std::vector<std::size_t>* made;  // by each operator that has ended
  void end_of_operator(const context& c) const { made->push_back(c.ended().outputs.size()); }
};
}  // namespace

TEST_CASE("open: a policy is told of no outputs of an operator that was given up") {
  machine it(4, 0);
  std::vector<std::size_t> made;
  manager m{lru{}, evict_only{}, hears_ends{{}, &made}, it.storage};
  m.drop(m.run({.outputs = {unit}}, gives(1)));
  {
    auto op = m.begin({.name = "given up"});
    op.allocate(unit);
  }
  CHECK(made == std::vector<std::size_t>{1, 0});
}

TEST_CASE("a policy that is asked for room sees no operator that has ended") {
  struct sees_ended {
    std::string* name;
    action decide(const context& c, tensor_id) const {
      *name = c.ended().name;
      return action::evict;
    }
  };
  machine it(4, 0);
  std::string name = "not asked";
  manager m{lru{}, sees_ended{&name}, no_prefetch{}, it.storage};
  const tensor_id made = m.run({.outputs = {unit}, .name = "maker"}, gives(1));
  m.make_room(unit * 4);
  CHECK(m.where(made) == residency::evicted);
  CHECK(name.empty());
}

TEST_CASE("open: an update in place makes a new version") {
  machine it(6, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 7);
  const tensor_id y = m.run({.inputs = {v}, .outputs = {unit}}, sums(1, 1));
  squeeze(m, 5);
  CHECK(m.where(y) == residency::evicted);
  {
    auto op = m.begin({.updates = {v}});
    call c = op.arguments();
    adds(100)(c);
    op.end({}, adds(100));
  }
  CHECK(read(m, v) == 107);
  CHECK(read(m, y) == 8);
  CHECK(m.live_records() == 0);  // y can't be made again
}

TEST_CASE("open: what an open operator cost is what making it again costs") {
  simulated storage({.capacity = unit * 4, .host_capacity = unit * 8, .granularity = 64});
  double found = 0;
  struct ask {
    double* found;
    double score(const context& c, tensor_id t) const {
      if (c.can_recompute(t)) *found = c.recompute_cost(t);
      return 0;
    }
  };
  manager m{ask{&found}, evict_only{}, no_prefetch{}, storage};
  auto op = m.begin({.cost = nanoseconds{30}});
  op.allocate(unit);
  op.allocate(unit);
  std::array<tensor_id, 2> ids{};
  op.end(ids, [](call&) {});
  m.make_room(unit * 3);
  CHECK(found == 30);
  CHECK(storage.capacity() - storage.used() >= unit * 3);
}

TEST_CASE("open: free bytes in pieces are joined until addresses are known") {
  machine it(5, 0);
  manager m{obeying(says_evict), it.storage};
  std::array<tensor_id, 5> v{};
  for (tensor_id& t : v) t = m.variable(unit);
  auto op = m.begin({.inputs = {v[1], v[3]}, .name = "holder"});
  for (const std::size_t i : {0u, 2u, 4u}) m.drop(v[i]);
  op.allocate(unit * 2);  // nobody has seen an address: blocks are moved together
  CHECK(it.storage.moves() > 0);
}

TEST_CASE("open: free bytes in pieces that can't be joined are told as that") {
  machine it(5, 0);
  manager m{obeying(says_evict), it.storage};
  std::array<tensor_id, 5> v{};
  for (tensor_id& t : v) t = m.variable(unit);
  auto op = m.begin({.inputs = {v[1], v[3]}, .name = "holder"});
  CHECK(op.arguments().in(0) != nullptr);
  for (const std::size_t i : {0u, 2u, 4u}) m.drop(v[i]);
  std::string said;
  try {
    op.allocate(unit * 2);
  } catch (const budget_exceeded& e) {
    said = e.what();
    CHECK(e.report.largest_hole == unit);
    CHECK(e.report.what == shortage::one_piece);
    CHECK(e.report.held == 2);
  }
  CHECK(said ==
        "operator 'holder' needs 128 bytes in one piece; 192 bytes of the budget of 320 bytes are "
        "free, but in pieces of at most 64 bytes; held in place: tensor 1 (variable, 64 bytes), "
        "tensor 3 (variable, 64 bytes); addresses that were shown keep blocks in place: call "
        "allocate before arguments, or name outputs in begin, or let go of views; smallest budget "
        "known to work: 512 bytes, with which nothing has to leave; less may do");
}

TEST_CASE("open: random programs leave what plain evaluation leaves") {
  for (const manner how : {manner::open, manner::looking}) {
    int passed = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
      CAPTURE(seed);
      const program p = random_program(seed, {.largest = 200, .updates_made = true});
      const auto expected = evaluate(p);
      const bytes budget = round_up(bytes{largest_footprint(p, 64).count * 3 / 2}, 64);
      immediate device;
      arena<immediate> storage(device, {.capacity = budget, .host_capacity = 1_MiB});
      {
        manager m{online(), storage};
        try {
          CHECK(run_program(
                    m, p, run_now{}, [&] { CHECK(check_invariants(storage) == ""); }, how) ==
                expected);
          ++passed;
        } catch (const budget_exceeded& e) {
          CHECK(std::string_view(e.what()).find("in one piece") != std::string_view::npos);
        }
      }
      CHECK(storage.used() == bytes{});
      CHECK(storage.host_used() == bytes{});
    }
    CHECK(passed >= (how == manner::open ? 200 : 180));
  }
}

namespace {

/// A prefetcher that releases everything early, and copies out ahead whatever is a candidate.
struct eager : no_prefetch {
  const tensor_id* last;  // what it names behind the candidates, held or not
  double early_release_bytes(const context& c) const { return c.used(); }
  tensor_id copy_ahead(const context& c) const {
    for (const tensor_id t : c.candidates())
      if (!c.is_held(t) && !c.is_clean(t)) return t;
    return *last;
  }
};
static_assert(detail::has_early_release_bytes<eager> && detail::has_copy_ahead<eager>);

}  // namespace

TEST_CASE("asynchronous: what the kernel writes behind the operator's end is what is read") {
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    machine it(8, 8);
    tensor_id named = tensor_id::none;
    manager m{lru{}, offload_only{}, eager{{}, &named}, it.storage};
    const tensor_id v = variable_of(m, 7);
    const trait traits = trait::never_replay | (asynchronous ? trait::asynchronous : trait::pure);
    auto op = m.begin({.inputs = {v}, .traits = traits, .name = "collective"});
    op.allocate(unit);
    put(op.arguments().out(0), 1);
    tensor_id y{};
    op.end(std::span(&y, 1));
    const auto left = [&] { return m.counts().offloads + m.counts().copies_ahead; };
    CHECK((left() == 0) == asynchronous);
    if (!asynchronous) continue;
    {
      const auto of_input = m.acquire(v);
      auto held = m.acquire(y);
      named = y;
      CHECK(read(m, m.run({.outputs = {unit}}, gives(3))) == 3);  // with idle work behind it
      put(held.data(), 8);
      CHECK(left() > 0);
      CHECK(m.counts().copies_ahead == 0);
      CHECK(m.where(v) == residency::resident);
    }
    squeeze(m, 8);
    CHECK(m.where(y) == residency::host);
    CHECK(read(m, y) == 8);
  }
}
