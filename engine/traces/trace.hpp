// delta: a recorded program: what a framework asked of its memory, in order. docs/traces.md has the
// rules and the file format; reading and writing files is the executor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "delta/units.hpp"
#include "traces/trace_data.hpp"
#include "traces/trace_rules.hpp"

namespace delta {

/// Throws bad_trace at the first event that breaks the rules. Linear in the trace.
inline void check(const trace& t) {
  trace_rules rules;
  if (const auto f = trace_rules::begin(t)) throw bad_trace(t.events.size(), f->wrong, f->expected);
  for (std::size_t i = 0; i < t.events.size(); ++i)
    if (const auto f = rules.next(t, t.events[i])) throw bad_trace(i, f->wrong, f->expected);
  if (const auto f = rules.end(t)) throw bad_trace(t.events.size(), f->wrong, f->expected);
}

/// By tensor: the references that it has behind these first events of `t`, or by these events
/// alone. O(tensors + events and their outputs).
[[nodiscard]] inline std::vector<std::uint32_t> references_after(
    const trace& t, std::span<const trace::event> past) {
  std::vector<std::uint32_t> references(t.tensors.size(), 0);
  for (const trace::event& e : past) {
    if (e.what == trace::kind::run) {
      for (const std::uint32_t made : t.outputs(t.operations[e.index])) references[made] = 1;
    } else if (is_source(e.what) || e.what == trace::kind::share) {
      ++references[e.index];
    } else if (e.what == trace::kind::drop) {
      --references[e.index];
    }
  }
  return references;
}

/// What all operations take together. The trace keeps the rules.
inline nanoseconds total_cost(const trace& t) noexcept {
  nanoseconds sum{};
  for (const auto& o : t.operations) sum += o.cost;
  return sum;
}

/// The most bytes in use at once, rounded as the trace says, every storage from the event that
/// makes it to the last reference to it or a view of it (of one that a new version replaces, to
/// that), and an operation's workspace while it runs: what the program takes without a budget.
/// Linear in the trace, which keeps the rules. Throws std::bad_alloc.
inline bytes unmanaged_peak(const trace& t) {
  struct storage {
    std::uint32_t owner = 0;       // of the tensor's bytes: itself, but for views
    std::uint64_t references = 0;  // to an owner and its views
    bool replaced = false;         // a new version has its bytes
  };
  std::vector<storage> storages(t.tensors.size());
  bytes now{};
  bytes most{};
  const auto make = [&](std::uint32_t tensor) {
    const auto& made = t.tensors[tensor];
    const bool view = made.view_of != trace::none;
    storages[tensor].owner = view ? storages[made.view_of].owner : tensor;
    ++storages[storages[tensor].owner].references;
    now += t.rounded(made.size);
  };
  for (const auto& e : t.events) {
    bytes scratch{};
    switch (e.what) {
      case trace::kind::constant:
      case trace::kind::variable:
        make(e.index);
        break;
      case trace::kind::run: {
        const auto& o = t.operations[e.index];
        for (const std::uint32_t old : t.inputs(o).first(o.replaced)) {
          now -= t.rounded(t.tensors[storages[old].owner].size);
          storages[storages[old].owner].replaced = true;
        }
        for (const std::uint32_t tensor : t.outputs(o)) make(tensor);
        scratch = t.rounded(o.workspace);
        break;
      }
      case trace::kind::share:
        ++storages[storages[e.index].owner].references;
        break;
      case trace::kind::drop: {
        const std::uint32_t owner = storages[e.index].owner;
        if (--storages[owner].references == 0 && !storages[owner].replaced)
          now -= t.rounded(t.tensors[owner].size);
        break;
      }
      case trace::kind::read:
      case trace::kind::write:
      case trace::kind::backward:
      case trace::kind::end_of_step:
        break;
    }
    most = std::max(most, now + scratch);
  }
  return most;
}

}  // namespace delta
