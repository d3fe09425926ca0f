// Plans as files: what a line says, and every kind of bad input with the line that refuses it.
#include "trace/plan_file.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "temporary_folder.hpp"
#include "traces/trace.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

const std::string header = R"({"delta_plan":1,"operators":10})"
                           "\n";

std::string why_bad(const std::string& text) {
  try {
    (void)parse_plan(text, "p");
  } catch (const bad_trace& bad) {
    return bad.what();
  }
  return "no error";
}

/// Of a line behind the header.
std::string why_bad_line(const std::string& line) {
  return why_bad(header + line + "\n");
}

}  // namespace

TEST_CASE("a plan: keys in any order, unknown ones passed over") {
  const offline_plan plan = parse_plan(
      R"({"operators":10,"by":"a solver","delta_plan":1,"absences":2}
{"made_by":0,"output":1,"from":2,"to":9,"how":"offload"}
{"how":"evict","to":"8","note":[1,{}],"from":3,"output":0,"made_by":3})",
      "p");
  CHECK(plan.operators == 10);
  REQUIRE(plan.absences.size() == 2);
  const offline_plan::absence& first = plan.absences[0];
  CHECK(first.made_by == 0);
  CHECK(first.output == 1);
  CHECK(first.from == 2);
  CHECK(first.to == 9);
  CHECK(first.offloaded);
  const offline_plan::absence& second = plan.absences[1];
  CHECK(second.made_by == 3);
  CHECK(second.to == 8);
  CHECK_FALSE(second.offloaded);
  CHECK(parse_plan(header, "p").absences.empty());
}

TEST_CASE("bad plans, by the first line") {
  CHECK(why_bad("") ==
        "p: empty; expected: a whole plan: lines of JSON, the first with the key delta_plan");
  CHECK(why_bad("{\"delta_trace\":1}\n") ==
        "p:1: a first line without the key delta_plan; expected: a whole plan: lines of JSON, the "
        "first with the key delta_plan");
  CHECK(why_bad("{\"delta_plan\":2,\"operators\":1}") == "p:1: version 2; expected: version 1");
  CHECK(why_bad("{\"delta_plan\":1}") ==
        "p:1: no operators; expected: how many operators the step has");
  CHECK(why_bad("{\"delta_plan\":1,\"operators\":-1}") ==
        "p:1: operators -1; expected: a number of 32 bits");
  CHECK(why_bad("{\"delta_plan\":1,\"operators\":10,\"absences\":3}\n") ==
        "p:1: 0 absences; expected: 3 by the first line: the file was cut off");
}

TEST_CASE("bad plans, by an absence") {
  CHECK(why_bad_line("no JSON").starts_with("p:2: "));
  CHECK(why_bad_line(R"({"made_by":0,"output":0,"from":1,"how":"evict"})") ==
        "p:2: no to; expected: a number");
  CHECK(why_bad_line(R"({"made_by":0,"output":0,"from":1,"to":2})") ==
        "p:2: no how; expected: offload or evict");
  CHECK(why_bad_line(R"({"made_by":0,"output":0,"from":1,"to":2,"how":"forget"})") ==
        "p:2: unknown way 'forget'; expected: offload or evict");
  for (const char* line : {R"({"made_by":2,"output":0,"from":1,"to":5,"how":"evict"})",
                           R"({"made_by":0,"output":0,"from":5,"to":5,"how":"evict"})",
                           R"({"made_by":0,"output":0,"from":5,"to":10,"how":"evict"})"})
    CHECK(why_bad_line(line).ends_with("expected: operators in that order, the last below 10"));
}

TEST_CASE("files that are none") {
  const temporary_folder folder;
  const auto fault = [](const std::filesystem::path& file) {
    try {
      (void)read_plan(file);
    } catch (const bad_trace& bad) {
      return std::string(bad.what());
    }
    return std::string("no error");
  };
  CHECK(fault(folder / "none").find(": there is no such file; ") != std::string::npos);
  CHECK(fault(folder.path()).find(": it is no regular file; ") != std::string::npos);
}
