// delta executor: makes a trace of a program while it runs. docs/traces.md says how to record one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "delta/kernel.hpp"
#include "delta/units.hpp"
#include "trace/assembly.hpp"
#include "traces/trace.hpp"

namespace delta::executor {

/// Told of every call of a manager, behind it and with the same arguments, it makes the trace that
/// replays them. The manager uses its ids again; here every tensor has a number of its own.
///
///   const tensor_id x = manager.variable(size, "x");
///   recorder.variable(x, size, "x");
///
/// All throw std::bad_alloc, and std::length_error where the trace would break a rule that the
/// manager does not have: more than 2^32 tensors, costs beyond 63 bits.
class trace_recorder {
 public:
  /// What an operation is recorded to cost.
  enum class costs : std::uint8_t {
    stated,   ///< what the program said it would
    measured  ///< what its first execution took
  };
  explicit trace_recorder(costs which) noexcept : which_(which) {}

  [[nodiscard]] bool measures() const noexcept { return which_ == costs::measured; }

  void variable(tensor_id made, bytes size, std::string_view name);
  /// `took` counts where costs are measured. Gives the operation's number.
  std::uint32_t run(const operation_span&, std::span<const tensor_id> made, nanoseconds took);
  /// What an operation took, known later than it ran. Where costs are measured.
  void took(std::uint32_t operation, nanoseconds t) { assembly_.set_cost(operation, t); }
  void share(tensor_id t) { about(trace::kind::share, t); }
  void drop(tensor_id t) { about(trace::kind::drop, t); }
  /// manager.acquire, either way. The view must have gone before the next call.
  void read(tensor_id t) { about(trace::kind::read, t); }
  void write(tensor_id t) { about(trace::kind::write, t); }
  void backward() { mark(trace::kind::backward); }
  void end_of_step() { mark(trace::kind::end_of_step); }

  /// The whole, recorded on `where`. Once; nothing can be recorded after it.
  [[nodiscard]] trace take(trace::origin where);

 private:
  void about(trace::kind, tensor_id);
  void mark(trace::kind);
  void number(tensor_id, std::uint32_t);
  [[nodiscard]] std::uint32_t number_of(tensor_id t) const { return numbers_[index(t)]; }

  costs which_;
  trace_assembly assembly_;
  std::vector<std::uint32_t> numbers_;  // in the trace, by id of the manager
  trace_assembly::draft draft_;         // kept for its memory
};

}  // namespace delta::executor
