// The graph of tensors and records alone: a record's lists are those that it was made of, and what
// is told of a closure's cost is exact, or says that it is not.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "delta/context.hpp"
#include "delta/detail/tensors/closure_walk.hpp"
#include "delta/detail/tensors/graph.hpp"
#include "delta/machine_state.hpp"

using namespace delta;
using namespace delta::literals;

TEST_CASE("graph: a record has its inputs, outputs and updates, also in the place of another") {
  detail::graph g;
  std::array<tensor_id, 4> t{};
  for (tensor_id& x : t) x = g.add_tensor(8_B, 8_B);
  const auto is = [](std::span<const tensor_id> a, const std::vector<tensor_id>& b) {
    return std::ranges::equal(a, b);
  };
  const std::vector<tensor_id> in{t[1], t[0]}, out{t[3]}, updates{t[2], t[1]};
  for (int again = 0; again < 2; ++again) {
    const operator_id o = g.add_record(in, out, updates);
    CHECK(is(g.inputs(o), in));
    CHECK(is(g.outputs(o), out));
    CHECK(is(g.updates(o), updates));
    CHECK(g[t[3]].producer == o);
    const operator_id plain = g.add_record(out, {}, {});
    CHECK(is(g.inputs(plain), out));
    CHECK(g.updates(plain).empty());
  }
}

TEST_CASE("closures: a cost that is less than all of it says so, also where just that was asked") {
  // Eight operators of 1 ns each, one behind the other, of which all outputs are gone.
  detail::graph g;
  g.cached_closure = detail::closure::ancestors;
  tensor_id t = g.add_tensor(8_B, 8_B);
  for (int i = 0; i < 8; ++i) {
    const tensor_id in = std::exchange(t, g.add_tensor(8_B, 8_B));
    g[g.add_record(std::array{in}, std::array{t})].cost = nanoseconds{1};
    g[t].where = residency::evicted;
  }
  const detail::machine_state now;
  for (const double enough : {2.0, 3.0, 4.0, 5.0, 7.0, 8.0, 9.0}) {
    CAPTURE(enough);
    g[t].cost = detail::tensor_record::unknown;
    detail::cost_query asked;
    const detail::closure_pricing price{&g, &now, &asked};
    const double cost = price.cost(t, detail::closure::ancestors, enough);
    CHECK(cost <= 8);
    // Else it is exact up to what was asked about, or over it.
    if (!asked.bounded) CHECK((cost == 8 || cost > enough));
    if (asked.bounded) CHECK(cost < 8);
  }
  CHECK(detail::closure_pricing{&g, &now}.cost(t, detail::closure::ancestors, never) == 8);
}
