// The process around a test: its environment and its shell.
#pragma once

#include <cstdlib>
#include <string>

namespace delta::test {

/// The variable's value, or null.
inline const char* environment(const char* name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing in the tests changes the environment
  return std::getenv(name);
}

/// Runs the line; what it ended with is as waitpid gives it.
inline int shell(const std::string& line) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's may run in several threads
  return std::system(line.c_str());
}

}  // namespace delta::test
