// delta: a trace that is made of another one, with operations put between: what collectives.hpp
// shares.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/storage/simulated.hpp"
#include "delta/units.hpp"
#include "traces/collectives.hpp"
#include "traces/trace.hpp"

namespace delta::detail {

using ids = std::vector<std::uint32_t>;

/// An N-th, rounded up.
[[nodiscard]] constexpr std::uint64_t part_of(std::uint64_t n, std::uint64_t parts) noexcept {
  return n / parts + (n % parts > 0);
}

/// A trace in the making, of what an old one has and of what is put between.
class trace_builder {
 public:
  explicit trace_builder(const trace& from)
      : from_(&from), numbers_(from.tensors.size(), trace::none) {
    made_.recorded_on = from.recorded_on;
    made_.names = from.names;
  }

  std::uint32_t source(trace::kind what, trace::tensor tensor) {
    const auto number = static_cast<std::uint32_t>(made_.tensors.size());
    made_.tensors.push_back(tensor);
    made_.events.push_back({what, number});
    return number;
  }
  std::uint32_t name(const char* text) {
    const auto known = std::ranges::find(made_.names, text);
    const auto number = static_cast<std::uint32_t>(known - made_.names.begin());
    if (known == made_.names.end()) made_.names.emplace_back(text);
    return number;
  }
  /// An operation that is not repeated, as the other ranks would have to; gives the first output's
  /// number. Tensors are the new trace's.
  std::uint32_t run(const char* text, nanoseconds cost, const ids& inputs, const ids& updates,
                    trait traits = trait::pure, const std::vector<bytes>& outputs = {}) {
    trace::operation o;
    o.name = name(text), o.cost = cost, o.traits = traits | trait::never_replay;
    const auto index = static_cast<std::uint32_t>(made_.operations.size());
    const auto first = static_cast<std::uint32_t>(made_.tensors.size());
    ids made;
    for (const bytes size : outputs) {
      made.push_back(static_cast<std::uint32_t>(made_.tensors.size()));
      made_.tensors.push_back({.size = size, .producer = index});
    }
    add(o, inputs, made, updates);
    return first;
  }
  /// An operation that writes new versions of these tensors of the old trace from another one.
  void renew(const char* text, nanoseconds cost, const ids& old, std::uint32_t from) {
    trace::operation o;
    o.name = name(text), o.cost = cost;
    o.replaced = static_cast<std::uint32_t>(old.size());
    ids inputs = numbers(old), made;
    for (const std::uint32_t t : inputs) {
      made.push_back(static_cast<std::uint32_t>(made_.tensors.size()));
      made_.tensors.push_back({.size = made_.tensors[t].size,
                               .producer = static_cast<std::uint32_t>(made_.operations.size())});
    }
    inputs.push_back(from);
    add(o, inputs, made, {});
    inputs.pop_back();
    for (std::size_t i = 0; i < old.size(); ++i) numbers_[old[i]] = made[i];
    for (const std::uint32_t t : inputs) drop(t);
  }
  void drop(std::uint32_t tensor) { made_.events.push_back({trace::kind::drop, tensor}); }
  /// From here on `old` is that one.
  void rename(std::uint32_t old, std::uint32_t now) { numbers_[old] = now; }
  [[nodiscard]] std::uint32_t number(std::uint32_t old) const { return numbers_[old]; }
  /// Of what is copied, sizes, workspaces and costs are divided by it, rounded up.
  void divide_by(std::uint64_t parts) { parts_ = parts; }
  void copy(const trace::event& e) {
    if (e.what == trace::kind::run)
      copy(from_->operations[e.index]);
    else if (is_source(e.what))
      numbers_[e.index] = source(e.what, from_->tensors[e.index]);
    else if (e.what == trace::kind::backward || e.what == trace::kind::end_of_step)
      made_.events.push_back(e);
    else
      made_.events.push_back({e.what, numbers_[e.index]});
  }
  /// By number of the old trace.
  [[nodiscard]] ids numbers(std::span<const std::uint32_t> old) const {
    ids now;
    for (const std::uint32_t t : old) now.push_back(numbers_[t]);
    return now;
  }
  [[nodiscard]] trace take() {
    check(made_);
    return std::move(made_);
  }

 private:
  void copy(trace::operation o) {
    const auto index = static_cast<std::uint32_t>(made_.operations.size());
    const ids inputs = numbers(from_->inputs(o)), updates = numbers(from_->updates(o));
    for (const std::uint32_t t : from_->outputs(o)) {
      trace::tensor made = from_->tensors[t];
      if (made.view_of != trace::none) made.view_of = numbers_[made.view_of];
      made.producer = index;
      made.size = bytes{part_of(made.size.count, parts_)};
      numbers_[t] = static_cast<std::uint32_t>(made_.tensors.size());
      made_.tensors.push_back(made);
    }
    const ids outputs = numbers(from_->outputs(o));
    const auto cost = static_cast<std::uint64_t>(o.cost.count());
    o.cost = nanoseconds{static_cast<std::int64_t>(part_of(cost, parts_))};
    o.workspace = bytes{part_of(o.workspace.count, parts_)};
    add(o, inputs, outputs, updates);
  }
  void add(trace::operation o, const ids& inputs, const ids& outputs, const ids& updates) {
    o.first = static_cast<std::uint32_t>(made_.lists.size());
    o.inputs = static_cast<std::uint32_t>(inputs.size());
    o.outputs = static_cast<std::uint32_t>(outputs.size());
    o.updates = static_cast<std::uint32_t>(updates.size());
    for (const ids* list : {&inputs, &outputs, &updates})
      made_.lists.insert(made_.lists.end(), list->begin(), list->end());
    made_.events.push_back({trace::kind::run, static_cast<std::uint32_t>(made_.operations.size())});
    made_.operations.push_back(o);
  }

  const trace* from_;
  trace made_;
  ids numbers_;  // in the new trace, by number in the old
  std::uint64_t parts_ = 1;
};

/// Which tensors of `t` have references behind its operation `last`.
[[nodiscard]] inline std::vector<bool> held_after(const trace& t, std::uint32_t last) {
  const auto runs_last = [&](const trace::event& e) {
    return e.what == trace::kind::run && e.index == last;
  };
  const auto behind = std::ranges::find_if(t.events, runs_last) + 1;
  const auto references = references_after(t, {t.events.begin(), behind});
  return {references.begin(), references.end()};
}

/// What copying takes, rounded up; at a rate of 0 nothing.
[[nodiscard]] inline nanoseconds in_time(bytes n, double rate) noexcept {
  return copy_rates{.in = rate}.cost(direction::in, n);
}

/// The step of a rank of a sharded group, for with_collectives (fully_sharded.cpp).
[[nodiscard]] trace with_shards(const trace&, const rank_group&);

}  // namespace delta::detail
