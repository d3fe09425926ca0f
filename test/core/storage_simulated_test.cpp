// The storage contract on the models that need headers only, and the virtual clock in numbers.
#include <optional>
#include <utility>

#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "storage_check.hpp"
#include "storage_contract.hpp"

using namespace delta;
using namespace delta::test;

TYPE_TO_STRING(simulated_subject);
TYPE_TO_STRING(adversary_subject<false>);
TYPE_TO_STRING(adversary_subject<true>);
DELTA_TEST_STORAGE_CONTRACT(simulated_subject, adversary_subject<false>, adversary_subject<true>);

namespace {
constexpr nanoseconds ns(std::int64_t n) {
  return nanoseconds{n};
}
}  // namespace

TEST_CASE("virtual lanes: three side by side, each in order") {
  detail::virtual_lanes t(copy_rates{.out = 1e9, .in = 1e9});  // a byte takes 1 ns
  const stamp a = t.end(ns(100));
  CHECK(t.now() == ns(100));
  const stamp b = t.copy(direction::out, 0, 0, 40_B, fence{}.join(a));
  const stamp c = t.copy(direction::out, 0, 0, 10_B, {});
  const stamp d = t.copy(direction::in, 0, 0, 70_B, {});
  CHECK(a.point == 100);
  CHECK(b.point == 140);
  CHECK(c.point == 150);  // behind b, although it waits for nothing
  CHECK(d.point == 170);
  CHECK(t.backlog(direction::out) == ns(50));
  CHECK(t.reached(stamp{}));
  CHECK_FALSE(t.reached(d));
  CHECK(t.end(ns(30)).point == 130);  // waits for no copy
  CHECK(t.waited() == ns(0));
  CHECK(t.backlog(direction::in) == ns(40));
  t.begin(fence{}.join(b));
  CHECK(t.now() == ns(140));
  CHECK(t.waited() == ns(10));
  t.wait(d);
  CHECK(t.now() == ns(170));
  CHECK(t.waited() == ns(40));
  t.wait(d);
  CHECK(t.waited() == ns(40));
  CHECK(t.elapsed(b) == ns(40));
  CHECK(t.began(b) == ns(100));
  for (int i = 0; i < 64; ++i) (void)t.copy(direction::in, 0, 0, 1_B, {});
  CHECK_FALSE(t.elapsed(b));  // long ago
}

TEST_CASE("simulated: a copy costs its latency and its bytes, rounded up") {
  const copy_rates r{.out = 3e9, .in = 1e9, .latency = ns(5)};
  CHECK(r.cost(direction::out, 10_B) == ns(5 + 4));
  CHECK(r.cost(direction::in, 10_B) == ns(5 + 10));
  CHECK(r.move_cost(1_GiB) == ns(0));
}

TEST_CASE("simulated: compute waits for copies, and what it waited is told") {
  simulated s({.capacity = 128_B,
               .host_capacity = 128_B,
               .rate_out = 1e9,
               .rate_in = 1e9,
               .latency = ns(10)});
  auto a = made(s, 100_B);
  const block* uses[] = {&a};
  s.begin_operator({}, uses);
  CHECK(s.end_operator(ns(100)).point == 100);
  CHECK(s.now() == ns(100));
  auto t = s.copy_out(a);
  REQUIRE(t);
  CHECK(t->done().point == 210);
  CHECK(s.backlog(direction::out) == ns(110));
  CHECK(s.elapsed(t->done()) == ns(110));
  auto [b, h] = s.land(std::move(*t));
  const block* again[] = {&b};
  s.begin_operator(again, {});  // reading goes on beside the copy
  CHECK(s.now() == ns(100));
  s.end_operator(ns(30));
  s.begin_operator({}, again);  // writing waits for it
  CHECK(s.now() == ns(210));
  CHECK(s.waited() == ns(80));
  CHECK(s.end_operator(ns(1)).point == 211);
  s.free(std::move(b));
  auto in = s.copy_in(std::move(h), made(s, 100_B));  // after the operator that wrote there
  CHECK(in.done().point == 211 + 110);
  CHECK_FALSE(s.reached(in.done()));
  s.wait(in.done());
  CHECK(s.now() == ns(321));
  CHECK(s.waited() == ns(190));
}

TEST_CASE("simulated: copies that are slower than promised") {
  simulated s({.capacity = 128_B,
               .host_capacity = 128_B,
               .rate_out = 1e9,
               .rate_in = 2e9,
               .latency = ns(10),
               .real_rate = 0.5});
  CHECK(s.rate(direction::out) == 1e9);
  CHECK(s.rate(direction::in) == 2e9);
  CHECK(s.latency(direction::out) == ns(10));
  auto a = made(s, 100_B);
  auto t = s.copy_out(a);
  REQUIRE(t);
  CHECK(s.elapsed(t->done()) == ns(210));
  CHECK(s.backlog(direction::out) == ns(210));
  auto [b, h] = s.land(std::move(*t));
  s.wait(t->done());
  s.free(std::move(b));
  auto room = s.allocate(100_B, lifetime::transient);
  REQUIRE(room);
  auto back = s.copy_in(std::move(h), std::move(*room));
  CHECK(s.elapsed(back.done()) == ns(110));
  auto [c, g] = s.land(std::move(back));
  s.free(std::move(c));
  s.free(std::move(g));
}

TEST_CASE("simulated: copies beside it slow an operator down, by their burden and no more") {
  struct beside {
    std::int64_t out, in;  // ns of copies that are queued when the operator begins
    double burden_out, burden_in;
    std::int64_t took;  // the operator, of 100 ns alone
  };
  for (const beside& b : {beside{0, 0, 0.5, 0.5, 100},     // nobody copies
                          beside{60, 30, 0, 0, 100},       // nobody loses
                          beside{40, 0, 0.5, 0, 120},      // 40 ns at half speed
                          beside{400, 0, 0.5, 0, 200},     // all at half speed
                          beside{0, 50, 0, 0.2, 110},      // in alone
                          beside{40, 80, 0.5, 0.25, 140},  // 40 at a quarter, 40 at three quarters
                          beside{80, 40, 0.25, 0.5, 140},  // the other way round
                          beside{70, 0, 1, 1, 170},        // copies come first
                          beside{70, 50, 1, 1, 220}}) {    // one after the other
    CAPTURE(b.out);
    CAPTURE(b.in);
    CAPTURE(b.burden_out);
    simulated s({.capacity = 1_KiB,
                 .host_capacity = 1_KiB,
                 .rate_out = 1e9,
                 .rate_in = 1e9,
                 .burden_out = b.burden_out,
                 .burden_in = b.burden_in});
    CHECK(s.burden(direction::out) == b.burden_out);
    CHECK(s.burden(direction::in) == b.burden_in);
    // What comes in was copied out before.
    std::optional<transfer> in;
    if (b.in > 0) {
      block x = made(s, bytes{std::uint64_t(b.in)});
      auto before = s.copy_out(x);
      REQUIRE(before);
      s.wait(before->done());
      auto [there, here] = landed(s, std::move(before));
      in = s.copy_in(std::move(here), std::move(there));
    }
    std::optional<transfer> out;
    block y;
    if (b.out > 0) {
      y = *s.allocate(bytes{std::uint64_t(b.out)}, lifetime::transient);
      out = s.copy_out(y);
    }
    const nanoseconds began = s.now();
    s.begin_operator({}, {});
    const stamp done = s.end_operator(ns(100));
    CHECK(s.now() - began == ns(b.took));
    CHECK(s.elapsed(done) == ns(b.took));
    CHECK(s.alone(done) == ns(100));
    for (auto* t : {&in, &out})
      if (*t) {
        auto [there, here] = landed(s, std::move(*t));
        s.free(std::move(there)), s.free(std::move(here));
      }
  }
}

TEST_CASE("what policies see of burdens is the storage's; what operators cost is without them") {
  struct asks {
    double* seen;
    double score(const context& c, tensor_id t) const {
      *seen = c.burden(direction::out) + 10 * c.burden(direction::in);
      return c.bytes(t);
    }
  };
  double seen = 0;
  simulated s({.capacity = 100_B,
               .host_capacity = 100_B,
               .rate_out = 1e9,
               .rate_in = 1e9,
               .burden_out = 0.5,
               .burden_in = 0.25});
  manager m{policy<asks, offload_only, no_prefetch>{{&seen}, {}, {}}, s};
  const auto nothing = [](call&) {};
  const auto x = m.run({.outputs = {50_B}, .cost = ns(10)}, nothing);
  const auto y = m.run({.outputs = {50_B}, .cost = ns(10)}, nothing);
  const auto z = m.run({.outputs = {50_B}, .cost = ns(10)}, nothing);
  CHECK(seen == 3.0);
  for (const auto t : {x, y, z}) m.drop(t);
}

TEST_CASE("simulated: moving blocks takes the compute engine's time") {
  simulated s({.capacity = 192_B, .host_capacity = 0_B, .granularity = 64, .rate_move = 1e9});
  auto a = made(s, 64_B);
  const auto between = made(s, 64_B);
  auto c = made(s, 64_B);
  s.free(std::move(a));
  s.free(std::move(c));
  CHECK(s.bytes_to_move(128_B) == 64_B);
  CHECK(s.bytes_to_move(64_B) == 0_B);
  CHECK(s.bytes_to_move(0_B) == 0_B);
  CHECK(made(s, 128_B));
  CHECK(between);
  CHECK(s.now() == ns(64));
  CHECK(s.waited() == ns(0));
}

TEST_CASE_TEMPLATE("virtual clock: what is being copied stays until the copy is done", Subject,
                   simulated_subject, adversary_subject<true>) {
  Subject it({.capacity = 192_B, .host_capacity = 64_B});
  auto& s = it.storage;
  auto a = made(s, 64_B);
  auto b = made(s, 64_B);
  auto c = made(s, 64_B);
  s.free(std::move(a));
  s.free(std::move(c));
  auto t = s.copy_out(b);
  REQUIRE(t);
  const stamp done = t->done();
  CHECK_FALSE(s.allocate(128_B, lifetime::transient));  // a move would make compute wait
  auto [d, h] = landed(s, std::move(t));
  CHECK_FALSE(s.allocate(128_B, lifetime::transient));  // landed, but not done
  CHECK_FALSE(s.bytes_to_move(128_B));
  s.wait(done);
  CHECK(s.allocate(128_B, lifetime::transient));
  CHECK(s.moves() == 1);
  CHECK(d);
  CHECK(h);
}

TEST_CASE("regions: long-lived blocks from the low end, short-lived ones from the high end") {
  detail::region r{1000_B};
  const auto a = *r.place(100, lifetime::persistent);
  const auto b = *r.place(100, lifetime::transient);
  const auto c = *r.place(50, lifetime::persistent);
  CHECK(r[a].offset == 0);
  CHECK(r[b].offset == 900);
  CHECK(r[c].offset == 100);
  const auto d = *r.place(50, lifetime::transient);
  CHECK(r[d].offset == 850);
  r.release(a);
  CHECK(r[*r.place(60, lifetime::transient)].offset == 40);  // the smallest hole that holds it
  CHECK(detail::storage_check::of(r) == "");
}
