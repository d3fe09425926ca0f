// delta tests: what every Storage promises (the semantic rules in delta/concepts.hpp), written
// once. A test file names its subjects (storage_subject.hpp) in DELTA_TEST_STORAGE_CONTRACT.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "storage_check.hpp"
#include "storage_subject.hpp"

namespace delta::test {

/// The block and the slab of a transfer, which may still be under way.
template <class S>
std::pair<block, slab> landed(S& s, std::optional<transfer> t) {
  REQUIRE(t);
  return s.land(std::move(*t));
}
template <class S>
block made(S& s, bytes n, lifetime l = lifetime::transient) {
  auto b = s.allocate(n, l);
  REQUIRE(b);
  return std::move(*b);
}
/// At the end of every test: nothing read what it should not, nothing touched what it may not.
template <class Subject>
void finish(Subject& it) {
  for (const auto& text : it.complaints()) FAIL_CHECK(text);
  CHECK(it.wrong() == 0);
  CHECK(check_invariants(it.storage) == "");
}

}  // namespace delta::test

TEST_CASE_TEMPLATE_DEFINE("storage: bytes are counted, rounded up, and given back", Subject,
                          storage_counts) {
  using namespace delta;
  using namespace delta::test;
  Subject it({.capacity = 1000_B, .host_capacity = 1000_B});
  auto& s = it.storage;
  CHECK(s.capacity() == 960_B);  // whole granules of 64
  CHECK(s.host_capacity() == 960_B);
  CHECK(s.rounded(0_B) == 0_B);
  CHECK(s.rounded(1_B) == 64_B);
  CHECK(s.rounded(64_B) == 64_B);
  auto a = made(s, 100_B);
  auto b = made(s, 832_B, lifetime::persistent);
  CHECK(s.used() == 960_B);
  CHECK_FALSE(s.allocate(1_B, lifetime::transient));
  CHECK_FALSE(s.allocate(bytes{~std::uint64_t{0}}, lifetime::transient));
  auto nothing = made(s, 0_B);  // takes nothing, so it always fits
  CHECK(s.used() == 960_B);
  s.free(std::move(a));
  CHECK_FALSE(a);
  CHECK(s.used() == 832_B);
  s.free(std::move(b));
  s.free(std::move(nothing));
  CHECK(s.used() == 0_B);
  CHECK(s.peak() == 960_B);
  CHECK(s.largest_hole() == 960_B);
  finish(it);
}

TEST_CASE_TEMPLATE_DEFINE("storage: nothing comes back changed from the host", Subject,
                          storage_round_trip) {
  using namespace delta;
  using namespace delta::test;
  Subject it;
  auto& s = it.storage;
  auto a = made(s, 300_B);
  it.write(s, a, 7);
  auto [block_out, slab_out] = landed(s, s.copy_out(a));
  CHECK_FALSE(a);
  CHECK(s.host_used() == 320_B);
  it.expect(s, block_out, 7);  // readable throughout
  s.free(std::move(block_out));
  CHECK(s.used() == 0_B);
  auto other = made(s, 4_KiB);  // the same bytes again, at once
  it.write(s, other, 8);
  s.free(std::move(other));
  auto [back, slab_in] = landed(s, s.copy_in(std::move(slab_out), made(s, 300_B)));
  s.free(std::move(slab_in));
  it.expect(s, back, 7);
  s.free(std::move(back));
  CHECK(s.used() == 0_B);
  CHECK(s.host_used() == 0_B);
  CHECK(s.host_peak() == 320_B);
  finish(it);
}

TEST_CASE_TEMPLATE_DEFINE("storage: a block of no bytes goes both ways", Subject, storage_zero) {
  using namespace delta;
  using namespace delta::test;
  Subject it({.capacity = 64_B, .host_capacity = 0_B});
  auto& s = it.storage;
  auto all = made(s, 64_B);
  auto nothing = made(s, 0_B);
  it.write(s, nothing, 1);
  auto [b, h] = landed(s, s.copy_out(nothing));
  auto [c, g] = landed(s, s.copy_in(std::move(h), std::move(b)));
  it.expect(s, c, 1);
  s.free(std::move(c));
  s.free(std::move(g));
  s.free(std::move(all));
  auto something = made(s, 1_B);
  CHECK_FALSE(s.copy_out(something));
  finish(it);
}

TEST_CASE_TEMPLATE_DEFINE("storage: a slab keeps what the block was when it was copied", Subject,
                          storage_snapshot) {
  using namespace delta;
  using namespace delta::test;
  Subject it;
  auto& s = it.storage;
  auto a = made(s, 512_B);
  it.write(s, a, 1);
  auto [b, old] = landed(s, s.copy_out(a));
  it.write(s, b, 2);  // waits for the copy
  auto [c, fresh] = landed(s, s.copy_out(b));
  it.write(s, c, 3);
  auto [d, g] = landed(s, s.copy_in(std::move(old), std::move(c)));  // over the block it came from
  it.expect(s, d, 1);
  auto [e, h] = landed(s, s.copy_in(std::move(fresh), std::move(d)));
  it.expect(s, e, 2);
  auto [f, i] = landed(s, s.copy_in(std::move(g), std::move(e)));  // a slab serves many times
  it.expect(s, f, 1);
  s.free(std::move(f));
  s.free(std::move(h));
  s.free(std::move(i));
  finish(it);
}

TEST_CASE_TEMPLATE_DEFINE("storage: memory freed under a copy may be had at once", Subject,
                          storage_early_reuse) {
  using namespace delta;
  using namespace delta::test;
  Subject it({.capacity = 256_B, .host_capacity = 256_B});
  auto& s = it.storage;
  for (std::uint64_t round = 0; round < 20; ++round) {
    auto a = made(s, 256_B);
    it.write(s, a, round);
    auto [b, h] = landed(s, s.copy_out(a));
    s.free(std::move(b));
    auto [c, g] = landed(s, s.copy_in(std::move(h), made(s, 256_B)));
    s.free(std::move(g));  // while it is read
    it.expect(s, c, round);
    auto [d, k] = landed(s, s.copy_out(c));
    auto [e, l] = landed(s, s.copy_in(std::move(k), std::move(d)));
    s.free(std::move(e));  // while it is written
    s.free(std::move(l));
  }
  finish(it);
}

TEST_CASE_TEMPLATE_DEFINE("storage: a full host leaves the block alone", Subject,
                          storage_host_full) {
  using namespace delta;
  using namespace delta::test;
  Subject it({.capacity = 1_KiB, .host_capacity = 256_B});
  auto& s = it.storage;
  auto a = made(s, 192_B);
  auto b = made(s, 128_B);
  it.write(s, a, 1);
  it.write(s, b, 2);
  auto [a2, h] = landed(s, s.copy_out(a));
  CHECK_FALSE(s.copy_out(b));
  CHECK(b);
  CHECK(s.host_used() == 192_B);
  it.expect(s, b, 2);
  s.free(std::move(h));
  auto t = s.copy_out(b);
  CHECK(t);
  CHECK(s.used() == 320_B);  // both ends of a copy count
  CHECK(s.host_used() == 128_B);
  auto [b2, g] = landed(s, std::move(t));
  it.expect(s, a2, 1);
  it.expect(s, b2, 2);
  finish(it);
}

TEST_CASE_TEMPLATE_DEFINE("storage: stamps", Subject, storage_stamps) {
  using namespace delta;
  using namespace delta::test;
  Subject it;
  auto& s = it.storage;
  CHECK(s.reached(stamp{}));
  std::vector<stamp> out;
  std::vector<std::pair<block, slab>> pairs;
  auto before = s.now();
  for (std::uint64_t i = 0; i < 6; ++i) {
    auto b = made(s, 512_B);
    it.write(s, b, i);
    auto t = s.copy_out(b);
    REQUIRE(t);
    CHECK(t->done().where == lane::copy_out);
    out.push_back(t->done());
    pairs.push_back(s.land(std::move(*t)));
  }
  for (std::size_t i = 1; i < out.size(); ++i) CHECK(out[i - 1].point < out[i].point);
  s.wait(out[3]);
  for (std::size_t i = 0; i <= 3; ++i) {  // first in, first out
    s.wait(out[i]);
    CHECK(s.reached(out[i]));
  }
  auto in = s.copy_in(std::move(pairs[0].second), std::move(pairs[0].first));
  CHECK(in.done().where == lane::copy_in);
  const stamp read = it.expect(s, pairs[1].first, 1);
  CHECK(read.where == lane::compute);
  s.wait(read);
  CHECK(s.reached(read));
  s.wait(in.done());
  CHECK(s.reached(in.done()));
  CHECK(s.now() >= before);
  CHECK(s.waited() >= nanoseconds{});
  for (const auto d : {direction::out, direction::in}) {
    CHECK(s.rate(d) > 0);
    CHECK(s.latency(d) >= nanoseconds{});
    CHECK(s.backlog(d) >= nanoseconds{});
  }
  if (const auto e = s.elapsed(in.done())) CHECK(*e >= nanoseconds{});
  finish(it);
}

TEST_CASE_TEMPLATE_DEFINE("storage: free bytes fit, whatever lies between them", Subject,
                          storage_moves) {
  using namespace delta;
  using namespace delta::test;
  Subject it({.capacity = 1_KiB, .host_capacity = 1_KiB});
  auto& s = it.storage;
  std::vector<block> all;
  for (std::uint64_t i = 0; i < 16; ++i) {
    all.push_back(made(s, 64_B, i % 2 ? lifetime::transient : lifetime::persistent));
    it.write(s, all.back(), i);
  }
  for (std::size_t i : {2u, 3u, 6u, 7u, 10u, 11u, 14u, 15u}) s.free(std::move(all[i]));
  CHECK(s.largest_hole() < 512_B);
  auto large = made(s, 512_B);
  CHECK(s.moves() > 0);
  CHECK(s.moved_bytes() <= 512_B);
  it.write(s, large, 99);
  for (std::size_t i : {0u, 1u, 4u, 5u, 8u, 9u, 12u, 13u}) it.expect(s, all[i], i);
  it.expect(s, large, 99);
  finish(it);
}

TEST_CASE_TEMPLATE_DEFINE("storage: what is held, or in an operator, stays where it is", Subject,
                          storage_holds) {
  using namespace delta;
  using namespace delta::test;
  Subject it({.capacity = 192_B, .host_capacity = 64_B});
  auto& s = it.storage;
  auto a = made(s, 64_B), b = made(s, 64_B), c = made(s, 64_B);
  it.write(s, b, 5);
  s.free(std::move(a));
  s.free(std::move(c));
  s.hold(b);
  s.hold(b);
  CHECK_FALSE(s.allocate(128_B, lifetime::transient));
  s.unhold(b);
  CHECK_FALSE(s.allocate(128_B, lifetime::transient));
  s.unhold(b);
  s.begin_operator({}, {});
  CHECK_FALSE(s.allocate(128_B, lifetime::transient));
  auto small = s.allocate(64_B, lifetime::transient);  // without moving: yes
  CHECK(small);
  s.free(std::move(*small));
  s.end_operator(nanoseconds{1});
  CHECK(s.moves() == 0);
  auto large = made(s, 128_B);
  CHECK(s.moves() == 1);
  CHECK(s.moved_bytes() == 64_B);
  it.write(s, large, 6);
  it.expect(s, b, 5);
  finish(it);
}

TEST_CASE_TEMPLATE_DEFINE("storage: others allocate and free while an operator runs", Subject,
                          storage_beside) {
  using namespace delta;
  using namespace delta::test;
  Subject it({.capacity = 512_B, .host_capacity = 512_B});
  auto& s = it.storage;
  for (std::uint64_t round = 0; round < 20; ++round) {
    auto a = made(s, 256_B), named = made(s, 64_B);
    it.write(s, a, round);
    auto [b, h] = landed(s, s.copy_out(a));
    s.free(std::move(b));
    // The copy may still read these bytes, and what comes next may still use them.
    const block* const one = &named;
    s.begin_operator({}, {&one, 1});
    auto kept = made(s, 128_B), freed = made(s, 128_B);
    CHECK(s.knows(kept, 100_B));
    CHECK_FALSE(s.knows(kept, 64_B));
    CHECK_FALSE(s.knows(block{}, 64_B));
    CHECK(s.used() == 320_B);
    s.free(std::move(freed));
    CHECK(s.used() == 192_B);
    s.end_operator(nanoseconds{1});
    it.write(s, kept, round + 1);
    auto [c, g] = landed(s, s.copy_in(std::move(h), made(s, 256_B)));
    it.expect(s, c, round);
    it.expect(s, kept, round + 1);
    s.free(std::move(c)), s.free(std::move(g)), s.free(std::move(kept)), s.free(std::move(named));
  }
  finish(it);
}

TEST_CASE_TEMPLATE_DEFINE("storage: the host may read a slab when it has waited", Subject,
                          storage_host_reads) {
  using namespace delta;
  using namespace delta::test;
  Subject it;
  auto& s = it.storage;
  for (std::uint64_t round = 0; round < 20; ++round) {
    auto b = made(s, 256_B);
    it.write(s, b, round);
    auto t = s.copy_out(b);
    REQUIRE(t);
    const stamp done = t->done();
    auto [c, h] = landed(s, std::move(t));
    s.wait(done);
    if constexpr (requires { s.data(h); }) {
      if constexpr (requires { it.device.host_access(range{}, false); })
        it.device.host_access({s.data(h), 256}, false);
      for (std::size_t i = 0; i < 256; ++i) CHECK(s.data(h)[i] == pattern(round, i));
    }
    s.free(std::move(c));
    s.free(std::move(h));
  }
  finish(it);
}

/// Runs the whole contract on the given subjects.
#define DELTA_TEST_STORAGE_CONTRACT(...)                       \
  TEST_CASE_TEMPLATE_INVOKE(storage_counts, __VA_ARGS__);      \
  TEST_CASE_TEMPLATE_INVOKE(storage_round_trip, __VA_ARGS__);  \
  TEST_CASE_TEMPLATE_INVOKE(storage_zero, __VA_ARGS__);        \
  TEST_CASE_TEMPLATE_INVOKE(storage_snapshot, __VA_ARGS__);    \
  TEST_CASE_TEMPLATE_INVOKE(storage_early_reuse, __VA_ARGS__); \
  TEST_CASE_TEMPLATE_INVOKE(storage_host_full, __VA_ARGS__);   \
  TEST_CASE_TEMPLATE_INVOKE(storage_stamps, __VA_ARGS__);      \
  TEST_CASE_TEMPLATE_INVOKE(storage_moves, __VA_ARGS__);       \
  TEST_CASE_TEMPLATE_INVOKE(storage_holds, __VA_ARGS__);       \
  TEST_CASE_TEMPLATE_INVOKE(storage_beside, __VA_ARGS__);      \
  TEST_CASE_TEMPLATE_INVOKE(storage_host_reads, __VA_ARGS__)
