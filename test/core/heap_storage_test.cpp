// Blocks that are allocations of their own: the storage contract as far as nothing moves, and what
// a framework does with it: bytes of its own, tensors shown by address.
#include "delta/storage/heap_storage.hpp"

#include <doctest/doctest.h>
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/manager.hpp"
#include "delta/presets.hpp"
#include "storage_check.hpp"
#include "storage_contract.hpp"

using namespace delta;
using namespace delta::test;

namespace {

// What the contract looks at besides.
struct shown : heap_storage {
  using heap_storage::heap_storage;
  [[nodiscard]] bytes largest_hole() const { return capacity() - used(); }
  std::optional<block> allocate(bytes n, lifetime l) {
    auto b = heap_storage::allocate(n, l);
    if (b) sizes[b->index()] = n;
    return b;
  }
  template <class F>
  void walk_blocks(const F& f) const {
    for (const auto& [i, size] : sizes) f(i, size, true);
  }
  std::map<std::uint32_t, bytes> sizes;
};
// Counts brackets, within which blocks may come and go, or may not, as of a storage that says
// nothing.
struct bracketed : heap_storage {
  bracketed(heap_options o, bool open) : heap_storage(std::move(o)), stays_open(open) {}
  [[nodiscard]] bool may_allocate_in_operator() const { return stays_open; }
  void begin_operator(std::span<const block* const> reads, std::span<const block* const> writes) {
    ++brackets, ++begun;
    heap_storage::begin_operator(reads, writes);
  }
  stamp end_operator(nanoseconds cost) {
    ++ended;
    return heap_storage::end_operator(cost);
  }
  bool stays_open;
  int brackets = 0, begun = 0, ended = 0;
};
struct heap_subject : subject_base<shown, void> {
  explicit heap_subject(subject_sizes o = {})
      : storage({.capacity = o.capacity, .host_capacity = o.host_capacity}) {}
  [[nodiscard]] std::vector<std::string> complaints() const { return {}; }
  shown storage;
};

// A source that counts, and runs dry.
struct counted_source {
  std::size_t live = 0, left = 1000;
  std::vector<bool> refusals;  // of the next calls, the last one first
  [[nodiscard]] memory_source source() {
    return {[](void* self, std::size_t size) -> void* {
              auto& me = *static_cast<counted_source*>(self);
              bool refuses = me.left == 0;
              if (!me.refusals.empty()) refuses = me.refusals.back(), me.refusals.pop_back();
              if (refuses) return nullptr;
              --me.left, ++me.live;
              return std::malloc(size);
            },
            [](void* self, void* memory, std::size_t) {
              --static_cast<counted_source*>(self)->live;
              std::free(memory);
            },
            this};
  }
};

}  // namespace

TYPE_TO_STRING(heap_subject);
TEST_CASE_TEMPLATE_INVOKE(storage_counts, heap_subject);
TEST_CASE_TEMPLATE_INVOKE(storage_round_trip, heap_subject);
TEST_CASE_TEMPLATE_INVOKE(storage_zero, heap_subject);
TEST_CASE_TEMPLATE_INVOKE(storage_snapshot, heap_subject);
TEST_CASE_TEMPLATE_INVOKE(storage_early_reuse, heap_subject);
TEST_CASE_TEMPLATE_INVOKE(storage_host_full, heap_subject);
TEST_CASE_TEMPLATE_INVOKE(storage_stamps, heap_subject);
TEST_CASE_TEMPLATE_INVOKE(storage_beside, heap_subject);
TEST_CASE_TEMPLATE_INVOKE(storage_host_reads, heap_subject);

TEST_CASE("heap_storage: all of it goes back to its source, and a source that is dry is no room") {
  counted_source device, host;
  {
    heap_storage s{{.capacity = 1_KiB,
                    .host_capacity = 1_KiB,
                    .device = device.source(),
                    .host = host.source()}};
    auto a = s.allocate(100_B, {}), b = s.allocate(100_B, {});
    auto t = s.copy_out(*a);
    CHECK(device.live == 2);
    CHECK(host.live == 1);
    auto [c, h] = s.land(std::move(*t));
    s.free(std::move(c));
    CHECK(device.live == 1);
    device.left = host.left = 0;
    CHECK_FALSE(s.allocate(100_B, {}));
    CHECK_FALSE(s.copy_out(*b));
    CHECK(s.used() == 128_B);
    CHECK(check_invariants(s) == "");
  }
  CHECK(device.live == 0);
  CHECK(host.live == 0);
}

#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
TEST_CASE(
    "heap_storage: what has left makes place for blocks of the same size in the process, too") {
  const std::uint64_t n = 96 * 1024;  // less than malloc maps one by one
  heap_storage storage({.capacity = bytes{64 * n}});
  std::vector<block> blocks;
  const auto fill = [&] {
    while (auto b = storage.allocate(bytes{n}, lifetime::transient))
      blocks.push_back(std::move(*b));
  };
  // By sanitizers malloc is another: 0.
  const auto taken = [] { return ::mallinfo2().arena; };
  const auto before = taken();
  fill();
  std::vector<std::unique_ptr<char[]>> others;  // of the program: between what was freed
  std::mt19937 random(9);
  for (int round = 0; round < 50; ++round) {
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (int i = 0; i < 32; ++i) {
      storage.free(std::move(blocks.back()));
      blocks.pop_back();
      others.push_back(std::make_unique<char[]>(24 + random() % 64));
    }
    fill();
  }
  CHECK(taken() - before < 80 * n);
  for (block& b : blocks) storage.free(std::move(b));
}
#endif

TEST_CASE("heap_storage: bytes of the program's own count, come and go") {
  static int released = 0;
  released = 0;
  std::vector<std::pair<tensor_id, std::byte*>> told;
  std::byte mine[100] = {}, other[100] = {};
  const auto release = [](void*, void*, std::size_t n) { released += n == 100 ? 1 : 1000; };
  {
    heap_storage s{{.capacity = 256_B,
                    .host_capacity = 256_B,
                    .on_owner_changed = [&](auto t, auto* at) { told.emplace_back(t, at); }}};
    manager m{online(), s};
    auto b = s.adopt(mine, 100_B, release);
    REQUIRE(b);
    CHECK(s.used() == 128_B);
    CHECK(s.data(*b) == mine);
    CHECK_FALSE(s.adopt(other, 129_B, release));
    CHECK_FALSE(s.adopt(other, bytes{~std::uint64_t{0}}, release));
    const tensor_id v = m.variable(100_B, "mine", std::move(*b));
    CHECK((told.back() == std::pair{v, &mine[0]}));
    m.make_room(256_B);  // it leaves: its bytes are the program's again
    CHECK(released == 1);
    CHECK((told.back() == std::pair{v, static_cast<std::byte*>(nullptr)}));
    CHECK(m.where(v) == residency::host);
    const auto view = m.acquire(v);
    CHECK(view.data() != mine);
    CHECK((told.back() == std::pair{v, view.data()}));
    // Given up by the storage, not freed.
    auto kept = s.adopt(other, 100_B, release);
    const auto [at, source] = s.surrender(std::move(*kept));
    CHECK(at == other);
    CHECK((source.release != nullptr));
    CHECK(released == 1);
    CHECK(s.used() == 128_B);
  }
  CHECK(released == 1);
}

TEST_CASE("heap_storage: random programs keep their bytes, and tensors are where it was told") {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::map<tensor_id, std::byte*> at;
    counted_source device;
    {
      heap_storage s{{.capacity = 12_KiB,
                      .host_capacity = seed % 2 ? 64_KiB : 0_B,
                      .device = device.source(),
                      .on_owner_changed = [&](tensor_id t, std::byte* p) { at[t] = p; }}};
      device.left = ~std::size_t{0};
      manager m{online(), s};
      std::vector<std::pair<tensor_id, unsigned>> live;  // and what every byte of it is
      const auto fill = [](call& c, unsigned value, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) c.out(0)[i] = static_cast<std::byte>(value);
      };
      for (unsigned step = 0; step < 400; ++step) {
        const auto pick = [&] { return live[random() % live.size()]; };
        if (live.size() < 2 || random() % 3 > 0) {
          if (live.empty() || random() % 4 == 0) {
            const tensor_id y = m.run({.outputs = {1_KiB}, .cost = nanoseconds{1000}},
                                      [=](call& c) { fill(c, step, 1024); });
            live.emplace_back(y, step & 255u);
          } else {
            const auto [x, was] = pick();
            const tensor_id y = m.run(
                {.inputs = {x}, .outputs = {1_KiB}, .cost = nanoseconds{1000}},
                [=](call& c) { fill(c, std::to_integer<unsigned>(c.in(0)[1023]) + 1, 1024); });
            live.emplace_back(y, (was + 1) & 255u);
          }
        } else {
          const std::size_t i = random() % live.size();
          m.drop(live[i].first);
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
        }
        if (live.size() > 14) {
          m.drop(live.front().first);
          live.erase(live.begin());
        }
        CHECK(s.used() <= s.capacity());
        if (live.empty()) continue;
        const auto [t, value] = pick();
        const auto view = m.acquire(t);
        CHECK(at[t] == view.data());
        CHECK(std::to_integer<unsigned>(view.data()[500]) == value);
      }
      CHECK(check_invariants(s) == "");
    }
    CHECK(device.live == 0);
  }
}

TEST_CASE("heap_storage: an open operator is one bracket as long as nothing has to leave") {
  for (const bool stays_open : {true, false}) {
    CAPTURE(stays_open);
    bracketed s({.capacity = 8_KiB, .host_capacity = 8_KiB}, stays_open);
    manager m{online(), s};
    const tensor_id x = m.run({.outputs = {1_KiB}, .cost = nanoseconds{1000}}, [](call&) {});
    (void)m.variable(1_KiB);
    const auto at_first = [&] { return std::exchange(s.brackets, 0); };
    (void)at_first();
    {
      auto op = m.begin({.inputs = {x}});
      (void)op.allocate(1_KiB);
      block scratch = m.take_block(2_KiB);
      CHECK(s.used() == 5_KiB);
      m.give_back(std::move(scratch));
      if (stays_open) CHECK(s.used() == 3_KiB);  // it goes at once
      const std::array<bytes, 2> sizes{1_KiB, 1_KiB};
      (void)op.allocate(sizes);
      (void)op.workspace(1_KiB);
      (void)op.replace(x);
      std::array<tensor_id, 4> made;
      op.end(made, [](call&) {});
      CHECK(at_first() == (stays_open ? 1 : 5));
      CHECK(s.used() == 5_KiB);
    }
    // Now something has to leave: that is not the kernel's time.
    {
      auto op = m.begin({.outputs = {1_KiB}});
      (void)op.allocate(4_KiB);
      CHECK(m.counts().evictions + m.counts().offloads > 0);
      std::array<tensor_id, 2> made;
      op.end(made, [](call&) {});
      CHECK(at_first() == (stays_open ? 2 : 3));
    }
    CHECK(s.peak() <= s.capacity());
    CHECK(check_invariants(s) == "");
  }
}

TEST_CASE("heap_storage: a kernel may give a block back that it still uses") {
  counted_source device;
  heap_storage s{{.capacity = 8_KiB, .device = device.source()}};
  manager m{online(), s};
  block b = m.take_block(1_KiB);
  std::byte* const at = s.data(b);
  const tensor_id y = m.run({.outputs = {1_KiB}}, [&](call&) {
    if (b) m.give_back(std::move(b));
    CHECK(device.live == 2);
    at[0] = std::byte{1};
  });
  CHECK(device.live == 1);
  m.drop(y);
  block outside = m.take_block(1_KiB);
  m.give_back(std::move(outside));
  CHECK(device.live == 0);
}

TEST_CASE("heap_storage: where the source runs dry within a bracket, the operator is still open") {
  counted_source device;
  bracketed s({.capacity = 8_KiB, .device = device.source()}, true);
  {
    manager m{online(), s};
    {
      auto op = m.begin({.outputs = {1_KiB}});
      device.left = 0;
      CHECK_THROWS_AS(op.allocate(1_KiB), budget_exceeded);
      const std::array<bytes, 2> sizes{1_KiB, 1_KiB};
      CHECK_THROWS_AS(op.allocate(sizes), budget_exceeded);
      CHECK(device.live == 1);
      device.left = 10;
      (void)op.allocate(1_KiB);
      std::array<tensor_id, 2> made;
      op.end(made, [](call&) {});
      for (const tensor_id t : made) m.drop(t);
    }
    {
      device.left = 1;
      CHECK_THROWS_AS((void)m.begin({.outputs = {1_KiB, 1_KiB}}), budget_exceeded);
      device.left = 10;
      auto op = m.begin({.outputs = {1_KiB}});  // given up
    }
    m.drop(m.run({.outputs = {1_KiB}}, [](call&) {}));
  }
  CHECK(s.begun == s.ended);
  CHECK(device.live == 0);
}

TEST_CASE("heap_storage: a block that another takes from a shared source is a shortage, no more") {
  counted_source device;
  heap_storage s({.capacity = 8_KiB, .device = device.source()});
  {
    manager m{online(), s};
    const tensor_id v = m.variable(1_KiB);
    // Room is made once, and is gone when it is taken.
    device.refusals = {true, false, true};
    try {
      (void)m.take_block(1_KiB);
      FAIL("the source refuses");
    } catch (const budget_exceeded& e) {
      CHECK(std::string(e.report.operation) == "take_block");
      CHECK(e.report.requested == 1_KiB);
    }
    block b = m.take_block(1_KiB);
    m.give_back(std::move(b));
    m.drop(v);
  }
  CHECK(device.live == 0);
}

TEST_CASE("heap_storage: nothing is copied early, as a copy hides behind no kernel") {
  heap_storage s{{.capacity = 4_KiB, .host_capacity = 16_KiB}};
  CHECK(s.burden(direction::in) == 1);
  manager m{adaptive(), s};
  std::vector<tensor_id> all;
  for (int i = 0; i < 8; ++i) all.push_back(m.variable(1_KiB));
  for (int step = 0; step < 5; ++step) {
    for (const tensor_id t : all) m.drop(m.run({.inputs = {t}, .outputs = {512_B}}, [](call&) {}));
    m.end_of_step();
  }
  // At most four of the eight are there when a step begins.
  CHECK(m.counts().reloads >= 5u * 4u);
  CHECK(m.counts().prefetches == 0);
  CHECK(m.counts().copies_ahead == 0);
}

TEST_CASE("heap_storage: blocks that are held split nothing: a named budget has no pieces in it") {
  const auto program = [](bytes budget) {
    heap_storage s{{.capacity = budget}};
    manager m{recompute_only(), s};
    std::vector<block> own;
    for (int i = 0; i < 3; ++i) own.push_back(m.take_block(1_KiB));
    const auto failed = [&]() -> std::optional<memory_report> {
      try {
        const tensor_id t = m.constant(4_KiB);
        m.drop(t);
        return std::nullopt;
      } catch (const budget_exceeded& e) {
        return e.report;
      }
    }();
    for (block& b : own) m.give_back(std::move(b));
    return failed;
  };
  const auto report = program(6_KiB);
  REQUIRE(report.has_value());
  CHECK(report->smallest_budget == 7_KiB);
  CHECK(report->foreign == 3_KiB);
  CHECK(report->held == 0);
  CHECK_FALSE(program(7_KiB).has_value());
}
