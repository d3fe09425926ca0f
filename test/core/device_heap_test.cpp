// Blocks that are a framework's allocations, on engines that run on: the storage contract, random
// programs of calls and of a manager's, and each order left out in turn, which some seed must find.
#include "delta/storage/device_heap.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/manager.hpp"
#include "delta/storage/arena.hpp"
#include "delta/storage/host_device.hpp"
#include "device_heap_subject.hpp"
#include "random_program.hpp"
#include "seeds.hpp"
#include "storage_check.hpp"
#include "storage_contract.hpp"
#include "storage_program.hpp"
#include "tested_policy.hpp"

using namespace delta;
using namespace delta::test;

namespace {

// On the host, where everything is over at once, which it does not say: so addresses are looked up,
// and users noted.
struct patient_host : host_device {
  static constexpr bool synchronous = false;
};
struct host_heap_subject : subject_base<shown_device_heap<patient_host>, void> {
  explicit host_heap_subject(subject_sizes o = {})
      : storage(device, {.capacity = o.capacity,
                         .host_capacity = o.host_capacity,
                         .granularity = 64,
                         .device = aligned_heap(),
                         .host = aligned_heap()}) {}
  [[nodiscard]] std::vector<std::string> complaints() const { return {}; }
  patient_host device;
  shown_device_heap<patient_host> storage;
};
using shared_subject = device_heap_subject<true>;
using own_subject = device_heap_subject<false>;

// A machine with one block of a framework's at hand.
template <bool Shared>
struct framework : device_heap_subject<Shared> {
  using device_heap_subject<Shared>::device_heap_subject;
  static constexpr std::size_t n = 128;
  /// A kernel that delta never sees.
  void write_unseen(std::byte* at, std::uint64_t value) {
    this->device.launch({}, {{at, n}}, [=] { fill(at, value); });
  }
  void check_unseen(std::byte* at, std::uint64_t value) {
    this->device.launch({{at, n}}, {}, [this, at, value] { wrong_unseen += !holds(at, value); });
  }
  /// By an operator of delta's.
  template <class S>
  void expect_first(S& s, const block& b, std::uint64_t value) {
    const block* const one = &b;
    s.begin_operator({&one, 1}, {});
    check_unseen(s.data(b), value);
    s.end_operator({});
  }
  static void fill(std::byte* at, std::uint64_t value) {
    for (std::size_t i = 0; i < n; ++i) at[i] = pattern(value, i);
  }
  static bool holds(const std::byte* at, std::uint64_t value) {
    for (std::size_t i = 0; i < n; ++i)
      if (at[i] != pattern(value, i)) return false;
    return true;
  }
  std::size_t wrong_unseen = 0;
};
template <class Subject>
void finish_all(Subject& it) {
  finish(it);
  CHECK(it.wrong_unseen == 0);
}

/// A heap of 256 bytes of that memory, and of as many of the host's.
template <class Memory>
heap_options small_heap(Memory& memory, Memory& host) {
  return {.capacity = 256_B,
          .host_capacity = 256_B,
          .granularity = 64,
          .device = memory.source(),
          .host = host.source()};
}

}  // namespace

TYPE_TO_STRING(host_heap_subject);
TYPE_TO_STRING(shared_subject);
TYPE_TO_STRING(own_subject);
#define ALL_SUBJECTS host_heap_subject, shared_subject, own_subject
// All of it but what moves.
TEST_CASE_TEMPLATE_INVOKE(storage_counts, ALL_SUBJECTS);
TEST_CASE_TEMPLATE_INVOKE(storage_round_trip, ALL_SUBJECTS);
TEST_CASE_TEMPLATE_INVOKE(storage_zero, ALL_SUBJECTS);
TEST_CASE_TEMPLATE_INVOKE(storage_snapshot, ALL_SUBJECTS);
TEST_CASE_TEMPLATE_INVOKE(storage_early_reuse, ALL_SUBJECTS);
TEST_CASE_TEMPLATE_INVOKE(storage_host_full, ALL_SUBJECTS);
TEST_CASE_TEMPLATE_INVOKE(storage_stamps, ALL_SUBJECTS);
TEST_CASE_TEMPLATE_INVOKE(storage_beside, ALL_SUBJECTS);
TEST_CASE_TEMPLATE_INVOKE(storage_host_reads, ALL_SUBJECTS);

TEST_CASE("device_heap: random programs keep data, bytes and order") {
  for (std::uint64_t seed = 1; seed <= seeds(1000); ++seed) {
    trace_of<own_subject>(seed, 80);
    trace_of<shared_subject>(seed, 80);
  }
}

// Those of the arena but the two of moving, which are compute engine after copy out and after copy
// in, copy out after compute and after copy in, copy in after compute and after copy out: all pairs
// of engines. Lanes do not wait for themselves.
TEST_CASE("device_heap: every wait that it asks for is needed") {
  constexpr auto count = static_cast<std::size_t>(wait_reason::move_after_copy_out);
  check_that_every_wait_is_needed<own_subject>(count);
}
// Where the framework uses what comes back, a copy into fresh bytes is behind a copy out of what
// was there before by way of the compute engine, which waits for the one before the bytes go back,
// and which the other waits for. So of random programs, which copy into fresh bytes alone, none
// shows the wait from copy to copy, and a program that copies into the same block must.
TEST_CASE("device_heap: so is every wait where the framework uses what comes back") {
  std::size_t found = 0;
  for (std::uint64_t seed = 1; seed <= 200 && found == 0; ++seed) {
    shared_subject it({.seed = seed}, wait_reason::copy_in_after_copy_out_of_block);
    auto& s = it.storage;
    auto a = made(s, 512_B);
    it.write(s, a, 1);
    auto [b, old] = landed(s, s.copy_out(a));
    it.write(s, b, 2);
    auto [c, fresh] = landed(s, s.copy_out(b));
    auto [d, g] = landed(s, s.copy_in(std::move(old), std::move(c)));
    found = it.complaints().size();
    s.free(std::move(d)), s.free(std::move(fresh)), s.free(std::move(g));
  }
  CHECK(found > 0);
  for (std::size_t w = 0; w < static_cast<std::size_t>(wait_reason::move_after_copy_out); ++w)
    if (const auto ignored = static_cast<wait_reason>(w);
        ignored != wait_reason::copy_in_after_copy_out_of_block)
      check_that_wait_is_needed<shared_subject>(ignored);
}

namespace {

// A program through a manager on such a machine, to its end.
template <bool Shared>
counters managed(std::uint64_t seed, const program& p, const tested_policy& policy, bytes budget,
                 manner how) {
  device_heap_subject<Shared> it({.capacity = budget, .host_capacity = 64_KiB, .seed = seed});
  auto& s = it.storage;
  counters counted;
  {
    const auto m = policy.manage(over(s));
    const auto launch = [&](std::span<const std::span<std::byte>> reads,
                            std::span<const std::span<std::byte>> writes, auto&& body) {
      const auto ranges = [](std::span<const std::span<std::byte>> list) {
        std::vector<range> r;
        for (const auto& one : list) r.push_back({one.data(), one.size()});
        return r;
      };
      it.device.launch(ranges(reads), ranges(writes), body);
    };
    const auto check = [&] {
      CHECK(s.used() <= s.capacity());
      CHECK(s.host_used() <= s.host_capacity());
      CHECK(it.memory.taken() <= s.used().count);
      CHECK(check_invariants(s) == "");
    };
    // The host has no kernel of its own to write with, and waits for those that nobody saw.
    const auto touch = [&](std::byte* at, std::size_t, bool, auto&& f) {
      it.device.drain();
      f(at);
    };
    try {
      const auto left = run_program(*m, p, launch, check, how, touch);
      it.device.drain();
      CHECK(left == evaluate(p));
    } catch (const budget_exceeded&) {
      CHECK(policy.name == "dtr");  // the others may offload
    }
    counted = m->counts();
  }
  CHECK(s.used() == 0_B);
  CHECK(s.host_used() == 0_B);
  CHECK(it.memory.taken() == 0);
  for (const auto& text : it.complaints()) FAIL_CHECK(text);
  return counted;
}

}  // namespace

TEST_CASE("device_heap: whole programs leave what plain evaluation leaves") {
  std::uint64_t evictions = 0, offloads = 0, reloads = 0;
  for (const char* name : {"adaptive", "online", "dtr"}) {
    const tested_policy policy = by_name(name);
    for (std::uint64_t seed = 1; seed <= seeds(slow_build ? 60 : 150); ++seed) {
      CAPTURE(name);
      CAPTURE(seed);
      const program p =
          repeated(random_program(seed, {.largest = 200, .updates_made = seed % 2 == 0}), 2);
      const bytes least = largest_footprint(p, 64);
      for (const std::uint64_t percent : {100u, 150u}) {
        CAPTURE(percent);
        const bytes budget = round_up(bytes{least.count * percent / 100}, 64);
        for (const manner how : {manner::whole, manner::open}) {
          const counters c = seed % 3 == 0 ? managed<false>(seed, p, policy, budget, how)
                                           : managed<true>(seed, p, policy, budget, how);
          evictions += c.evictions, offloads += c.offloads, reloads += c.reloads;
        }
      }
    }
  }
  CHECK(evictions > 0);
  CHECK(offloads > 0);
  CHECK(reloads > 0);
}

TEST_CASE(
    "device_heap: what the program wrote before delta heard of it is copied when it is there") {
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    CAPTURE(seed);
    framework<true> it({.seed = seed});
    auto& s = it.storage;
    std::byte* const at = it.memory.take(it.n);
    it.write_unseen(at, seed);
    block a = *s.adopt(at, bytes{it.n}, nullptr);
    auto [b, h] = landed(s, s.copy_out(a));
    s.free(std::move(b));
    it.write_unseen(at, seed + 1);  // the program's: behind the copy
    auto [c, g] = landed(s, s.copy_in(std::move(h), *s.allocate(bytes{it.n}, {})));
    s.settle(c);
    it.check_unseen(s.data(c), seed);
    it.write_unseen(s.data(c), seed + 2);  // behind the copy in
    auto [d, k] = landed(s, s.copy_out(c));
    const auto [back, from] = s.surrender(std::move(d));
    CHECK(s.used() == 0_B);
    it.write_unseen(back, seed + 3);  // behind the second copy out
    from.release(from.self, back, it.n);
    auto [e, l] = landed(s, s.copy_in(std::move(k), *s.allocate(bytes{it.n}, {})));
    s.settle(e);
    it.check_unseen(s.data(e), seed + 2);
    s.free(std::move(e)), s.free(std::move(l)), s.free(std::move(g));
    finish_all(it);
  }
}

TEST_CASE("device_heap: bytes that are lent serve others while their block counts") {
  for (std::uint64_t seed = 1; seed <= seeds(200); ++seed) {
    CAPTURE(seed);
    const auto lend = [&](auto& it) {
      auto& s = it.storage;
      block source = *s.allocate(bytes{it.n}, {}), scratch = *s.allocate(bytes{it.n}, {});
      it.write(s, source, seed);
      auto [kept, h] = landed(s, s.copy_out(source));
      // Under a copy out when it is lent: who gets the bytes is behind that.
      it.write(s, scratch, seed + 1);
      auto [under, g] = landed(s, s.copy_out(scratch));
      const block* const writes = &under;
      s.begin_operator({}, {&writes, 1});
      const std::byte* const there = s.data(under);
      CHECK(s.lend(s.data(under)));
      CHECK_FALSE(s.lend(const_cast<std::byte*>(there)));
      CHECK(s.used() == bytes{2 * it.n});
      std::byte* const temporary = it.memory.take(it.n);
      CHECK(temporary == there);
      it.write_unseen(temporary, seed + 2);
      it.check_unseen(temporary, seed + 2);
      it.memory.give({temporary, it.n});
      s.end_operator({});
      // These bytes again: a copy into them is behind the operator that lent them.
      auto [back, k] = landed(s, s.copy_in(std::move(h), *s.allocate(bytes{it.n}, {})));
      CHECK(s.data(back) == there);
      it.expect(s, back, seed);
      s.free(std::move(under));
      CHECK(s.used() == bytes{2 * it.n});
      CHECK(it.memory.taken() == 2 * it.n);
      for (block* b : {&kept, &back}) s.free(std::move(*b));
      for (slab* one : {&g, &k}) s.free(std::move(*one));
      CHECK(it.memory.taken() == 0);
      finish_all(it);
    };
    framework<true> first({.seed = seed});
    framework<false> second({.seed = seed});
    lend(first);
    lend(second);
  }
}

TEST_CASE("device_heap: bytes of before that are adopted anew are behind whoever used them") {
  for (std::uint64_t seed = 1; seed <= seeds(100); ++seed) {
    CAPTURE(seed);
    framework<false> it({.seed = seed});
    auto& s = it.storage;
    const auto adopted = [&](std::byte* at) {
      const memory_source source = it.memory.source();
      return *s.adopt(at, bytes{it.n}, source.release, source.self);
    };
    block a = *s.allocate(bytes{it.n}, {});
    std::byte* const at = s.data(a);
    it.write(s, a, seed);
    s.free(std::move(a));
    // Again and again: after an operator of delta's, and after a copy that had to ask for a point.
    std::vector<slab> slabs;
    REQUIRE(it.memory.take(it.n) == at);
    for (std::uint64_t round = 0; round < 3; ++round) {
      it.write_unseen(at, seed + round);
      block b = adopted(at);
      auto [c, h] = landed(s, s.copy_out(b));
      slabs.push_back(std::move(h));
      CHECK(s.surrender(std::move(c)).first == at);
    }
    it.memory.give({at, it.n});
    for (std::uint64_t round = 0; round < 3; ++round) {
      auto [d, g] = landed(s, s.copy_in(std::move(slabs[round]), *s.allocate(bytes{it.n}, {})));
      it.expect_first(s, d, seed + round);
      s.free(std::move(d)), s.free(std::move(g));
    }
    // While an operator runs, which writes them.
    block e = *s.allocate(bytes{it.n}, {});
    it.write(s, e, seed + 3);
    auto [f, k] = landed(s, s.copy_out(e));
    s.free(std::move(f));
    s.begin_operator({}, {});
    REQUIRE(it.memory.take(it.n) == at);
    block i = adopted(at);
    it.write_unseen(at, seed + 4);
    s.end_operator({});
    auto [j, l] = landed(s, s.copy_out(i));
    s.free(std::move(j));
    for (slab* kept : {&k, &l}) {
      auto [m, o] = landed(s, s.copy_in(std::move(*kept), *s.allocate(bytes{it.n}, {})));
      it.expect_first(s, m, seed + (kept == &k ? 3 : 4));
      s.free(std::move(m)), s.free(std::move(o));
    }
    finish_all(it);
    CHECK(it.memory.taken() == 0);
  }
}

TEST_CASE("device_heap: bytes that came and went within an operator are behind it, however many") {
  for (const std::size_t blocks : {3u, 100u, 1100u}) {
    CAPTURE(blocks);
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      CAPTURE(seed);
      framework<false> it({.capacity = bytes{(blocks + 2) * it.n}, .seed = seed});
      auto& s = it.storage;
      block a = *s.allocate(bytes{it.n}, {});
      it.write(s, a, seed);
      auto [b, h] = landed(s, s.copy_out(a));
      s.begin_operator({}, {});
      std::vector<block> taken;
      for (std::size_t i = 0; i < blocks; ++i) taken.push_back(*s.allocate(bytes{it.n}, {}));
      std::byte* const first = s.data(taken.front());
      for (block& one : taken) it.write_unseen(s.data(one), seed + 1);
      // Not side by side, so that they are as many ranges.
      for (block& one : taken) s.free(std::move(one));
      REQUIRE(it.memory.take((blocks - 1) * it.n) == first);
      block last = *s.allocate(bytes{it.n}, {});
      it.memory.give({first, (blocks - 1) * it.n});
      s.end_operator({});
      auto [c, g] = landed(s, s.copy_in(std::move(h), *s.allocate(bytes{it.n}, {})));
      CHECK(s.data(c) == first);
      it.expect_first(s, c, seed);
      for (block* one : {&b, &c, &last}) s.free(std::move(*one));
      s.free(std::move(g));
      finish_all(it);
    }
  }
}

TEST_CASE("device_heap: plans are made for memory without places, as it is; an arena's have them") {
  struct looking : adaptive {
    std::optional<bool> places;
    void end_of_step(const context& c) {
      places = detail::next_step(c, c.past().last()).machine().places;
      adaptive::end_of_step(c);
    }
  };
  const auto places_of = [](auto storage) {
    manager m{looking(), storage};
    const tensor_id x = m.variable(256_B, "input");
    m.drop(m.run({.inputs = {x}, .outputs = {256_B}, .cost = nanoseconds{1000}}, [](call&) {}));
    m.end_of_step();
    return m.policy().places;
  };
  patient_host machine;
  CHECK(places_of(device_heap(machine, {.capacity = 4_KiB, .host_capacity = 4_KiB})) == false);
  CHECK(places_of(arena(machine, {.capacity = 4_KiB, .host_capacity = 4_KiB})) == true);
}

TEST_CASE("device_heap: without one of the orders of unseen work some seed fails") {
  // Each of them is one call that the program makes, or leaves out.
  enum class left_out { settle_before_write, settle_before_copy };
  for (const left_out what : {left_out::settle_before_write, left_out::settle_before_copy}) {
    std::size_t found = 0;
    for (std::uint64_t seed = 1; seed <= 200 && found == 0; ++seed) {
      framework<false> it({.seed = seed});
      auto& s = it.storage;
      block a = *s.allocate(bytes{it.n}, {});
      it.write(s, a, seed);
      auto [b, h] = landed(s, s.copy_out(a));
      if (what != left_out::settle_before_write) s.settle(b);
      it.write_unseen(s.data(b), seed + 1);
      auto [c, g] = landed(s, s.copy_out(b));  // of what was written unseen
      s.free(std::move(c)), s.free(std::move(h)), s.free(std::move(g));
      if (what == left_out::settle_before_copy) {
        block d = *s.allocate(bytes{it.n}, {});
        it.write_unseen(s.data(d), seed + 2);
        auto [e, k] = landed(s, s.copy_out(d));
        s.free(std::move(e)), s.free(std::move(k));
      }
      found += it.complaints().size();
    }
    CHECK(found > 0);
  }
}

namespace {

struct counted {
  std::size_t live = 0, left = 1000, sum = 0;
  [[nodiscard]] memory_source source() {
    return {[](void* self, std::size_t n) -> void* {
              auto& me = *static_cast<counted*>(self);
              if (me.left == 0) return nullptr;
              --me.left, ++me.live;
              return std::malloc(n);
            },
            [](void* self, void* memory, std::size_t n) {
              auto& me = *static_cast<counted*>(self);
              --me.live, me.sum += n;
              std::free(memory);
            },
            this};
  }
};

}  // namespace

TEST_CASE("device_heap: all of it goes back to its source, and a source that is dry is no room") {
  counted device, host;
  patient_host machine;
  {
    device_heap s{machine,
                  {.capacity = 1_KiB,
                   .host_capacity = 1_KiB,
                   .granularity = 64,
                   .device = device.source(),
                   .host = host.source()}};
    auto a = s.allocate(100_B, {}), b = s.allocate(100_B, {});
    auto t = s.copy_out(*a);
    CHECK(device.live == 2);
    CHECK(host.live == 1);
    auto [c, h] = s.land(std::move(*t));
    s.free(std::move(c));
    CHECK(device.live == 1);
    CHECK(device.sum == 128);
    device.left = host.left = 0;
    CHECK_FALSE(s.allocate(100_B, {}));
    CHECK_FALSE(s.copy_out(*b));
    CHECK(s.used() == 128_B);
    std::array<std::byte, 3> bytes_in{std::byte{1}, std::byte{2}, std::byte{3}}, bytes_out{};
    CHECK(s.write_bytes(*b, 50, bytes_in));
    CHECK(s.read_bytes(*b, 51, std::span(bytes_out).first(2)));
    CHECK(bytes_out[1] == std::byte{3});
    CHECK(check_invariants(s) == "");
  }
  CHECK(device.live == 0);
  CHECK(host.live == 0);
}

TEST_CASE("device_heap: bytes of the program's own count, are shown, come and go") {
  static std::size_t released;
  released = 0;
  std::vector<std::pair<tensor_id, std::byte*>> told;
  std::byte mine[100] = {}, other[100] = {};
  const auto release = [](void*, void*, std::size_t n) { released += n; };
  counted device, host;
  patient_host machine;
  {
    heap_options telling = small_heap(device, host);
    telling.on_owner_changed = [&](tensor_id t, std::byte* at) { told.emplace_back(t, at); };
    device_heap s{machine, telling};
    const tensor_id t{7}, u{8};
    auto b = s.adopt(mine, 100_B, release);
    REQUIRE(b);
    CHECK(s.used() == 128_B);
    CHECK(s.data(*b) == mine);
    CHECK(s.knows(*b, 100_B));
    // One address twice, or part of it: two imports of one buffer.
    for (std::byte* const again : {&mine[0], &mine[99]})
      CHECK_THROWS_AS((void)s.adopt(again, 1_B, release), misuse);
    CHECK(check_invariants(s) == "");
    CHECK(s.used() == 128_B);
    CHECK_FALSE(s.adopt(other, 129_B, release));
    CHECK_FALSE(s.adopt(other, bytes{~std::uint64_t{0}}, release));
    s.on_owner_changed(*b, t);
    CHECK((told.back() == std::pair{t, &mine[0]}));
    s.on_owner_changed(*b, u);
    CHECK((told[1] == std::pair{t, static_cast<std::byte*>(nullptr)}));
    CHECK((told.back() == std::pair{u, &mine[0]}));
    s.free(std::move(*b));
    CHECK(released == 100);
    CHECK((told.back() == std::pair{u, static_cast<std::byte*>(nullptr)}));
    auto kept = s.adopt(other, 100_B, release);
    s.set_capacity(s.used());
    CHECK_FALSE(s.allocate(1_B, {}));
    auto [at, from] = s.surrender(std::move(*kept));
    CHECK(at == other);
    CHECK((from.allocate == nullptr && from.release != nullptr));
    CHECK(released == 100);
    CHECK(s.used() == 0_B);
    s.reset_peak();
    CHECK(s.peak() == 0_B);
    auto [source_at, source] = s.surrender(std::move(*s.allocate(100_B, {})));
    CHECK((source.allocate != nullptr));
    source.release(source.self, source_at, 128);
    auto nothing = s.adopt(nullptr, 0_B, release);
    s.free(std::move(*nothing));
    CHECK(check_invariants(s) == "");
  }
  CHECK(released == 100);
  CHECK(device.live == 0);
}

TEST_CASE("device_heap: copies touch the bytes that were asked for, and no more") {
  std::byte mine[128];
  std::fill_n(mine, 128, std::byte{9});
  patient_host machine;
  device_heap s{machine,
                {.capacity = 1_KiB,
                 .host_capacity = 1_KiB,
                 .granularity = 64,
                 .device = aligned_heap(),
                 .host = aligned_heap()}};
  auto a = s.adopt(mine, 100_B, nullptr);
  auto [b, h] = landed(s, s.copy_out(*a));
  std::fill_n(mine, 128, std::byte{8});
  auto [c, g] = landed(s, s.copy_in(std::move(h), std::move(b)));
  CHECK(mine[99] == std::byte{9});
  CHECK(mine[100] == std::byte{8});
  s.free(std::move(c)), s.free(std::move(g));
}

TEST_CASE("device_heap: a machine that refuses leaves blocks, slabs and bytes as they were") {
  struct refusing : adversary {
    using adversary::adversary;
    stamp copy(direction d, std::byte* to, const std::byte* from, bytes n, const fence& after) {
      if (refuses) throw std::bad_alloc{};
      return adversary::copy(d, to, from, n, after);
    }
    void begin(const fence& after) {
      if (refuses) throw std::bad_alloc{};
      adversary::begin(after);
    }
    bool reached(stamp s) { return !refuses && adversary::reached(s); }
    bool refuses = false;
  };
  refusing machine(1);
  recycled_memory memory(machine.device_memory(1_KiB), 1024),
      host(machine.host_memory(1_KiB), 1024);
  device_heap s{machine, small_heap(memory, host)};
  auto a = s.allocate(128_B, {});
  REQUIRE(a);
  machine.refuses = true;
  CHECK_THROWS_AS(static_cast<void>(s.copy_out(*a)), std::bad_alloc);
  CHECK(*a);
  CHECK(s.host_used() == 0_B);
  machine.refuses = false;
  auto [b, h] = s.land(std::move(*s.copy_out(*a)));
  machine.refuses = true;
  CHECK_THROWS_AS(s.settle(b), std::bad_alloc);
  CHECK_THROWS_AS(static_cast<void>(s.surrender(std::move(b))), std::bad_alloc);
  CHECK_THROWS_AS(static_cast<void>(s.lend(s.data(b))), std::bad_alloc);
  CHECK_THROWS_AS(static_cast<void>(s.copy_in(std::move(h), std::move(b))), std::bad_alloc);
  CHECK(b);
  CHECK(h);
  CHECK(s.used() == 128_B);
  CHECK(check_invariants(s) == "");
  s.free(std::move(b));  // under the copy, which can't be waited for: it does not go back
  CHECK(memory.taken() == 128);
  machine.refuses = false;
  s.free(std::move(h));
  CHECK(host.taken() == 0);
  CHECK(s.used() == 0_B);
  // Within an operator, bytes that a copy has used, for which it can't be made to wait.
  heap_options unshared = small_heap(memory, host);
  unshared.shared = false;
  device_heap own{machine, unshared};
  block c = *own.allocate(128_B, {});
  auto [d, g] = own.land(std::move(*own.copy_out(c)));
  own.free(std::move(d)), own.free(std::move(g));
  own.begin_operator({}, {});
  machine.refuses = true;
  CHECK_THROWS_AS(static_cast<void>(own.allocate(128_B, {})), std::bad_alloc);
  CHECK(own.used() == 0_B);
  machine.refuses = false;
  static_cast<void>(own.end_operator({}));
}

TEST_CASE("device_heap: it asks a machine for a point only after a begin, in operators and out") {
  struct bracketed : adversary {
    using adversary::adversary;
    void begin(const fence& after) {
      open = true;
      adversary::begin(after);
    }
    stamp end() {
      CHECK(std::exchange(open, false));
      return adversary::end();
    }
    bool open = false;
  };
  bracketed machine(1);
  recycled_memory memory(machine.device_memory(1_KiB), 1024),
      host(machine.host_memory(1_KiB), 1024);
  device_heap s{machine, small_heap(memory, host)};
  std::byte* const mine = memory.take(64);
  block a = *s.adopt(mine, 64_B, nullptr);
  auto [b, h] = landed(s, s.copy_out(a));  // of what was written unseen
  s.settle(b);
  s.begin_operator({}, {});
  auto [c, g] = landed(s, s.copy_out(b));
  s.end_operator({});
  s.free(std::move(c)), s.free(std::move(h)), s.free(std::move(g));
}

TEST_CASE("device_heap: many past users are forgotten when they are over, or merged") {
  detail::address_fences past;
  const auto at = [](std::uint64_t e, std::uint64_t p) {
    return fence{}.join(stamp{static_cast<lane>(e), p});
  };
  for (std::uint64_t i = 0; i < 200; ++i) past.add(i * 10, i * 10 + 8, at(i % 3, i + 1));
  CHECK(detail::storage_check::of(past) == "");
  CHECK(past.should_forget());
  std::size_t asked = 0;
  past.forget([&](stamp s) {
    ++asked;
    return s.point <= 100;
  });
  CHECK(asked < 110);
  CHECK_FALSE(detail::storage_check::knows(past, 0, 990));
  CHECK(detail::storage_check::knows(past, 1000, 1001));
  CHECK_FALSE(past.should_forget());
  // What is taken from the middle leaves both sides.
  CHECK(past.take(1992, 1995) == at(199 % 3, 200));
  CHECK(detail::storage_check::knows(past, 1990, 1992));
  CHECK_FALSE(detail::storage_check::knows(past, 1992, 1995));
  CHECK(detail::storage_check::knows(past, 1995, 1998));
  CHECK(detail::storage_check::of(past) == "");
  past.note_use(1995, 2100, {lane::compute, 500});
  CHECK(past.take(1995, 1996).point[0] == 500);
  // Of too many, everybody waits for all.
  for (std::uint64_t i = 0; i < 2000; ++i)
    past.add(10'000 + i * 10, 10'008 + i * 10, at(1, 300 + i));
  CHECK(detail::storage_check::of(past) == "");
  CHECK(past.take(0, 1).point[1] >= 300);
  past.forget([](stamp) { return true; });
  CHECK(past.take(0, 1'000'000) == fence{});
}
