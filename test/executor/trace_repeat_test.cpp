// Programs of many steps: what comes once, what every step does, and that each is as the recording.
#include "trace/repeat.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "recordings.hpp"
#include "replay/replay_figures.hpp"
#include "trace/delta_format.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

const std::string header =
    R"({"delta_trace":1,"device":"here","rate_out":3,"rate_in":2,"granularity":64,"events":)";
const std::string plain_header = R"({"delta_trace":1})"
                                 "\n";

/// Has results: a loss and a second weight in place of the first. Constants: a weight that is
/// replaced, a batch that goes, and in the middle one that stays, shared.
const std::string with_results = R"({"constant":100,"name":"weight"}
{"constant":50,"name":"batch"}
{"run":"forward","cost":5,"inputs":[0,1],"outputs":[200,{"view_of":1}]}
{"drop":3}
{"drop":1}
{"constant":7,"name":"rate"}
{"share":4}
{"mark":"backward"}
{"run":"update","cost":3,"inputs":[0,2,4],"outputs":[100]}
{"drop":0}
)";

/// A single step: a variable that is written and stays, and a batch that goes; it leaves a loss,
/// and has one reference to the variable less than it began with.
const std::string with_end = R"({"variable":100,"name":"weight"}
{"write":0}
{"variable":50,"name":"batch"}
{"write":1}
{"share":0}
{"run":"forward","cost":5,"inputs":[0,1],"outputs":[200]}
{"drop":1}
{"mark":"end_of_step"}
)";

void check_steps(const trace& t, std::size_t times) {
  const trace program = repeat_trace(t, times);
  check(program);
  CHECK(unmanaged_peak(program) == unmanaged_peak(t));
  CHECK(step_costs(program) == std::vector<nanoseconds>(times, total_cost(t)));
}

}  // namespace

TEST_CASE("a trace that has results: they are gathered at the end of each step, and go") {
  const trace t = parsed(plain_header + with_results);
  CHECK(repeat_trace(t, 1) == t);
  const auto step = [](int weight, int batch, int first) {
    const auto n = [](int number) { return std::to_string(number); };
    return R"({"constant":100,"name":"weight"})"
           "\n"
           R"({"constant":50,"name":"batch"})"
           "\n"
           R"({"run":"forward","cost":5,"inputs":[)" +
           n(weight) + "," + n(batch) + R"(],"outputs":[200,{"view_of":)" + n(batch) + "}]}\n" +
           R"({"drop":)" + n(first + 1) + "}\n" + R"({"drop":)" + n(batch) + "}\n" +
           R"({"share":0})"
           "\n"
           R"({"mark":"backward"})"
           "\n"
           R"({"run":"update","cost":3,"inputs":[)" +
           n(weight) + "," + n(first) + R"(,0],"outputs":[100]})" + "\n" + R"({"drop":)" +
           n(weight) + "}\n" + R"({"run":"results","inputs":[)" + n(first) + "," + n(first + 2) +
           "]}\n" + R"({"drop":)" + n(first) + "}\n" + R"({"drop":0})" + "\n" + R"({"drop":)" +
           n(first + 2) +
           "}\n"
           R"({"mark":"end_of_step"})"
           "\n";
  };
  CHECK(repeat_trace(t, 2) == parsed(plain_header +
                                     R"({"constant":7,"name":"rate"})"
                                     "\n" +
                                     step(1, 2, 3) + step(6, 7, 8)));
  check_steps(t, 5);
}

TEST_CASE("a single step that ends: its leftovers go when another one follows") {
  const trace t = parsed(plain_header + with_end);
  CHECK(repeat_trace(t, 1) == t);
  CHECK(to_text(repeat_trace(t, 2)) == R"({"delta_trace":1,"events":16}
{"variable":100,"name":"weight"}
{"write":0}
{"variable":50,"name":"batch"}
{"write":1}
{"share":0}
{"run":"forward","cost":5,"inputs":[0,1],"outputs":[200]}
{"drop":1}
{"mark":"end_of_step"}
{"drop":0}
{"drop":2}
{"variable":50,"name":"batch"}
{"write":3}
{"share":0}
{"run":"forward","cost":5,"inputs":[0,3],"outputs":[200]}
{"drop":3}
{"mark":"end_of_step"}
)");
  check_steps(t, 4);
}

TEST_CASE("gradients that a step leaves are those that the next one drops") {
  // Of two that are left, one is as large as what is dropped; the batch is used, so it is another.
  const trace t = parsed(plain_header + R"({"variable":100,"name":"weight"}
{"variable":70,"name":"gradient"}
{"variable":70,"name":"batch"}
{"drop":1}
{"run":"forward","cost":5,"inputs":[0,2],"outputs":[30]}
{"drop":2}
{"run":"backward","cost":5,"inputs":[3],"outputs":[70]}
{"mark":"end_of_step"}
)");
  CHECK(to_text(repeat_trace(t, 2)) == R"({"delta_trace":1,"events":15}
{"variable":100,"name":"weight"}
{"variable":70,"name":"gradient"}
{"variable":70,"name":"batch"}
{"drop":1}
{"run":"forward","cost":5,"inputs":[0,2],"outputs":[30]}
{"drop":2}
{"run":"backward","cost":5,"inputs":[3],"outputs":[70]}
{"mark":"end_of_step"}
{"drop":3}
{"variable":70,"name":"batch"}
{"drop":4}
{"run":"forward","cost":5,"inputs":[0,5],"outputs":[30]}
{"drop":5}
{"run":"backward","cost":5,"inputs":[6],"outputs":[70]}
{"mark":"end_of_step"}
)");
  check_steps(t, 4);
}

TEST_CASE("of several steps the last: what it takes from those before is there again") {
  const trace t = parsed(header + R"(12}
{"variable":4,"name":"weight"}
{"share":0}
{"variable":8,"name":"next batch"}
{"mark":"end_of_step"}
{"variable":8,"name":"next batch"}
{"run":"step","cost":7,"inputs":[0,1],"outputs":[16]}
{"drop":0}
{"drop":3}
{"drop":1}
{"read":2}
{"mark":"backward"}
{"mark":"end_of_step"}
)");
  const auto step = [](const std::string& batch, const std::string& output) {
    return R"({"variable":8,"name":"next batch"})"
           "\n"
           R"({"run":"step","cost":7,"inputs":[0,1],"outputs":[16]})"
           "\n"
           R"({"drop":0})"
           "\n"
           R"({"drop":)" +
           output +
           "}\n"
           R"({"read":)" +
           batch +
           "}\n"
           R"({"mark":"backward"})"
           "\n"
           R"({"mark":"end_of_step"})"
           "\n";
  };
  const std::string start = R"({"variable":4,"name":"weight"}
{"share":0}
{"variable":8,"name":"next batch"}
)";
  CHECK(to_text(repeat_trace(t, 1)) == header + "10}\n" + start + step("2", "3"));
  CHECK(to_text(repeat_trace(t, 2)) == header + "19}\n" + start + step("2", "3") +
                                           "{\"share\":0}\n{\"drop\":2}\n" + step("4", "5"));
}

TEST_CASE("of a run whose steps are all the same: the recording of as many steps") {
  const trace five = recording(5);
  CHECK(repeat_trace(recording(1), 5) == five);
  CHECK(repeat_trace(recording(3), 5) == five);
}

TEST_CASE("two traces in turns") {
  const trace a = parsed(plain_header + with_results), b = parsed(plain_header + with_end);
  const trace program = alternate(a, b, 3);
  check(program);
  CHECK(step_costs(program) == std::vector<nanoseconds>{total_cost(a), total_cost(b), total_cost(a),
                                                        total_cost(b), total_cost(a),
                                                        total_cost(b)});
  // Each has what it has alone, and what comes once of the other: 7, and 100.
  CHECK(unmanaged_peak(a) == bytes{407});
  CHECK(unmanaged_peak(b) == bytes{350});
  CHECK(unmanaged_peak(program) == bytes{507});
  CHECK(program.tensors[0].size == bytes{7});
  CHECK(program.tensors[1].size == bytes{100});
  check(alternate(b, a, 3));
  CHECK_THROWS_WITH_AS((void)alternate(a, parsed(header + "0}\n"), 1),
                       "the recordings are of different machines", std::invalid_argument);
}

TEST_CASE("what can't be repeated is refused") {
  const auto refused = [](const std::string& lines, std::size_t times, const char* why) {
    CHECK_THROWS_WITH_AS((void)repeat_trace(parsed(plain_header + lines), times), why,
                         std::invalid_argument);
  };
  refused(with_end, 0, "a program of no steps");
  refused(with_end + "{\"read\":0}\n", 2, "the recording does not end with a step");
  refused(R"({"run":"f","cost":5,"outputs":[16]}
{"mark":"end_of_step"}
{"mark":"end_of_step"}
)",
          2, "the last step begins with an output of 'f'");
  const trace longest = parsed(plain_header + R"({"run":"f","cost":5000000000000000000})"
                                              "\n");
  CHECK_NOTHROW((void)repeat_trace(longest, 1));
  CHECK_THROWS_WITH_AS((void)repeat_trace(longest, 2),
                       "the step can't be repeated: costs beyond 63 bits; expected: less in all",
                       std::length_error);
}

TEST_CASE("without any events: steps that only end") {
  CHECK(step_costs(repeat_trace(trace{}, 3)) == std::vector<nanoseconds>(3));
}
