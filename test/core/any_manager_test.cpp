// any_manager: errors as values and as exceptions, what kernels throw, handles, devices of C
// functions.
#include "delta/any_manager.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "delta/storage/host_device.hpp"

using namespace delta;

namespace {

constexpr std::uint64_t unit = 4096;

any_options options(std::uint64_t units, std::uint64_t host = 0, std::string policy = "online") {
  any_options o;
  o.budget = units * unit, o.host_budget = host * unit, o.policy = std::move(policy);
  return o;
}
any_manager make(const any_options& o) {
  return any_manager::make(o).value();
}
const auto fill = [](const any_call& c) { std::memset(c.out(0), 7, unit); };
const auto next = [](const any_call& c) {
  for (std::size_t i = 0; i < unit; ++i)
    c.out(0)[i] = std::byte(std::to_integer<int>(c.in(0)[i]) + 1);
};
int first_byte(any_manager& m, const any_tensor& t) {
  const any_view v = m.read(t).value();
  return std::to_integer<int>(v.data()[0]);
}

}  // namespace

TEST_CASE("any_manager: tensors leave and come back, by whatever policy") {
  for (std::size_t i = 0; delta_policy_name(i) != nullptr; ++i) {
    const std::string policy = delta_policy_name(i);
    if (policy == "unmanaged") continue;
    CAPTURE(policy);
    any_manager m = make(options(5, 40, policy));
    std::vector<any_tensor> chain{m.variable(unit, "first").value()};
    {
      const any_view v = m.write(chain[0]).value();
      std::memset(v.data(), 1, v.size());
    }
    for (int k = 0; k < 12; ++k)
      chain.push_back(
          m.run(any_operation("next").reads({chain.back()}).makes({unit}), next).value());
    for (int k = 0; k <= 12; ++k) CHECK(first_byte(m, chain[std::size_t(k)]) == k + 1);
    CHECK(m.counts().peak <= 5 * unit);
    CHECK(m.counts().operators == 12);
    chain.clear();
    CHECK(m.end_of_step());
  }
}

TEST_CASE("any_manager: errors are values, with numbers") {
  any_manager m = make(options(2));
  auto x = m.constant(unit, "mine").value();
  auto failed = m.run(any_operation("too large").reads({x}).makes({2 * unit}), fill);
  REQUIRE(!failed);
  CHECK(failed.error().status() == DELTA_BUDGET_EXCEEDED);
  CHECK(std::string(failed.error().what()).find("too large") != std::string::npos);
  CHECK(failed.error().details().budget == 2 * unit);
  CHECK(failed.error().details().smallest_budget == 3 * unit);
  CHECK_THROWS_AS((void)failed.value(), any_failure);
  CHECK(m.run(any_operation("fits").reads({x}).makes({unit}), fill));
  // Misuse: an operator is open.
  auto op = m.begin(any_operation("open").reads({x})).value();
  auto second = m.begin(any_operation("second"));
  REQUIRE(!second);
  CHECK(second.error().status() == DELTA_MISUSE);
  CHECK(!m.end_of_step());
}

TEST_CASE("any_manager: options that make no sense are told before anything is made") {
  const auto refused = [](const any_options& o, delta_status why, const char* word) {
    const auto m = any_manager::make(o);
    REQUIRE(!m);
    CHECK(m.error().status() == why);
    CHECK(std::string(m.error().what()).find(word) != std::string::npos);
  };
  refused(options(4, 0, "best"), DELTA_UNKNOWN_POLICY, "'best'");
  refused(options(0), DELTA_BAD_OPTION, "budget");
  any_options o = options(4);
  o.granularity = 48;
  refused(o, DELTA_BAD_OPTION, "48");
  o = options(4);
  o.observer = "telescope";
  refused(o, DELTA_BAD_OPTION, "telescope");
  o.observer = "timeline:/nowhere/at/all.json";
  refused(o, DELTA_BAD_OPTION, "/nowhere/at/all.json");
  o = options(4);
  const delta_device empty{};
  o.device = &empty;
  refused(o, DELTA_BAD_OPTION, "device_memory");
}

TEST_CASE("any_manager: what a kernel throws passes through; a kernel may say that it failed") {
  any_manager m = make(options(4));
  auto thrown = m.run(any_operation("throws").makes({unit}),
                      [](const any_call&) { throw std::runtime_error("mine"); });
  REQUIRE(!thrown);
  CHECK(thrown.error().status() == DELTA_KERNEL_FAILED);
  CHECK_THROWS_WITH_AS((void)thrown.value(), "mine", std::runtime_error);
  CHECK(m.counts().used == 0);
  bool good = false;
  const auto body = [&good](const any_call&) { return good; };
  auto failed = m.run(any_operation("says so").makes({unit}), body);
  REQUIRE(!failed);
  CHECK(failed.error().status() == DELTA_KERNEL_FAILED);
  CHECK_THROWS_AS((void)failed.value(), any_failure);
  good = true;
  CHECK(m.run(any_operation("says so").makes({unit}), body));
}

TEST_CASE("any_manager: a kernel that calls the manager is refused, and spoils nothing") {
  any_manager m = make(options(8));
  const auto x = m.run(any_operation("fill").makes({unit}), fill).value();
  std::vector<delta_status> told;
  const auto made =
      m.run_all(any_operation("calls").reads({x}).makes({unit, 64, unit}), [&](const any_call& c) {
         const auto nested = m.run_all(any_operation("in").makes({8, 8}), fill);
         told.push_back(nested.error().status());
         told.push_back(m.begin(any_operation("open")).error().status());
         for (const std::size_t i : {0u, 2u}) std::memset(c.out(i), 9, unit);
         std::memset(c.out(1), 9, 64);
       }).value();
  CHECK(told == std::vector{DELTA_MISUSE, DELTA_MISUSE});
  REQUIRE(made.size() == 3);
  CHECK(m.read(made[1]).value().size() == 64);
  CHECK(m.read(made[2]).value().size() == unit);
  CHECK(first_byte(m, made[2]) == 9);
}

TEST_CASE("any_manager: references that a kernel's captures count wait until the call is over") {
  any_manager m = make(options(8, 0, "dtr"));
  auto x = m.run(any_operation("fill").makes({unit}), fill).value();
  {
    const auto y = m.run(any_operation("captures").makes({unit}), [x](const any_call& c) {
                      const any_tensor also = x;  // one more, and one less
                      std::memset(c.out(0), 1, unit);
                    }).value();
    x = any_tensor();
    CHECK(m.counts().used == 2 * unit);
  }
  CHECK(m.end_of_step());
  CHECK(m.counts().used == 0);
}

TEST_CASE("any_manager: run and end are for operators with one output") {
  any_manager m = make(options(8));
  const auto two = m.run(any_operation("two").makes({64, 64}), fill);
  REQUIRE(!two);
  CHECK(two.error().status() == DELTA_MISUSE);
  auto op = m.begin(any_operation("none")).value();
  const auto none = op.end(fill);
  REQUIRE(!none);
  CHECK(std::string(none.error().what()).find("end_all") != std::string::npos);
  CHECK(op.end_all(fill).value().empty());
}

TEST_CASE("throwing_manager: values, and exceptions") {
  throwing_manager m = throwing_manager::make(options(3));
  any_tensor x = m.run(any_operation("fill").makes({unit}), fill);
  const any_view bytes = m.read(x);
  CHECK(bytes.data()[unit - 1] == std::byte{7});
  CHECK_THROWS_AS((void)m.variable(3 * unit), any_failure);
  CHECK_THROWS_AS(m.make_room(3 * unit), any_failure);
  const auto several = m.run_all(any_operation("two").makes({64, 64}), [](const any_call& c) {
    std::memset(c.out(0), 1, 64), std::memset(c.out(1), 2, 64);
  });
  CHECK(several.size() == 2);
  m.backward();
  CHECK_THROWS_AS((void)throwing_manager::make(options(3, 0, "none")), any_failure);
}

TEST_CASE("any_manager: a kernel is destroyed once, wherever it ends") {
  const auto counted = std::make_shared<int>();
  {
    any_manager m = make(options(3, 0, "dtr"));
    const auto body = [counted](const any_call& c) { std::memset(c.out(0), 1, unit); };
    const auto x = m.run(any_operation("kept").makes({unit}), body).value();
    CHECK(counted.use_count() == 3);  // here, in `body`, and for a replay
    CHECK(!m.run(any_operation("no room").reads({x}).makes({3 * unit}), body));
    CHECK(counted.use_count() == 3);
    auto op = m.begin(any_operation("open").reads({x})).value();
    CHECK(op.allocate(unit));
    body(op.arguments().value());
    const any_tensor y = op.end(body).value();
    CHECK(counted.use_count() == 4);
  }
  CHECK(counted.use_count() == 1);
}

TEST_CASE("any_manager: handles count references, and may outlive the manager") {
  any_tensor kept;
  CHECK(!kept);
  {
    any_manager m = make(options(4));
    any_tensor x = m.run(any_operation("fill").makes({unit}), fill).value();
    any_tensor copy = x;
    CHECK(copy.id() == x.id());
    x = any_tensor();
    CHECK(m.counts().used == unit);
    copy = any_tensor();
    kept = m.run(any_operation("fill").makes({unit}), fill).value();
    CHECK(kept.id() == 0);
    any_manager moved = std::move(m);
    CHECK(first_byte(moved, kept) == 7);
  }
  const any_tensor also = kept;
  CHECK(also);
}

TEST_CASE("any_manager: workspaces are counted, and seen by replays") {
  any_manager m = make(options(4, 0, "dtr"));
  const auto x = m.run(any_operation("fill").makes({unit}), fill).value();
  auto op = m.begin(any_operation("scratch").reads({x}).workspace(64)).value();
  CHECK(op.workspace(64).value() == 1);
  CHECK(op.allocate(unit).value() == 0);
  int runs = 0;
  const auto body = [&runs](const any_call& c) {
    ++runs;
    c.workspace(0)[0] = std::byte{3};
    c.workspace(1)[0] = std::byte{4};
    std::memset(c.out(0), std::to_integer<int>(c.workspace(0)[0] | c.workspace(1)[0]), unit);
    CHECK(c.workspace(2) == nullptr);
  };
  body(op.arguments().value());
  const auto y = op.end(body).value();
  CHECK(m.make_room(4 * unit));
  CHECK(m.counts().used == 0);
  CHECK(first_byte(m, y) == 7);
  CHECK(runs == 2);
  CHECK(m.counts().recomputes == 2);
}

namespace {

// host_device as a table of C functions.
struct table {
  host_device device;
  int copies = 0;
  static host_device& of(void* self) { return static_cast<table*>(self)->device; }
  static fence after(const std::uint64_t* p) {
    fence f;
    for (std::size_t e = 0; e < lane_count; ++e) f.join(stamp{static_cast<lane>(e), p[e]});
    return f;
  }
  delta_device functions() {
    delta_device d{};
    d.self = this;
    d.device_memory = [](void* s, std::uint64_t n) -> void* {
      return of(s).device_memory(bytes{n});
    };
    d.host_memory = [](void* s, std::uint64_t n) -> void* { return of(s).host_memory(bytes{n}); };
    d.copy = [](void* s, int way, void* to, const void* from, std::uint64_t n,
                const std::uint64_t* f) {
      ++static_cast<table*>(s)->copies;
      return of(s)
          .copy(way == 0 ? direction::out : direction::in, static_cast<std::byte*>(to),
                static_cast<const std::byte*>(from), bytes{n}, after(f))
          .point;
    };
    d.begin = [](void* s, const std::uint64_t* f) { of(s).begin(after(f)); };
    d.move = [](void* s, void* to, const void* from, std::uint64_t n) {
      of(s).move(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes{n});
    };
    d.end = [](void* s) { return of(s).end().point; };
    d.reached = [](void*, int, std::uint64_t) { return 1; };
    d.wait = [](void*, int, std::uint64_t) {};
    d.elapsed = [](void* s, int e, std::uint64_t p) {
      const auto took = of(s).elapsed({static_cast<lane>(e), p});
      return took ? took->count() : std::int64_t{-1};
    };
    d.now = [](void* s) { return std::int64_t{of(s).now().count()}; };
    d.rate = [](void* s, int way) { return of(s).rate(static_cast<direction>(way)); };
    return d;
  }
};

}  // namespace

TEST_CASE("any_manager: a device of C functions, and a timeline") {
  const std::string file =
      (std::filesystem::temp_directory_path() / "any_manager_test.json").string();
  table t;
  const delta_device device = t.functions();
  {
    any_options o = options(3, 8, "swap_lru");
    o.device = &device;
    o.observer = "timeline:" + file;
    any_manager m = make(o);
    std::vector<any_tensor> made;
    for (int k = 0; k < 6; ++k)
      made.push_back(m.run(any_operation("fill").makes({unit}), fill).value());
    for (const any_tensor& x : made) CHECK(first_byte(m, x) == 7);
    CHECK(m.counts().offloads > 0);
    CHECK(t.copies > 3);
    CHECK(m.counts().host_peak > 0);
  }
  std::ifstream in(file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  CHECK(text.find("fill") != std::string::npos);
  CHECK(text.substr(text.size() - 3) == "\n]\n");
  std::filesystem::remove(file);
}

TEST_CASE("any_manager: check_replays names a kernel that gives other bits when it runs again") {
  any_options o = options(8);
  o.check_replays = true;
  any_manager m = make(o);
  const auto x = m.run(any_operation("fill").makes({unit}), fill).value();
  int runs = 0;
  const auto r = m.run(any_operation("suspect").reads({x}).makes({unit}),
                       [&](const any_call& c) { std::memset(c.out(0), ++runs, unit); });
  REQUIRE(!r);
  CHECK(r.error().status() == DELTA_REPLAY_DIFFERS);
  CHECK(std::string(r.error().what()).find("'suspect'") != std::string::npos);
  CHECK(m.counts().replays_checked == 1);
}

TEST_CASE("any_manager: a device that measures nothing is warned of once") {
  table t;
  delta_device device = t.functions();
  std::vector<std::string> lines;
  any_options o = options(4, 0, "online");
  o.device = &device;
  o.warn = [](void* to, const char* line) {
    static_cast<std::vector<std::string>*>(to)->emplace_back(line);
  };
  o.warn_self = &lines;
  const auto recompute = [&] {
    any_manager m = make(o);
    std::vector<any_tensor> made;
    for (int k = 0; k < 50; ++k)
      made.push_back(m.run(any_operation("fill").makes({unit}), fill).value());
    for (const any_tensor& x : made) CHECK(first_byte(m, x) == 7);
    CHECK(m.counts().recomputes > 0);
    return m.counts().guessed_costs;
  };
  CHECK(recompute() == 0);
  CHECK(lines.empty());
  device.elapsed = [](void*, int, std::uint64_t) { return std::int64_t{-1}; };
  CHECK(recompute() == 50);
  REQUIRE(lines.size() == 1);
  CHECK(lines.front().find("unknown cost") != std::string::npos);
  int asked = 0;
  device.self = &t;
  static int* count = nullptr;
  count = &asked;
  device.move_rate = [](void*) { return ++*count, 1e12; };
  CHECK(recompute() == 50);
  CHECK(asked > 0);
}

TEST_CASE("any_manager: a device that has not so much memory") {
  table t;
  delta_device device = t.functions();
  device.device_memory = [](void*, std::uint64_t) -> void* { return nullptr; };
  any_options o = options(4);
  o.device = &device;
  const auto m = any_manager::make(o);
  REQUIRE(!m);
  CHECK(m.error().status() == DELTA_OUT_OF_MEMORY);
}

TEST_CASE("host_device: measures what work takes, and rates") {
  host_device d;
  CHECK(d.rate(direction::out) == host_device::assumed_rate);
  CHECK(d.latency(direction::out) == host_device::assumed_latency);
  CHECK(d.burden(direction::in) == 1);  // nothing computes beside a copy
  std::byte* const a = d.device_memory(bytes{1 << 20});
  std::byte* const b = d.host_memory(bytes{1 << 20});
  CHECK(reinterpret_cast<std::uintptr_t>(a) % 4096 == 0);
  std::memset(a, 5, 1 << 20);
  const stamp copied = d.copy(direction::out, b, a, bytes{1 << 20}, {});
  CHECK(b[(1 << 20) - 1] == std::byte{5});
  CHECK(d.elapsed(copied)->count() > 0);
  CHECK(d.rate(direction::out) != host_device::assumed_rate);
  CHECK(d.rate(direction::in) == host_device::assumed_rate);
  d.begin({});
  d.move(a + 1, a, bytes{100});
  const stamp worked = d.end();
  CHECK(*d.began(worked) >= *d.began(copied) + *d.elapsed(copied));
  CHECK(d.now() >= *d.began(worked));
  for (int i = 0; i < 2000; ++i) d.begin({}), (void)d.end();
  CHECK(!d.elapsed(worked));
  CHECK(!d.elapsed({lane::compute, 0}));
}

namespace {

// Writes over its input where both are one, and beside it in a replay.
const auto next_in_place = [](const any_call& c) {
  for (std::size_t i = 0; i < unit; ++i)
    c.out(0)[i] = std::byte(std::to_integer<int>(c.in(0)[i]) + 1);
};

}  // namespace

TEST_CASE("any_manager: bytes that exist become a variable, a constant, an output") {
  any_manager m = make(options(4, 8));
  any_block mine = m.take_block(unit).value();
  CHECK(mine.size() == unit);
  std::memset(mine.data(), 3, unit);
  CHECK(m.counts().used == unit);
  const any_tensor w = m.variable(std::move(mine), "weights").value();
  CHECK(!mine);
  CHECK(m.counts().used == unit);
  {
    const any_block given_back = m.take_block(2 * unit).value();
    CHECK(m.counts().used == 3 * unit);
    const auto failed = m.run(any_operation("too large").reads({w}).makes({2 * unit}), fill);
    REQUIRE(!failed);
    CHECK(failed.error().details().foreign == 2 * unit);
  }
  CHECK(m.counts().used == unit);
  auto op = m.begin(any_operation("sum").reads({w})).value();
  any_block made = m.take_block(unit).value();
  CHECK(op.replay_workspace(unit).value() == 0);
  CHECK(op.allocate(std::move(made)).value() == 0);
  CHECK(!made);
  CHECK(op.allocate_all({unit, unit}).value() == 1);
  const auto body = [](const any_call& c) {
    CHECK((c.workspace(0) != nullptr) == c.replaying());
    for (std::size_t k = 0; k < 3; ++k) std::memset(c.out(k), int(4 + k), unit);
  };
  body(op.arguments().value());
  const auto outputs = op.end_all(body).value();
  REQUIRE(outputs.size() == 3);
  for (std::size_t k = 0; k < 3; ++k) CHECK(first_byte(m, outputs[k]) == int(4 + k));
  CHECK(first_byte(m, w) == 3);
}

TEST_CASE("any_manager: a block that can't be adopted is the caller's still") {
  any_manager m = make(options(4));
  any_block mine = m.take_block(unit).value();
  std::byte* const at = mine.data();
  {
    auto op = m.begin(any_operation("open")).value();
    const auto refused = m.constant(std::move(mine));
    REQUIRE(!refused);
    CHECK(refused.error().status() == DELTA_MISUSE);
    CHECK(mine.data() == at);
  }
  const any_tensor c = m.constant(std::move(mine)).value();
  any_block none;
  CHECK(!m.variable(std::move(none)));
  const auto too_large = m.take_block(4 * unit);
  REQUIRE(!too_large);
  CHECK(too_large.error().status() == DELTA_BUDGET_EXCEEDED);
}

TEST_CASE("any_manager: an output replaces an input that can be made again") {
  any_manager m = make(options(2, 0, "dtr"));
  any_tensor x = m.run(any_operation("x").makes({unit}), fill).value();
  CHECK(m.recomputable(x));
  auto op = m.begin(any_operation("in place").reads({x})).value();
  CHECK(op.replace(x).value() == 0);
  CHECK(!op.replace(x));
  const any_call c = op.arguments().value();
  CHECK(c.in(0) == c.out(0));
  next_in_place(c);
  const any_tensor y = op.end(next_in_place).value();
  CHECK(m.counts().used == unit);
  CHECK(first_byte(m, x) == 7);
  CHECK(first_byte(m, y) == 8);
  const any_tensor v = m.variable(unit).value();
  CHECK(!m.recomputable(v));
}

TEST_CASE("any_manager: who shows tensors by address is told where they are") {
  std::vector<std::byte*> at;
  any_options o = options(3, 20);
  o.keep_addresses = true;
  o.on_owner_changed = [&](delta_tensor t, std::byte* data) {
    if (t >= at.size()) at.resize(t + 1);
    at[t] = data;
  };
  {
    any_manager m = make(o);
    std::vector<any_tensor> all{m.run(any_operation("first").makes({unit}), fill).value()};
    for (int i = 0; i < 6; ++i)
      all.push_back(m.run(any_operation("next").reads({all.back()}).makes({unit}), next).value());
    std::size_t shown = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (std::byte* const p = at[all[i].id()]) {
        ++shown;
        CHECK(std::to_integer<int>(*p) == int(7 + i));
      }
    CHECK(shown > 0);
    CHECK(shown <= 3);
    const any_view v = m.read(all[0]).value();
    CHECK(at[all[0].id()] == v.data());
  }
  for (const std::byte* p : at) CHECK(p == nullptr);
}
