// What DTR's own simulator made of DTR's traces (DELTA_DATA's traces/simrd_reference.json), held
// against run_simrd.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "process.hpp"
#include "simrd/simrd.hpp"
#include "skip.hpp"
#include "trace/file.hpp"

namespace delta::test {

/// One run of the reference.
struct simrd_row {
  std::string model;
  executor::simrd_policy policy{};
  double ratio = 0;
  bytes budget{};
  executor::simrd_result expected;
  nanoseconds unmanaged_time{};
};

/// The folder of DTR's traces, or nothing and a loud line.
inline std::filesystem::path dtr_traces(std::string_view who) {
  const char* const data = environment("DELTA_DATA");
  if (data != nullptr && *data != '\0') {
    auto folder = std::filesystem::path(data) / "traces";
    if (std::filesystem::exists(folder / "simrd_reference.json")) return folder;
  }
  skip(who, "DELTA_DATA names no folder with traces/simrd_reference.json");
  return {};
}

inline trace dtr_trace(const std::filesystem::path& folder, const std::string& model) {
  return executor::read_trace(folder / (model + ".log.gz"));
}

inline std::vector<simrd_row> simrd_rows(const std::filesystem::path& folder) {
  using executor::simrd_policy;
  using verdict = executor::simrd_result::verdict;
  static const std::map<std::string, simrd_policy> policies{{"DTR", simrd_policy::dtr},
                                                            {"DTREqClass", simrd_policy::dtr_eq},
                                                            {"DTRLocal", simrd_policy::dtr_local},
                                                            {"MSPS", simrd_policy::msps},
                                                            {"LRU", simrd_policy::lru},
                                                            {"LargestStorage", simrd_policy::size}};
  std::ifstream file(folder / "simrd_reference.json");
  std::vector<simrd_row> rows;
  for (const auto& r : nlohmann::json::parse(file)) {
    simrd_row row;
    row.model = r["model"].get<std::string>();
    row.policy = policies.at(r["heuristic"].get<std::string>());
    row.ratio = r["ratio"].get<double>();
    row.budget = bytes{r["budget"].get<std::uint64_t>()};
    row.unmanaged_time = nanoseconds{r["baseline_compute"].get<std::int64_t>()};
    row.expected.result = r["OOM"].get<bool>()        ? verdict::oom
                          : r["thrashed"].get<bool>() ? verdict::thrash
                                                      : verdict::pass;
    row.expected.clock = nanoseconds{r["clock"].get<std::int64_t>()};
    row.expected.recompute = nanoseconds{r["remat_compute"].get<std::int64_t>()};
    rows.push_back(row);
  }
  return rows;
}

/// Runs every row of the models and prints how many agree: those that pass in clock and recompute
/// to the nanosecond, those that fail in how they do, and where they stopped besides.
inline void check_simrd(const std::filesystem::path& folder,
                        std::initializer_list<std::string> models) {
  const auto rows = simrd_rows(folder);
  for (const std::string& model : models) {
    const trace t = dtr_trace(folder, model);
    std::size_t count = 0, pass = 0, fail = 0;
    for (const simrd_row& row : rows) {
      if (row.model != model) continue;
      const auto found = executor::run_simrd(t, row.policy, row.budget);
      INFO(model << ", policy " << static_cast<int>(row.policy) << ", ratio " << row.ratio);
      CHECK(found.result == row.expected.result);
      CHECK(found.clock == row.expected.clock);
      CHECK(found.recompute == row.expected.recompute);
      CHECK(found.peak <= row.budget);
      ++count;
      if (found.result != row.expected.result || found.clock != row.expected.clock ||
          found.recompute != row.expected.recompute)
        continue;
      ++(found.result == executor::simrd_result::verdict::pass ? pass : fail);
    }
    std::printf("%s: %zu of %zu rows agree to the nanosecond: %zu pass, %zu fail\n", model.c_str(),
                pass + fail, count, pass, fail);
    CHECK(count == 60);
  }
}

}  // namespace delta::test
