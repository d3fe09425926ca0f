// verify_heuristic: finds nothing against the shipped heuristics, and catches each kind of fault.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>

#include "delta/detail/victims/victim_search.hpp"
#include "delta/heuristic.hpp"
#include "delta/testing/verify_heuristic.hpp"
#include "more_heuristics.hpp"

using namespace delta;

namespace {

// Without a declaration everything may be read; so these are right.
struct undeclared {
  double score(const context& c, tensor_id t) const {
    return c.staleness(t) + c.budget() / (1 + c.used()) + c.backlog(direction::in);
  }
};
struct reads_all {
  static constexpr quantity depends_on = quantity::bytes | quantity::recompute_cost |
                                         quantity::neighbourhood_cost | quantity::copy_cost |
                                         quantity::swap_cost | quantity::exposed_swap_cost;
  double weight(const context& c, tensor_id t) const {
    const double reload = c.is_clean(t) ? c.reload_cost(t) : 0;
    const double out = c.can_offload(t) ? c.swap_cost(t) + c.exposed_swap_cost(t) : 0;
    const double again = c.can_recompute(t) ? c.recompute_cost(t) + c.neighbourhood_cost(t) : 0;
    return c.bytes(t) + c.copy_cost(t, direction::out) + reload + out + again +
           c.rate(direction::in) + c.backlog(direction::out);
  }
};

struct not_a_number {
  double score(const context& c, tensor_id t) const {
    return c.recompute_cost(t) - c.recompute_cost(t);  // can't minus can't
  }
};
struct negative {
  double weight(const context& c, tensor_id t) const { return c.bytes(t) - 2; }
};
struct reads_tick {
  double weight(const context& c, tensor_id t) const { return c.bytes(t) + double(c.now()); }
};
struct reads_staleness {
  double weight(const context& c, tensor_id t) const { return c.bytes(t) * c.staleness(t); }
};
struct counts_questions {
  double score(const context&, tensor_id) const { return double(++*asked); }
  std::uint64_t* asked;
};

// What they do not declare is what they are named after.
struct reads_bytes {
  static constexpr quantity depends_on = quantity::none;
  double weight(const context& c, tensor_id t) const { return c.bytes(t); }
};
struct reads_recompute_cost {
  static constexpr quantity depends_on = quantity::bytes;
  double score(const context& c, tensor_id t) const { return c.recompute_cost(t); }
};
struct reads_neighbourhood_cost {
  static constexpr quantity depends_on = quantity::recompute_cost;
  double weight(const context& c, tensor_id t) const { return c.neighbourhood_cost(t); }
};
struct reads_copy_cost {
  static constexpr quantity depends_on = quantity::bytes;
  double weight(const context& c, tensor_id t) const { return c.copy_cost(t, direction::out); }
};
struct reads_swap_cost {
  static constexpr quantity depends_on = quantity::bytes | quantity::copy_cost;
  double weight(const context& c, tensor_id t) const { return c.swap_cost(t); }
};
struct reads_exposed_swap_cost {
  static constexpr quantity depends_on = quantity::swap_cost;
  double weight(const context& c, tensor_id t) const { return c.exposed_swap_cost(t); }
};
struct reads_budget_use {
  static constexpr quantity depends_on = quantity::bytes;
  double score(const context& c, tensor_id t) const { return c.bytes(t) * c.used(); }
};

// A score may read the staleness if it says so; nothing vouches for the tick.
struct declares_staleness {
  static constexpr quantity depends_on = quantity::bytes | quantity::staleness;
  double score(const context& c, tensor_id t) const { return 1 / (c.bytes(t) * c.staleness(t)); }
};
struct hides_staleness {
  static constexpr quantity depends_on = quantity::bytes;
  double score(const context& c, tensor_id t) const { return 1 / (c.bytes(t) * c.staleness(t)); }
};
struct hides_tick {
  static constexpr quantity depends_on = quantity::bytes;
  double score(const context& c, tensor_id t) const { return c.bytes(t) * double(c.now()); }
};
struct declares_bytes_reads_cost {
  static constexpr quantity depends_on = quantity::bytes | quantity::staleness;
  double score(const context& c, tensor_id t) const { return c.copy_cost(t, direction::in); }
};
// Declaring does not help a weight: it has the staleness beside it.
struct declares_staleness_as_weight {
  static constexpr quantity depends_on = quantity::bytes | quantity::staleness;
  double weight(const context& c, tensor_id t) const { return c.bytes(t) * c.staleness(t); }
};

/// The same when asked twice in a row, and turned round from one scan to the next.
struct changes_its_mind {
  struct memory {
    tensor_id last = tensor_id::none;
    double sign = 1;
  };
  double score(const context& c, tensor_id t) const {
    if (t < seen->last) seen->sign = -seen->sign;
    seen->last = t;
    return seen->sign * c.bytes(t);
  }
  memory* seen;
};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("nothing is found against an honest heuristic", H, honest) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const heuristic_report r = verify_heuristic(H{}, seed);
    INFO(r.what(), ": seed ", r.seed, ", round ", r.round, ", step ", r.step, ", tensor ",
         index(r.tensor));
    CHECK(r);
    CHECK(r.seed == seed);
    CHECK(r.tensor == tensor_id::none);
  }
}
TEST_CASE_TEMPLATE_INVOKE(honest, base, lru, greedy, dtr, msps, joint, undeclared, reads_all,
                          declares_staleness);

TEST_CASE_TEMPLATE_DEFINE("a quantity that is read and not declared is found", H, liars) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const heuristic_report r = verify_heuristic(H{}, seed);
    CHECK(r.fault == heuristic_report::kind::undeclared_quantity);
    CHECK(r.tensor != tensor_id::none);
  }
}
TEST_CASE_TEMPLATE_INVOKE(liars, reads_bytes, reads_recompute_cost, reads_neighbourhood_cost,
                          reads_copy_cost, reads_swap_cost, reads_exposed_swap_cost,
                          reads_budget_use, declares_bytes_reads_cost);

TEST_CASE_TEMPLATE_DEFINE("a time that is read and not declared is found", H, reads_the_clock) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const heuristic_report r = verify_heuristic(H{}, seed);
    CHECK(r.fault == heuristic_report::kind::reads_the_time);
    CHECK(r.tensor != tensor_id::none);
  }
}
TEST_CASE_TEMPLATE_INVOKE(reads_the_clock, hides_staleness, hides_tick,
                          declares_staleness_as_weight);

TEST_CASE("every other fault is found") {
  std::uint64_t asked = 0;
  CHECK(verify_heuristic(not_a_number{}).fault == heuristic_report::kind::not_a_number);
  CHECK(verify_heuristic(negative{}).fault == heuristic_report::kind::negative_weight);
  CHECK(verify_heuristic(reads_tick{}).fault == heuristic_report::kind::reads_the_time);
  CHECK(verify_heuristic(reads_staleness{}).fault == heuristic_report::kind::reads_the_time);
  CHECK(verify_heuristic(counts_questions{&asked}).fault == heuristic_report::kind::answers_differ);
  changes_its_mind::memory seen;
  CHECK(verify_heuristic(changes_its_mind{&seen}).fault == heuristic_report::kind::index_differs);
}

TEST_CASE("the same seed finds the same, in words") {
  const heuristic_report a = verify_heuristic(reads_bytes{}, 7),
                         b = verify_heuristic(reads_bytes{}, 7);
  CHECK(a.round == b.round);
  CHECK(a.step == b.step);
  CHECK(a.tensor == b.tensor);
  CHECK(a.seed == 7);
  CHECK_FALSE(a);
  CHECK(a.what() == "the answer depends on a quantity that depends_on does not declare");
}
