// Faults: a storage or a device that fails at any one of its calls, kernels that throw at any run,
// policies that throw although they must not. Afterwards the manager works, or says that it does
// not; nothing leaks, nothing hangs, and it can be destroyed.
#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "delta/presets.hpp"
#include "faulty.hpp"
#include "lifo_prefetch.hpp"
#include "random_program.hpp"
#include "storage_check.hpp"
#include "tested_policy.hpp"

using namespace delta;
using namespace delta::test;

namespace {

enum class state : std::uint8_t { works, poisoned };

/// Asks the manager for a little of everything.
template <class Manager>
state probe(Manager& m) {
  try {
    const tensor_id v = m.variable(bytes{8});
    const tensor_id y = m.run({.inputs = {v}, .outputs = {bytes{8}}}, [](call&) {});
    (void)m.acquire(y);
    m.drop(v);
    m.drop(y);
    m.end_of_step();
  } catch (const poisoned&) {
    return state::poisoned;
  }
  return state::works;
}

struct tally {
  int faults = 0, poisoned = 0, finished = 0;
};

/// Runs the program; a storage's fault must poison. False: it came to none.
template <class S>
bool one_fault(const program& p, const tested_policy& policy, S& storage, fuse& f, tally& sum,
               manner how = manner::whole) {
  bool blown = false;
  {
    const auto managed = policy.manage(over(storage));
    manager_interface& m = *managed;
    bool thrown = false;
    try {
      run_program(
          m, p, run_now{}, [] {}, how);
    } catch (const fault&) {
      thrown = true;
    }
    blown = f.blown();
    f = fuse(0);
    CHECK(thrown == blown);
    if (thrown) {
      ++sum.faults;
      CHECK(probe(m) == state::poisoned);
      CHECK_THROWS_AS(m.end_of_step(), poisoned);
      ++sum.poisoned;
    } else {
      ++sum.finished;
      CHECK(probe(m) == state::works);
    }
  }
  CHECK(storage.host_used() == bytes{});
  CHECK(storage.used() == bytes{});
  CHECK(check_invariants(storage) == "");
  return blown;
}

std::vector<tested_policy> policies() {
  return {by_name("online"), by_name("paper"),
          own("dtr cheaper lifo", policy<dtr, cheaper, lifo_prefetch>{}), by_name("swap_lru")};
}

const program_shape small{.operators = 10, .steps = 2};

/// Random programs under each policy, with the fault at the first call, the second, and so on until
/// there is none left. `attempt(program, policy, fuse, tally)` is one_fault on a fresh storage.
template <class Attempt>
void at_every_call(const Attempt& attempt) {
  tally sum;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const program p = random_program(seed, small);
    for (const tested_policy& policy : policies())
      for (std::uint64_t k = 1;; ++k) {
        CAPTURE(seed);
        CAPTURE(policy.name);
        CAPTURE(k);
        fuse f(k);
        if (!attempt(p, policy, f, sum)) break;
      }
  }
  CHECK(sum.faults > 1000);
  CHECK(sum.finished == 16);
}

}  // namespace

TEST_CASE("a storage that fails at its k-th call, for every k") {
  at_every_call([](const program& p, const tested_policy& policy, fuse& f, tally& sum) {
    faulty_storage storage(f, largest_footprint(p, 64), 1_MiB);
    return one_fault(p, policy, storage, f, sum);
  });
}

TEST_CASE(
    "a storage that fails at its k-th call, for every k, while operators are begun and ended") {
  at_every_call([](const program& p, const tested_policy& policy, fuse& f, tally& sum) {
    const bytes budget = largest_footprint(p, 64) + largest_footprint(p, 64);
    faulty_storage storage(f, budget, 1_MiB);
    return one_fault(p, policy, storage, f, sum, manner::looking);
  });
}

TEST_CASE("a device that fails at its k-th call, for every k, under the arena") {
  at_every_call([](const program& p, const tested_policy& policy, fuse& f, tally& sum) {
    faulty_device device(f);
    arena<faulty_device> storage(device,
                                 {.capacity = largest_footprint(p, 64), .host_capacity = 1_MiB});
    return one_fault(p, policy, storage, f, sum);
  });
}

// As a GPU whose context is lost: nothing may ask the storage anything that can fail while views,
// operators and the manager go.
TEST_CASE(
    "a storage that fails at its k-th call and ever after: everything goes back all the same") {
  std::uint64_t faults = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const program p = random_program(seed, small);
    for (const manner how : {manner::whole, manner::looking})
      for (std::uint64_t k = 1;; ++k) {
        CAPTURE(seed);
        CAPTURE(k);
        fuse f(k, true);
        faulty_storage storage(f, largest_footprint(p, 64) + largest_footprint(p, 64), 1_MiB);
        try {
          const auto m = make_manager("paper", over(storage));
          run_program(
              *m, p, run_now{}, [] {}, how);
        } catch (const fault&) {
          ++faults;
        }
        CHECK(storage.used() == bytes{});
        CHECK(storage.host_used() == bytes{});
        CHECK(check_invariants(storage) == "");
        if (!f.blown()) break;
      }
  }
  CHECK(faults > 500);
}

TEST_CASE("a kernel that throws at its k-th run, replays included: the manager goes on") {
  int thrown = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const program p = random_program(seed, small);
    const bytes budget = largest_footprint(p, 64);
    for (const tested_policy& policy : policies()) {
      bool failed = true;
      for (std::uint64_t k = 1; failed; ++k) {
        CAPTURE(seed);
        CAPTURE(policy.name);
        CAPTURE(k);
        fuse f(k);
        immediate device;
        arena<immediate> storage(device, {.capacity = budget + budget, .host_capacity = 1_MiB});
        {
          const auto managed = policy.manage(over(storage));
          manager_interface& m = *managed;
          const auto body = [&](auto&&, auto&&, const auto& work) {
            f.burn();
            work();
          };
          failed = false;
          try {
            run_program(m, p, body, [] {});
          } catch (const fault&) {
            failed = true;
            ++thrown;
          }
          CHECK(failed == f.blown());
          f = fuse(0);
          CHECK(probe(m) == state::works);
          CHECK(check_invariants(storage) == "");
        }
        CHECK(storage.used() == bytes{});
        CHECK(storage.host_used() == bytes{});
      }
    }
  }
  CHECK(thrown > 100);
}

TEST_CASE("a kernel that throws in a replay: the tensor can still be had afterwards") {
  machine it(4, 0);
  const auto managed = make_manager("dtr", over(it.storage));
  manager_interface& m = *managed;
  bool angry = false;
  const tensor_id a = m.run({.outputs = {unit}}, gives(1));
  const tensor_id b = m.run({.inputs = {a}, .outputs = {unit}, .workspace = unit}, [&](call& c) {
    if (angry) throw fault();
    put(c.out(0), number(c.in(0)) + 1);
  });
  m.drop(a);
  squeeze(m, 4);
  angry = true;
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS((void)m.acquire(b), fault);
    CHECK(m.where(b) == residency::evicted);
  }
  squeeze(m, 4);  // nothing is locked
  angry = false;
  CHECK(read(m, b) == 2);
  CHECK(it.storage.used() == unit + unit);  // a stays while there is room
}

TEST_CASE("a kernel's exception does not excuse a storage's") {
  fuse f(0);
  faulty_storage storage(f, 1_KiB, 1_KiB);
  const auto managed = make_manager("online", over(storage));
  manager_interface& m = *managed;
  // Typed, from a kernel: it leaves no trace.
  CHECK_THROWS_AS(m.run<0>({}, [&](call&) { (void)m.variable(unit); }), misuse);
  CHECK_THROWS_AS(m.run<0>({}, [](call&) { throw fault(); }), fault);
  CHECK(probe(m) == state::works);
  CHECK_THROWS_AS(m.run<0>({}, [&](call&) { (void)m.variable(unit); }), misuse);
  f = fuse(1);
  CHECK_THROWS_AS((void)m.variable(unit), fault);
  CHECK(probe(m) == state::poisoned);
}

TEST_CASE("a kernel that throws on a storage that fails then: poisoned") {
  fuse f(0);
  faulty_storage storage(f, 1_KiB, 1_KiB);
  const auto managed = make_manager("online", over(storage));
  manager_interface& m = *managed;
  CHECK_THROWS_AS(m.run<0>({},
                           [&](call&) {
                             f = fuse(1);
                             throw std::logic_error("kernel");
                           }),
                  fault);
  CHECK(probe(m) == state::poisoned);
}

namespace {
// Each is as good as another one where it has no fuse, so that one manager does for all three.
struct angry_heuristic {
  fuse* f;
  double score(const context& c, tensor_id t) const {
    if (f == nullptr) return detail::score_of(lru{}, c, t);
    f->burn();
    return c.bytes(t);
  }
};
struct angry_decider {
  fuse* f;
  action decide(const context& c, tensor_id t) const {
    if (f == nullptr) return cheaper{}.decide(c, t);
    f->burn();
    return index(t) % 2 != 0 ? action::evict : action::offload;
  }
};
struct angry_prefetcher {
  fuse* f;
  tensor_id next(const context& c) const {
    if (f == nullptr) return tensor_id::none;
    f->burn();
    return c.offloaded().empty() ? tensor_id::none : c.offloaded().front();
  }
};
using angry = policy<angry_heuristic, angry_decider, angry_prefetcher>;
}  // namespace

TEST_CASE("policies that throw, although they must not: no hang, no leak, and a clear word") {
  int thrown = 0;
  const auto attempt = [&](angry (*make)(fuse*)) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const program p = random_program(seed, small);
      bool failed = true;
      for (std::uint64_t k = 1; failed; ++k) {
        CAPTURE(seed);
        CAPTURE(k);
        fuse f(k);
        immediate device;
        arena<immediate> storage(device,
                                 {.capacity = largest_footprint(p, 64), .host_capacity = 1_MiB});
        {
          const auto managed = make_manager(make(&f), over(storage));
          manager_interface& m = *managed;
          failed = false;
          try {
            run_program(m, p, run_now{}, [] {});
          } catch (const fault&) {
            failed = true;
          }
          CHECK(failed == f.blown());
          f = fuse(0);
          thrown += failed;
          CHECK(probe(m) == (failed ? state::poisoned : state::works));
        }
        CHECK(storage.used() == bytes{});
        CHECK(storage.host_used() == bytes{});
      }
    }
  };
  attempt([](fuse* f) { return angry{{f}, {}, {}}; });
  attempt([](fuse* f) { return angry{{}, {f}, {}}; });
  attempt([](fuse* f) { return angry{{}, {}, {f}}; });
  CHECK(thrown > 100);
}

TEST_CASE("no room: whatever was asked for can be asked for again when there is room") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    const program p = random_program(seed, small);
    const bytes budget = round_up(bytes{largest_footprint(p, 64).count * 3 / 4}, 64);
    immediate device;
    arena<immediate> storage(device, {.capacity = budget, .host_capacity = 1_MiB});
    {
      const auto managed = make_manager("online", over(storage));
      manager_interface& m = *managed;
      try {
        run_program(m, p, run_now{}, [] {});
      } catch (const budget_exceeded& e) {
        CHECK(e.report.smallest_budget > budget);
      }
      CHECK(check_invariants(storage) == "");
      m.end_of_step();
      CHECK(m.live_records() == 0);
    }
    CHECK(storage.used() == bytes{});
    CHECK(storage.host_used() == bytes{});
  }
}
