// Every kind of bad input to the trace readers, with the line that refuses it.
#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "data_files.hpp"
#include "temporary_folder.hpp"
#include "trace/file.hpp"
#include "traces/trace.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

std::string why_bad(auto&& read, const std::string& file) {
  try {
    read();
  } catch (const bad_trace& bad) {
    const std::string line = bad.what();
    CHECK(bad.file() == file);
    const std::string place = bad.line > 0 ? file + ":" + std::to_string(bad.line) : file;
    CHECK(line.starts_with(place + ": "));
    CHECK(line.find("; expected: ") != std::string::npos);
    return line.substr(line.find(file) + file.size());
  }
  return "no error";
}

std::string why_bad(std::string_view text) {
  return why_bad([&] { (void)parse_trace(text, "t"); }, "t");
}

/// Of DTR's: what is wrong with the lines after START, which is line 1.
std::string why_bad_dtr(const std::string& lines) {
  return why_bad("{\"ANNOTATION\":\"START\",\"INSTRUCTION\":\"ANNOTATE\"}\n" + lines);
}

/// Of delta's: what is wrong with the lines after the header, which is line 1.
std::string why_bad_delta(const std::string& lines) {
  return why_bad("{\"delta_trace\":1}\n" + lines);
}

// x10 has 4 bytes, x11 is f(x10) with 8.
const std::string two_tensors = R"({"INSTRUCTION":"CONSTANT","NAME":"x10"}
{"INSTRUCTION":"MEMORY","MEMORY":"4","NAME":"x10"}
{"ARGS":["x10"],"INSTRUCTION":"CALL","NAME":"f","RESULT":["x11"],"TIME":"7"}
{"INSTRUCTION":"MEMORY","MEMORY":"8","NAME":"x11"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"x11"}
)";

}  // namespace

TEST_CASE("lines that are no JSON") {
  const auto dtr = [](const std::string& line) { return why_bad_dtr(line + "\n"); };
  CHECK(dtr("") == ":2: no JSON from column 1 on; expected: an object");
  CHECK(dtr("release x1") == ":2: no JSON from column 1 on; expected: an object");
  CHECK(dtr(R"({"INSTRUCTION":"RELEASE")") ==
        ":2: no JSON from column 25 on; expected: ',' or '}'");
  CHECK(dtr(R"({"INSTRUCTION" "RELEASE"})") == ":2: no JSON from column 16 on; expected: ':'");
  CHECK(dtr(R"({"NAME":"x)") == ":2: no JSON from column 11 on; expected: the string's end");
  CHECK(dtr("{\"NAME\":\"x\ty\"}") == ":2: no JSON from column 11 on; expected: the string's end");
  CHECK(dtr(R"({"NAME":"\x"})") ==
        ":2: no JSON from column 11 on; expected: an escape: one of \"\\/bfnrtu");
  CHECK(dtr(R"({"NAME":"\u12g4"})") ==
        ":2: no JSON from column 14 on; expected: four hexadecimal digits");
  CHECK(dtr(R"({"NAME":"\ud800"})") ==
        ":2: no JSON from column 16 on; expected: the second half of a surrogate pair");
  CHECK(dtr(R"({"NAME":"\ud800\u0041"})") ==
        ":2: no JSON from column 22 on; expected: the second half of a surrogate pair");
  CHECK(dtr(R"({"NAME":"\udc00"})") ==
        ":2: no JSON from column 16 on; expected: the first half of a surrogate pair");
  CHECK(dtr(R"({"NAME":5})") == ":2: no JSON from column 9 on; expected: a string");
  CHECK(dtr(R"({"ARGS":["x",]})") == ":2: no JSON from column 14 on; expected: a string");
  CHECK(dtr(R"({"ARGS":["x" "y"]})") == ":2: no JSON from column 14 on; expected: ',' or ']'");
  CHECK(dtr(R"({"ARGS":"x"})") == ":2: no JSON from column 9 on; expected: an array");
  CHECK(dtr(R"({"TIME":"1.5"})") == ":2: no JSON from column 11 on; expected: a whole number");
  CHECK(dtr(R"({"TIME":007})") == ":2: no JSON from column 12 on; expected: a whole number");
  CHECK(dtr(R"({"TIME":"7 "})") ==
        ":2: no JSON from column 11 on; expected: a whole number and its closing quote");
  CHECK(dtr(R"({"TIME":9223372036854775808})") ==
        ":2: a number beyond 63 bits; expected: a smaller one");
  CHECK(dtr(R"({} {})") == ":2: no JSON from column 4 on; expected: the end of the line");
}

TEST_CASE("what is skipped is JSON, too") {
  const auto value = [](const std::string& text) {
    return why_bad_dtr(R"({"INSTRUCTION":"ANNOTATE","ANNOTATION":"?","more":)" + text + "}");
  };
  for (const char* good : {"null", "true", "false", "0", "-0.5e-7", "1E+2", "12", R"("a\n\u00e9")",
                           "[]", "{}", R"([1,[{"a":[[]]},{}],"x"])"}) {
    CAPTURE(good);
    CHECK(value(good) == "no error");
  }
  CHECK(value("nul") == ":2: no JSON from column 51 on; expected: a value");
  CHECK(value("01") == ":2: no JSON from column 53 on; expected: a number without leading zeros");
  CHECK(value("1.") == ":2: no JSON from column 53 on; expected: a digit");
  CHECK(value("[1,2") == ":2: no JSON from column 55 on; expected: ',' or ']'");
  CHECK(value("[1}") == ":2: no JSON from column 53 on; expected: ',' or ']'");
  CHECK(value(R"({"a"})") == ":2: no JSON from column 55 on; expected: ':'");
  CHECK(value(std::string(64, '[') + std::string(64, ']')) == "no error");
  CHECK(value(std::string(65, '[') + std::string(65, ']')) ==
        ":2: no JSON from column 115 on; expected: values at most 64 deep");
}

TEST_CASE("files that hold no trace") {
  const temporary_folder folder;
  const auto file = [&](const raw& content) {
    write_file(folder / "t", content);
    return why_bad([&] { (void)read_trace(folder / "t"); }, (folder / "t").string());
  };
  const std::string text =
      "{\"ANNOTATION\":\"START\",\"INSTRUCTION\":\"ANNOTATE\"}\n" + two_tensors;
  const raw plain(text.begin(), text.end());
  const raw whole = zipped(plain);
  const std::string expected = "; expected: a whole trace, gzip or plain";
  CHECK(file(plain) == "no error");
  CHECK(file(whole) == "no error");
  CHECK(file({}) == ": empty; expected: a trace of DTR, or a delta_trace");
  CHECK(file(zipped({})) == ": empty; expected: a trace of DTR, or a delta_trace");
  CHECK(file(first(whole, whole.size() / 2)) ==
        ": truncated: the gzip stream does not end" + expected);
  CHECK(file(first(whole, whole.size() - 1)) ==
        ": truncated: the gzip stream does not end" + expected);
  CHECK(file(plus(whole, 0)) == ": has bytes after its gzip stream" + expected);
  CHECK(file(with(whole, whole.size() - 6, std::uint8_t(whole[whole.size() - 6] ^ 1))) ==
        ": the gzip stream is damaged" + expected);
  CHECK(why_bad([&] { (void)read_trace(folder / "none"); }, (folder / "none").string()) ==
        ": there is no such file" + expected);
  CHECK(why_bad([&] { (void)read_trace(folder.path()); }, folder.path().string()) ==
        ": it is a folder" + expected);
}

TEST_CASE("a line over 64 MiB") {
  const temporary_folder folder;
  write_file(folder / "t.gz", zipped(raw((std::size_t{1} << 26) + 1, ' ')));
  CHECK(why_bad([&] { (void)read_trace(folder / "t.gz"); }, (folder / "t.gz").string()) ==
        ": a line over 64 MiB; expected: shorter ones");
}

TEST_CASE("DTR: before START and at the end") {
  CHECK(why_bad("{}\n") == ":1: no START annotation; expected: a whole trace of DTR");
  CHECK(why_bad("{\n") == ":1: no JSON from column 2 on; expected: a string");
  CHECK(why_bad_dtr("") == "no error");
  CHECK(why_bad_dtr(two_tensors) == "no error");
  CHECK(why_bad(R"({"INSTRUCTION":"MEMORY","MEMORY":"not looked at"})"
                "\n"
                R"({"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"})") == "no error");
  CHECK(why_bad_dtr(R"({"INSTRUCTION":"CONSTANT","NAME":"x1"})") ==
        ":2: ends within an instruction; expected: MEMORY of 'x1'");
  CHECK(why_bad_dtr(two_tensors.substr(0, two_tensors.find("{\"ALIAS"))) ==
        ":5: ends within an instruction; expected: ALIAS of 'x11'");
}

TEST_CASE("DTR: instructions that are incomplete") {
  const auto dtr = [](const std::string& line) { return why_bad_dtr(two_tensors + line); };
  CHECK(dtr("{}") == ":7: a line without INSTRUCTION; expected: the key INSTRUCTION");
  CHECK(dtr(R"({"INSTRUCTION":"LEAVE"})") ==
        ":7: unknown instruction 'LEAVE'; expected: CONSTANT, CALL, MUTATE, COPY, COPY_FROM, "
        "RELEASE or ANNOTATE");
  CHECK(dtr("{\"INSTRUCTION\":\"" + std::string(50, 'a') + "\\u0007\"}") ==
        ":7: unknown instruction '" + std::string(40, 'a') +
            "...'; expected: CONSTANT, CALL, MUTATE, COPY, COPY_FROM, RELEASE or ANNOTATE");
  CHECK(dtr(R"({"INSTRUCTION":"RELEASE"})") == ":7: RELEASE without NAME; expected: the key NAME");
  CHECK(dtr(R"({"INSTRUCTION":"CALL","NAME":"f"})") ==
        ":7: CALL without ARGS; expected: the key ARGS");
  CHECK(dtr(R"({"INSTRUCTION":"CALL","NAME":"f","ARGS":[]})") ==
        ":7: CALL without TIME; expected: the key TIME");
  CHECK(dtr(R"({"INSTRUCTION":"CALL","NAME":"f","ARGS":[],"TIME":1})") ==
        ":7: CALL without RESULT; expected: the key RESULT");
  CHECK(dtr(R"({"INSTRUCTION":"MUTATE","NAME":"f","ARGS":[],"TIME":1})") ==
        ":7: MUTATE without MUTATE; expected: the key MUTATE");
  CHECK(dtr(R"({"INSTRUCTION":"COPY","SRC":"x10"})") ==
        ":7: COPY without DST; expected: the key DST");
  CHECK(dtr(R"({"INSTRUCTION":"COPY_FROM","DST":"x10"})") ==
        ":7: COPY_FROM without SRC; expected: the key SRC");
  CHECK(dtr(R"({"INSTRUCTION":"ANNOTATE"})") ==
        ":7: ANNOTATE without ANNOTATION; expected: the key ANNOTATION");
  CHECK(dtr(R"({"INSTRUCTION":"RELEASE","NAME":"x10","NAME":"x11"})") ==
        ":7: the key NAME twice; expected: each key once");
  const std::string only_after =
      "; expected: MEMORY only after a CONSTANT, or with ALIAS for each result of a CALL";
  CHECK(dtr(R"({"INSTRUCTION":"MEMORY","MEMORY":"4","NAME":"x10"})") ==
        ":7: MEMORY without its CONSTANT or CALL" + only_after);
  CHECK(dtr(R"({"INSTRUCTION":"ALIAS","ALIAS":"-1","NAME":"x10"})") ==
        ":7: ALIAS without its CALL" + only_after);
}

TEST_CASE("DTR: names") {
  const auto dtr = [](const std::string& line) { return why_bad_dtr(two_tensors + line); };
  const std::string before = "; expected: a name that was defined and not released since";
  CHECK(dtr(R"({"INSTRUCTION":"RELEASE","NAME":"x12"})") ==
        ":7: the name 'x12' is not defined" + before);
  CHECK(dtr(R"({"INSTRUCTION":"RELEASE","NAME":"y"})") ==
        ":7: the name 'y' is not defined" + before);
  CHECK(dtr("{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"x10\"}\n"
            "{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"x10\"}") ==
        ":8: the name 'x10' is not defined" + before);
  CHECK(dtr(R"({"INSTRUCTION":"COPY","DST":"x12","SRC":"x9"})") ==
        ":7: the name 'x9' is not defined" + before);
  CHECK(dtr(R"({"INSTRUCTION":"COPY","DST":"x11","SRC":"x10"})") ==
        ":7: the name 'x11' is defined already; expected: a new name");
  CHECK(dtr(R"({"INSTRUCTION":"COPY_FROM","DST":"x12","SRC":"x10"})") ==
        ":7: the name 'x12' is not defined" + before);
  CHECK(dtr(R"({"INSTRUCTION":"CONSTANT","NAME":"x10"})") ==
        ":7: the name 'x10' is defined already; expected: a new name");
  CHECK(dtr(R"({"INSTRUCTION":"CALL","NAME":"f","ARGS":["x12"],"RESULT":[],"TIME":1})") ==
        ":7: the name 'x12' is not defined" + before);
  CHECK(dtr(R"({"INSTRUCTION":"CALL","NAME":"f","ARGS":[],"RESULT":["x11"],"TIME":1})") ==
        ":7: the name 'x11' is defined already; expected: a new name");
  CHECK(dtr(R"({"INSTRUCTION":"CALL","NAME":"f","ARGS":[],"RESULT":["x12","x12"],"TIME":1}
{"INSTRUCTION":"MEMORY","MEMORY":"4","NAME":"x12"}
{"INSTRUCTION":"ALIAS","ALIAS":"-1","NAME":"x12"}
{"INSTRUCTION":"MEMORY","MEMORY":"4","NAME":"x12"}
{"INSTRUCTION":"ALIAS","ALIAS":"-1","NAME":"x12"})") ==
        ":11: the name 'x12' is defined already; expected: a new name");
}

TEST_CASE("DTR: a release of what warm-up made is passed over, and nothing else of it") {
  const std::string release_x9 = "{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"x9\"}\n";
  CHECK(why_bad_dtr(two_tensors + release_x9) == "no error");
  CHECK(why_bad_dtr(release_x9 + two_tensors) == "no error");
  CHECK(why_bad_dtr(release_x9 + R"({"INSTRUCTION":"CONSTANT","NAME":"x9"})") ==
        ":3: the name 'x9' was released before; expected: a new name");
  CHECK(why_bad_dtr(two_tensors + R"({"INSTRUCTION":"RELEASE","NAME":"y9"})") ==
        ":7: the name 'y9' is not defined; expected: a name that was defined and not released "
        "since");
}

TEST_CASE("DTR: sizes, times and indices") {
  const auto dtr = [](const std::string& lines) { return why_bad_dtr(two_tensors + lines); };
  const std::string constant = "{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"x12\"}\n";
  const auto memory = [](const std::string& size) {
    return R"({"INSTRUCTION":"MEMORY","MEMORY":)" + size + R"(,"NAME":"x12"})";
  };
  CHECK(dtr(constant + memory("0")) == "no error");
  CHECK(dtr(constant + memory(R"("-1")")) == ":8: a negative size, -1; expected: 0 bytes or more");
  CHECK(dtr(constant + memory("9223372036854775807")) ==
        ":8: sizes beyond 63 bits; expected: less in all");
  CHECK(dtr(constant + memory("99999999999999999999")) ==
        ":8: a number beyond 63 bits; expected: a smaller one");
  CHECK(dtr(constant + R"({"INSTRUCTION":"MEMORY","NAME":"x12"})") ==
        ":8: MEMORY without MEMORY; expected: the key MEMORY");
  CHECK(dtr(constant + constant) ==
        ":8: 'CONSTANT' of 'x12' out of its place; expected: MEMORY of 'x12'");
  CHECK(dtr(constant + R"({"INSTRUCTION":"MEMORY","MEMORY":"4","NAME":"x13"})") ==
        ":8: 'MEMORY' of 'x13' out of its place; expected: MEMORY of 'x12'");

  const auto call = [](const std::string& time) {
    return R"({"INSTRUCTION":"CALL","NAME":"f","ARGS":["x10"],"RESULT":["x12"],"TIME":)" + time +
           "}\n";
  };
  CHECK(dtr(call("-3")) == ":7: a negative time, -3; expected: 0 ns or more");
  const auto alias = [&](const std::string& index) {
    return call("1") + memory("4") + "\n" + R"({"INSTRUCTION":"ALIAS","NAME":"x12","ALIAS":)" +
           index + "}";
  };
  CHECK(dtr(alias("0")) == "no error");
  CHECK(dtr(alias("1")) == ":9: ALIAS 1; expected: -1, or an argument's index below 1");
  CHECK(dtr(alias("-2")) == ":9: ALIAS -2; expected: -1, or an argument's index below 1");
  CHECK(dtr(call("1") + memory("4") + "\n" + memory("4")) ==
        ":9: 'MEMORY' of 'x12' out of its place; expected: ALIAS of 'x12'");
  CHECK(dtr(call("9223372036854775807") + memory("4") + "\n" +
            R"({"INSTRUCTION":"ALIAS","NAME":"x12","ALIAS":-1})") ==
        ":9: costs beyond 63 bits; expected: less in all");

  const auto mutate = [](const std::string& indices) {
    return R"({"INSTRUCTION":"MUTATE","NAME":"f_","ARGS":["x10","x11","x10"],"TIME":1,"MUTATE":)" +
           indices + "}";
  };
  CHECK(dtr(mutate("[]")) == "no error");
  CHECK(dtr(mutate("[1,0]")) == "no error");
  CHECK(dtr(mutate("[3]")) == ":7: MUTATE of argument 3; expected: an index from 0, below 3");
  CHECK(dtr(mutate("[-1]")) == ":7: MUTATE of argument -1; expected: an index from 0, below 3");
  CHECK(dtr(mutate("[1,1]")) == ":7: MUTATE of 'x11' twice; expected: each name once");
  CHECK(dtr(mutate("[0,2]")) == ":7: MUTATE of 'x10' twice; expected: each name once");
}

TEST_CASE("delta's own: the header") {
  CHECK(why_bad(R"({"delta_trace":1})") == "no error");
  CHECK(why_bad(R"({"delta_trace":2})") == ":1: version 2; expected: version 1");
  CHECK(why_bad(R"({"delta_trace":{}})") ==
        ":1: no JSON from column 16 on; expected: a whole number");
  CHECK(why_bad(R"({"delta_trace":1,"rate_in":-1})") == ":1: a negative rate; expected: 0 or more");
  CHECK(why_bad("{\"delta_trace\":1,\"events\":2}\n{\"constant\":1}\n") ==
        ":2: 1 events; expected: the 2 that the header announces");
}

TEST_CASE("delta's own: events") {
  const std::string one = "{\"variable\":8}\n";
  const auto bad = [&](const std::string& line) { return why_bad_delta(one + line); };
  CHECK(bad("{}") ==
        ":3: a line that says nothing known; expected: constant, variable, run, share, drop, "
        "read, write or mark");
  CHECK(bad(R"({"drop":0,"share":0})") == ":3: two events in one line; expected: one");
  CHECK(bad(R"({"drop":0,"cost":1})") ==
        ":3: an operation's key on another line; expected: it beside run");
  CHECK(bad(R"({"run":"f","inputs":[0],"inputs":[]})") ==
        ":3: the key inputs twice; expected: each key once");
  CHECK(bad(R"({"mark":"pause"})") ==
        ":3: unknown mark 'pause'; expected: backward or end_of_step");
  CHECK(bad(R"({"constant":-1})") == ":3: a negative size; expected: 0 or more");
  CHECK(bad(R"({"constant":9223372036854775807})") ==
        ":3: sizes beyond 63 bits; expected: less in all");
  const std::string not_held =
      ":3: a tensor that nothing holds; expected: one that was made and not dropped since";
  CHECK(bad(R"({"drop":1})") == not_held);
  CHECK(bad(R"({"share":1})") == not_held);
  CHECK(bad(R"({"share":-1})") == ":3: a negative tensor number; expected: 0 or more");
  CHECK(bad(R"({"share":4294967295})") ==
        ":3: tensor number 4294967295; expected: one of at most 32 bits");
  CHECK(bad(R"({"run":"f","inputs":[1]})") == not_held);
  CHECK(bad(R"({"run":"f","updates":[1]})") == not_held);
  CHECK(bad(R"({"run":"f","updates":[0,0]})") ==
        ":3: a tensor that one operation updates twice; expected: each once");
  CHECK(bad(R"({"run":"f","inputs":[0],"outputs":[8],"replaces":1})") == "no error");
  CHECK(bad(R"({"run":"f","inputs":[0],"outputs":[8],"replaces":2})") ==
        ":3: more new versions than inputs or outputs; expected: at most so many");
  CHECK(bad(R"({"run":"f","inputs":[0],"outputs":[4],"replaces":1})") ==
        ":3: a new version that is a view, or of another size; expected: a tensor of the old "
        "one's size");
  CHECK(bad(R"({"run":"f","inputs":[0],"outputs":[{"view_of":0}],"replaces":1})") ==
        ":3: a new version that is a view, or of another size; expected: a tensor of the old "
        "one's size");
  for (const char* const twice : {R"("inputs":[0,0],"outputs":[8,8],"replaces":2)",
                                  R"("inputs":[0],"updates":[0],"outputs":[8],"replaces":1)"}) {
    CHECK(bad("{\"run\":\"f\"," + std::string(twice) + "}") ==
          ":3: a new version of what is updated, or has one; expected: one, of an input");
  }
  CHECK(bad(R"({"run":"f","cost":-1})") == ":3: a negative cost; expected: 0 or more");
  CHECK(bad(R"({"run":"f","workspace":-1})") == ":3: a negative size; expected: 0 or more");
  CHECK(bad(R"({"run":"f","outputs":[{"view_of":0}]})") ==
        ":3: a view of what its operation does not touch; expected: one of its inputs or updates");
  CHECK(bad(R"({"run":"f","inputs":[0],"outputs":[{"view_of":0}]})") == "no error");
  CHECK(bad(R"({"run":"f","outputs":[{"view":0}]})") ==
        ":3: an output of no known kind; expected: its size, or {\"view_of\":tensor}");
  CHECK(bad(R"({"run":"f","traits":["odd"]})") ==
        ":3: unknown trait 'odd'; expected: random, effect_once, never_replay or asynchronous");
}

TEST_CASE("what a path has, a message has: its end, where it is long") {
  const std::string name = std::string(600, 'p') + "/t";
  try {
    (void)parse_trace("", name);
    FAIL("no error");
  } catch (const bad_trace& bad) {
    CHECK(bad.file() == name.substr(name.size() - 512));
    CHECK(std::string(bad.what()).ends_with("; expected: a trace of DTR, or a delta_trace"));
  }
}
