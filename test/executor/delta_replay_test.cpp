// delta-replay as a process: exit codes, one line per error, rows in the order asked for, and what
// they say of a trace that is small enough to know.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
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
        "--frobnicate", "--timeline /does/not/exist/t.json", "--max-overhead 1.2",
        "--decisions /does/not/exist/d.jsonl --policy dtr --budget 0.5", "--policy-file mine.hpp",
        "--policy-file /does/not/exist.hpp:mine", "--policy-file /dev/null:mine",
        "--policy-file mine.hpp:not-a-name"}) {
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

// It is compiled without sanitizers: a minute in which they have nothing to see.
#ifdef DELTA_SANITIZED
constexpr bool compiles = false;
#else
constexpr bool compiles = true;
#endif

TEST_CASE("--policy-file: a policy of one's own beside the others" * doctest::skip(!compiles)) {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl", header = folder / "mine.hpp",
             file = folder / "rows.json";
  write_text(trace, chain());
  write_text(header,
             "auto mine() { return delta::online(); }\n"
             "struct wrong { double weight(delta::context&, delta::tensor_id) const; };\n");
  const std::string named = trace.string() + " --policy-file " + header.string();
  const outcome o = run(named + ":mine --policy online --budget 0.6 --json " + file.string());
  REQUIRE_MESSAGE(o.code == 0, o.err);
  json rows = rows_of(file);
  REQUIRE(rows.size() == 6);  // of three iterations each
  for (std::size_t i = 0; i < 3; ++i) {
    json& own = rows[i + 3];
    CHECK(own["policy"] == "mine");
    own["policy"] = "online";
    CHECK(own == rows[i]);
    CHECK(own["evictions"].get<int>() + own["offloads"].get<int>() > 0);
  }
  const outcome wrong = run(named + ":wrong");
  CHECK(wrong.code == 2);
  CHECK(wrong.out.empty());
  CHECK(wrong.err.find("'weight' is there, but not as 'double weight(const delta::context&, "
                       "delta::tensor_id) const'") != std::string::npos);
  const outcome none = run(named + ":none");
  CHECK(none.code == 2);
  CHECK(none.err == "delta-replay: --policy-file: " + header.string() +
                        " has no policy 'none' that compiles: it has neither a struct nor a "
                        "function 'none' in the global namespace\n");
  const outcome taken = run(named + ":mine --policy mine");
  CHECK(taken.code == 2);
  CHECK(is_one_line(taken.err));
  const outcome theirs = run(trace.string() + " --policy-file " + header.string() + ":dtr");
  CHECK(theirs.err.find("'dtr' is a policy of delta's") != std::string::npos);
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
                            " --latency 5us --thrash-limit 4 --iterations 1 --json ";
  const outcome first = run(flags + file.string());
  REQUIRE_MESSAGE(first.code == 0, first.err);
  CHECK(first.err.empty());
  CHECK(
      first.out.starts_with("chain: unmanaged 16.0 ms and 9.54 MiB; host budget 38.1 MiB; copies "
                            "10.0 GB/s out, 20.0 GB/s in, latency 5 us; memory of pages\n"));
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
  const outcome o =
      run(names + "--policy online --budget 0.5 --iterations 1 --json " + file.string());
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

TEST_CASE("the machine: what is given, else what the trace says, else the default") {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl";
  const auto file = folder / "rows.json";
  std::string text = chain();
  text.replace(0, text.find('\n'),
               R"({"delta_trace":1,"rate_out":3000000000,"rate_in":4000000000,"latency":7000})");
  write_text(trace, text);
  const auto row = [&](const std::string& flags) {
    const outcome o =
        run(trace.string() + " --policy online --budget 0.5 --json " + file.string() + " " + flags);
    REQUIRE_MESSAGE(o.code == 0, o.err);
    return rows_of(file)[0];
  };
  const auto check_rates = [](const json& r, std::uint64_t out, std::uint64_t in) {
    CHECK(r["bandwidth"] == out);
    CHECK(r["bandwidth_in"] == in);
  };
  const json known = row("");
  check_rates(known, 3'000'000'000, 4'000'000'000);
  CHECK(known["latency_ns"] == 7000);
  CHECK(known["memory"] == "places");
  CHECK(row("--memory pages")["memory"] == "pages");
  CHECK(row("--latency 3us")["latency_ns"] == 3000);
  check_rates(row("--bandwidth 5GB/s"), 5'000'000'000, 5'000'000'000);
  check_rates(row("--bandwidth-in 6GB/s"), 3'000'000'000, 6'000'000'000);
  check_rates(row("--bandwidth 5GB/s --bandwidth-in 6GB/s"), 5'000'000'000, 6'000'000'000);
  write_text(trace, chain());
  const json unknown = row("");
  check_rates(unknown, 12'000'000'000, 12'000'000'000);
  CHECK(unknown["latency_ns"] == 10'000);
  CHECK(unknown["memory"] == "pages");
  CHECK(row("--memory places")["memory"] == "places");
  check_rates(row("--bandwidth-in 6GB/s"), 12'000'000'000, 6'000'000'000);
}

TEST_CASE("the smallest budget: a table, and every replay a row") {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl";
  const auto file = folder / "rows.json";
  write_text(trace, chain());
  const outcome o =
      run(trace.string() + " --policy dtr,simrd:lru --find-budget --max-overhead 1.5 --json " +
          file.string());
  REQUIRE_MESSAGE(o.code == 0, o.err);
  CHECK(o.out.find("\nsmallest budgets with an overhead of at most 1.500x\n") != std::string::npos);
  CHECK(o.out.find(" (best) ") != std::string::npos);
  const json rows = rows_of(file);
  CHECK(rows.size() >= 128);
  std::uint64_t smallest = 10'000'000;
  for (const json& r : rows) {
    CHECK(r["max_overhead"] == 1.5);
    CHECK(r["keeps"] == (r["result"] == "pass" && r["overhead"] <= 1.5));
    CHECK(r["budget_bytes"] >= 4'000'000);  // the constant, two inputs and an output
    if (r["keeps"]) smallest = std::min<std::uint64_t>(smallest, r["budget_bytes"]);
  }
  CHECK(smallest < 9'000'000);
}

TEST_CASE("several iterations: a row for each, and a line for all") {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl";
  const auto file = folder / "rows.json";
  write_text(trace, chain());
  const std::string flags = trace.string() +
                            " --policy dtr,unmanaged,simrd:dtr --budget 1,0.6 --thrash-limit 4 "
                            "--json " +
                            file.string();
  REQUIRE(run(flags + " --iterations 1").code == 0);
  const json once = rows_of(file);
  const outcome o = run(flags + " --iterations 3");
  REQUIRE_MESSAGE(o.code == 0, o.err);
  CHECK(o.out.find(" first ") != std::string::npos);
  CHECK(o.out.find(" last ") != std::string::npos);
  CHECK(o.out.find(" oom in 1 ") != std::string::npos);
  CHECK(std::ranges::count(o.out, '\n') == 2 + 6);
  const json rows = rows_of(file);
  REQUIRE(rows.size() == 3 + 3 + 3 + 1 + 1 + 1);
  const std::size_t first[] = {0, 3, 6, 9, 10, 11};
  for (std::size_t i = 0; i < 6; ++i) {
    const json& row = rows[first[i]];
    for (const char* key : {"policy", "ratio", "result", "time_ns", "unmanaged_time_ns", "overhead",
                            "bound_overhead", "recomputes", "iteration"})
      CHECK_MESSAGE(row[key] == once[i][key], key);
  }
  for (std::size_t i = 0; i < 9; ++i) {
    CHECK(rows[i]["iteration"] == i % 3 + 1);
    CHECK(rows[i]["unmanaged_time_ns"] == 16'000'000);
    CHECK(rows[i]["live_tensors"] == 1);
    CHECK(rows[i]["live_records"] == 0);
    CHECK(rows[i]["device_bytes_after"] == 1'000'000);
    CHECK(rows[i]["host_bytes_after"] == 0);
  }
  CHECK(rows[11]["live_tensors"].is_null());
}

TEST_CASE("nothing asked for: three iterations, and the last is better for what was learned") {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl";
  const auto file = folder / "rows.json";
  write_text(trace, chain());
  REQUIRE(run(trace.string() + " --json " + file.string()).code == 0);
  std::map<std::string, double> last;
  std::set<std::string> policies;
  for (const json& row : rows_of(file)) {
    policies.insert(std::string(row["policy"]));
    if (row["ratio"] != 0.7) continue;
    CHECK(row["result"] == "pass");
    if (row["iteration"] == 3) last[std::string(row["policy"])] = row["overhead"];
  }
  CHECK(policies == std::set<std::string>{"adaptive", "dtr", "online"});
  REQUIRE(last.size() == 3);
  CHECK(last["adaptive"] <= last["online"]);
  CHECK(last["adaptive"] <= last["dtr"]);
}

TEST_CASE("a machine that is not as recorded: rows say so, and a seed repeats") {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl";
  const auto file = folder / "rows.json";
  write_text(trace, chain());
  const auto rows = [&](const std::string& flags) {
    const outcome o =
        run(trace.string() + " --policy online --budget 0.6 --thrash-limit 4 --json " +
            file.string() + " " + flags);
    REQUIRE_MESSAGE(o.code == 0, o.err);
    return rows_of(file);
  };
  const json plain = rows("")[0];
  CHECK(plain["operators_faster"] == 1);
  CHECK(plain["noise"] == 0);
  CHECK(plain["seed"] == 1);
  CHECK(plain["real_rate"] == 1);
  const json faster = rows("--operators-faster 4")[0];
  CHECK(faster["operators_faster"] == 4);
  CHECK(faster["unmanaged_time_ns"] == 4'000'000);
  const json slow = rows("--real-rate 0.02")[0];
  CHECK(slow["real_rate"] == 0.02);
  CHECK(slow["bandwidth"] == plain["bandwidth"]);
  CHECK(slow["time_ns"] > plain["time_ns"]);
  const std::string noise = "--iterations 2 --noise 0.3 --seed ";
  const json noisy = rows(noise + "5");
  CHECK(noisy == rows(noise + "5"));
  CHECK(noisy != rows(noise + "6"));
  CHECK(noisy[0]["seed"] == 5);
  CHECK(noisy[0]["unmanaged_time_ns"] != 16'000'000);
  CHECK(noisy[0]["unmanaged_time_ns"] != noisy[1]["unmanaged_time_ns"]);
  CHECK(noisy[0]["bound_overhead"].is_number());
  CHECK(noisy[1]["bound_overhead"].is_null());
  // The first iteration of many is that of one.
  CHECK(noisy[0]["unmanaged_time_ns"] ==
        rows("--iterations 1 --noise 0.3 --seed 5")[0]["unmanaged_time_ns"]);
}

TEST_CASE("what can't be repeated or changed so: exit code 2, one line") {
  const temporary_folder folder;
  const auto trace = folder / "steps.jsonl";
  write_text(trace, R"({"delta_trace":1}
{"mark":"end_of_step"}
{"run":"f","cost":9000000000000000000}
)");
  const outcome open = run(trace.string() + " --iterations 2");
  CHECK(open.code == 2);
  CHECK(open.err ==
        "delta-replay: --iterations: steps: the recording does not end with a step; allowed: 1 for "
        "this trace\n");
  const outcome slow = run(trace.string() + " --iterations 1 --operators-faster 0.5");
  CHECK(slow.code == 2);
  CHECK(slow.err ==
        "delta-replay: --operators-faster: steps: the operations' costs leave 63 bits; allowed: a "
        "larger one\n");
}

TEST_CASE("the smallest budget goes by the last iteration") {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl";
  const auto file = folder / "rows.json";
  write_text(trace, chain());
  const outcome o =
      run(trace.string() + " --policy dtr --find-budget --iterations 3 --json " + file.string());
  REQUIRE_MESSAGE(o.code == 0, o.err);
  for (const json& r : rows_of(file)) {
    CHECK((r["iteration"] == 3 || r["result"] != "pass"));
    CHECK(r["keeps"] == (r["result"] == "pass" && r["overhead"] <= 1.2));
  }
}

TEST_CASE("no budget keeps to it: a result, and it says so") {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl";
  // The constant and the second result are never needed together, but in DTR's simulator constants
  // stay.
  write_text(trace, R"({"delta_trace":1}
{"constant":1000000}
{"run":"first","cost":1000,"inputs":[0],"outputs":[1000]}
{"drop":0}
{"run":"second","cost":1000,"inputs":[1],"outputs":[1000000]}
)");
  const outcome o = run(trace.string() + " --policy simrd:dtr --find-budget");
  CHECK(o.code == 0);
  CHECK(o.err.empty());
  CHECK(o.out.find("\nno budget that was tried keeps to it\n") != std::string::npos);
}

TEST_CASE("a plan of the step is a policy; one for another step is refused") {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl", plan = folder / "plan.jsonl";
  const auto file = folder / "rows.json";
  write_text(trace, chain() + R"({"drop":16})" + "\n" + R"({"mark":"end_of_step"})" + "\n");
  // The first three results leave, two by a copy of 100 us.
  write_text(plan, R"({"delta_plan":1,"operators":16,"absences":3}
{"made_by":0,"output":0,"from":1,"to":14,"how":"evict"}
{"made_by":1,"output":0,"from":2,"to":13,"how":"offload"}
{"made_by":2,"output":0,"from":3,"to":12,"how":"offload"}
)");
  const std::string flags = trace.string() +
                            " --bandwidth 10GB/s --latency 0ns --budget 8MB --json " +
                            file.string() + " --plan " + plan.string();
  const outcome alone = run(flags);
  REQUIRE_MESSAGE(alone.code == 0, alone.err);
  const json rows = rows_of(file);
  REQUIRE(rows.size() == 3);
  const json& last = rows.back();
  CHECK(last["policy"] == "plan");
  CHECK(last["offloads"] == 2);
  CHECK(last["evictions"] == 1);
  CHECK(last["recomputes"] == 1);
  CHECK(last["time_ns"] == 17'000'000);  // one operator again, and no wait
  const outcome beside = run(flags + " --policy dtr,plan");
  CHECK(beside.code == 2);  // it is no policy by itself
  REQUIRE(run(flags + " --policy dtr").code == 0);
  CHECK(rows_of(file).size() == 6);

  write_text(plan, R"({"delta_plan":1,"operators":15})");
  const outcome other = run(flags);
  CHECK(other.code == 2);
  CHECK(other.err ==
        "delta-replay: --plan: " + plan.string() +
            " is for a step of 15 operators, and chain has 16; allowed: a plan that was "
            "made for this trace\n");
  CHECK(run(trace.string() + " --plan " + plan.string() + " --json " + plan.string()).err ==
        "delta-replay: --json: names the plan; allowed: another file\n");
  CHECK(run(trace.string() + " --find-budget --plan " + plan.string()).err ==
        "delta-replay: --find-budget: given with --plan, which is for one budget; allowed: one of "
        "the "
        "two\n");
}

TEST_CASE("a plan that was saved is followed to the same time") {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl", plan = folder / "plan.jsonl";
  const auto file = folder / "rows.json";
  write_text(trace, chain() + R"({"drop":16})" + "\n" + R"({"mark":"end_of_step"})" + "\n");
  const std::string flags =
      trace.string() + " --bandwidth 10GB/s --latency 0ns --json " + file.string() + " --budget ";
  const outcome saved = run(flags + "5MB --plan-out " + plan.string());
  REQUIRE_MESSAGE(saved.code == 0, saved.err);
  const json expected = rows_of(file).back();
  const outcome followed = run(flags + "5MB --plan " + plan.string());
  REQUIRE_MESSAGE(followed.code == 0, followed.err);
  const json last = rows_of(file).back();
  for (const char* key : {"time_ns", "recomputes", "clean_drops", "reloads", "peak_bytes"})
    CHECK_MESSAGE(last[key] == expected[key], key);
  CHECK(last["reloads"] != 0);

  std::filesystem::remove(plan);
  const outcome none = run(flags + "1GB --plan-out " + plan.string());
  CHECK(none.code == 1);
  CHECK(is_one_line(none.err));
  CHECK(none.err.starts_with("delta-replay: --plan-out: the last step followed no plan: "));
  CHECK(none.out.find("adaptive") != std::string::npos);  // what was measured is there
  CHECK_FALSE(std::filesystem::exists(plan));
}

TEST_CASE("a folder is no trace") {
  const temporary_folder folder;
  const outcome o = run(folder.path().string());
  CHECK(o.code == 2);
  CHECK(o.err == "delta-replay: " + folder.path().string() +
                     ": it is a folder; expected: a whole trace, gzip or plain\n");
}

TEST_CASE("every decision of one replay, alone and beside a timeline") {
  const temporary_folder folder;
  const auto trace = folder / "chain.jsonl";
  const auto rows = folder / "rows.json";
  write_text(trace, chain());
  const std::string flags =
      trace.string() + " --policy online --budget 0.5 --iterations 1 --json " + rows.string();
  const auto path = [&](const char* name) { return (folder / name).string(); };
  REQUIRE(run(flags + " --decisions " + path("alone")).code == 0);
  REQUIRE(run(flags + " --timeline " + path("timeline")).code == 0);
  REQUIRE(run(flags + " --decisions " + path("log") + " --timeline " + path("both")).code == 0);
  CHECK(read_text(folder / "alone") == read_text(folder / "log"));
  CHECK(read_text(folder / "timeline") == read_text(folder / "both"));

  std::istringstream log(read_text(folder / "log"));
  std::map<std::string, std::uint64_t> count;
  std::uint64_t number = 0;
  for (std::string line; std::getline(log, line);) {
    const json decision = json::parse(line);
    CHECK(decision["decision"] == ++number);
    ++count[std::string(decision["what"])];
  }
  const json row = rows_of(rows)[0];
  CHECK(count["evict"] == row["evictions"]);
  CHECK(count["offload"] == row["offloads"]);
  CHECK(count["reload"] == row["reloads"]);
  CHECK(count["recompute"] == row["recomputes"]);
  CHECK(number > 0);
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
