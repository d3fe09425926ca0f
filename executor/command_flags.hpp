// delta executor: the flags of delta-train as raw text, and its --help.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "options.hpp"

namespace delta::executor {

/// Throws usage_error "flag: wrong; allowed: ...": one line, whatever bytes the command line held.
[[noreturn]] void reject(std::string_view flag, std::string_view wrong, std::string_view allowed);

/// One line per policy: its name, what it does.
std::string policy_lines(std::span<const policy_choice>);

/// A command line split into flags and the text of their values. A flag given twice counts as given
/// last. Knows which flags there are and which take a value, and nothing about what values mean.
class command_flags {
 public:
  /// Throws usage_error for what is no flag of ours, for a flag without its value and for a switch
  /// with one.
  command_flags(int argc, const char* const* argv);
  ~command_flags();
  command_flags(const command_flags&) = delete;
  command_flags& operator=(const command_flags&) = delete;

  [[nodiscard]] bool has(const std::string& flag) const;
  /// The value of a flag that takes one.
  [[nodiscard]] std::string_view text(const std::string& flag) const;
  /// The values of --table.
  [[nodiscard]] const std::vector<std::string>& tables() const;

  [[nodiscard]] std::string help(std::span<const policy_choice>) const;

 private:
  struct parser;
  std::unique_ptr<parser> parser_;
};

}  // namespace delta::executor
