// delta-replay as a process: exit codes, one line per error, rows in the order asked for, and what
// they say of a trace that is small enough to know.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "temporary_folder.hpp"
#include "tool.hpp"

using namespace delta::test;
using nlohmann::json;

namespace {

outcome run(const std::string& flags) {
  return run_tool("delta-replay", flags);
}

/// A chain of eight operators forward, of 1 MB and 1 ms each, and back; every result is read by the
/// next and by its own way back. 16 ms unmanaged, and a peak of 10 MB: what is read first, eight
/// results and a gradient.
std::string chain() {
  constexpr int depth = 8;
  const auto operation = [](const std::string& name, const std::string& inputs) {
    return R"({"run":")" + name + R"(","cost":1000000,"inputs":[)" + inputs +
           R"(],"outputs":[1000000]})" + "\n";
  };
  const auto drop = [](int tensor) { return R"({"drop":)" + std::to_string(tensor) + "}\n"; };
  std::string text = R"({"delta_trace":1})"
                     "\n"
                     R"({"constant":1000000})"
                     "\n";
  for (int i = 0; i < depth; ++i) text += operation("forward", std::to_string(i));
  text += R"({"mark":"backward"})"
          "\n";
  for (int i = depth, gradient = depth; i-- > 0; ++gradient) {
    text += operation("backward", std::to_string(i) + "," + std::to_string(gradient));
    text += drop(gradient);
    if (i > 0) text += drop(i);
  }
  return text;
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  write_file(file, {text.begin(), text.end()});
}

json rows_of(const std::filesystem::path& file) {
  return json::parse(read_text(file));
}

}  // namespace

TEST_CASE("bad input: exit code 2, one line, no file") {
  const temporary_folder folder;
  const auto good = folder / "chain.jsonl";
  const auto cut = folder / "cut.jsonl";
  write_text(good, chain());
  write_text(cut, chain() + R"({"drop":4})" + "\n");
  const std::string output = " --json " + (folder / "rows.json").string();
  for (const std::string flags :
       {"", "--policy best", "--budget 2", "--bandwidth 12", "--latency 5", "--thrash-limit 0",
        "--frobnicate", "--timeline /does/not/exist/t.json"}) {
    const outcome o = run((flags.empty() ? "" : good.string() + " ") + flags + output);
    CHECK_MESSAGE(o.code == 2, flags);
    CHECK_MESSAGE(is_one_line(o.err), o.err);
    CHECK(o.err.starts_with("delta-replay: "));
    CHECK(o.err.find("; allowed: ") != std::string::npos);
    CHECK(o.out.empty());
  }
  const outcome broken = run(good.string() + " " + cut.string() + output);
  CHECK(broken.code == 2);
  CHECK(broken.err == "delta-replay: " + cut.string() +
                          ":35: a tensor that nothing holds; expected: one that was made and not "
                          "dropped since\n");
  const outcome absent = run((folder / "absent").string() + output);
  CHECK(absent.code == 2);
  CHECK(is_one_line(absent.err));
  CHECK(absent.err.starts_with("delta-replay: " + (folder / "absent").string() + ": "));
  CHECK_FALSE(std::filesystem::exists(folder / "rows.json"));
}

TEST_CASE("help and the list of policies: exit code 0, nothing on stderr") {
  for (const std::string flags : {"--help", "--policy list"}) {
    const outcome o = run(flags);
    CHECK(o.code == 0);
    CHECK(o.err.empty());
    CHECK(o.out.find("simrd:dtr-eq") != std::string::npos);
  }
}

TEST_CASE("a small trace: every row, in the order asked for, and the same again") {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl";
  const auto file = folder / "rows.json";
  write_text(trace, chain());
  const std::vector<std::string> policies{"unmanaged", "paper",     "dtr",
                                          "online",    "simrd:dtr", "simrd:size"};
  std::string list;
  for (const auto& policy : policies) list += (list.empty() ? "" : ",") + policy;
  const std::string flags = trace.string() + " --policy " + list +
                            " --budget 1,60%,500KB --bandwidth 10GB/s --bandwidth-in 20GB/s"
                            " --latency 5us --thrash-limit 4 --json ";
  const outcome first = run(flags + file.string());
  REQUIRE_MESSAGE(first.code == 0, first.err);
  CHECK(first.err.empty());
  CHECK(first.out.starts_with("chain: unmanaged 16.0 ms and 9.54 MiB; host budget 38.1 MiB\n"));
  CHECK(std::ranges::count(first.out, '\n') == 2 + 18);

  const json rows = rows_of(file);
  REQUIRE(rows.size() == 18);
  const std::uint64_t budgets[] = {10'000'000, 6'000'000, 500'000};
  const double ratios[] = {1, 0.6, 0.05};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json& row = rows[i];
    CAPTURE(row.dump());
    CHECK(row["trace"] == "chain");
    CHECK(row["policy"] == policies[i / 3]);
    CHECK(row["budget_bytes"] == budgets[i % 3]);
    CHECK(row["ratio"] == ratios[i % 3]);
    CHECK(row["bandwidth"] == 10'000'000'000);
    CHECK(row["bandwidth_in"] == 20'000'000'000);
    CHECK(row["latency_ns"] == 5000);
    CHECK(row["host_budget_bytes"] == 40'000'000);
    CHECK(row["thrash_limit"] == 4);
    CHECK(row["unmanaged_time_ns"] == 16'000'000);
    CHECK(row["unmanaged_peak_bytes"] == 10'000'000);
    CHECK(row["iteration"] == 1);
    if (i % 3 == 2) {  // less than the constant
      CHECK(row["result"] == "oom");
      CHECK(row["overhead"].is_null());
      CHECK(row["bound_overhead"].is_null());
      continue;
    }
    const bool keeps_all =
        i % 3 == 0 && row["policy"] != "paper" && !std::string(row["policy"]).starts_with("simrd:");
    if (keeps_all) {
      CHECK(row["result"] == "pass");
      CHECK(row["time_ns"] == 16'000'000);
      CHECK(row["overhead"] == 1.0);
      CHECK(row["evictions"] == 0);
      CHECK(row["peak_bytes"] == 10'000'000);
    }
    if (row["result"] != "pass") {
      CHECK(row["policy"] == "unmanaged");
      CHECK(row["error"].is_string());
      continue;
    }
    const std::int64_t time = row["time_ns"];
    CHECK(row["overhead"] == double(time) / 16e6);
    CHECK(time == 16'000'000 + std::int64_t(row["recompute_ns"]) + std::int64_t(row["stall_ns"]));
    CHECK(double(row["bound_overhead"]) >= 1);
    CHECK(double(row["bound_overhead"]) <= double(row["overhead"]));
    CHECK(row["recompute_ns"] == std::int64_t(row["recomputes"]) * 1'000'000);
    if (row["policy"] == "dtr") CHECK(row["bytes_out"] == 0);
    if (row["policy"] == "online" && i % 3 == 1) {
      CHECK(row["peak_bytes"] <= 6'000'000);
      CHECK(std::uint64_t(row["offloads"]) > 0);  // 0.1 ms out and 0.05 in, against 1 to compute
      CHECK(row["bytes_in"] == std::uint64_t(row["reloads"]) * 1'000'000);
    }
  }

  const auto again = folder / "again.json";
  const outcome second = run(flags + again.string());
  CHECK(second.code == 0);
  CHECK(second.out == first.out);
  CHECK(read_text(again) == read_text(file));
}

TEST_CASE("several traces: a table each, and rows that can be told apart") {
  const temporary_folder folder;
  std::filesystem::create_directory(folder / "other");
  const std::vector<std::filesystem::path> traces{folder / "a.jsonl", folder / "b.jsonl",
                                                  folder / "other/b.jsonl"};
  std::string names;
  for (const auto& trace : traces) {
    write_text(trace, chain());
    names += trace.string() + " ";
  }
  const auto file = folder / "rows.json";
  const outcome o = run(names + "--policy online --budget 0.5 --json " + file.string());
  REQUIRE_MESSAGE(o.code == 0, o.err);
  CHECK(std::ranges::count(o.out, '\n') == 3 * 3 + 2);
  const json rows = rows_of(file);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["trace"] == "a");
  CHECK(rows[1]["trace"] == traces[1].string());
  CHECK(rows[2]["trace"] == traces[2].string());
}

TEST_CASE("an empty trace, and budgets of no bytes") {
  const temporary_folder folder;
  const auto trace = folder / "empty.jsonl";
  const auto file = folder / "rows.json";
  write_text(trace, R"({"delta_trace":1})"
                    "\n");
  const outcome o =
      run(trace.string() + " --policy online,simrd:lru --budget 0.5,1KiB --json " + file.string());
  REQUIRE_MESSAGE(o.code == 0, o.err);
  for (const json& row : rows_of(file)) {
    CHECK(row["result"] == "pass");
    CHECK(row["overhead"].is_null());
    CHECK(row["time_ns"] == 0);
  }
}

TEST_CASE("a timeline of one replay") {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl";
  const auto file = folder / "timeline.json";
  write_text(trace, chain());
  const outcome o =
      run(trace.string() + " --policy online --budget 0.5 --timeline " + file.string());
  REQUIRE_MESSAGE(o.code == 0, o.err);
  std::set<std::string> lanes;
  int forwards = 0;
  for (const auto& e : json::parse(read_text(file))) {
    if (e["name"] == "thread_name") lanes.insert(std::string(e["args"]["name"]));
    forwards += e["name"] == "forward" && e["ph"] == "X";
  }
  CHECK(lanes == std::set<std::string>{"compute", "copy in", "copy out", "decisions"});
  CHECK(forwards >= 8);
}
