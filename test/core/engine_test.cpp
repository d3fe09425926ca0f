// Managers by name: what the interface promises beyond deciding as the templates do, which
// equivalence_test shows.
#include "delta/engine/engine.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "delta/error.hpp"
#include "delta/learning_report.hpp"
#include "delta/step.hpp"
#include "delta/storage/simulated.hpp"
#include "machine.hpp"
#include "random_program.hpp"

using namespace delta;
using namespace delta::test;

namespace {

/// The least that is a Storage: no addresses, no holes, no burdens.
class bare_storage {
 public:
  explicit bare_storage(const simulated_options& o) : in_(o) {}

  std::optional<block> allocate(bytes n, lifetime l) { return in_.allocate(n, l); }
  void free(block&& b) { in_.free(std::move(b)); }
  void free(slab&& h) { in_.free(std::move(h)); }
  std::optional<transfer> copy_out(block& b) { return in_.copy_out(b); }
  transfer copy_in(slab&& h, block&& b) { return in_.copy_in(std::move(h), std::move(b)); }
  std::pair<block, slab> land(transfer&& t) { return in_.land(std::move(t)); }
  void begin_operator(std::span<const block* const> reads, std::span<const block* const> writes) {
    in_.begin_operator(reads, writes);
  }
  stamp end_operator(nanoseconds cost) { return in_.end_operator(cost); }
  bool reached(stamp s) { return in_.reached(s); }
  void wait(stamp s) { in_.wait(s); }
  std::optional<nanoseconds> elapsed(stamp s) { return in_.elapsed(s); }
  [[nodiscard]] nanoseconds now() const { return in_.now(); }
  [[nodiscard]] double rate(direction d) const { return in_.rate(d); }
  [[nodiscard]] nanoseconds latency(direction d) const { return in_.latency(d); }
  [[nodiscard]] nanoseconds backlog(direction d) const { return in_.backlog(d); }
  [[nodiscard]] bytes capacity() const { return in_.capacity(); }
  [[nodiscard]] bytes used() const { return in_.used(); }
  [[nodiscard]] bytes host_capacity() const { return in_.host_capacity(); }
  [[nodiscard]] bytes host_used() const { return in_.host_used(); }
  [[nodiscard]] bytes rounded(bytes n) const { return in_.rounded(n); }

 private:
  simulated in_;
};
static_assert(Storage<bare_storage> && !detail::has_holes<bare_storage>);

struct counting final : any_observer {
  std::size_t told = 0;
  void on(const event&) override { ++told; }
};

}  // namespace

TEST_CASE("every named policy runs over a storage that has the required members alone") {
  for (const preset& policy : named_policies) {
    CAPTURE(policy.name);
    CHECK(!policy.explanation.empty());
    const program p = random_program(7, {.largest = 200});
    bare_storage storage(
        {.capacity = largest_footprint(p) * 3, .host_capacity = 64_KiB, .places = false});
    {
      const auto m = make_manager(policy.name, over(storage));
      try {
        run_program(*m, p, run_now{}, [&] { CHECK(storage.used() <= storage.capacity()); });
        CHECK(m->counts().operators == p.ops.size());
      } catch (const budget_exceeded&) {
        CHECK((policy.name == "unmanaged" || policy.name == "dtr"));
      }
    }
    CHECK(storage.used() == bytes{});
    CHECK(storage.host_used() == bytes{});
  }
}

TEST_CASE("views: several at once, each where its tensor is, in any order of their ends") {
  immediate device;
  arena<immediate> storage(device, {.capacity = 1_KiB});
  const auto m = make_manager("online", over(storage));
  const std::array<tensor_id, 3> t{m->variable(64_B), m->variable(64_B), m->constant(64_B)};
  {
    std::vector<std::optional<manager_interface::view>> views;
    for (const tensor_id x : t) views.emplace_back(m->acquire(x, access::write));
    for (std::size_t i = 0; i < t.size(); ++i) *views[i]->data() = std::byte(i + 1);
    views.front().reset();
    views.emplace_back(m->acquire(t[0]));
    CHECK(views.back()->size() == 64_B);
    const manager_interface::view moved = std::move(*views[1]);
    CHECK(*moved.data() == std::byte(2));
  }
  for (std::size_t i = 0; i < t.size(); ++i) {
    const auto held = m->acquire(t[i]);
    CHECK(*held.data() == std::byte(i + 1));
  }
}

TEST_CASE("operators that are begun: without inputs, given up, and ended") {
  simulated storage({.capacity = 1_KiB});
  const auto m = make_manager("dtr", over(storage));
  { const manager_interface::open_operator given_up = m->begin({.name = "filter"}); }
  CHECK(m->counts().operators == 0);
  auto op = m->begin({.name = "filter"});
  CHECK(op.allocate(100_B) == 0);
  CHECK_THROWS_AS((void)m->variable(8_B), misuse);
  const tensor_id y = op.end([](call&) {});
  CHECK(m->where(y) == residency::resident);
  CHECK(m->counts().operators == 1);
  CHECK(m->learned().steps == 0);
  m->end_of_step();
  CHECK(m->last_step() == nullptr);  // of a policy that does not learn
}

TEST_CASE("the last step is the one that has ended, where the policy learns") {
  simulated storage({.capacity = 1_KiB});
  const auto m = make_manager("adaptive", over(storage));
  const tensor_id x = m->variable(100_B);
  const auto operators = [&](std::uint32_t n) {
    for (std::uint32_t i = 0; i < n; ++i) {
      const operation op{.inputs = {x}, .outputs = {8_B}, .cost = nanoseconds{5}, .name = "f"};
      m->drop(m->run(op, [](call&) {}));
    }
  };
  operators(2);
  CHECK(m->last_step() == nullptr);
  m->end_of_step();
  operators(3);
  REQUIRE(m->last_step() != nullptr);
  CHECK(m->last_step()->length() == 2);
  CHECK(m->last_step()->time == 10);
  m->end_of_step();
  CHECK(m->last_step()->length() == 3);
}

TEST_CASE("where there is no room the kernel is still the caller's, to try again") {
  simulated storage({.capacity = 100_B});
  const auto m = make_manager("unmanaged", over(storage));
  const tensor_id x = m->variable(60_B);
  int ran = 0;
  kernel body([&ran](call&) { ++ran; });
  CHECK_THROWS_AS((void)m->run({.outputs = {60_B}}, std::move(body)), budget_exceeded);
  m->drop(x);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is the promise
  REQUIRE(body);
  (void)m->run({.outputs = {60_B}}, std::move(body));
  CHECK(ran == 1);
}

TEST_CASE("an observer is told, where there is one, and changes nothing") {
  const program p = random_program(3);
  counting observer;
  std::optional<counters> alone;
  for (const bool with : {false, true}) {
    simulated storage({.capacity = largest_footprint(p), .host_capacity = 64_KiB});
    const auto m = make_manager("online", over(storage), {.observer = with ? &observer : nullptr});
    run_program(*m, p, run_now{}, [] {});
    const counters& now = m->counts();
    CHECK((observer.told > 0) == with);
    if (with) CHECK(observer.told >= now.operators + now.offloads + now.evictions);
    if (alone) CHECK(alone->decisions == now.decisions);
    alone = now;
  }
}

TEST_CASE("without a storage there is no manager") {
  CHECK_THROWS_AS((void)make_manager("online", nullptr), misuse);
}
