// The traces of real models where DELTA_DATA names them, against what DTR's own simulator says of
// their unmanaged runs.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "data/byte_source.hpp"
#include "process.hpp"
#include "skip.hpp"
#include "temporary_folder.hpp"
#include "trace/file.hpp"
#include "traces/trace.hpp"

using namespace delta;
using namespace delta::executor;
using namespace delta::test;

namespace {

/// The folder with the traces, or nothing and a loud line.
std::filesystem::path real_traces() {
  const char* const data = environment("DELTA_DATA");
  if (data == nullptr || *data == '\0') {
    skip("the tests on traces of real models", "DELTA_DATA is not set");
    return {};
  }
  return std::filesystem::path(data) / "traces";
}

/// How often each instruction occurs in a file, counted without our parser.
std::map<std::string, std::size_t> instructions(const std::filesystem::path& path) {
  byte_source source(path);
  std::string text;
  std::string piece(1u << 20, '\0');
  while (const std::size_t got =
             source.read(reinterpret_cast<std::uint8_t*>(piece.data()), piece.size()))
    text.append(piece, 0, got);
  std::map<std::string, std::size_t> result;
  const std::string key = "\"INSTRUCTION\":\"";
  for (auto at = text.find(key); at != std::string::npos; at = text.find(key, at)) {
    at += key.size();
    ++result[text.substr(at, text.find('"', at) - at)];
  }
  return result;
}

struct baseline {
  std::uint64_t memory;
  std::int64_t compute;
};

std::map<std::string, baseline> baselines(const std::filesystem::path& folder) {
  std::ifstream file(folder / "simrd_reference.json");
  std::map<std::string, baseline> result;
  for (const auto& row : nlohmann::json::parse(file))
    result[row.at("model")] = {row.at("baseline_memory"), row.at("baseline_compute")};
  return result;
}

std::size_t count(const trace& t, trace::kind what) {
  return static_cast<std::size_t>(
      std::count_if(t.events.begin(), t.events.end(), [&](auto e) { return e.what == what; }));
}

}  // namespace

TEST_CASE("DTR's traces: time and peak of the unmanaged run are those of DTR's simulator") {
  const auto folder = real_traces();
  if (folder.empty()) return;
  const auto expected = baselines(folder);
  REQUIRE(expected.size() == 5);
  for (const auto& [model, unmanaged] : expected) {
    CAPTURE(model);
    const trace t = read_trace(folder / (model + ".log.gz"));
    CHECK(total_cost(t).count() == unmanaged.compute);
    CHECK(unmanaged_peak(t).count == unmanaged.memory);
  }
}

TEST_CASE("DTR's traces: every line has become what it says") {
  const auto folder = real_traces();
  if (folder.empty()) return;
  const temporary_folder copies;
  for (const auto& [model, unmanaged] : baselines(folder)) {
    CAPTURE(model);
    const auto path = folder / (model + ".log.gz");
    const trace t = read_dtr(path);
    check(t);
    auto lines = instructions(path);
    CHECK(count(t, trace::kind::constant) == lines["CONSTANT"]);
    CHECK(count(t, trace::kind::variable) == 0);
    CHECK(count(t, trace::kind::run) == lines["CALL"] + lines["MUTATE"]);
    CHECK(count(t, trace::kind::run) == t.operations.size());
    CHECK(count(t, trace::kind::share) == lines["COPY"] + lines["COPY_FROM"]);
    CHECK(count(t, trace::kind::backward) == 1);
    CHECK(count(t, trace::kind::end_of_step) == 0);
    // Every MUTATE in these has one mutated argument, so one new tensor and one drop.
    CHECK(t.tensors.size() == lines["MEMORY"] + lines["MUTATE"]);
    CHECK(count(t, trace::kind::drop) == lines["RELEASE"] + lines["MUTATE"] + lines["COPY_FROM"]);

    write_trace(t, copies / "t.gz");
    CHECK(read_trace(copies / "t.gz") == t);
  }
}
