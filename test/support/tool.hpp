// A tool of ours as a process.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "process.hpp"
#include "temporary_folder.hpp"

namespace delta::test {

struct outcome {
  int code;
  std::string out, err;
};

inline std::string read_text(const std::filesystem::path& file) {
  const auto bytes = read_file(file);
  return {bytes.begin(), bytes.end()};
}

/// Runs the tool with `flags`, as a shell splits them.
inline outcome run_tool(const std::string& tool, const std::string& flags) {
  const temporary_folder folder;
  const auto out = folder / "out";
  const auto err = folder / "err";
  const std::string line = DELTA_BINARY_DIR "/bin/" + tool + " " + flags + " >" + out.string() +
                           " 2>" + err.string() + " </dev/null";
  const int status = shell(line);
  REQUIRE(WIFEXITED(status));
  return {WEXITSTATUS(status), read_text(out), read_text(err)};
}

inline bool is_one_line(const std::string& text) {
  return text.ends_with('\n') && std::ranges::count(text, '\n') == 1;
}

}  // namespace delta::test
