// The pages of docs/results whose figures are virtual time: some of their cells are computed anew
// and held against what is printed, and digests against each other. Where a policy changes, the
// pages have to be made anew.
// ctest-labels: long_sanitized
#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "figures.hpp"
#include "process.hpp"
#include "result_page.hpp"
#include "skip.hpp"
#include "temporary_folder.hpp"

using namespace delta;
using namespace delta::test;

namespace {

constexpr std::string_view recomputed_cells = "recomputed cells", all_rows = "all rows";

// Sanitizers make replays fifty times as slow, and other tests of replays run under them.
#ifdef DELTA_SANITIZED
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

std::filesystem::path results() {
  return std::filesystem::path(DELTA_SOURCE_DIR) / "docs" / "results";
}
result_page beside(std::string_view file) {
  return {results() / file, "docs/results/" + std::string(file)};
}

/// What there is about the page that would not be written now, in a sentence; empty: nothing.
std::string stale(const bench::page& p, const bench::recomputed& now) {
  const std::string name = "docs/results/" + std::string(p.name) + ".md";
  const std::string remedy = "; " + std::string(p.command) + " makes it anew";
  try {
    const result_page text = beside(std::string(p.name) + ".md");
    std::string first;
    std::size_t wrong = 0;
    for (const bench::cell& c : now.cells) {
      const std::string found = text.printed(c);
      if (found == c.printed) continue;
      if (wrong++ == 0) first = found + " for " + result_page::where(c) + ", now " + c.printed;
    }
    if (wrong > 0)
      return name + " is stale: it has " + first + " (of " + std::to_string(now.cells.size()) +
             " cells that were computed anew " + std::to_string(wrong) + " differ)" + remedy;
    const std::string digest = text.digest(recomputed_cells);
    if (digest != now.exact.hex())
      return name + " is stale, though not in the digits that it prints: it has the digest " +
             digest + ", now " + now.exact.hex() + remedy;
  } catch (const page_error& e) {
    return e.what() + remedy;
  }
  return "";
}

/// Why the file is not of the run that made the page, in a sentence; empty: it is.
std::string of_another_run(const bench::page& p, std::string_view drawing) {
  const std::string page_name = std::string(p.name) + ".md";
  const std::string remedy = "; " + std::string(p.command) + " makes both anew";
  try {
    const result_page text = beside(page_name), file = beside(drawing);
    if (file.digest(all_rows) == text.digest(all_rows) &&
        file.digest(recomputed_cells) == text.digest(recomputed_cells))
      return "";
    return "docs/results/" + std::string(drawing) + " is not of the same run as " + page_name +
           remedy;
  } catch (const page_error& e) {
    return e.what() + remedy;
  }
}

}  // namespace

TEST_CASE("docs/results: the figures of virtual time are those of today's policies") {
  const char* const data = environment("DELTA_DATA");
  const auto folder = std::filesystem::path(data != nullptr ? data : "") / "traces";
  const bool has_traces = data != nullptr && std::filesystem::exists(folder / "unet.log.gz");
  if (!has_traces)
    skip("figures_test, but for the pages that need no traces of others",
         "DELTA_DATA names no folder with DTR's traces (docs/traces.md says how to get them)");
  bench::trace_folder traces(folder);
  for (const bench::page& p : bench::pages()) {
    if ((p.needs_traces && !has_traces) || (sanitized && !p.quick)) continue;
    const bench::recomputed now = p.compute(traces);
    REQUIRE(now.cells.size() >= 9);
    const std::string why = stale(p, now);
    CHECK_MESSAGE(why.empty(), why);
  }
}

TEST_CASE("docs/results: pictures are of the same run as the tables beside them") {
  for (const bench::page& p : bench::pages()) {
    for (const std::string_view drawing : p.drawings) {
      const std::string why = of_another_run(p, drawing);
      CHECK_MESSAGE(why.empty(), why);
    }
  }
}

TEST_CASE("a page without its digest, or with a damaged one, is named in a sentence") {
  const temporary_folder folder;
  const auto why = [&](std::string_view text) -> std::string {
    write_file(folder / "page.md", {text.begin(), text.end()});
    try {
      return "no error, " + result_page(folder / "page.md", "page.md").digest(recomputed_cells);
    } catch (const page_error& e) {
      return e.what();
    }
  };
  const std::string form =
      "'<!-- recomputed cells: digest ' and sixteen hexadecimal digits and ' -->'";
  CHECK(why("# Page\n") == "page.md: no line of " + form);
  CHECK(why("<!-- recomputed cells: digest 0123456789abcdef -->\n") ==
        "no error, 0123456789abcdef");
  for (const char* line : {"<!-- recomputed cells: digest 0123456789abcde -->\n",
                           "<!-- recomputed cells: digest 0123456789ABCDEF -->\n",
                           "<!-- recomputed cells: digest 0123456789abcdef0 -->\n",
                           "<!-- recomputed cells: digest 01"})
    CHECK(why(line) == "page.md: its line of a digest is damaged; expected: " + form);
  const std::string twice = "<!-- recomputed cells: digest 0123456789abcdef -->\n";
  CHECK(why(twice + twice) == "page.md: several lines of " + form + "; expected: one");
  CHECK_THROWS_WITH_AS(result_page(folder / "none.md", "none.md"), "none.md: there is no such file",
                       page_error);
}

TEST_CASE("cells are found by table, line and heading; a page that lacks one is named") {
  const temporary_folder folder;
  const std::string_view text =
      "# Page\n\n| trace | 0.5 |\n|---|---|\n| net | **0.9** |\n\n"
      "| trace | machine | 0.5 | more |\n|---|---|---|---|\n"
      "| net | slow | 1.1, 1.2 (1.3; 1.4) | 28.7 % |\n|  | fast | fails | 3 |\n";
  write_file(folder / "page.md", {text.begin(), text.end()});
  const result_page page(folder / "page.md", "page.md");
  const std::string table = "| trace | machine |";
  CHECK(page.printed({"| trace | 0.5 |", {"net"}, "0.5", 0, 0, ""}) == "0.9");
  CHECK(page.printed({table, {"net", "slow"}, "0.5", 0, 3, ""}) == "1.4");
  CHECK(page.printed({table, {"net", "slow"}, "0.5", 1, 0, ""}) == "28.7");
  CHECK(page.printed({table, {"net", "fast"}, "0.5", 0, 0, ""}) == "fails");
  const auto why = [&](const bench::cell& c) -> std::string {
    try {
      return "no error, " + page.printed(c);
    } catch (const page_error& e) {
      return e.what();
    }
  };
  CHECK(why({"| model |", {"net"}, "0.5", 0, 0, ""}) ==
        "page.md: no table that begins with '| model |'");
  CHECK(why({table, {"net", "slow"}, "0.6", 0, 0, ""}) ==
        "page.md: no net, slow, 0.6 in the table '| trace | machine | ...'");
  CHECK(why({table, {"network", "slow"}, "0.5", 0, 0, ""}) ==
        "page.md: no network, slow, 0.5 in the table '| trace | machine | ...'");
  CHECK(why({table, {"net", "fast"}, "0.5", 0, 1, ""}) ==
        "page.md: too little in the cell of net, fast, 0.5");
}
