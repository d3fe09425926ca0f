// Bytes that exist before the manager hears of them: blocks of the program's own, as outputs and as
// variables; several outputs at once.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adversary.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "dice.hpp"
#include "faulty.hpp"
#include "machine.hpp"
#include "seeds.hpp"
#include "storage_check.hpp"

using namespace delta;
using namespace delta::test;

TEST_CASE("adoption: what the program has written becomes an output, where it is") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 7);
  auto op = m.begin({.inputs = {v}, .name = "sum"});
  block mine = m.take_block(unit);
  std::byte* const at = it.storage.data(mine);
  put(at, number(op.arguments().in(0)) + 1);
  CHECK(it.storage.used() == unit * 2);
  CHECK(op.allocate(unit, std::move(mine)) == 0);
  CHECK(!mine);
  CHECK(it.storage.used() == unit * 2);
  op.make_room(unit * 2);
  CHECK(op.arguments().out(0) == at);
  const tensor_id y = op.end(sums(1, 1));
  CHECK(read(m, y) == 8);
  squeeze(m, 3);
  CHECK(m.where(y) == residency::evicted);
  CHECK(read(m, y) == 8);
  CHECK(m.counts().recomputes == 1);
  m.drop(y), m.drop(v);
  CHECK(it.storage.used() == bytes{});
}

TEST_CASE("adoption: where all fits, nothing is kept beyond what the program itself would take") {
  // Weights that are dropped, as a sharded model's are, and could only serve to replay their layer.
  machine it(64, 0);
  manager m{obeying(says_evict), it.storage};
  std::array<tensor_id, 4> made{};
  for (std::uint64_t i = 0; i < 4; ++i) {
    block mine = m.take_block(unit * 5);
    put(it.storage.data(mine), i);
    const tensor_id weights = m.variable(unit * 5, "weights", std::move(mine));
    auto op = m.begin({.inputs = {weights}, .name = "layer"});
    op.allocate(unit, m.take_block(unit));
    put(op.arguments().out(0), i + 1);
    made[i] = op.end(sums(1, 1));
    m.drop(weights);
  }
  CHECK(it.storage.peak() == unit * (5 + 4));
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(read(m, made[i]) == i + 1);
  CHECK(m.counts().evictions == 0);
  for (const tensor_id y : made) m.drop(y);
  CHECK(it.storage.used() == bytes{});
}

TEST_CASE("adoption: a block of the storage's becomes a variable, and keeps its contents") {
  machine it(3, 3);
  manager m{obeying(says_offload), it.storage};
  auto mine = it.storage.allocate(unit, lifetime::persistent);
  REQUIRE(mine);
  put(it.storage.data(*mine), 5);
  const tensor_id w = m.variable(unit, "weights", std::move(*mine));
  CHECK(it.storage.used() == unit);
  CHECK(read(m, w) == 5);
  squeeze(m, 3);
  CHECK(m.where(w) == residency::host);
  CHECK(read(m, w) == 5);
  auto stays = it.storage.allocate(unit, lifetime::persistent);
  put(it.storage.data(*stays), 6);
  const tensor_id c = m.constant(unit, "table", std::move(*stays));
  squeeze(m, 2);
  CHECK(m.where(c) == residency::resident);
  CHECK(read(m, c) == 6);
  m.drop(w), m.drop(c);
  CHECK(it.storage.used() == bytes{});
}

TEST_CASE("adoption: what can't be adopted is the caller's still, and nothing is done") {
  machine it(6, 0), other(6, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 1);
  block none;
  CHECK_THROWS_AS((void)m.variable(unit, "none", std::move(none)), misuse);
  auto theirs = other.storage.allocate(unit, lifetime::transient);
  auto row = theirs->index();
  // The first block of the other storage has the row of v.
  CHECK_THROWS_AS((void)m.variable(unit, "v's", block{row}), misuse);
  std::array<block, 3> more;
  for (block& b : more) b = std::move(*other.storage.allocate(unit, lifetime::transient));
  CHECK_THROWS_AS((void)m.variable(unit, "another's", std::move(more[2])), misuse);
  CHECK(bool(more[2]));
  block mine = m.take_block(unit);
  CHECK_THROWS_AS((void)m.constant(unit * 2, "too large", std::move(mine)), misuse);
  CHECK(bool(mine));
  auto op = m.begin({.inputs = {v}, .outputs = {unit}});
  CHECK_THROWS_AS((void)m.variable(unit, "open", std::move(mine)), misuse);
  CHECK_THROWS_AS(op.allocate(unit * 2, std::move(mine)), misuse);
  CHECK(bool(mine));
  CHECK(op.allocate(unit, std::move(mine)) == 1);
  call c = op.arguments();
  sums(1, 1, 2)(c);
  std::array<tensor_id, 2> ids{};
  op.end(ids, sums(1, 1, 2));
  CHECK(read(m, ids[1]) == 3);
  CHECK(check_invariants(it.storage) == "");
}

TEST_CASE("adoption: an operator that is given up frees what it has adopted") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 1);
  {
    auto op = m.begin({.inputs = {v}});
    op.allocate(unit, m.take_block(unit));
    CHECK(it.storage.used() == unit * 2);
  }
  CHECK(it.storage.used() == unit);
  CHECK(check_invariants(it.storage) == "");
  squeeze(m, 3);
}

TEST_CASE("taken blocks: they stay in place, count, and may be given back within the operator") {
  machine it(8, 0);
  manager m{obeying(says_evict), it.storage};
  std::vector<tensor_id> made;
  for (std::uint64_t i = 0; i < 8; ++i) made.push_back(m.run({.outputs = {unit}}, gives(i)));
  // Room is made for one that is larger than any hole.
  block large = m.take_block(unit * 3);
  std::byte* const at = it.storage.data(large);
  put(at, 99);
  auto op = m.begin({.inputs = {made[0]}, .name = "own scratch"});
  block small = m.take_block(unit * 2);
  CHECK(it.storage.used() <= unit * 8);
  m.give_back(std::move(small));
  op.allocate(unit * 3);
  CHECK(it.storage.data(large) == at);
  call c = op.arguments();
  sums(1)(c);
  const tensor_id y = op.end(sums(1));
  for (std::uint64_t i = 0; i < 8; ++i) CHECK(read(m, made[i]) == i);
  CHECK(it.storage.data(large) == at);
  CHECK(number(at) == 99);
  CHECK(read(m, y) == 0);
  m.give_back(std::move(large));
  CHECK(!large);
  CHECK(check_invariants(it.storage) == "");
}

TEST_CASE("taken blocks: an error names them, and a budget that holds them, too") {
  const auto tried = [](std::uint64_t units) -> std::optional<memory_report> {
    machine it(units, 64);
    manager m{obeying(says_offload), it.storage};
    block mine = m.take_block(unit * 3);
    std::optional<memory_report> report;
    try {
      const tensor_id v = variable_of(m, 1);
      auto op = m.begin({.inputs = {v}, .name = "kernel"});
      block more = m.take_block(unit * 2);
      op.allocate(unit * 2, std::move(more));
      block scratch = m.take_block(unit);
      m.give_back(std::move(scratch));
      std::array<tensor_id, 1> ids{};
      op.end(ids, gives(1));
    } catch (const budget_exceeded& e) {
      report = e.report;
      CHECK(std::string(e.what()).find("blocks of the program's own: 192 bytes") !=
            std::string::npos);
    }
    m.give_back(std::move(mine));
    return report;
  };
  const auto failed = tried(6);
  REQUIRE(failed);
  CHECK(failed->foreign == unit * 3);
  CHECK(failed->smallest_budget > unit * 6);
  CHECK(!tried(failed->smallest_budget.count / unit.count));
}

TEST_CASE("several outputs at once: all, or none") {
  machine it(6, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 4);
  auto op = m.begin({.inputs = {v}, .name = "several"});
  const std::array<bytes, 3> sizes{unit, unit * 2, unit};
  const std::array<bytes, 2> too_many{unit, unit * 5};
  CHECK_THROWS_AS(op.allocate(too_many), budget_exceeded);
  CHECK(it.storage.used() == unit);
  CHECK(op.allocate(sizes) == 0);
  CHECK(it.storage.used() == unit * 5);
  CHECK(op.allocate(std::span<const bytes>{}) == 3);
  CHECK(op.allocate(unit) == 3);
  call c = op.arguments();
  sums(1, 1, 4)(c);
  std::array<tensor_id, 4> ids{};
  op.end(ids, sums(1, 1, 4));
  squeeze(m, 5);
  for (std::uint64_t k = 0; k < 4; ++k) CHECK(read(m, ids[k]) == 5 + k);
}

TEST_CASE("several outputs at once: one piece is made for the largest of them") {
  machine it(8, 0);
  manager m{obeying(says_evict), it.storage};
  std::vector<tensor_id> made;
  for (std::uint64_t i = 0; i < 8; ++i) made.push_back(m.run({.outputs = {unit}}, gives(i)));
  auto op = m.begin({.name = "scattered"});
  const std::array<bytes, 3> sizes{unit, unit * 4, unit};
  op.allocate(sizes);
  std::array<tensor_id, 3> ids{};
  call c = op.arguments();
  gives(1, 3)(c);
  op.end(ids, gives(1, 3));
  CHECK(m.counts().evictions == 6);
  CHECK(read(m, ids[1]) == 2);
}

TEST_CASE("make_room and take_block are refused within a replay; its workspace was said before") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id v = variable_of(m, 4);
  int refused = 0;
  const auto body = [&](call& c) {
    CHECK((c.workspace(0) != nullptr) == c.replaying());
    CHECK(c.workspaces() == 1);
    if (c.replaying()) {
      try {
        m.make_room(unit);
      } catch (const misuse&) {
        ++refused;
      }
      CHECK_THROWS_AS((void)m.take_block(unit), misuse);
      put(c.workspace(0), 1);
    }
    put(c.out(0), number(c.in(0)) + 1);
  };
  auto op = m.begin({.inputs = {v}, .name = "own temporaries"});
  CHECK(op.replay_workspace(unit) == 0);
  block temporary = m.take_block(unit);
  op.allocate(unit);
  call c = op.arguments();
  body(c);
  m.give_back(std::move(temporary));
  const tensor_id y = op.end(body);
  CHECK(it.storage.used() == unit * 2);
  squeeze(m, 3);
  CHECK(read(m, y) == 5);
  CHECK(refused == 1);
}

TEST_CASE("a replay's workspace stands beside those of the first run, in their order") {
  machine it(8, 0);
  manager m{obeying(says_evict), it.storage};
  auto op = m.begin({.name = "three"});
  CHECK(op.workspace(unit) == 0);
  CHECK(op.replay_workspace(unit * 2) == 1);
  CHECK(op.workspace(unit) == 2);
  op.allocate(unit);
  const auto body = [](call& c) {
    put(c.workspace(0), 3);
    if (c.workspace(1) != nullptr) put(c.workspace(1) + 64, 100);
    put(c.workspace(2), 4);
    put(c.out(0), number(c.workspace(0)) + number(c.workspace(2)));
  };
  call c = op.arguments();
  CHECK(it.storage.used() == unit * 3);
  body(c);
  const tensor_id y = op.end(body);
  squeeze(m, 8);
  CHECK(read(m, y) == 7);
  CHECK(m.counts().recomputes == 1);
}

namespace {

// A storage that counts what it is told of, over a simulated one, without the optional members.
class plain_storage {
 public:
  explicit plain_storage(bytes n) : inner_({.capacity = n, .host_capacity = n * 4}) {}
  auto allocate(bytes n, lifetime l) { return inner_.allocate(n, l); }
  void free(block&& b) { inner_.free(std::move(b)); }
  void free(slab&& h) { inner_.free(std::move(h)); }
  auto copy_out(block& b) { return inner_.copy_out(b); }
  auto copy_in(slab&& h, block&& b) { return inner_.copy_in(std::move(h), std::move(b)); }
  auto land(transfer&& t) { return inner_.land(std::move(t)); }
  using list = std::span<const block* const>;
  void begin_operator(list r, list w) { inner_.begin_operator(r, w); }
  stamp end_operator(nanoseconds c) { return inner_.end_operator(c); }
  bool reached(stamp s) { return inner_.reached(s); }
  void wait(stamp s) { inner_.wait(s); }
  std::optional<nanoseconds> elapsed(stamp s) { return inner_.elapsed(s); }
  nanoseconds now() const { return inner_.now(); }
  double rate(direction d) const { return inner_.rate(d); }
  nanoseconds latency(direction d) const { return inner_.latency(d); }
  nanoseconds backlog(direction d) const { return inner_.backlog(d); }
  bytes capacity() const { return inner_.capacity(); }
  bytes used() const { return inner_.used(); }
  bytes host_capacity() const { return inner_.host_capacity(); }
  bytes host_used() const { return inner_.host_used(); }
  bytes rounded(bytes n) const { return inner_.rounded(n); }

 private:
  simulated inner_;
};
static_assert(Storage<plain_storage>);

}  // namespace

TEST_CASE("adoption: a storage without optional members is taken at the program's word") {
  plain_storage storage{unit * 3};
  manager m{online(), storage};
  const tensor_id v = m.variable(unit, "v", std::move(*storage.allocate(unit, {})));
  auto op = m.begin({.inputs = {v}});
  op.allocate(unit, m.take_block(unit));
  const tensor_id y = op.end([](call&) {});
  m.drop(y), m.drop(v);
  CHECK(storage.used() == bytes{});
}

TEST_CASE("adoption: a storage that fails at its k-th call; no block is lost") {
  std::uint64_t faults = 0;
  for (std::uint64_t k = 1;; ++k) {
    CAPTURE(k);
    fuse f(k);
    faulty_storage storage(f, unit * 7, unit * 64);
    const auto nothing = [](call&) {};
    bool failed = false;
    {
      manager m{online(), storage};
      block weights, made;
      try {
        const tensor_id v = m.variable(unit, "v");
        weights = m.take_block(unit * 2);
        const tensor_id w = m.variable(unit * 2, "w", std::move(weights));
        tensor_id x = m.run({.inputs = {v, w}, .outputs = {unit}}, nothing);
        for (int i = 0; i < 3; ++i) {
          auto op = m.begin({.inputs = {x}, .name = "own memory"});
          op.replace(x);
          made = m.take_block(unit);
          op.allocate(unit, std::move(made));
          made = m.take_block(unit);
          m.give_back(std::move(made));
          const std::array<bytes, 2> sizes{unit, unit};
          op.allocate(sizes);
          op.replay_workspace(unit);
          std::array<tensor_id, 4> ids{};
          op.end(ids, nothing);
          x = ids[0];
        }
        m.end_of_step();
      } catch (const fault&) {
        failed = true;
      }
      // Whatever failed: what the program has it can give back.
      m.give_back(std::move(weights)), m.give_back(std::move(made));
    }
    CHECK(storage.used() == bytes{});
    CHECK(storage.host_used() == bytes{});
    CHECK(check_invariants(storage) == "");
    if (!failed) break;
    ++faults;
  }
  CHECK(faults > 30);
}

TEST_CASE("storage: what is allocated and freed while an operator runs is ordered with it") {
  for (std::uint64_t seed = 0; seed < seeds(300); ++seed) {
    CAPTURE(seed);
    adversary device(seed);
    arena<adversary> storage{device, {.capacity = 1024_B, .host_capacity = 1024_B}};
    dice roll(seed);
    std::vector<block> old;
    for (int i = 0; i < 4; ++i) old.push_back(std::move(*storage.allocate(256_B, {})));
    const auto write = [&](const block& b) {
      device.launch({}, {{storage.data(b), 256}}, [at = storage.data(b)] { *at = std::byte{1}; });
    };
    for (block& b : old) {
      const block* const one = &b;
      storage.begin_operator({}, {&one, 1});
      write(b);
      storage.end_operator({});
    }
    std::vector<slab> slabs;
    for (int i = 0; i < 3; ++i) {
      auto moving = storage.copy_out(old[std::size_t(i)]);
      auto [b, s] = storage.land(std::move(*moving));
      storage.free(std::move(b));
      slabs.push_back(std::move(s));
    }
    const block* const named = &old[3];
    storage.begin_operator({}, {&named, 1});
    std::vector<block> fresh;
    for (int i = 0; i < 8; ++i) {
      if (fresh.size() < 3 && roll.one_in(2)) {
        fresh.push_back(std::move(*storage.allocate(256_B, {})));
        write(fresh.back());
      } else if (!fresh.empty()) {
        std::swap(fresh[roll.below(fresh.size())], fresh.back());
        storage.free(std::move(fresh.back()));
        fresh.pop_back();
      }
    }
    storage.end_operator({});
    // Whoever comes next waits for it: a copy in, which waits for nothing else of it.
    std::vector<block> next;
    for (slab& s : slabs)
      if (auto to = storage.allocate(256_B, {})) {
        auto [b, h] = storage.land(storage.copy_in(std::move(s), std::move(*to)));
        next.push_back(std::move(b)), s = std::move(h);
      }
    for (auto* list : {&old, &fresh, &next})
      for (block& b : *list)
        if (b) storage.free(std::move(b));
    for (slab& s : slabs) storage.free(std::move(s));
    device.drain();
    CHECK(device.violations().empty());
    CHECK(check_invariants(storage) == "");
    CHECK(storage.used() == bytes{});
  }
}

namespace {

// Notes behind which compute every copy was queued, and how far compute had come by then.
struct noting : immediate {
  struct copied {
    direction way;
    const std::byte* device;
    std::uint64_t after, launched;
  };
  std::vector<copied> copies;
  std::uint64_t launched = 0;
  stamp end() {
    const stamp done = immediate::end();
    launched = done.point;
    return done;
  }
  stamp copy(direction d, std::byte* to, const std::byte* from, bytes n, const fence& after) {
    copies.push_back({d, d == direction::in ? to : from, after.point[0], launched});
    return immediate::copy(d, to, from, n, after);
  }
};

}  // namespace

TEST_CASE("what is copied into bytes that were given back comes behind the program's own kernels") {
  for (const bool within : {true, false}) {
    CAPTURE(within);
    noting device;
    arena<noting> storage{device, {.capacity = unit * 3, .host_capacity = unit * 8}};
    manager m{obeying(says_offload), storage};
    const std::array v{m.variable(unit), m.variable(unit)};
    m.make_room(unit * 3);  // both are on the host
    const std::byte* taken = nullptr;
    std::uint64_t used = 0;  // compute, when the program's kernel was launched on the block
    tensor_id y{};
    {
      auto op = m.begin({.name = "own kernels"});
      block b = m.take_block(unit);
      taken = storage.data(b);
      op.allocate(unit);  // another bracket of the same operator
      // Here the program launches a kernel that uses the block: it ends with this bracket.
      used = device.launched + 1;
      if (within) m.give_back(std::move(b));
      y = op.end([](call&) {});
      if (!within) m.give_back(std::move(b));
    }
    m.forbid(y, pin::both);
    const auto first = m.acquire(v[0]), second = m.acquire(v[1]);
    int found = 0;
    for (const auto& c : device.copies)
      if (c.way == direction::in && c.device == taken) {
        CHECK(c.after >= used);
        ++found;
      }
    CHECK(found == 1);
  }
}

TEST_CASE("what is copied out of an adopted block comes behind the program's own kernels") {
  noting device;
  arena<noting> storage{device, {.capacity = unit * 3, .host_capacity = unit * 8}};
  manager m{obeying(says_offload), storage};
  block b = m.take_block(unit);
  const std::byte* const taken = storage.data(b);
  const tensor_id x = m.run({.outputs = {unit}}, [](call&) {});
  const std::uint64_t used = device.launched;  // by a kernel beside that operator
  const tensor_id z = m.variable(unit, "z", std::move(b));
  m.make_room(unit * 3);
  CHECK(m.where(z) == residency::host);
  int found = 0;
  for (const auto& c : device.copies)
    if (c.way == direction::out && c.device == taken) {
      CHECK(c.after >= used);
      ++found;
    }
  CHECK(found == 1);
  m.drop(x), m.drop(z);
}

TEST_CASE("give_back: what is a tensor's by now, or was given back, is left alone") {
  machine it(4, 4);
  {
    manager m{online(), it.storage};
    block b = m.take_block(unit);
    const std::uint32_t row = b.index();
    const tensor_id v = m.variable(unit, "v", std::move(b));
    m.give_back(block{row});
    m.give_back(block{});
    CHECK(it.storage.used() == unit);
    block c = m.take_block(unit);
    const std::uint32_t second = c.index();
    m.give_back(std::move(c));
    m.give_back(block{second});
    CHECK(it.storage.used() == unit);
    CHECK(check_invariants(it.storage) == "");
    (void)read(m, v);
  }
  CHECK(it.storage.used() == bytes{});
}

TEST_CASE("a manager that goes holds no block any more that was taken") {
  machine it(4, 4);
  block b;
  {
    manager m{online(), it.storage};
    b = m.take_block(unit);
  }
  it.storage.free(std::move(b));
  CHECK(it.storage.used() == bytes{});
}
