// The recorder: what it is told of a manager's calls becomes a trace with numbers of its own.
#include "trace/recorder.hpp"

#include <doctest/doctest.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "trace/delta_format.hpp"

using namespace delta;
using namespace delta::executor;

namespace {

constexpr tensor_id first{0}, second{1}, third{5};

/// f reads and updates two variables and makes a tensor, which takes the id of the one dropped.
trace record(trace_recorder::costs costs) {
  trace_recorder r(costs);
  r.variable(first, bytes{8}, "w");
  r.variable(third, bytes{4}, "");
  r.write(first);
  const std::array inputs{first}, updates{third};
  const std::array made{second, tensor_id{7}};
  const std::array sizes{bytes{16}, bytes{32}};
  r.run({.inputs = inputs,
         .outputs = sizes,
         .updates = updates,
         .workspace = bytes{64},
         .traits = trait::effect_once,
         .cost = nanoseconds{10},
         .name = "f"},
        made, nanoseconds{11});
  r.share(second);
  r.drop(second);
  r.drop(first);
  r.backward();
  const std::array again{first};
  const std::array eight{bytes{8}};
  r.run({.inputs = made, .outputs = eight, .cost = nanoseconds{20}, .name = "g"}, again,
        nanoseconds{21});
  r.read(first);
  r.end_of_step();
  return r.take({.device = "here", .granularity = 64});
}

}  // namespace

TEST_CASE("a recording says what was called, and ids that are used again are other tensors") {
  CHECK(to_text(record(trace_recorder::costs::stated)) ==
        R"({"delta_trace":1,"device":"here","rate_out":0,"rate_in":0,"granularity":64,"events":11}
{"variable":8,"name":"w"}
{"variable":4,"name":""}
{"write":0}
{"run":"f","cost":10,"inputs":[0],"outputs":[16,32],"updates":[1],"workspace":64,"traits":["effect_once"]}
{"share":2}
{"drop":2}
{"drop":0}
{"mark":"backward"}
{"run":"g","cost":20,"inputs":[2,3],"outputs":[8]}
{"read":4}
{"mark":"end_of_step"}
)");
}

TEST_CASE("costs are what the program states, or what was measured") {
  const trace t = record(trace_recorder::costs::measured);
  CHECK(t.operations[0].cost == nanoseconds{11});
  CHECK(t.operations[1].cost == nanoseconds{21});
  check(t);
}

TEST_CASE("what no trace can hold is said in one line") {
  trace_recorder r(trace_recorder::costs::stated);
  r.run({.cost = nanoseconds::max(), .name = "f"}, {}, {});
  CHECK_THROWS_WITH_AS(r.run({.cost = nanoseconds{1}, .name = "f"}, {}, {}),
                       "the run can't be recorded: costs beyond 63 bits; expected: less in all",
                       std::length_error);
}
