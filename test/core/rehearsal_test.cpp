// Rehearsals of the step to come: what they say is what it takes then, under every policy.
// ctest-labels: slow
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "delta/adaptive.hpp"
#include "delta/presets.hpp"
#include "delta/storage/simulated.hpp"
#include "dice.hpp"
#include "seeds.hpp"
#include "step_script.hpp"

using namespace delta;
using namespace delta::test;

namespace {

using candidates = delta::detail::ten_policies;

/// What was said of the step to come.
struct prediction {
  double time = 0;        ///< ns; 0: nothing
  std::uint64_t key = 0;  ///< of the step that was meant
};

/// Always that one; each time it says what that will take.
struct foretelling {
  std::uint32_t variant = 0;
  prediction* said = nullptr;
  std::uint32_t choose(const context& c) const {
    *said = {};
    if (c.past().steps() == 0 || !c.past().follows()) return variant;
    const step_record& next = c.past().followed();
    *said = {rehearse(coming_step(c, next), candidates::make(always{variant}), variant),
             next.operations.back().prefix};
    return variant;
  }
};

/// How often predictions were put to the test.
struct tally {
  int exact = 0, off = 0, failures = 0, other = 0, left_on_host = 0, under_way = 0;
};

/// Steps of those kinds, in that order again and again: predictions from the `settled`th round on.
void foretell(const std::vector<action_list>& kinds, const std::vector<std::size_t>& order,
              const std::vector<std::uint64_t>& variables, const simulated_options& on,
              std::uint32_t variant, int settled, tally& sum) {
  prediction said;
  simulated storage(on);
  manager m{candidates::make(foretelling{variant, &said}), storage};
  int round = 0;
  try {
    step_player player(m, variables);
    for (; round < settled + 2; ++round)
      for (const std::size_t k : order) {
        const prediction before = said;
        player.step(k, kinds[k]);
        sum.left_on_host += storage.host_used().count > 0;
        for (const direction d : {direction::out, direction::in})
          sum.under_way += storage.backlog(d).count() > 0;
        const history& past = m.past();
        if (round < settled || before.time == 0) continue;
        if (past.last().operations.back().prefix != before.key) {
          ++sum.other;
          continue;
        }
        CAPTURE(round);
        CAPTURE(k);
        CHECK(before.time == doctest::Approx(past.last_took()).epsilon(1e-3));
        (std::abs(before.time - past.last_took()) <= 1e-3 * past.last_took() ? sum.exact
                                                                             : sum.off)++;
      }
  } catch (const error&) {
    ++sum.failures;
    CAPTURE(round);
    if (round >= settled && order.size() == 1) CHECK(said.time == never);
  }
}

}  // namespace

TEST_CASE("a rehearsal says what the step to come takes: random programs, every policy") {
  tally sum;
  for (std::uint64_t seed = 1; seed <= seeds(120); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    std::vector<std::uint64_t> variables;
    for (auto n = 1 + roll.below(5); n-- > 0;) variables.push_back(1000 + roll.below(48'000));
    std::vector<action_list> kinds{random_actions(roll.bits(), variables)};
    std::vector<std::size_t> order{0};
    if (roll.one_in(2)) {
      kinds.push_back(random_actions(roll.bits(), variables));
      order = roll.one_in(3) ? std::vector<std::size_t>{0, 0, 1} : std::vector<std::size_t>{0, 1};
    }
    double peak = 0;
    for (const action_list& k : kinds)
      peak = std::max(peak, double(k.peak(int(variables.size()))));
    const double part = 0.4 + 0.05 * double(roll.below(12));
    simulated_options on{.capacity = bytes{std::uint64_t(peak * part)},
                         .host_capacity = bytes{std::uint64_t(peak * (roll.one_in(3) ? 0.3 : 4))},
                         .rate_out = 3e8 * double(1 + roll.below(12)),
                         .rate_in = 3e8 * double(1 + roll.below(12)),
                         .latency = nanoseconds{std::int64_t(roll.below(4) * 500)},
                         .granularity = roll.one_in(2) ? 1u : 256u,
                         .places = false};
    for (std::uint32_t v = 0; v < candidates::names.size(); ++v) {
      CAPTURE(candidates::names[v]);
      foretell(kinds, order, variables, on, v, 4, sum);
    }
  }
  MESSAGE(sum.exact << " steps as foretold, " << sum.off << " not; " << sum.other
                    << " were other steps, " << sum.failures << " did not fit; "
                    << sum.left_on_host << " ended with something on the host, " << sum.under_way
                    << " with copies under way");
  CHECK(sum.exact > 0);
  CHECK(sum.left_on_host > 0);
  CHECK(sum.under_way > 0);
}
