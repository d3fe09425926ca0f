// Whatever keeps the rules is the same after writing and reading.
#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "random_trace.hpp"
#include "temporary_folder.hpp"
#include "trace/delta_format.hpp"
#include "trace/file.hpp"
#include "traces/trace.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

TEST_CASE("random traces: written and read, plain and gzip, they are the same") {
  const temporary_folder folder;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    const trace t = random_trace(seed, seed % 50 == 0 ? 20'000 : seed * 3).take();
    REQUIRE_NOTHROW(check(t));
    write_trace(t, folder / "plain");
    write_trace(t, folder / "zipped.gz");
    CHECK(read_trace(folder / "plain") == t);
    CHECK(read_trace(folder / "zipped.gz") == t);
    const auto zipped = read_file(folder / "zipped.gz");
    const bool is_gzip = zipped.size() > 2 && zipped[0] == 0x1f && zipped[1] == 0x8b;
    CHECK(is_gzip);
  }
}

TEST_CASE("a line longer than what is read at once") {
  constexpr std::uint32_t outputs = 200'000;
  trace t;
  t.names = {"f"};
  t.operations = {{.outputs = outputs}};
  for (std::uint32_t i = 0; i < outputs; ++i) {
    t.tensors.push_back({.size = bytes{i}, .producer = 0});
    t.lists.push_back(i);
  }
  t.events = {{trace::kind::run, 0}, {trace::kind::drop, outputs - 1}};
  const temporary_folder folder;
  write_trace(t, folder / "t");
  CHECK(std::filesystem::file_size(folder / "t") > 1'000'000);
  CHECK(read_trace(folder / "t") == t);
}

TEST_CASE("the empty trace") {
  const temporary_folder folder;
  write_trace({}, folder / "empty");
  CHECK(read_trace(folder / "empty") == trace{});
}

TEST_CASE("what breaks the rules is not written, and the file that was there stays") {
  const temporary_folder folder;
  write_trace({}, folder / "t");
  const auto before = read_file(folder / "t");
  trace t;
  t.events.push_back({trace::kind::drop, 0});
  CHECK_THROWS_AS(write_trace(t, folder / "t"), bad_trace);
  CHECK(read_file(folder / "t") == before);
  CHECK_THROWS_AS(write_trace({}, folder / "no such folder" / "t"), std::runtime_error);
}

TEST_CASE("lists and names out of order mean the same when read") {
  trace t;
  t.names = {"unused", "f", "f"};
  t.tensors = {{.size = bytes{8}}, {.size = bytes{4}, .producer = 0}};
  t.lists = {7, 7, 0, 1};
  t.operations = {{.name = 2, .cost = nanoseconds{5}, .first = 2, .inputs = 1, .outputs = 1}};
  t.events = {{trace::kind::variable, 0}, {trace::kind::run, 0}};
  const temporary_folder folder;
  write_trace(t, folder / "t");
  const trace u = read_trace(folder / "t");
  CHECK(u.names == std::vector<std::string>{"f"});
  CHECK(u.lists == std::vector<std::uint32_t>{0, 1});
  CHECK(u.events == t.events);
  CHECK(u.tensors == t.tensors);
}

TEST_CASE("the example in docs/traces.md is a trace, written as we write it") {
  const auto raw = read_file(DELTA_SOURCE_DIR "/docs/traces.md");
  const std::string document(raw.begin(), raw.end());
  const auto begin = document.find("{\"delta_trace\"");
  REQUIRE(begin != std::string::npos);
  const std::string example = document.substr(begin, document.find("```", begin) - begin);
  const trace t = parse_trace(example, "example");
  CHECK(to_text(t) == example);
  CHECK(t.tensors.size() == 4);
  CHECK(t.tensors[3].view_of == 1);
}
