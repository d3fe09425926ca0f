// delta executor: a trace in the making: what the trace readers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/json_line.hpp"
#include "traces/trace.hpp"

namespace delta::executor {

/// A table from text to a number that is searched without making strings.
struct text_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>{}(text);
  }
};
using text_table = std::unordered_map<std::string, std::uint32_t, text_hash, std::equal_to<>>;

/// Puts events behind one another and holds each against the rules.
class trace_assembly {
 public:
  struct output {
    bytes size{};
    std::uint32_t view_of = trace::none;
  };
  /// An operation before it has a place in the lists.
  struct draft {
    std::string name;
    nanoseconds cost{};
    std::vector<std::uint32_t> inputs;
    std::vector<output> outputs;
    std::vector<std::uint32_t> updates;
    bytes workspace{};
    trait traits = trait::pure;
    std::uint32_t replaced = 0;
  };

  /// A constant or a variable; gives its number. Throws trace_fault, as all do.
  std::uint32_t add_source(trace::kind, bytes size, std::optional<std::string_view> name = {});
  /// Gives the first output's number; the others follow it.
  std::uint32_t add_run(const draft&);
  /// Of an operation that was added; `cost` is not negative, nor beyond any clock's reach.
  void set_cost(std::uint32_t operation, nanoseconds cost) {
    result_.operations[operation].cost = cost;
  }
  void add(trace::kind what, std::uint32_t index = 0);
  /// A gradient that is complete with the operation that was added last.
  void add_gradient(std::uint32_t tensor);
  void set_origin(trace::origin);

  [[nodiscard]] const trace& so_far() const noexcept { return result_; }
  /// The whole. Once.
  trace take();

 private:
  std::uint32_t name_index(std::string_view);

  trace result_;
  trace_rules rules_;
  text_table names_;
};

/// A file format, given line by line. Throws trace_fault.
class trace_format {
 public:
  virtual ~trace_format() = default;
  virtual void line(std::string_view) = 0;
  /// After the last line. Once.
  virtual trace finish() = 0;
};

}  // namespace delta::executor
