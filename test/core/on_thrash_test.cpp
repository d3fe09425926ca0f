// A policy under which recomputation thrashes may decide otherwise for the rest of the step.
#include <doctest/doctest.h>

#include <cstdint>

#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "random_program.hpp"
#include "storage_check.hpp"
#include "tested_policy.hpp"

using namespace delta;
using namespace delta::test;

namespace {

/// The most recently used leaves first, so what a restore has just made is gone again; `online`, as
/// one object, from the first time on that this thrashes, if it is to give way.
struct newest_first {
  bool gives_way;
  int* asked;
  bool as_online = false;

  double score(const context& c, tensor_id t) const {
    return as_online ? 1 / (cheapest_way_root{}.weight(c, t) * c.staleness(t)) : c.staleness(t);
  }
  action decide(const context& c, tensor_id t) const {
    return as_online ? cheaper{}.decide(c, t) : action::evict;
  }
  static tensor_id next(const context&) { return tensor_id::none; }
  bool on_thrash(const context&) {
    ++*asked;
    return as_online = gives_way;
  }
};
static_assert(Policy<newest_first>);

/// The same, which does not say whether it would decide otherwise.
struct never_asked {
  static double score(const context& c, tensor_id t) { return c.staleness(t); }
  static action decide(const context&, tensor_id) { return action::evict; }
  static tensor_id next(const context&) { return tensor_id::none; }
};
static_assert(Policy<never_asked>);

struct ending {
  enum class kind : std::uint8_t { passes, thrashes, does_not_fit } what = kind::passes;
  nanoseconds time{};
  bool operator==(const ending&) const = default;
};

/// In the smallest budget that has room for each operator.
template <class P>
ending end_of(const program& p, P policy, bool with_host) {
  const bytes least = largest_footprint(p);
  simulated storage({.capacity = least,
                     .host_capacity = with_host ? least : 0_B,
                     .rate_out = 2e9,
                     .rate_in = 2e9});
  const auto m = make_manager(policy, over(storage));
  ending result;
  try {
    run_program(*m, p, run_now{}, [&] { CHECK(check_invariants(storage) == ""); });
  } catch (const thrash&) {
    result.what = ending::kind::thrashes;
  } catch (const budget_exceeded&) {
    result.what = ending::kind::does_not_fit;
  }
  result.time = storage.now();
  return result;
}

program short_program(std::uint64_t seed) {
  return random_program(seed, {.operators = 40, .steps = 1});
}

}  // namespace

TEST_CASE("a policy under which recomputation thrashes decides otherwise in that step") {
  int thrashing = 0, saved = 0, asked_again = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    const program p = short_program(seed);
    int asked = 0;
    if (end_of(p, newest_first{false, &asked}, true).what != ending::kind::thrashes) continue;
    CHECK(asked > 0);
    ++thrashing, asked_again += asked > 1, asked = 0;
    saved += end_of(p, newest_first{true, &asked}, true).what == ending::kind::passes;
    CHECK(asked <= 1);  // not again in this step
  }
  MESSAGE(thrashing << " thrash, " << saved << " of them pass where it decides otherwise");
  CHECK(saved > 0);
  CHECK(asked_again > 0);  // as long as it says no
}

TEST_CASE("a policy that does not decide otherwise loses nothing by being asked") {
  int asked = 0, alike = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed)
    for (const bool with_host : {false, true}) {
      CAPTURE(seed);
      const program p = short_program(seed);
      const int before = asked;
      const bool same =
          end_of(p, newest_first{false, &asked}, with_host) == end_of(p, never_asked{}, with_host);
      CHECK(same);
      alike += asked > before;
    }
  MESSAGE(alike << " programs in which it was asked end at the same time");
  CHECK(alike > 0);
}
