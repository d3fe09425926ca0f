// The presets are what they are called: their parts, pinned; and what tells `paper` from its
// neighbours.
// ctest-labels: long_sanitized
#include "delta/presets.hpp"

#include <doctest/doctest.h>

#include <concepts>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "delta/detail/runtime/contiguous_release.hpp"
#include "delta/policy_names.hpp"
#include "delta/with_preset.hpp"
#include "machine.hpp"

using namespace delta;
using namespace delta::test;

namespace {

template <class Policy, class H, class D, class P>
constexpr bool is_made_of = std::same_as<Policy, policy<H, D, P>>;

static_assert(is_made_of<decltype(unmanaged()), base, never_release, no_prefetch>);
static_assert(is_made_of<decltype(paper()), base, paper_director, fifo_prefetch>);
static_assert(is_made_of<decltype(recompute_only()), dtr, evict_only, no_prefetch>);
static_assert(is_made_of<decltype(online()), cheapest_way_root, cheaper, no_prefetch>);
static_assert(is_made_of<decltype(swap_lru()), lru, offload_only, no_prefetch>);

/// What a name stands for, by its type.
template <class Expected>
void check_found(std::string_view name, const Expected&) {
  CAPTURE(name);
  bool same = false;
  CHECK(with_preset(name, [&](auto p) { same = std::same_as<decltype(p), Expected>; }));
  CHECK(same);
}

}  // namespace

TEST_CASE("a preset's name stands for that preset and no other") {
  check_found("unmanaged", unmanaged());
  check_found("paper", paper());
  check_found("dtr", recompute_only());
  check_found("online", online());
  check_found("adaptive", adaptive());
  check_found("swap_lru", swap_lru());
  CHECK(named_policies.size() == 6);
  CHECK(!with_preset("vdnn", [](const auto&) { FAIL("called"); }));
}

TEST_CASE("paper: equation (1), the biggest of the stale ones, not (2), the stalest") {
  machine it(10, 0);
  manager m{paper(), it.storage};
  const tensor_id small = m.run({.outputs = {unit}}, gives(1));
  const tensor_id big = m.run({.outputs = {unit * 4}}, gives(2));
  CHECK(it.storage.used() == unit * 5);
  // Over three quarters of the budget: (1) weighs m s, 1 x 2 against 4 x 1.
  const tensor_id last = m.run({.outputs = {unit * 3}}, gives(3));
  CHECK(m.where(big) == residency::evicted);
  CHECK(m.where(small) == residency::resident);
  CHECK(m.where(last) == residency::resident);
  // The stalest one is what lru takes.
  machine other(10, 0);
  manager l{lru{}, paper_director{}, fifo_prefetch{}, other.storage};
  const tensor_id stale = l.run({.outputs = {unit}}, gives(1));
  (void)l.run({.outputs = {unit * 4}}, gives(2));
  (void)l.run({.outputs = {unit * 3}}, gives(3));
  CHECK(l.where(stale) == residency::evicted);
}

TEST_CASE("what came back early and was not used yet leaves after all others") {
  struct on_request : no_prefetch {
    const bool* wanted;
    tensor_id next(const context& c) const noexcept {
      return *wanted && !c.offloaded().empty() ? c.offloaded().front() : tensor_id::none;
    }
  };
  bool wanted = false;
  machine it(3, 3);
  manager m{lru{}, offload_only{}, on_request{{}, &wanted}, it.storage};
  const tensor_id a = variable_of(m, 1), b = variable_of(m, 2);
  squeeze(m, 2);  // the stalest goes
  REQUIRE(m.where(a) == residency::host);
  wanted = true;
  m.run<0>({.inputs = {b}}, [](call&) {});
  wanted = false;
  REQUIRE(detail::on_device(m.where(a)));
  REQUIRE(m.counts().prefetches == 1);
  // It is still the stalest, but nobody has had anything of it.
  squeeze(m, 2);
  CHECK(detail::on_device(m.where(a)));
  CHECK(m.where(b) == residency::host);
  // Used, it is one like the others; and what is needed goes in the end, fresh or not.
  m.run<0>({.inputs = {a}}, [](call&) {});
  squeeze(m, 3);
  CHECK(m.where(a) == residency::host);
  CHECK(read(m, a) == 1);
  CHECK(read(m, b) == 2);
}

namespace {
struct offload_first {
  action decide(const context&, tensor_id) const { return action::offload; }
};
}  // namespace

TEST_CASE("a host full of what can be computed again makes room for what can't") {
  machine it(2, 1);
  manager m{lru{}, offload_first{}, no_prefetch{}, it.storage};
  const tensor_id v = m.variable(unit);
  const tensor_id a = m.run({.outputs = {unit}}, gives(7));
  m.run<0>({.inputs = {v}}, [](call&) {});
  const tensor_id b = m.run({.outputs = {unit}}, gives(8));
  REQUIRE(m.where(a) == residency::host);
  const tensor_id c = m.run({.inputs = {b}, .outputs = {unit}}, gives(9));
  CHECK(m.where(v) == residency::host);
  CHECK(m.where(a) == residency::evicted);
  CHECK(read(m, c) == 9);
  m.drop(b), m.drop(c);
  CHECK(read(m, a) == 7);
}

TEST_CASE("what is cheapest to make again, by its size, gives up its room on the host") {
  machine it(4, 3);
  manager m{lru{}, offload_first{}, no_prefetch{}, it.storage};
  const tensor_id v = m.variable(unit);
  const auto made = [&](std::uint64_t units, int ns) {
    return m.run({.outputs = {unit * units}, .cost = nanoseconds{ns}}, gives(7));
  };
  const tensor_id small = made(1, 10), large = made(2, 12);
  const tensor_id c = m.run({.inputs = {v}, .outputs = {unit * 3}}, gives(8));
  REQUIRE(m.where(small) == residency::host);
  REQUIRE(m.where(large) == residency::host);
  m.run({.inputs = {c}, .outputs = {unit}}, gives(9));
  CHECK(m.where(v) == residency::host);
  CHECK(m.where(small) == residency::host);
  CHECK(m.where(large) == residency::evicted);
}

TEST_CASE("for what an operator reads nobody on the host gives way, as it can't leave anyway") {
  machine it(2, 1);
  manager m{lru{}, offload_first{}, no_prefetch{}, it.storage};
  const tensor_id v = m.variable(unit);
  const tensor_id a = m.run({.outputs = {unit}}, gives(7));
  const tensor_id b = m.run({.inputs = {v}, .outputs = {unit}}, gives(8));
  REQUIRE(m.where(a) == residency::host);
  CHECK_THROWS_AS(m.run({.inputs = {v, b}, .outputs = {unit}}, gives(9)), budget_exceeded);
  CHECK(m.where(a) == residency::host);
}

TEST_CASE("the cheapest window is as narrow as it can be, and costs what leaves in it") {
  struct stretch {
    std::uint64_t size;
    double cost;  // 0: a hole
  };
  const auto leaving = [](std::vector<stretch> all, std::uint64_t size, double limit = never) {
    std::vector<std::uint32_t> rows;
    detail::window_search windows;
    for (const tensor_id t : windows.cheapest(
             bytes{size}, limit,
             [&](const auto& visit) {
               for (std::uint32_t i = 0; i < all.size(); ++i)
                 visit(i, bytes{all[i].size}, all[i].cost > 0);
             },
             [](std::uint32_t row) { return tensor_id{row}; },
             [&](tensor_id t) { return all[index(t)].cost; }))
      rows.push_back(index(t));
    return rows;
  };
  using list = std::vector<std::uint32_t>;
  CHECK(leaving({{1, 0}, {2, 50}, {1, never}, {1, 10}, {1, 0}, {1, 20}}, 3) == list{3, 5});
  CHECK(leaving({{2, 100}, {1, 0}, {3, 60}}, 3) == list{2});
  CHECK(leaving({{3, 60}, {1, 0}, {2, 100}}, 3) == list{0});
  CHECK(leaving({{2, 30}, {2, 30}, {2, 20}}, 4) == list{1, 2});
  CHECK(leaving({{2, 30}, {2, 30}, {2, 20}}, 4, 50).empty());
  CHECK(leaving({{2, 30}, {1, never}, {2, 30}}, 4).empty());
}

TEST_CASE("free bytes lie apart: the cheaper of moving blocks and releasing neighbours") {
  // | a, dropped | b | c, dropped | d |: two units are free, and two are wanted in one piece.
  // Moving one unit takes 64 us; b takes 1 us to make again, or 1 s.
  for (const bool cheap : {true, false}) {
    CAPTURE(cheap);
    machine it(4, 0, copy_rates{.move = 1e6});
    manager m{lru{}, evict_only{}, no_prefetch{}, it.storage};
    const nanoseconds cost{cheap ? 1'000 : 1'000'000'000};
    std::vector<tensor_id> t;
    for (std::uint64_t i = 0; i < 4; ++i)
      t.push_back(m.run({.outputs = {unit}, .cost = cost}, gives(i)));
    m.drop(t[0]), m.drop(t[2]);
    REQUIRE(it.storage.largest_hole() == unit);
    const tensor_id two = m.run({.outputs = {unit * 2}}, gives(9));
    CHECK((it.storage.moves() == 0) == cheap);
    CHECK((m.counts().evictions > 0) == cheap);
    CHECK(read(m, two) == 9);
    CHECK(read(m, t[1]) == 1);
    CHECK(read(m, t[3]) == 3);
  }
}

TEST_CASE("who is released between two holes goes as the decider says") {
  machine it(4, 4, copy_rates{.move = 1e6});
  manager m{lru{}, offload_first{}, no_prefetch{}, it.storage};
  std::vector<tensor_id> t;
  for (std::uint64_t i = 0; i < 4; ++i) t.push_back(m.run({.outputs = {unit}}, gives(i)));
  m.drop(t[0]), m.drop(t[2]);
  m.run({.outputs = {unit * 2}}, gives(9));
  CHECK(it.storage.moves() == 0);
  CHECK(m.counts().offloads == 1);
  CHECK(m.counts().decisions == 1);
  CHECK(m.counts().evictions == 0);
}
