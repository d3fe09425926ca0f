// Mutant schemata: all mutants of a program are compiled into it, each behind a guard, and the
// variable DELTA_MUTANT of the environment chooses which one runs. mutants.py includes this in
// every file first.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#ifndef DELTA_MUTANTS
#error "DELTA_MUTANTS: how many mutants there are, and one more"
#endif

namespace delta_mutants {

// Constants at first: guards may be reached in initialisers of other files. This is C++17, as
// any_manager.hpp is.
inline int active = -1;
inline std::uint8_t reached[DELTA_MUTANTS] = {};

// Appends which guards were reached: a process that a test starts adds its own.
inline void write_log() {
  const char* path = std::getenv("DELTA_MUTANT_LOG");
  if (path == nullptr) return;
  std::string text;
  for (std::size_t n = 0; n < DELTA_MUTANTS; ++n)
    if (reached[n] != 0) text += std::to_string(n) + "\n";
  const int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  if (::write(file, text.data(), text.size()) < 0) std::abort();
  ::close(file);
}

struct environment {
  environment() {
    if (const char* chosen = std::getenv("DELTA_MUTANT")) active = std::atoi(chosen);
    if (std::getenv("DELTA_MUTANT_LOG") != nullptr) std::atexit(write_log);
  }
};
inline const environment at_start;

}  // namespace delta_mutants

// Whether mutant n runs. Never in constant evaluation, which has no environment.
constexpr bool delta_mutant(int n) noexcept {
  if (__builtin_is_constant_evaluated()) return false;
  delta_mutants::reached[n] = 1;
  return delta_mutants::active == n;
}
