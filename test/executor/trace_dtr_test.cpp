// What becomes of each of DTR's instructions.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "trace/file.hpp"
#include "traces/trace.hpp"

using namespace delta;
using namespace delta::executor;

namespace {

using events = std::vector<trace::event>;
using kind = trace::kind;

const std::string start = "{\"ANNOTATION\":\"START\",\"INSTRUCTION\":\"ANNOTATE\"}\n";

/// Tensor 0 under the name a, of 16 bytes.
const std::string a = R"({"INSTRUCTION":"CONSTANT","NAME":"a"}
{"INSTRUCTION":"MEMORY","MEMORY":"16","NAME":"a"}
)";
/// Tensors 1 and 2 under the names b and c: b of 8 bytes, c a view of a.
const std::string b_and_c =
    R"({"ARGS":["a"],"INSTRUCTION":"CALL","NAME":"f","RESULT":["b","c"],"TIME":"7"}
{"INSTRUCTION":"MEMORY","MEMORY":"8","NAME":"b"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"b"}
{"INSTRUCTION":"MEMORY","MEMORY":"16","NAME":"c"}
{"ALIAS":"0","INSTRUCTION":"ALIAS","NAME":"c"}
)";

trace parse(const std::string& lines) {
  return parse_trace(start + lines, "t");
}
events tail(const trace& t, std::size_t from) {
  return {t.events.begin() + static_cast<std::ptrdiff_t>(from), t.events.end()};
}

}  // namespace

TEST_CASE("CONSTANT and CALL, results that are views") {
  const trace t = parse(a + b_and_c);
  CHECK(t.events == events{{kind::constant, 0}, {kind::run, 0}});
  CHECK(t.tensors == std::vector<trace::tensor>{{.size = bytes{16}},
                                                {.size = bytes{8}, .producer = 0},
                                                {.view_of = 0, .producer = 0}});
  REQUIRE(t.operations.size() == 1);
  const auto& o = t.operations[0];
  CHECK(t.name(o) == "f");
  CHECK(o.cost == nanoseconds{7});
  CHECK(std::vector(t.inputs(o).begin(), t.inputs(o).end()) == std::vector<std::uint32_t>{0});
  CHECK(std::vector(t.outputs(o).begin(), t.outputs(o).end()) == std::vector<std::uint32_t>{1, 2});
  CHECK(t.updates(o).empty());
  CHECK(unmanaged_peak(t) == bytes{24});
}

TEST_CASE("COPY, COPY_FROM and RELEASE move references") {
  const trace t = parse(a + b_and_c + R"({"DST":"d","INSTRUCTION":"COPY","SRC":"c"}
{"DST":"b","INSTRUCTION":"COPY_FROM","SRC":"a"}
{"INSTRUCTION":"RELEASE","NAME":"b"}
{"INSTRUCTION":"RELEASE","NAME":"d"}
{"DST":"b","INSTRUCTION":"COPY","SRC":"a"}
{"DST":"a","INSTRUCTION":"COPY_FROM","SRC":"a"}
)");
  CHECK(tail(t, 2) == events{{kind::share, 2},
                             {kind::share, 0},
                             {kind::drop, 1},
                             {kind::drop, 0},
                             {kind::drop, 2},
                             {kind::share, 0},
                             {kind::share, 0},
                             {kind::drop, 0}});
}

TEST_CASE("MUTATE makes new tensors, and the mutated names go over to them") {
  const trace t = parse(a + b_and_c + R"({"DST":"d","INSTRUCTION":"COPY","SRC":"b"}
{"ARGS":["a","c","b"],"INSTRUCTION":"MUTATE","MUTATE":[2,1],"NAME":"g_","TIME":"5"}
{"INSTRUCTION":"RELEASE","NAME":"b"}
{"INSTRUCTION":"RELEASE","NAME":"c"}
{"INSTRUCTION":"RELEASE","NAME":"d"}
)");
  REQUIRE(t.operations.size() == 2);
  const auto& o = t.operations[1];
  CHECK(t.name(o) == "g_");
  CHECK(std::vector(t.inputs(o).begin(), t.inputs(o).end()) == std::vector<std::uint32_t>{0, 2, 1});
  CHECK(std::vector(t.outputs(o).begin(), t.outputs(o).end()) == std::vector<std::uint32_t>{3, 4});
  // The view's new version owns a storage as large as that of what it was a view of.
  CHECK(t.tensors[3] == trace::tensor{.size = bytes{8}, .producer = 1});
  CHECK(t.tensors[4] == trace::tensor{.size = bytes{16}, .producer = 1});
  CHECK(tail(t, 2) == events{{kind::share, 1},
                             {kind::run, 1},
                             {kind::drop, 1},
                             {kind::drop, 2},
                             {kind::drop, 3},
                             {kind::drop, 4},
                             {kind::drop, 1}});
}

TEST_CASE("annotations: BACKWARD is a mark, others are passed over") {
  const trace t = parse(R"({"ANNOTATION":"BACKWARD","INSTRUCTION":"ANNOTATE"}
{"ANNOTATION":"OPTIMIZER","INSTRUCTION":"ANNOTATE"}
)");
  CHECK(t.events == events{{kind::backward, 0}});
}

TEST_CASE("warm-up leaves nothing; keys in any order, numbers bare, lines with other ends") {
  const trace t = parse_trace(a + b_and_c + start +
                                  "{ \"NAME\" : \"\\u0061\", \"more\": [{}], "
                                  "\"INSTRUCTION\":\"CONSTANT\" }\r\n"
                                  "{\"NAME\":\"a\",\"MEMORY\":16,\"INSTRUCTION\":\"MEMORY\"}",
                              "t");
  CHECK(t == parse(a));
}
