// The residency table against a listing of its own, and the small vocabulary around it.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "delta/concepts.hpp"
#include "delta/detail/history/step_recorder.hpp"
#include "delta/detail/tensors/residency_table.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/tensor.hpp"

using namespace delta;
using namespace delta::literals;

namespace {
constexpr residency all[] = {residency::resident,  residency::offloading, residency::host,
                             residency::reloading, residency::evicted,    residency::dead};

// A table of a policy that learns, with one tensor.
struct one_tensor {
  ~one_tensor() { table.release_all(); }
  /// Whose the copies out under way are.
  std::vector<tensor_id> copied() {
    std::vector<tensor_id> whose;
    for (const queued_copy& c : table.queued_copies()) {
      CHECK(c.way == direction::out);
      whose.push_back(c.tensor);
    }
    return whose;
  }
  /// Whether a heuristic that is asked only about what has changed is asked about it.
  bool weighed_anew() {
    const bool told = table.tensors.changed().contains(t);
    table.tensors.changed().erase(t);
    table.tensors[t].has_score = true;
    return told;
  }
  simulated storage{{.capacity = 4_KiB, .host_capacity = 4_KiB}};
  detail::residency_table<simulated, detail::step_recorder> table{storage};
  tensor_id t = table.admit(1_KiB, *storage.allocate(1_KiB, lifetime::persistent), true, pin::none,
                            "weights");
};
}  // namespace

TEST_CASE("residency: exactly these transitions are legal") {
  using enum residency;
  const std::set<std::pair<residency, residency>> listed{
      {resident, offloading},  // a copy out begins
      {resident, host},        // a clean tensor goes
      {resident, evicted},     // its producer can make it again
      {resident, dead},        // dropped, or released after the program had dropped it
      {offloading, resident},  // used while the copy is under way
      {offloading, host},      // the copy is done
      {offloading, dead},     {host, reloading}, {host, resident},  // computed again instead
      {host, evicted},        {host, dead},      {reloading, resident}, {reloading, dead},
      {evicted, resident},    {evicted, dead},   {dead, resident}};
  std::size_t legal_ones = 0;
  for (const residency from : all)
    for (const residency to : all) {
      CAPTURE(name(from));
      CAPTURE(name(to));
      CHECK(detail::legal(from, to) == listed.contains({from, to}));
      legal_ones += detail::legal(from, to);
    }
  CHECK(legal_ones == listed.size());
  CHECK(std::size(all) == detail::residency_count);
  static_assert(detail::legal(resident, evicted) && !detail::legal(evicted, host));
}

TEST_CASE("residency: names, and who has bytes on the device") {
  const char* names[] = {"resident", "offloading", "host", "reloading", "evicted", "dead"};
  const bool here[] = {true, true, false, true, false, false};
  for (std::size_t i = 0; i < detail::residency_count; ++i) {
    CHECK(name(all[i]) == names[i]);
    CHECK(detail::on_device(all[i]) == here[i]);
  }
}

TEST_CASE("pins combine") {
  static_assert((pin::evict | pin::offload) == pin::both);
  static_assert((pin::both & pin::offload) == pin::offload);
  for (const pin p : {pin::none, pin::evict, pin::offload, pin::both}) {
    CHECK(covers(pin::both, p));
    CHECK(covers(p, pin::none));
    CHECK(covers(p, p));
  }
  CHECK(!covers(pin::evict, pin::offload));
  CHECK(!covers(pin::offload, pin::both));
  CHECK(!covers(pin::none, pin::evict));
}

TEST_CASE("traits combine") {
  CHECK(has(trait::random | trait::effect_once, trait::random));
  CHECK(has(trait::random | trait::effect_once, trait::effect_once));
  CHECK(!has(trait::random | trait::effect_once, trait::never_replay));
  CHECK(!has(trait::pure, trait::random));
}

TEST_CASE("a copy out of bytes that were written since is nobody's, and the next one counts") {
  using list = std::vector<tensor_id>;
  one_tensor it;
  auto& table = it.table;
  const stamp first = *table.copy_ahead(it.t);
  CHECK(it.copied() == list{it.t});
  table.forget_host_copy(it.t);
  CHECK(it.copied() == list{tensor_id::none});
  const stamp second = *table.copy_ahead(it.t);
  CHECK(it.copied() == list{tensor_id::none, it.t});
  it.storage.wait(first);
  table.harvest();
  CHECK(it.copied() == list{it.t});
  CHECK(table.tensors[it.t].copying);
  it.storage.wait(second);
  table.harvest();
  CHECK(it.copied().empty());
  CHECK_FALSE(table.tensors[it.t].copying);
}

TEST_CASE("a tensor is weighed anew when a copy of it begins, is over, and is forgotten") {
  one_tensor it;
  CHECK(it.weighed_anew());
  CHECK_FALSE(it.weighed_anew());
  const stamp done = *it.table.copy_ahead(it.t);
  CHECK(it.weighed_anew());
  it.storage.wait(done);
  it.table.harvest();
  CHECK(it.weighed_anew());
  it.table.forget_host_copy(it.t);
  CHECK(it.weighed_anew());
}

namespace {
/// A storage whose clock moves with each look at it, as clocks of real devices do.
struct runs_on : simulated {
  using simulated::simulated;
  [[nodiscard]] nanoseconds now() const { return simulated::now() + nanoseconds{++looks}; }
  mutable int looks = 0;
};
}  // namespace

TEST_CASE("the manager's clock is never behind that of a storage whose time passes by itself") {
  runs_on storage{{.capacity = 4_KiB, .host_capacity = 4_KiB}};
  detail::residency_table<runs_on, detail::step_recorder> table{storage};
  for (int i = 0; i < 20; ++i) {
    table.advance();
    table.refresh_machine_state();
    CHECK(table.now.ahead >= nanoseconds{0});
    CHECK(table.now.clock == nanoseconds{storage.looks} + table.now.ahead);
  }
}
