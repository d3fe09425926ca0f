// delta executor: the flags of delta-train as raw text, and its --help.
#pragma once

#include <span>
#include <string>

#include "cli/command_line.hpp"
#include "cli/options.hpp"

namespace delta::executor {

/// delta-train's.
class command_flags : public command_line {
 public:
  /// Throws usage_error, as split does.
  command_flags(int argc, const char* const* argv);

  [[nodiscard]] std::string help(std::span<const preset>) const;
};

}  // namespace delta::executor
