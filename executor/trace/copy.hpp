// delta executor: events of one trace written into another, in which tensors have other numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trace/assembly.hpp"
#include "traces/trace.hpp"

namespace delta::executor {

/// What is known of a tensor at some point of a trace.
struct holding {
  std::uint32_t references = 0;
  bool written = false;  ///< by the program itself
};

/// By tensor, behind these first events of `t`, or behind these events of `t` alone. O(tensors +
/// events and their outputs).
[[nodiscard]] std::vector<holding> holdings_after(const trace& t,
                                                  std::span<const trace::event> past);

/// Writes events of one trace behind what another has so far, as often as wanted: what a second
/// copy of an event makes is a tensor of its own, and takes the place of the first in what is
/// copied from then on. Both traces outlive it. Every `add` throws trace_fault.
class copyist {
 public:
  copyist(const trace& from, trace_assembly& to)
      : from_(&from), to_(&to), numbers_(from.tensors.size(), trace::none) {}

  /// Those of the sources in `past` that are held behind it, each written where it was. Throws
  /// std::invalid_argument where an operation's output is held, too.
  void add_held(std::span<const trace::event> past);
  void add(const trace::event&);
  /// Something else that happens to a tensor: `share`, `drop`, `read` or `write`.
  void add(trace::kind what, std::uint32_t tensor) { to_->add(what, numbers_[tensor]); }

  /// From now on the one is what the other was copied to last.
  void hand_over(std::uint32_t from, std::uint32_t to) { numbers_[to] = numbers_[from]; }

  /// What a tensor is called in the new trace, by its latest copy.
  [[nodiscard]] std::uint32_t number(std::uint32_t tensor) const { return numbers_[tensor]; }

 private:
  void add_run(const trace::operation&);
  [[nodiscard]] std::vector<std::uint32_t> numbers_of(std::span<const std::uint32_t> list) const;
  [[nodiscard]] std::optional<std::string_view> name_of(const trace::tensor&) const;

  const trace* from_;
  trace_assembly* to_;
  std::vector<std::uint32_t> numbers_;  // in the new trace, by number in the old
};

}  // namespace delta::executor
