// The residency table against a listing of its own, and the small vocabulary around it.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <utility>

#include "delta/concepts.hpp"
#include "delta/tensor.hpp"

using namespace delta;

namespace {
constexpr residency all[] = {residency::resident,  residency::offloading, residency::host,
                             residency::reloading, residency::evicted,    residency::dead};
}

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
