// References that are given up from within the manager: by kernels, by what stored kernels capture,
// by the storage, an observer or a view's end; and a storage that is told whose blocks are.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "delta/presets.hpp"
#include "machine.hpp"
#include "storage_check.hpp"

using namespace delta;
using namespace delta::test;

namespace {

// What a framework's closure captures: a reference that goes with it.
struct reference {
  explicit reference(std::function<void()> f) : drop(std::move(f)) {}
  reference(const reference&) = delete;
  reference& operator=(const reference&) = delete;
  ~reference() { drop(); }
  std::function<void()> drop;
};

}  // namespace

TEST_CASE("drop from within a kernel: it is done when the operator is over") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id a = m.run({.outputs = {unit}}, gives(5));
  const tensor_id b = m.share(m.run({.outputs = {unit}}, gives(6)));
  const tensor_id y = m.run({.inputs = {a}, .outputs = {unit}}, [&](call& c) {
    if (!c.replaying()) {
      m.drop(a), m.drop(b);
      CHECK_THROWS_AS(m.drop(a), unknown_tensor);
      CHECK_THROWS_AS(m.share(a), unknown_tensor);
      CHECK(m.share(b) == b);
      m.drop(b);
      CHECK(it.storage.used() == unit * 3);
    }
    put(c.out(0), number(c.in(0)) + 1);
  });
  CHECK_THROWS_AS((void)m.where(a), unknown_tensor);
  CHECK(it.storage.used() == unit * 2);
  CHECK(read(m, b) == 6);
  squeeze(m, 4);
  CHECK(read(m, y) == 6);
  m.drop(b), m.drop(y);
  CHECK(m.live_tensors() == 0);
  CHECK(m.live_records() == 0);
}

TEST_CASE("drop from within: a kernel that throws has dropped, too") {
  machine it(4, 0);
  manager m{obeying(says_evict), it.storage};
  const tensor_id a = m.run({.outputs = {unit}}, gives(5));
  CHECK_THROWS_AS(m.run({.outputs = {unit}},
                        [&](call&) {
                          m.drop(a);
                          throw 1;
                        }),
                  int);
  CHECK(m.live_tensors() == 0);
  CHECK(it.storage.used() == bytes{});
}

TEST_CASE("drop from within: what stored kernels capture goes with them, chain upon chain") {
  machine it(64, 0);
  auto m = std::make_unique<decltype(manager{obeying(says_evict), it.storage})>(obeying(says_evict),
                                                                                it.storage);
  const auto chain = [&](int length) {
    // The kernel of each holds a reference to the one before.
    tensor_id last = m->run({.outputs = {unit}}, gives(1));
    for (int i = 0; i < length; ++i) {
      auto held = std::make_shared<reference>([&owner = *m, last] { owner.drop(last); });
      last = m->run({.outputs = {unit}}, [held](call& c) { put(c.out(0), 1); });
    }
    return last;
  };
  SUBCASE("by drop") {
    m->drop(chain(30));
  }
  SUBCASE("by the end of the step") {
    const tensor_id last = chain(30);
    m->end_of_step();
    CHECK(m->live_tensors() == 1);
    m->drop(last);
  }
  SUBCASE("by the end of a view") {
    const tensor_id last = chain(30);
    std::optional view(m->acquire(last));
    m->drop(last);
    CHECK(m->live_tensors() == 31);
    view.reset();
  }
  SUBCASE("by an operator that locks it") {
    const tensor_id last = chain(30);
    auto op = m->begin({.inputs = {last}});
    m->drop(last);
    CHECK(m->live_tensors() == 31);
  }
  CHECK(m->live_tensors() == 0);
  CHECK(m->live_records() == 0);
  CHECK(it.storage.used() == bytes{});
  // And with the manager: then they have nothing to give up any more.
  (void)chain(30);
  m.reset();
  CHECK(it.storage.used() == bytes{});
  CHECK(check_invariants(it.storage) == "");
}

namespace {

// As a framework's storage: knows whose bytes are where, and calls back when they come and go.
class watched : public timed_arena<immediate> {
 public:
  using timed_arena<immediate>::timed_arena;
  using timed_arena<immediate>::free;
  void on_owner_changed(const block& b, tensor_id t) {
    lose(b.index());
    if (t == tensor_id::none) return;
    owners_[b.index()] = t;
    CHECK(shown.count(t) == 0);
    shown[t] = data(b);
  }
  void free(block&& b) {
    lose(b.index());
    timed_arena<immediate>::free(std::move(b));
  }
  std::map<tensor_id, std::byte*> shown;
  std::function<void(tensor_id)> lost = [](tensor_id) {};

 private:
  void lose(std::uint32_t row) {
    const auto at = owners_.find(row);
    if (at == owners_.end()) return;
    const tensor_id t = at->second;
    owners_.erase(at);
    CHECK(shown.erase(t) == 1);
    lost(t);
  }
  std::map<std::uint32_t, tensor_id> owners_;
};
static_assert(detail::has_on_owner_changed<watched> &&
              !detail::has_on_owner_changed<timed_arena<immediate>>);

}  // namespace

TEST_CASE("owners: the storage is told when a tensor's bytes come, and frees them when they go") {
  for (const action word : {action::evict, action::offload}) {
    immediate device;
    watched storage{device,
                    {.capacity = unit * 3, .host_capacity = unit * 8, .moving = false},
                    copy_rates{.out = 1e6, .in = 1e6}};
    manager m{obeying(word), storage};
    std::map<tensor_id, std::uint64_t> all;
    const tensor_id v = variable_of(m, 1);
    all[v] = 1;
    for (std::uint64_t i = 0; i < 12; ++i) {
      const tensor_id from = std::next(all.begin(), std::ptrdiff_t(i % all.size()))->first;
      const std::uint64_t value = all[from] + 1;
      auto op = m.begin({.inputs = {from}});
      if (i % 3 == 2 && m.recomputable(from)) {
        op.replace(from);
        CHECK(storage.shown.count(from) == 0);
      } else {
        op.allocate(unit);
      }
      call c = op.arguments();
      sums(1, 1)(c);
      all[op.end(sums(1, 1))] = value;
      for (const auto& [t, n] : all) {
        const auto where = m.where(t);
        CHECK((storage.shown.count(t) == 1) == detail::on_device(where));
        if (where == residency::resident) CHECK(number(storage.shown[t]) == n);
      }
    }
    for (const auto& [t, n] : all) {
      const auto view = m.acquire(t);
      CHECK(number(view.data()) == n);
      CHECK(storage.shown[t] == view.data());
    }
    for (const auto& [t, n] : all) m.drop(t);
    CHECK(storage.shown.empty());
  }
}

TEST_CASE("owners: a storage that drops when bytes leave") {
  immediate device;
  watched storage{device, {.capacity = unit * 3, .host_capacity = unit * 8, .moving = false}};
  manager m{obeying(says_evict), storage};
  std::vector<tensor_id> cached;
  // A cache of what can be made again: what loses its bytes is given up.
  storage.lost = [&](tensor_id t) {
    if (std::erase(cached, t) > 0) m.drop(t);
  };
  for (std::uint64_t i = 0; i < 20; ++i) {
    const tensor_id t = m.run({.outputs = {unit}}, gives(i));
    cached.push_back(t);
    CHECK(m.live_tensors() == cached.size());
    CHECK(cached.size() <= 3);
  }
  const auto rest = std::exchange(cached, {});
  for (const tensor_id t : rest) m.drop(t);
  CHECK(m.live_tensors() == 0);
}
