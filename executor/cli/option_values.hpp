// delta executor: the values of flags, read and refused in one form: what the tools share. All
// functions that take a flag throw usage_error for it.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/command_line.hpp"
#include "cli/format.hpp"
#include "delta/policy_names.hpp"
#include "delta/units.hpp"

namespace delta::executor {

/// The choices' names with commas between them.
template <class Range>
std::string names_of(const Range& choices) {
  std::string list;
  for (const auto& choice : choices) list.append(list.empty() ? "" : ", ").append(choice.name);
  return list;
}

/// One line per choice: its name, and what `explain` says of it in a column of its own.
template <class Choice, class Explain>
std::string name_lines(std::span<const Choice> choices, Explain explain) {
  std::size_t width = 0;
  for (const Choice& choice : choices) width = std::max(width, choice.name.size());
  std::string text;
  for (const Choice& choice : choices) {
    text.append("  ").append(choice.name).append(width + 2 - choice.name.size(), ' ');
    text.append(explain(choice)).append("\n");
  }
  return text;
}
/// One line per policy: its name, what it does.
std::string policy_lines(std::span<const preset>);

std::uint64_t whole(std::string_view flag, std::string_view text, std::uint64_t least,
                    std::uint64_t most);
int whole_int(std::string_view flag, std::string_view text, int least, int most);

/// The number that is all of `text`; false: it is none.
bool read_real(std::string_view text, double& value) noexcept;

/// A finite number for which `fits` holds.
template <class Predicate>
double real(std::string_view flag, std::string_view text, std::string_view allowed,
            Predicate fits) {
  double value = 0;
  if (!read_real(text, value)) reject(flag, in_quotes(text) + " is not a number", allowed);
  if (!fits(value)) reject(flag, in_quotes(text) + " is out of range", allowed);  // NaN never fits
  return value;
}

/// A percentage over 0 and up to 100: `text` ends in '%'.
double percent_of(std::string_view flag, std::string_view text, std::string_view allowed);

bytes size_of(std::string_view flag, std::string_view text);
double rate_of(std::string_view flag, std::string_view text);
/// Of a copy, or of a network's hop: up to 1 s.
nanoseconds latency_of(std::string_view flag, std::string_view text);

/// The file that a flag names, empty without the flag: tried, and left as it was.
std::filesystem::path output_of(const command_line& given, const std::string& flag);

/// The files that --json and --timeline name: as output_of, and not the same one.
struct output_files {
  std::filesystem::path json;      ///< empty: none
  std::filesystem::path timeline;  ///< empty: none
};
output_files outputs_of(const command_line& given);

}  // namespace delta::executor
