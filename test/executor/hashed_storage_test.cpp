// hashed_storage: a bit that flips on a copy, an argument that is written in secret and a replay
// that gives other bits are named, with operator and step; programs that keep the rules pass.
#include "hashes/hashed_storage.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "delta/engine/engine.hpp"
#include "delta/storage/arena.hpp"
#include "hashes/byte_hash.hpp"
#include "machine.hpp"
#include "random_program.hpp"
#include "seeds.hpp"

using namespace delta;
using namespace delta::hashes;
using namespace delta::test;

namespace {

// One bit of the copies in flips, from the given one on.
class flipping : public immediate {
 public:
  stamp copy(direction d, std::byte* to, const std::byte* from, bytes n, const fence& after) {
    const stamp done = immediate::copy(d, to, from, n, after);
    if (d == direction::in && ++copies_ == flips_at) to[n.count / 2] ^= std::byte{4};
    return done;
  }
  std::uint64_t flips_at = 0;  // 0: never

 private:
  std::uint64_t copies_ = 0;
};
static_assert(Device<flipping>);

struct checked {
  checked(const char* policy, std::uint64_t units, std::uint64_t host, hash_options o = {})
      : storage(device, {.capacity = unit * units, .host_capacity = unit * host}) {
    auto hashed = std::make_unique<hashed_storage>(over(storage), std::move(o));
    hashes = hashed.get();
    m = make_manager(policy, std::move(hashed));
  }
  tensor_id filled(int value) {
    const tensor_id t = m->variable(unit);
    const auto v = m->acquire(t, access::write);
    std::memset(v.data(), value, unit.count);
    return t;
  }
  // An operator as the executor runs it.
  template <class F>
  tensor_id run(const char* name, std::vector<tensor_id> in, F kernel) {
    hashes->begins(name);
    const std::array<bytes, 1> size{unit};
    std::array<tensor_id, 1> made{};
    m->run({.inputs = in, .outputs = size, .cost = nanoseconds{1000}, .name = name}, made,
           [this, name, kernel](call& c) mutable {
             if (c.replaying()) hashes->replays(name);
             kernel(c);
           });
    hashes->ends();
    hashes->check();
    return made[0];
  }
  [[nodiscard]] bool has(tensor_id t, int value) {
    const auto v = m->acquire(t);
    return v.data()[0] == std::byte(value) && v.data()[unit.count - 1] == std::byte(value);
  }
  flipping device;
  arena<flipping> storage;
  hashed_storage* hashes = nullptr;
  std::unique_ptr<manager_interface> m;
};

void add_one(call& c) {
  for (std::size_t i = 0; i < unit.count; ++i)
    c.out(0)[i] = std::byte(std::to_integer<int>(c.in(0)[i]) + 1);
}

template <class F>
std::optional<tensor_differs> found(const F& f) {
  try {
    f();
  } catch (const tensor_differs& e) {
    return e;
  }
  return std::nullopt;
}
bool says(const tensor_differs& e, const char* text) {
  return std::string(e.what()).find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("byte_hash: any bit, any place, any order and any length make another") {
  std::vector<std::byte> data(1000);
  expand(7, data);
  const auto of = [&](std::size_t n) { return byte_hash(data.data(), n); };
  const std::uint64_t whole = of(1000);
  CHECK(of(1000) == whole);
  CHECK(of(999) != whole);
  CHECK(of(0) != of(1));
  for (std::size_t i = 0; i < data.size(); ++i)
    for (const int bit : {0, 3, 7}) {
      data[i] ^= std::byte(1 << bit);
      CHECK(of(1000) != whole);
      data[i] ^= std::byte(1 << bit);
    }
  // All signs of an array of floats, and two rows that change places.
  for (std::size_t i = 3; i < data.size(); i += 4) data[i] ^= std::byte{0x80};
  CHECK(of(1000) != whole);
  for (std::size_t i = 3; i < data.size(); i += 4) data[i] ^= std::byte{0x80};
  CHECK(of(1000) == whole);
  for (const std::size_t row : {4u, 64u, 256u}) {
    std::swap_ranges(data.begin(), data.begin() + std::ptrdiff_t(row),
                     data.begin() + std::ptrdiff_t(row));
    CHECK(of(1000) != whole);
    std::swap_ranges(data.begin(), data.begin() + std::ptrdiff_t(row),
                     data.begin() + std::ptrdiff_t(row));
  }
  std::vector<std::byte> zeros(1 << 20);
  const std::uint64_t none = byte_hash(zeros.data(), zeros.size());
  zeros[77777] = std::byte{1};
  CHECK(byte_hash(zeros.data(), zeros.size()) != none);
}

TEST_CASE("hashed_storage: a bit that flips as a tensor comes back is a reload's") {
  for (const std::uint64_t flips : {0u, 1u, 3u}) {
    CAPTURE(flips);
    checked it("swap_lru", 4, 64);
    const auto e = found([&] {
      std::vector<tensor_id> sources;
      for (int i = 0; i < 6; ++i) sources.push_back(it.filled(i));
      it.device.flips_at = flips;
      for (int round = 0; round < 3; ++round) {
        for (const tensor_id t : sources) it.m->drop(it.run("reader", {t}, add_one));
        it.m->end_of_step();
        it.hashes->end_of_step();
      }
    });
    CHECK(it.hashes->counts().reloads >= flips);
    CHECK(e.has_value() == (flips != 0));
    if (!e) {
      CHECK(it.hashes->counts().reloads > 6);
      continue;
    }
    CHECK(e->where.why == cause::reload);
    CHECK(std::string(e->where.operation) == "reader");
    CHECK(e->where.number == flips);
    CHECK(e->where.step == 1);
    CHECK(says(*e, "has come back from the host with other bits, for operator 'reader' (number "));
    CHECK(!found([&] { it.hashes->check(); }));  // once
  }
}

TEST_CASE("hashed_storage: an argument that a kernel writes in secret is named") {
  checked it("online", 16, 16);
  const tensor_id x = it.filled(1);
  const tensor_id y = it.run("first", {x}, add_one);
  const auto e = found([&] {
    (void)it.run("culprit", {x, y}, [](call& c) {
      add_one(c);
      c.in(1)[63] ^= std::byte{1};
    });
  });
  REQUIRE(e);
  CHECK(e->where.why == cause::undeclared_write);
  CHECK(std::string(e->where.operation) == "culprit");
  CHECK(std::string(e->where.maker) == "first");
  CHECK(e->where.number == 2);
  CHECK(e->where.maker_number == 1);
  CHECK(e->where.tensor == y);
  CHECK(says(*e, "operator 'culprit' (number 2, step 1) has written tensor "));
  CHECK(says(*e, "of operator 'first' (number 1), an argument that it does not declare"));
  CHECK(it.has(x, 1));  // the manager can be used on
}

TEST_CASE("hashed_storage: what is declared may be written: updates, views, others' tensors") {
  std::vector<tensor_id> others;
  checked it("online", 16, 16, {.written_by_others = [&](tensor_id t) {
               return std::find(others.begin(), others.end(), t) != others.end();
             }});
  const tensor_id x = it.filled(1), z = it.filled(3);
  it.hashes->begins("update");
  it.m->run<0>({.updates = {x}}, [](call& c) { std::memset(c.update(0), 9, unit.count); });
  it.hashes->check();
  const tensor_id y = it.run("reader", {x}, add_one);
  CHECK(it.has(y, 10));
  {
    const auto v = it.m->acquire(x, access::write);
    std::memset(v.data(), 5, unit.count);
  }
  (void)it.run("reader", {x}, add_one);
  {
    // Held, it is the program's to write; an operator meanwhile reads what is there.
    const auto v = it.m->acquire(z, access::write);
    std::memset(v.data(), 6, unit.count);
    (void)it.run("reader", {z}, add_one);
    std::memset(v.data(), 7, unit.count);
  }
  (void)it.run("reader", {z}, add_one);
  others.push_back(z);
  CHECK(!found([&] { it.run("other", {z}, [](call& c) { c.in(0)[0] = std::byte{0}; }); }));
  // An operator that writes over its input, as a new version of it.
  it.hashes->begins("in place", std::array{y});
  it.m->run({.inputs = {y}, .outputs = {unit}}, [](call& c) { c.in(0)[0] = std::byte{0}; });
  CHECK(!found([&] { it.hashes->check(); }));
  CHECK(it.hashes->counts().arguments >= 5);
}

TEST_CASE("hashed_storage: a replay that gives other bits is its operator's") {
  for (const bool wrong : {false, true}) {
    CAPTURE(wrong);
    checked it("dtr", 5, 0);
    const auto e = found([&] {
      const tensor_id x = it.filled(1);
      std::vector<tensor_id> made;
      int calls = 0;
      for (int i = 0; i < 8; ++i)
        made.push_back(it.run("maker", {x}, [i, wrong, calls](call& c) mutable {
          add_one(c);
          c.out(0)[1] = std::byte(wrong && i == 2 ? ++calls : i);
        }));
      for (const tensor_id t : made) it.m->drop(it.run("reader", {t}, add_one));
    });
    CHECK(it.m->counts().recomputes > 0);
    CHECK(it.hashes->counts().recomputes > 0);
    CHECK(e.has_value() == wrong);
    if (!e) continue;
    CHECK(e->where.why == cause::recompute);
    CHECK(std::string(e->where.operation) == "maker");
    CHECK(e->where.number == 3);
    CHECK(e->where.step == 1);
    CHECK(says(*e, "operator 'maker' (number 3, step 1) did not give the same bits"));
  }
}

TEST_CASE("hashed_storage: large tensors are hashed in pieces, by threads, to the same effect") {
  int pieces = 0;
  const bytes size{(1 << 20) + 5};
  const auto train = [&](bool parallel, bool wrong) {
    immediate device;
    arena<immediate> storage(device, {.capacity = size * 4});
    hash_options o;
    if (parallel)
      o.in_parallel = [&](std::size_t n, const std::function<void(std::size_t)>& f) {
        for (std::size_t i = n; i-- > 0; ++pieces) f(i);
      };
    auto made = std::make_unique<hashed_storage>(over(storage), std::move(o));
    hashed_storage& hashes = *made;
    const auto m = make_manager("dtr", std::move(made));
    const tensor_id x = m->variable(size);
    {
      const auto v = m->acquire(x, access::write);
      std::memset(v.data(), 1, size.count);
    }
    hashes.begins("op");
    m->run<0>({.inputs = {x}}, [&](call& c) {
      if (wrong) c.in(0)[size.count - 1] = std::byte{2};
    });
    return found([&] { hashes.check(); }).has_value();
  };
  for (const bool parallel : {false, true})
    for (const bool wrong : {false, true}) CHECK(train(parallel, wrong) == wrong);
  CHECK(pieces >= 10);
}

TEST_CASE("hashed_storage, property: random programs under pressure pass, and do what they did") {
  std::uint64_t compared = 0, reloads = 0, recomputes = 0;
  for (std::uint64_t seed = 1; seed <= seeds(60); ++seed) {
    CAPTURE(seed);
    const program p = random_program(seed);
    const auto wanted = evaluate(p);
    for (const char* policy : {"online", "dtr", "adaptive"}) {
      CAPTURE(policy);
      immediate device;
      arena<immediate> storage(device, {.capacity = bytes{largest_footprint(p, 64).count * 3 / 2},
                                        .host_capacity = bytes{1 << 20}});
      auto made = std::make_unique<hashed_storage>(over(storage));
      hashed_storage& hashes = *made;
      const auto m = make_manager(policy, std::move(made));
      // Who does not tell of replays has them taken for new tensors, so this asks less of those.
      try {
        const auto got = run_program(
            *m, p, run_now{}, [&] { hashes.check(); },
            seed % 2 == 0 ? manner::whole : manner::looking);
        CHECK(got == wanted);
      } catch (const budget_exceeded&) {
        continue;  // of recomputation alone
      }
      compared += hashes.counts().compared();
      reloads += hashes.counts().reloads;
      recomputes += m->counts().recomputes;
    }
  }
  MESSAGE(compared, " comparisons, ", reloads, " of them reloads; ", recomputes, " recomputes");
  CHECK(compared > seeds(60));
  CHECK(reloads > seeds(60));
}
