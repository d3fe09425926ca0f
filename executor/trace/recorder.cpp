#include "trace/recorder.hpp"

#include <stdexcept>
#include <utility>

#include "trace/json_line.hpp"

namespace delta::executor {
namespace {

/// What a manager has done keeps the rules, but for those about how much there may be.
auto kept(auto&& add) {
  try {
    return add();
  } catch (const trace_fault& fault) {
    throw std::length_error("the run can't be recorded: " + fault.wrong +
                            "; expected: " + fault.expected);
  }
}

}  // namespace

void trace_recorder::variable(tensor_id made, bytes size, std::string_view name) {
  number(made, kept([&] { return assembly_.add_source(trace::kind::variable, size, name); }));
}

std::uint32_t trace_recorder::run(const operation_span& op, std::span<const tensor_id> made,
                                  nanoseconds took) {
  const auto numbers = [&](std::span<const tensor_id> ids, std::vector<std::uint32_t>& to) {
    to.clear();
    for (const tensor_id t : ids) to.push_back(number_of(t));
  };
  draft_.name = op.name;
  draft_.cost = which_ == costs::measured ? took : op.cost;
  numbers(op.inputs, draft_.inputs);
  numbers(op.updates, draft_.updates);
  draft_.outputs.clear();
  for (const bytes size : op.outputs) draft_.outputs.push_back({.size = size});
  draft_.workspace = op.workspace;
  draft_.traits = op.traits;
  std::uint32_t next = kept([&] { return assembly_.add_run(draft_); });
  for (const tensor_id t : made) number(t, next++);
  return static_cast<std::uint32_t>(assembly_.so_far().operations.size() - 1);
}

trace trace_recorder::take(trace::origin where) {
  return kept([&] {
    assembly_.set_origin(std::move(where));
    return assembly_.take();
  });
}

void trace_recorder::about(trace::kind what, tensor_id t) {
  kept([&] { assembly_.add(what, number_of(t)); });
}

void trace_recorder::mark(trace::kind what) {
  kept([&] { assembly_.add(what); });
}

void trace_recorder::number(tensor_id t, std::uint32_t in_trace) {
  if (index(t) >= numbers_.size()) numbers_.resize(index(t) + std::size_t{1}, trace::none);
  numbers_[index(t)] = in_trace;
}

}  // namespace delta::executor
