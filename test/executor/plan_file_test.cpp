// Plans as files: what a line says, that what is written is read again, and every kind of bad input
// with the line that refuses it.
#include "trace/plan_file.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "dice.hpp"
#include "seeds.hpp"
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
  using enum offline_plan::way;
  CHECK(plan == offline_plan{.operators = 10,
                             .absences = {{.tensor = {0, 1}, .from = 2, .to = 9, .how = offload},
                                          {.tensor = {3, 0}, .from = 3, .to = 8, .how = evict}}});
  CHECK(parse_plan(header, "p").absences.empty());
}

TEST_CASE("a plan of sources, across the end of a step, with the beginnings of copies") {
  const offline_plan plan = parse_plan(
      R"({"delta_plan":1,"operators":2,"held":[70,900719925474099]}
{"used_by":1,"input":3,"from":-1,"to":1,"how":"offload","out_from":-2,"in_from":0}
{"made_by":0,"output":0,"from":1,"to":4,"how":"keep"})",
      "p");
  using enum offline_plan::way;
  CHECK(plan == offline_plan{.operators = 2,
                             .absences = {{.tensor = {1, 3, false},
                                           .from = -1,
                                           .to = 1,
                                           .how = offload,
                                           .out_from = -2,
                                           .in_from = 0},
                                          {.tensor = {0, 0}, .from = 1, .to = 4, .how = keep}},
                             .held = {70, 900719925474099}});
}

TEST_CASE("random plans are read as they were written") {
  for (std::uint64_t seed = 0; seed < seeds(60); ++seed) {
    CAPTURE(seed);
    dice roll(seed);
    const auto n = static_cast<std::uint32_t>(1 + roll.below(40));
    offline_plan plan{.operators = n};
    const auto between = [&](std::int64_t low, std::int64_t high) {
      return static_cast<std::int32_t>(low +
                                       std::int64_t(roll.below(std::uint64_t(high - low + 1))));
    };
    for (std::uint64_t i = roll.below(20); i > 0; --i) {
      auto& a = plan.absences.emplace_back();
      a.tensor = {std::uint32_t(roll.below(n)), std::uint32_t(roll.below(9)), roll.one_in(2)};
      a.how = static_cast<offline_plan::way>(roll.below(3));
      a.from = between(a.tensor.output ? a.tensor.operation : -std::int64_t(n), 2 * n - 1);
      a.to = between(a.from + 1, 2 * n);
      if (roll.one_in(2)) a.out_from = between(-std::int64_t(n), a.from);
      if (roll.one_in(2)) a.in_from = between(a.from + 1, a.to);
    }
    if (roll.one_in(2))
      for (std::uint32_t i = 0; i < n; ++i) plan.held.push_back(roll.below(1ull << 40));
    CHECK(parse_plan(text_of(plan), "p") == plan);
  }
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
  CHECK(why_bad("{\"delta_plan\":1,\"operators\":1000000000}") ==
        "p:1: 1000000000 operators; expected: at most 536870912");
  CHECK(why_bad("{\"delta_plan\":1,\"operators\":2,\"held\":[1,2,3]}") ==
        "p:1: held of 3 positions; expected: one for each of 2 operators");
  CHECK(why_bad("{\"delta_plan\":1,\"operators\":1,\"held\":[-1]}") ==
        "p:1: held -1; expected: bytes");
}

TEST_CASE("bad plans, by an absence") {
  CHECK(why_bad_line("no JSON").starts_with("p:2: "));
  CHECK(why_bad_line(R"({"made_by":0,"output":0,"from":1,"how":"evict"})") ==
        "p:2: no to; expected: a number");
  CHECK(why_bad_line(R"({"used_by":0,"output":0,"from":1,"to":2,"how":"evict"})") ==
        "p:2: no input; expected: a number");
  CHECK(why_bad_line(R"({"output":0,"from":1,"to":2,"how":"evict"})") ==
        "p:2: no made_by and no used_by; expected: one");
  CHECK(why_bad_line(R"({"made_by":0,"used_by":0,"output":0,"from":1,"to":2,"how":"evict"})") ==
        "p:2: made_by and used_by; expected: one");
  CHECK(why_bad_line(R"({"made_by":10,"output":0,"from":1,"to":2,"how":"evict"})") ==
        "p:2: operator 10; expected: one below 10");
  CHECK(why_bad_line(R"({"made_by":0,"output":0,"from":1,"to":2})") ==
        "p:2: no how; expected: evict, offload or keep");
  CHECK(why_bad_line(R"({"made_by":0,"output":0,"from":1,"to":2,"how":"forget"})") ==
        "p:2: unknown way 'forget'; expected: evict, offload or keep");
  for (const char* line :
       {R"({"made_by":2,"output":0,"from":1,"to":5,"how":"evict"})",
        R"({"made_by":0,"output":0,"from":5,"to":5,"how":"evict"})",
        R"({"made_by":0,"output":0,"from":5,"to":21,"how":"evict"})",
        R"({"used_by":0,"input":0,"from":-11,"to":5,"how":"evict"})",
        R"({"made_by":0,"output":0,"from":1,"to":5,"how":"offload","out_from":2})",
        R"({"made_by":0,"output":0,"from":1,"to":5,"how":"offload","out_from":-11})",
        R"({"made_by":0,"output":0,"from":1,"to":5,"how":"offload","in_from":1})",
        R"({"made_by":0,"output":0,"from":1,"to":5,"how":"offload","in_from":6})"})
    CHECK_MESSAGE(why_bad_line(line).ends_with(
                      "expected: operators in that order, at most a step of 10 before and behind"),
                  line);
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
