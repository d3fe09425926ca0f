// delta: the data of a recorded program: its events, operations and tensors; and the error of one
// that breaks the rules.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "delta/error.hpp"
#include "delta/kernel.hpp"
#include "delta/units.hpp"

namespace delta {

/// Where a trace was recorded. Rates are in bytes per second; 0: not known.
struct trace_origin {
  std::string device = {};
  std::uint64_t rate_out = 0;               ///< of copies to the host
  std::uint64_t rate_in = 0;                ///< of copies from the host
  std::uint64_t rate_move = 0;              ///< within the device; 0: moves take no time
  std::optional<nanoseconds> latency = {};  ///< of every copy; absent: not known
  std::uint64_t granularity = 0;            ///< blocks are rounded up to it; 0: 1
  bool operator==(const trace_origin&) const = default;
};

/// A recorded program: what a framework asked of its memory, in order.
///
/// Tensors and operations are numbered in the order in which events make and run them. A tensor is
/// made with one reference; `share` adds one, `drop` takes one, and what an operation touches has
/// at least one. A reference to a view is a reference to that tensor. A storage's bytes are in use
/// while its tensor or any view of it, direct or not, has a reference. What has references at the
/// end is the program's result, unless the last event is the end of a step: then a next step would
/// follow, and what it needs may be anywhere.
struct trace {
  static constexpr std::uint32_t none = 0xffffffffu;

  /// A value: a storage's bytes, or a view of another tensor.
  struct tensor {
    bytes size{};                   ///< of its storage if it owns one, 0 for a view
    std::uint32_t view_of = none;   ///< the tensor whose bytes it shares: its producer touches it
    std::uint32_t producer = none;  ///< the operation that made it; none: a constant or variable
    std::uint32_t name = none;      ///< of a constant or variable, index into `names`; none: none
    bool operator==(const tensor&) const = default;
  };

  /// Its lists lie one behind the other in `lists`: inputs, then outputs, then updates.
  struct operation {
    std::uint32_t name = 0;  ///< index into `names`
    nanoseconds cost{};
    std::uint32_t first = 0;    ///< where its lists begin
    std::uint32_t inputs = 0;   ///< how many tensors it reads
    std::uint32_t outputs = 0;  ///< how many it makes
    std::uint32_t updates = 0;  ///< how many it changes in place
    bytes workspace{};          ///< scratch, while it runs
    trait traits = trait::pure;
    std::uint32_t replaced = 0;  ///< so many first outputs have the first inputs' blocks
    bool operator==(const operation&) const = default;
  };

  enum class kind : std::uint8_t {
    constant,    ///< a tensor without a producer appears, and stays on the device
    variable,    ///< the same, but it may leave
    run,         ///< an operation runs, and its outputs appear
    share,       ///< a tensor gets one more reference
    drop,        ///< a tensor loses one
    read,        ///< the program itself looks at a tensor's bytes
    write,       ///< it overwrites them: whatever was made from the old ones can't be made again
    backward,    ///< the backward pass begins
    end_of_step  ///< a training step ends
  };

  struct event {
    kind what = kind::end_of_step;
    std::uint32_t index = 0;  ///< a tensor; an operation for run; 0 for backward and end_of_step
    bool operator==(const event&) const = default;
  };

  /// Of a parameter, complete.
  struct gradient {
    std::uint32_t tensor = none;
    std::uint32_t after = none;  ///< the operation with which the backward pass has made it
    bool operator==(const gradient&) const = default;
  };

  using origin = trace_origin;

  std::vector<tensor> tensors;
  std::vector<operation> operations;
  std::vector<std::uint32_t> lists;
  std::vector<event> events;
  std::vector<std::string> names;
  std::vector<gradient> gradients;  ///< as they become complete; empty: not known
  std::optional<origin> recorded_on;

  bool operator==(const trace&) const = default;

  [[nodiscard]] std::span<const std::uint32_t> inputs(const operation& o) const noexcept {
    return list(o.first, o.inputs);
  }
  [[nodiscard]] std::span<const std::uint32_t> outputs(const operation& o) const noexcept {
    return list(o.first + std::size_t{o.inputs}, o.outputs);
  }
  [[nodiscard]] std::span<const std::uint32_t> updates(const operation& o) const noexcept {
    return list(o.first + std::size_t{o.inputs} + o.outputs, o.updates);
  }
  [[nodiscard]] const std::string& name(const operation& o) const noexcept { return names[o.name]; }
  /// What a block of `n` bytes takes where the trace was recorded.
  [[nodiscard]] bytes rounded(bytes n) const noexcept {
    return recorded_on && recorded_on->granularity > 1 ? round_up(n, recorded_on->granularity) : n;
  }
  /// Is what has references at the end the program's result?
  [[nodiscard]] bool has_results() const noexcept {
    return events.empty() || events.back().what != kind::end_of_step;
  }

 private:
  [[nodiscard]] std::span<const std::uint32_t> list(std::size_t first,
                                                    std::size_t count) const noexcept {
    return std::span(lists).subspan(first, count);
  }
};

/// True if it is the event of a tensor without a producer.
[[nodiscard]] constexpr bool is_source(trace::kind what) noexcept {
  return what == trace::kind::constant || what == trace::kind::variable;
}

/// A trace that breaks the rules, or a file that holds none. `what()` is one line: where, what is
/// wrong, what was expected.
class bad_trace : public error {
 public:
  /// In memory: event number `event` breaks a rule; the number of events: the trace as a whole.
  bad_trace(std::uint64_t number, const char* wrong, const char* expected) noexcept
      : event(number) {
    print("trace, event %llu: %s; expected: %s", static_cast<unsigned long long>(number), wrong,
          expected);
  }
  /// In a file. `number` counts from 1; 0: the file as a whole.
  bad_trace(std::string_view path, std::uint64_t number, const char* wrong,
            const char* expected) noexcept
      : line(number) {
    constexpr std::size_t most = 512;  // of a path, so that the message is not cut off
    const auto shown = path.substr(path.size() - std::min(path.size(), most));
    file_length_ = shown.size();
    print("%.*s", static_cast<int>(shown.size()), shown.data());
    if (number > 0) print(":%llu", static_cast<unsigned long long>(number));
    print(": %s; expected: %s", wrong, expected);
  }

  /// The file, or its path's last 512 bytes; empty: a trace in memory.
  [[nodiscard]] std::string_view file() const noexcept { return {what(), file_length_}; }

  std::uint64_t line = 0;
  std::uint64_t event = 0;

 private:
  std::size_t file_length_ = 0;
};

}  // namespace delta
