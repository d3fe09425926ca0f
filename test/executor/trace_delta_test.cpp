// delta's own format: where a trace was recorded, names, and accesses of the program itself.
#include "trace/delta_format.hpp"

#include <doctest/doctest.h>

#include <string>

#include "trace/file.hpp"

using namespace delta;
using namespace delta::executor;

namespace {

std::string why_bad(const std::string& text) {
  try {
    (void)parse_trace(text, "t");
  } catch (const bad_trace& bad) {
    return bad.what();
  }
  return "no error";
}

/// What is wrong with a line behind a variable, as line 3.
std::string why_bad_line(const std::string& line) {
  return why_bad("{\"delta_trace\":1}\n{\"variable\":8}\n" + line + "\n");
}

std::string why_bad_header(const std::string& members) {
  return why_bad("{\"delta_trace\":1," + members + "}\n");
}

}  // namespace

TEST_CASE("the header's latency, granularity and move rate") {
  const trace t = parse_trace(R"({"delta_trace":1,"latency":0,"granularity":64,"rate_move":7})"
                              "\n",
                              "t");
  REQUIRE(t.recorded_on.has_value());
  CHECK(t.recorded_on->latency == nanoseconds{});
  CHECK(t.recorded_on->granularity == 64);
  CHECK(t.recorded_on->rate_move == 7);
  CHECK_FALSE(parse_trace(R"({"delta_trace":1,"rate_in":1})"
                          "\n",
                          "t")
                  .recorded_on->latency.has_value());
  CHECK_FALSE(parse_trace("{\"delta_trace\":1}\n", "t").recorded_on.has_value());

  CHECK(why_bad_header(R"("latency":-1)") == "t:1: a negative latency; expected: 0 or more");
  CHECK(why_bad_header(R"("rate_move":-1)") == "t:1: a negative rate; expected: 0 or more");
  CHECK(why_bad_header(R"("granularity":-1)") ==
        "t:1: a negative granularity; expected: 0 or more");
  CHECK(why_bad_header(R"("granularity":3)") ==
        "t:1: a granularity that is no power of two; expected: one of at most 2^32");
  CHECK(why_bad_header(R"("granularity":0)") == "no error");
}

TEST_CASE("a name stands beside a constant or a variable") {
  const trace t = parse_trace(
      "{\"delta_trace\":1}\n{\"name\":\"w\",\"constant\":8}\n{\"variable\":8,\"name\":\"\"}\n"
      "{\"variable\":8}\n",
      "t");
  CHECK(t.names[t.tensors[0].name] == "w");
  CHECK(t.names[t.tensors[1].name] == "");
  CHECK(t.tensors[2].name == trace::none);

  const std::string elsewhere =
      "t:3: a name on another line; expected: it beside constant or variable";
  CHECK(why_bad_line(R"({"drop":0,"name":"w"})") == elsewhere);
  CHECK(why_bad_line(R"({"run":"f","name":"w"})") == elsewhere);
  CHECK(why_bad_line(R"({"variable":8,"name":"w","name":"v"})") ==
        "t:3: the key name twice; expected: each key once");
  CHECK(why_bad_line(R"({"variable":8,"name":"w","cost":1})") ==
        "t:3: an operation's key on another line; expected: it beside run");
  CHECK(why_bad_line(R"({"variable":8,"name":5})") ==
        "t:3: no JSON from column 22 on; expected: a string");
}

TEST_CASE("the program itself reads and writes") {
  CHECK(why_bad_line(R"({"read":0})") == "no error");
  CHECK(why_bad_line(R"({"write":0})") == "no error");
  const std::string not_held =
      "t:3: a tensor that nothing holds; expected: one that was made and not dropped since";
  CHECK(why_bad_line(R"({"read":1})") == not_held);
  CHECK(why_bad_line(R"({"write":1})") == not_held);
  CHECK(why_bad_line(R"({"read":-1})") == "t:3: a negative tensor number; expected: 0 or more");
  CHECK(why_bad_line(R"({"read":0,"write":0})") == "t:3: two events in one line; expected: one");
  CHECK(why_bad_line("{\"run\":\"f\",\"outputs\":[8]}\n{\"write\":1}") ==
        "t:4: a write to what an operation of this step made; expected: a constant, a variable, or "
        "what an earlier step left");
}
