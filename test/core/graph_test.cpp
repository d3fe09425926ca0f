// The graph of tensors and records alone: a record's lists are those that it was made of.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "delta/detail/tensors/graph.hpp"

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
