// What is particular to DTR's simulator, case by case, and its two fastest traces. The other three
// are in simrd_parity_test.
// ctest-labels: long_sanitized
#include "simrd/simrd.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "random_trace.hpp"
#include "simrd_reference.hpp"

using namespace delta;
using namespace delta::executor;

namespace {

using verdict = simrd_result::verdict;
constexpr simrd_policy every_policy[] = {simrd_policy::dtr,       simrd_policy::dtr_eq,
                                         simrd_policy::dtr_local, simrd_policy::msps,
                                         simrd_policy::lru,       simrd_policy::size};

/// A trace, written by hand.
class program {
 public:
  using tensors = std::initializer_list<std::uint32_t>;

  program() { trace_.names = {"f"}; }

  std::uint32_t constant(std::uint64_t size) {
    const auto t = add({bytes{size}, trace::none, trace::none});
    trace_.events.push_back({trace::kind::constant, t});
    return t;
  }
  /// The first output.
  std::uint32_t run(std::int64_t cost, tensors in, std::initializer_list<std::uint64_t> sizes,
                    tensors updates = {}, std::uint64_t workspace = 0) {
    std::vector<trace::tensor> out;
    for (const std::uint64_t s : sizes) out.push_back({bytes{s}, trace::none, 0});
    return operate(cost, in, out, updates, workspace);
  }
  std::uint32_t view(std::int64_t cost, std::uint32_t of) {
    return operate(cost, {of}, {{bytes{}, of, 0}}, {}, 0);
  }
  void drop(tensors ts) {
    for (const std::uint32_t t : ts) trace_.events.push_back({trace::kind::drop, t});
  }
  void share(std::uint32_t t) { trace_.events.push_back({trace::kind::share, t}); }

  [[nodiscard]] simrd_result under(std::uint64_t budget, simrd_policy p = simrd_policy::lru,
                                   double thrash_limit = 100) const {
    check(trace_);
    return run_simrd(trace_, p, bytes{budget}, thrash_limit);
  }

 private:
  std::uint32_t add(trace::tensor t) {
    trace_.tensors.push_back(t);
    return static_cast<std::uint32_t>(trace_.tensors.size() - 1);
  }
  std::uint32_t operate(std::int64_t cost, tensors in, const std::vector<trace::tensor>& out,
                        tensors updates, std::uint64_t workspace) {
    const auto number = static_cast<std::uint32_t>(trace_.operations.size());
    const auto first = static_cast<std::uint32_t>(trace_.tensors.size());
    trace::operation o;
    o.cost = nanoseconds{cost};
    o.first = static_cast<std::uint32_t>(trace_.lists.size());
    o.inputs = static_cast<std::uint32_t>(in.size());
    o.outputs = static_cast<std::uint32_t>(out.size());
    o.updates = static_cast<std::uint32_t>(updates.size());
    o.workspace = bytes{workspace};
    trace_.lists.insert(trace_.lists.end(), in);
    for (trace::tensor t : out) {
      t.producer = number;
      trace_.lists.push_back(add(t));
    }
    trace_.lists.insert(trace_.lists.end(), updates);
    trace_.operations.push_back(o);
    trace_.events.push_back({trace::kind::run, number});
    return first;
  }

  trace trace_;
};

}  // namespace

TEST_CASE("policies have names") {
  CHECK(simrd_policy_named("simrd:dtr") == simrd_policy::dtr);
  CHECK(simrd_policy_named("simrd:dtr-eq") == simrd_policy::dtr_eq);
  CHECK(simrd_policy_named("simrd:dtr-local") == simrd_policy::dtr_local);
  CHECK(simrd_policy_named("simrd:msps") == simrd_policy::msps);
  CHECK(simrd_policy_named("simrd:lru") == simrd_policy::lru);
  CHECK(simrd_policy_named("simrd:size") == simrd_policy::size);
  CHECK(!simrd_policy_named("dtr"));
  CHECK(!simrd_policy_named(""));
}

TEST_CASE("a chain: the oldest leaves and comes back") {
  program p;
  const auto x = p.constant(10);
  const auto a = p.run(5, {x}, {10});
  const auto b = p.run(7, {a}, {10});
  const auto c = p.run(1, {b}, {10});  // evicts a
  p.run(1, {a}, {10});                 // evicts b to bring a back, and c for its output
  p.drop({a, b, c});

  const auto r = p.under(30);
  CHECK(r.result == verdict::pass);
  CHECK(r.clock == nanoseconds{1 + 5 + 7 + 1 + 5 + 1});
  CHECK(r.recompute == nanoseconds{5});
  CHECK(r.recomputes == 1);
  CHECK(r.evictions == 3);
  CHECK(r.evaluations == 1 + 2 + 1);
  CHECK(r.peak == bytes{30});

  const auto free = p.under(50);
  CHECK(free.clock == nanoseconds{15});
  CHECK(free.evictions == 0);
  CHECK(free.evaluations == 0);
  CHECK(free.peak == bytes{50});

  const auto tight = p.under(19);
  CHECK(tight.result == verdict::oom);
  CHECK(tight.clock == nanoseconds{1});
}

TEST_CASE("between equal scores the last in the pool leaves, and reading puts one there") {
  const auto recompute_after_reading = [](int which) {
    program p;
    const auto x = p.constant(0);
    const auto a = p.run(3, {x}, {10});
    const auto b = p.run(7, {x}, {10});
    if (which == 1) p.drop({p.view(0, a)});
    const auto c = p.run(0, {x}, {10});
    p.drop({c});
    p.drop({p.run(0, {a}, {0}), p.run(0, {b}, {0}), a, b});
    return p.under(20, simrd_policy::size).recompute;
  };
  CHECK(recompute_after_reading(0) == nanoseconds{7});
  CHECK(recompute_after_reading(1) == nanoseconds{3});
}

TEST_CASE("a view goes with its storage and is made again") {
  program p;
  const auto x = p.constant(0);
  const auto a = p.run(5, {x}, {10});
  const auto v = p.view(2, a);
  p.drop({a});
  const auto b = p.run(1, {x}, {10});  // evicts a, and v with it
  p.drop({b});
  p.run(1, {v}, {0});
  p.drop({v});
  const auto r = p.under(10);
  CHECK(r.result == verdict::pass);
  CHECK(r.recompute == nanoseconds{7});
  CHECK(r.recomputes == 2);
  CHECK(r.clock == nanoseconds{1 + 5 + 2 + 1 + 7 + 1});
}

TEST_CASE("an operator that runs again makes all its outputs, for a moment twice") {
  program p;
  const auto x = p.constant(0);
  const auto a = p.run(5, {x}, {10, 10});
  const auto b = a + 1;
  p.drop({p.view(1, b)});
  const auto c = p.run(1, {x}, {15});  // evicts a, which is older
  p.drop({c});
  p.drop({p.run(1, {a}, {0}), a, b});
  const auto roomy = p.under(30);
  CHECK(roomy.result == verdict::pass);
  CHECK(roomy.recompute == nanoseconds{5});
  CHECK(roomy.evictions == 1);
  CHECK(roomy.peak == bytes{30});
  const auto tight = p.under(29);  // b has to leave before it is made with a
  CHECK(tight.result == verdict::pass);
  CHECK(tight.evictions == 2);
  CHECK(tight.peak == bytes{25});
}

TEST_CASE("what nobody refers to leaves at once; constants do not") {
  for (const simrd_policy policy : every_policy) {
    program p;
    const auto x = p.constant(5);
    const auto a = p.run(1, {x}, {20});
    p.share(a);
    p.drop({a, a});
    p.drop({p.run(1, {x}, {20})});
    const auto r = p.under(25, policy);
    CHECK(r.result == verdict::pass);
    CHECK(r.evictions == 0);
    p.drop({x});
    p.constant(21);
    CHECK(p.under(25, policy).result == verdict::oom);
  }
}

TEST_CASE("results are there at the end, and nothing makes them leave again") {
  for (const simrd_policy policy : every_policy) {
    program p;
    const auto x = p.constant(0);
    p.run(5, {x}, {10});
    const auto b = p.run(1, {x}, {10});  // evicts the first
    p.drop({b});
    const auto r = p.under(15, policy);
    CHECK(r.result == verdict::pass);
    CHECK(r.recompute == nanoseconds{5});
    p.run(1, {x}, {10});
    CHECK(p.under(15, policy).result == verdict::oom);
    CHECK(p.under(20, policy).result == verdict::pass);
  }
}

TEST_CASE("recomputing may take as long as the limit, and not a nanosecond more") {
  program p;
  const auto x = p.constant(0);
  const auto a = p.run(5, {x}, {10});
  p.drop({p.run(1, {x}, {10})});
  p.drop({p.run(4, {a}, {0}), a});
  CHECK(p.under(10, simrd_policy::lru, 1.5).result == verdict::pass);
  const auto r = p.under(10, simrd_policy::lru, 1.4);
  CHECK(r.result == verdict::thrash);
  CHECK(r.clock == nanoseconds{1 + 5 + 1 + 5});
}

TEST_CASE("what the simulator does not know: updates and workspace") {
  program p;
  const auto x = p.constant(0);
  const auto a = p.run(5, {x}, {10});
  p.run(3, {x}, {}, {a}, 4);  // no outputs; from here on a stays
  const auto b = p.run(1, {x}, {10});
  p.drop({b});
  const auto r = p.under(20);
  CHECK(r.result == verdict::pass);
  CHECK(r.clock == nanoseconds{1 + 5 + 3 + 1});
  CHECK(p.under(19).result == verdict::oom);
  CHECK(p.under(13).clock == nanoseconds{1 + 5});
}

TEST_CASE("what policies count around a storage: DTR both ways, MSPS ancestors, DTRLocal nothing") {
  const auto recomputed = [](simrd_policy policy) {
    program p;
    const auto x = p.constant(0);
    const auto a = p.run(1, {x}, {10});
    const auto b = p.run(100, {a}, {20});
    const auto c = p.run(1, {b}, {10});
    p.drop({b});  // a and c have an expensive neighbour now
    const auto d = p.run(50, {x}, {10});
    p.drop({p.run(1, {a, c, d}, {0})});  // the same staleness for all
    p.drop({p.run(0, {x}, {40})});       // one has to leave
    for (const std::uint32_t t : {d, c, a}) p.drop({p.run(0, {t}, {0})});
    p.drop({a, c, d});
    const auto r = p.under(60, policy);
    CHECK(r.evictions == 1);
    return r.recompute.count();
  };
  CHECK(recomputed(simrd_policy::dtr_local) == 101);  // c, and b for it
  CHECK(recomputed(simrd_policy::msps) == 1);         // a
  CHECK(recomputed(simrd_policy::dtr) == 50);         // d
  CHECK(recomputed(simrd_policy::dtr_eq) == 50);
}

TEST_CASE("random programs: within the budget, no time lost, the same again") {
  std::uint64_t passed = 0, recomputes = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const trace t = test::random_trace(seed, 120).take();
    check(t);
    nanoseconds work{};
    std::uint64_t largest = 1;
    for (const auto& o : t.operations) work += o.cost;
    for (const auto& made : t.tensors) largest = std::max(largest, made.size.count);
    for (const simrd_policy policy : every_policy)
      for (const std::uint64_t part : {1u, 2u, 8u}) {
        const bytes budget{largest * part};
        const auto r = run_simrd(t, policy, budget, 1e3);
        CHECK(r.peak <= budget);
        if (r.result != verdict::pass) continue;
        CHECK(r.clock == nanoseconds{1} + work + r.recompute);
        CHECK(run_simrd(t, policy, budget, 1e3).evaluations == r.evaluations);
        ++passed;
        recomputes += r.recomputes;
      }
  }
  CHECK(passed > 100);
  CHECK(recomputes > 100);
}

TEST_CASE("DTR's traces of ResNet-32 and U-Net") {
  const auto folder = test::dtr_traces("simrd_test, DTR's traces");
  if (folder.empty()) return;
  test::check_simrd(folder, {"resnet32", "unet"});
}
