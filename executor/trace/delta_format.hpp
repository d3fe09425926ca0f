// delta executor: delta's own trace format, JSON lines. docs/traces.md describes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/assembly.hpp"
#include "trace/json_line.hpp"

namespace delta::executor {

/// The version that is written, and the only one that is read.
inline constexpr std::int64_t trace_version = 1;

/// Whether a file's first line is this format's header. Throws trace_fault when it is no JSON
/// object.
bool is_trace_header(std::string_view first_line);

class delta_format final : public trace_format {
 public:
  void line(std::string_view) override;
  trace finish() override;

 private:
  enum seen : unsigned {
    cost_seen = 1,
    inputs_seen = 2,
    outputs_seen = 4,
    updates_seen = 8,
    workspace_seen = 16,
    traits_seen = 32,
    name_seen = 64,
    gradients_seen = 128,
    replaces_seen = 256
  };

  void header(std::string_view);
  void read(std::string_view);
  void read_member(std::string_view key);
  bool is(std::string_view key, std::string_view name, seen);
  void subject(trace::kind);
  std::uint32_t index();
  bytes size();
  void origin_member(std::string_view key, std::optional<trace::origin>&);
  void outputs();
  void traits();

  json_line in_;
  bool has_header_ = false;
  std::optional<std::int64_t> announced_;  ///< events, by the header
  trace_assembly::draft draft_;
  std::vector<std::uint32_t> gradients_;  ///< that the operation completes
  std::optional<trace::kind> what_;       ///< what the line at hand is
  std::uint32_t index_ = 0;               ///< the tensor that it shares, drops, reads or writes
  bytes size_{};                          ///< of the constant or variable
  std::string name_;                      ///< and what the program called it
  unsigned seen_ = 0;                     ///< which of the other keys it has
  trace_assembly assembly_;
};

/// A whole file of the format, uncompressed. The trace keeps the rules (delta::check).
std::string to_text(const trace&);

}  // namespace delta::executor
