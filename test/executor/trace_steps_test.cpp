// One step of a recording as a program of its own: of a run that repeats one step, the recording of
// a shorter or longer run.
#include "trace/steps.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

#include "recordings.hpp"
#include "trace/delta_format.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

const std::string header =
    R"({"delta_trace":1,"device":"here","rate_out":3,"rate_in":2,"granularity":64,"events":)";

}  // namespace

TEST_CASE("what is there when the last step begins comes first, with what holds it") {
  const trace t = parsed(header + R"(14}
{"variable":8,"name":"gone"}
{"variable":4,"name":"w"}
{"constant":2}
{"write":1}
{"share":1}
{"drop":0}
{"run":"first","cost":5,"outputs":[16]}
{"drop":3}
{"mark":"end_of_step"}
{"variable":32,"name":"batch"}
{"run":"second","cost":7,"inputs":[4,2],"outputs":[16,{"view_of":4}],"updates":[1],"workspace":9}
{"drop":5}
{"drop":6}
{"mark":"end_of_step"}
)");
  const std::string step = R"({"variable":32,"name":"batch"}
{"run":"second","cost":7,"inputs":[2,1],"outputs":[16,{"view_of":2}],"updates":[0],"workspace":9}
{"drop":3}
{"drop":4}
{"mark":"end_of_step"}
)";
  const std::string again = R"({"variable":32,"name":"batch"}
{"run":"second","cost":7,"inputs":[5,1],"outputs":[16,{"view_of":5}],"updates":[0],"workspace":9}
{"drop":6}
{"drop":7}
{"mark":"end_of_step"}
)";
  const std::string held = R"({"variable":4,"name":"w"}
{"write":0}
{"share":0}
{"constant":2}
)";
  CHECK(to_text(repeat_last_step(t, 1)) == header + "9}\n" + held + step);
  CHECK(to_text(repeat_last_step(t, 2)) == header + "14}\n" + held + step + again);
  check(repeat_last_step(t, 3));
}

TEST_CASE("of a run whose steps are all the same: the recording of as many steps") {
  const trace three = recording(3);
  CHECK(repeat_last_step(three, 3) == three);
  CHECK(repeat_last_step(three, 1) == recording(1));
  CHECK(repeat_last_step(three, 5) == recording(5));
}

TEST_CASE("what has no such step is refused") {
  const auto refused = [](const std::string& lines, const char* why) {
    CHECK_THROWS_WITH_AS((void)repeat_last_step(parsed(header + lines), 1), why,
                         std::invalid_argument);
  };
  refused("0}\n", "the recording does not end with a step");
  refused("2}\n{\"mark\":\"end_of_step\"}\n{\"constant\":2}\n",
          "the recording does not end with a step");
  refused("1}\n{\"mark\":\"end_of_step\"}\n", "the recording has a single step");
  refused(R"(3}
{"run":"f","cost":5,"outputs":[16]}
{"mark":"end_of_step"}
{"mark":"end_of_step"}
)",
          "the last step begins with an output of 'f'");
}

TEST_CASE("more than a trace can hold is said in one line") {
  const trace t = parsed(header + R"(3}
{"mark":"end_of_step"}
{"run":"f","cost":5000000000000000000}
{"mark":"end_of_step"}
)");
  CHECK_NOTHROW((void)repeat_last_step(t, 1));
  CHECK_THROWS_WITH_AS((void)repeat_last_step(t, 2),
                       "the step can't be repeated: costs beyond 63 bits; expected: less in all",
                       std::length_error);
}
