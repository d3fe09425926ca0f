// delta benchmark: prints the digests that pages of docs/results carry, of cells that are computed
// anew (figures.hpp).
//
//   figures FOLDER         a line for each page; FOLDER has DTR's traces, as DELTA_DATA/traces
//   figures FOLDER PAGE    that page's line alone, such as: figures FOLDER replay_scale
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "figures.hpp"

namespace {

using namespace delta::bench;

std::string line_of(const page& p, trace_folder& traces) {
  return digest_line(p.compute(traces).exact);
}

int print(const char* folder, std::string_view only) {
  trace_folder traces(folder);
  if (only.empty()) {
    for (const page& p : pages())
      std::printf("docs/results/%s.md: %s\n", std::string(p.name).c_str(),
                  line_of(p, traces).c_str());
    return 0;
  }
  const auto found = std::ranges::find(pages(), only, &page::name);
  if (found == pages().end()) {
    std::string names;
    for (const page& p : pages()) names += (names.empty() ? "" : ", ") + std::string(p.name);
    std::fprintf(stderr, "figures: no page '%s'; expected: one of %s\n", std::string(only).c_str(),
                 names.c_str());
    return 2;
  }
  std::printf("%s\n", line_of(*found, traces).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fputs("figures: no folder; expected: figures FOLDER [PAGE]\n", stderr);
    return 2;
  }
  try {
    return print(argv[1], argc == 3 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "figures: %s\n", error.what());
    return 2;
  }
}
