// bench/plot_replay.py: what can't be drawn is one line and exit code 2; what can be drawn becomes
// a PNG and an SVG, where there is matplotlib.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include "process.hpp"
#include "skip.hpp"
#include "temporary_folder.hpp"
#include "tool.hpp"

using namespace delta::test;

namespace {

bool has_python(const std::string& code) {
  return shell("python3 -c '" + code + "' >/dev/null 2>&1") == 0;
}
/// Says so, loudly, where there is no Python.
bool can_run() {
  if (has_python("")) return true;
  skip("plot_replay_test", "there is no python3");
  return false;
}

outcome plot(const std::string& flags) {
  const temporary_folder folder;
  const auto out = folder / "out";
  const auto err = folder / "err";
  const int status = shell("python3 " DELTA_SOURCE_DIR "/bench/plot_replay.py " + flags + " >" +
                           out.string() + " 2>" + err.string() + " </dev/null");
  REQUIRE(WIFEXITED(status));
  return {WEXITSTATUS(status), read_text(out), read_text(err)};
}

std::string row(const std::string& policy, double ratio, const std::string& result,
                const std::string& overhead, const std::string& bandwidth = "12000000000") {
  return R"({"trace":"net","policy":")" + policy + R"(","result":")" + result + R"(","ratio":)" +
         std::to_string(ratio) + R"(,"overhead":)" + overhead +
         R"(,"bound_overhead":1.1,"bandwidth":)" + bandwidth + R"(,"thrash_limit":2})";
}

void write_text(const std::filesystem::path& file, std::string_view text) {
  write_file(file, {text.begin(), text.end()});
}

}  // namespace

TEST_CASE("what can't be drawn: one line, exit code 2, no file") {
  if (!can_run()) return;
  const temporary_folder folder;
  const auto file = folder / "rows.json";
  const auto refusal = [&](const std::string& text, const std::string& flags = "") {
    write_text(file, text);
    const outcome o = plot(file.string() + " " + flags);
    CHECK(o.code == 2);
    CHECK_MESSAGE(is_one_line(o.err), o.err);
    CHECK(o.out.empty());
    CHECK_FALSE(std::filesystem::exists(folder / "rows.png"));
    const std::string before = "plot_replay.py: ";
    REQUIRE(o.err.starts_with(before));
    const std::string line = o.err.substr(before.size());
    const std::string path = file.string() + ": ";
    return line.starts_with(path) ? line.substr(path.size()) : line;
  };
  const std::string good = row("dtr", 0.5, "pass", "1.2");
  CHECK(refusal("no JSON").starts_with("not JSON: "));
  CHECK(refusal("\xff").starts_with("not JSON: "));
  for (const char* empty : {"[]", "{}", "3"})
    CHECK(refusal(empty) == "no rows; expected: what delta-replay --json writes\n");
  CHECK(refusal("[1]") == "row 1: not an object; expected: a row of delta-replay --json\n");
  CHECK(refusal("[" + good + R"(,{"trace":"net"}])") ==
        "row 2: lacks 'policy'; expected: a row of delta-replay --json\n");
  CHECK(refusal("[" + row("dtr", 0.5, "pass", "\"1\"") + "]") ==
        "row 1: 'overhead' is \"1\"; expected: int or float or null\n");
  CHECK(refusal("[" + row("dtr", 0.5, "fail", "null") + "]") ==
        "row 1: result 'fail'; expected: pass, oom, thrash\n");
  CHECK(refusal("[" + good + "," + row("dtr", 0.5, "pass", "1.1", "8000000000") + "]") ==
        "replays at 8GB/s, 12GB/s; expected: one of them with --bandwidth\n");
  CHECK(refusal("[" + good + "]", "--bandwidth 8GB/s") ==
        "--bandwidth: no replay has that; allowed: 12GB/s\n");
  CHECK(refusal("[" + good + "]", "--bandwidth 8") ==
        "--bandwidth: '8' is no rate; allowed: such as 12GB/s or 1.5GiB/s\n");
  CHECK(refusal("[" + good + "]", "--output rows.pdf") ==
        "--output: 'rows.pdf' ends in neither; allowed: .png, .svg\n");
  CHECK(refusal("[" + good + "]", "--frobnicate").find("--frobnicate") != std::string::npos);
  const outcome absent = plot((folder / "absent").string());
  CHECK(absent.code == 2);
  CHECK(absent.err ==
        "plot_replay.py: " + (folder / "absent").string() + ": No such file or directory\n");
}

TEST_CASE("rows become a PNG and an SVG, the same every time") {
  if (!can_run()) return;
  const temporary_folder folder;
  const auto file = folder / "rows.json";
  std::string rows = "[" + row("dtr", 0.1, "oom", "null");
  for (const double ratio : {0.3, 0.5, 1.0})
    rows += "," + row("dtr", ratio, "pass", std::to_string(1.5 - ratio / 2)) + "," +
            row("mine", ratio, ratio < 0.4 ? "thrash" : "pass", ratio < 0.4 ? "null" : "1.3");
  write_text(file, rows + "]");
  const auto output = [&](const char* name) { return (folder / name).string(); };
  const outcome o = plot(file.string() + " --output " + output("a.png") + " " + output("a.svg"));
  if (!has_python("import matplotlib")) {
    skip("plot_replay_test: drawing", "there is no matplotlib");
    CHECK(o.code == 2);
    CHECK(o.err ==
          "plot_replay.py: matplotlib is missing; expected: python3-matplotlib, or pip "
          "install matplotlib\n");
    return;
  }
  REQUIRE_MESSAGE(o.code == 0, o.err);
  CHECK(o.err.empty());
  REQUIRE(plot(file.string() + " --output " + output("b.svg")).code == 0);
  CHECK(read_text(folder / "a.png").starts_with("\x89PNG"));
  const std::string svg = read_text(folder / "a.svg");
  CHECK(svg == read_text(folder / "b.svg"));
  CHECK(svg.find("scale(0.015625)") != std::string::npos);  // of glyphs: not rounded
  CHECK(svg.find("<!-- net -->") != std::string::npos);     // the panel's title
  CHECK(svg.find("<!-- mine -->") != std::string::npos);    // a policy in the legend
  REQUIRE(plot(file.string()).code == 0);
  CHECK(std::filesystem::exists(folder / "rows.png"));

  // Of several iterations the last counts.
  const auto iteration = [&](int number, const std::string& overhead) {
    std::string text = row("dtr", 0.5, "pass", overhead);
    text.back() = ',';
    return text + R"("iteration":)" + std::to_string(number) + "}";
  };
  write_text(file, "[" + iteration(1, "1.9") + "," + iteration(2, "1.2") + "]");
  REQUIRE(plot(file.string() + " --output " + output("both.svg")).code == 0);
  write_text(file, "[" + iteration(1, "1.2") + "]");
  REQUIRE(plot(file.string() + " --output " + output("last.svg")).code == 0);
  CHECK(read_text(folder / "both.svg") == read_text(folder / "last.svg"));
}
