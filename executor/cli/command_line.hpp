// delta executor: a command line split into flags and the text of their values, and the part of
// --help that lists them: what the tools share.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace delta::executor {

/// A command line that can't be followed. `what()` is one line, "--flag: what is wrong; allowed:
/// ...", without the program's name. Exit code 2.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws usage_error "flag: wrong; allowed: ...": one line, whatever bytes the command line held.
[[noreturn]] void reject(std::string_view flag, std::string_view wrong, std::string_view allowed);

/// Knows which flags there are and which take a value, and nothing about what values mean. A flag
/// given twice counts as given last. Flags are described in the order of --help, then the command
/// line is split.
class command_line {
 public:
  explicit command_line(const std::string& program);
  ~command_line();
  command_line(const command_line&) = delete;
  command_line& operator=(const command_line&) = delete;

  /// The heading of the flags that follow.
  void group(std::string heading);
  void value(const std::string& flag, const std::string& type, const std::string& text);
  void flag(const std::string& names, const std::string& text);
  /// A flag that takes all values up to the next flag; without a leading dash: what is given
  /// without a flag.
  void list(const std::string& name, const std::string& type, const std::string& text);

  /// Throws usage_error for what is no flag of ours, for a flag without its value and for a switch
  /// with one.
  void split(int argc, const char* const* argv);

  [[nodiscard]] bool has(const std::string& flag) const;
  /// The value of a flag that takes one.
  [[nodiscard]] std::string_view text(const std::string& flag) const;
  /// The values of a list.
  [[nodiscard]] const std::vector<std::string>& values(const std::string& name) const;
  /// How the program is called, and every flag.
  [[nodiscard]] std::string flags() const;

 private:
  struct parser;
  std::unique_ptr<parser> parser_;
};

}  // namespace delta::executor
