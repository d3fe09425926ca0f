#include "trace/assembly.hpp"

#include <limits>
#include <utility>

namespace delta::executor {
namespace {

std::uint32_t next_index(const auto& items) {
  if (items.size() >= trace::none) throw trace_fault{"more than 2^32 items", "fewer"};
  return static_cast<std::uint32_t>(items.size());
}

void hold_against(const std::optional<trace_rules::finding>& finding) {
  if (finding) throw trace_fault{finding->wrong, finding->expected};
}

}  // namespace

std::uint32_t trace_assembly::add_source(trace::kind what, bytes size,
                                         std::optional<std::string_view> name) {
  const std::uint32_t tensor = next_index(result_.tensors);
  result_.tensors.push_back({.size = size, .name = name ? name_index(*name) : trace::none});
  add(what, tensor);
  return tensor;
}

std::uint32_t trace_assembly::add_run(const draft& d) {
  trace& t = result_;
  const std::uint32_t index = next_index(t.operations);
  const std::uint32_t first_output = next_index(t.tensors);
  // Every list is at least as long as its parts, so one look at the longest covers all counts.
  const std::uint32_t first = next_index(t.lists);
  if (d.inputs.size() + d.outputs.size() + d.updates.size() >= trace::none - first)
    throw trace_fault{"more than 2^32 items in all lists", "fewer"};

  const auto count = [](const auto& list) { return static_cast<std::uint32_t>(list.size()); };
  t.operations.push_back({.name = name_index(d.name),
                          .cost = d.cost,
                          .first = first,
                          .inputs = count(d.inputs),
                          .outputs = count(d.outputs),
                          .updates = count(d.updates),
                          .workspace = d.workspace,
                          .traits = d.traits,
                          .replaced = d.replaced});
  t.lists.insert(t.lists.end(), d.inputs.begin(), d.inputs.end());
  for (const output& o : d.outputs) {
    t.lists.push_back(next_index(t.tensors));
    t.tensors.push_back({.size = o.size, .view_of = o.view_of, .producer = index});
  }
  t.lists.insert(t.lists.end(), d.updates.begin(), d.updates.end());
  add(trace::kind::run, index);
  return first_output;
}

void trace_assembly::add(trace::kind what, std::uint32_t index) {
  const trace::event event{what, index};
  hold_against(rules_.next(result_, event));
  result_.events.push_back(event);
}

void trace_assembly::add_gradient(std::uint32_t tensor) {
  if (tensor >= result_.tensors.size())
    throw trace_fault{"a gradient that nothing has made", "a tensor that is there by then"};
  const auto last = static_cast<std::uint32_t>(result_.operations.size() - 1);
  result_.gradients.push_back({tensor, last});
}

void trace_assembly::set_origin(trace::origin origin) {
  result_.recorded_on = std::move(origin);
  hold_against(trace_rules::begin(result_));
}

/// Where a name is among all names; a new one goes behind the others.
std::uint32_t trace_assembly::name_index(std::string_view name) {
  if (const auto known = names_.find(name); known != names_.end()) return known->second;
  const std::uint32_t index = next_index(result_.names);
  names_.emplace(name, index);
  result_.names.emplace_back(name);
  return index;
}

trace trace_assembly::take() {
  hold_against(rules_.end(result_));
  return std::move(result_);
}

}  // namespace delta::executor
