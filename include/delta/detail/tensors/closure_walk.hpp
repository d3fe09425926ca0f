// delta: what computing a tensor again costs: a walk over the operators that would have to run, and
// when a cost that is kept may be told in its place.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/records.hpp"
#include "delta/machine_state.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Sums the costs of a closure, each operator and each reload once. For one walk; O(records). It
/// leaves marks in the records and in tensors on the host, so two can't walk at once.
class closure_walk {
 public:
  /// Bounds the time of a question, and the table of a walk to four kilobytes of stack.
  static constexpr std::size_t limit = 1024;

  struct sums {
    double records = 0;  ///< ns of the operators that the closure needs
    double reloads = 0;  ///< ns of its ancestors on the host: one copy each, or their operators
    bool complete = true, through_host = false;
  };

  closure_walk(const graph& g, const machine_state& c) noexcept : graph_(&g), conditions_(&c) {}

  /// Of at most `most` records, until they cost more than `enough` ns. `keep`: the records that
  /// count must say so when they change (`closure_watch`).
  sums sum(tensor_id t, closure what, bool keep, std::size_t most, double enough) noexcept {
    most_ = most, enough_ = enough;
    mark_ = graph_->next_mark();
    add(at(t).producer, sums_.records);
    expand_up(keep);
    const bool exact = sums_.complete && !sums_.through_host;
    if (keep)
      for (const operator_id o : std::span(found_).first(count_)) {
        const operator_record& r = (*graph_)[o];
        r.swept_down = false;
        if (exact || what == closure::neighbourhood) r.grown_down = false;
      }
    if (what == closure::neighbourhood) expand_down(t, keep);
    graph_->note_walk(count_);
    return sums_;
  }

  /// One copy in from the host, in ns, the wait for the queue included.
  [[nodiscard]] static double reload(const tensor_record& r, const machine_state& c) noexcept {
    constexpr auto in = static_cast<std::size_t>(direction::in);
    // The two summands of a copy are added first, as whoever asks for one copy adds them.
    return c.backlog[in] +
           (c.latency[in] + 1e9 * static_cast<double>(r.footprint.count) / c.rate[in]);
  }

 private:
  [[nodiscard]] const tensor_record& at(tensor_id t) const noexcept { return (*graph_)[t]; }

  void add(operator_id o, double& to) noexcept {
    if (o == operator_id::none) return;
    const operator_record& r = (*graph_)[o];
    if (r.mark == mark_) return;
    if (count_ == most_ || sums_.records > enough_) {
      // Nothing more is added. A sum over 1,024 records counts as complete, as there is no better.
      if (most_ < limit || count_ < most_) sums_.complete = false;
      return;
    }
    r.mark = mark_;
    found_[count_++] = o;
    to += static_cast<double>(r.cost.count());
  }

  // From what was found to what made its missing inputs, and on.
  void expand_up(bool keep) noexcept {
    for (std::size_t i = 0; i < count_ && sums_.complete; ++i)
      for (const tensor_id in : graph_->inputs(found_[i])) {
        const tensor_record& r = at(in);
        if (missing(r))
          add(r.producer, sums_.records);
        else if (r.where == residency::host)
          add_from_host(r, keep);
      }
  }
  // A tensor on the host has two prices, and `reloads` says which: its operator, like what is
  // missing, or one copy. The copy is marked on the tensor, as it is no record.
  void add_from_host(const tensor_record& r, bool keep) noexcept {
    sums_.through_host = true;
    // Whether it is reloaded depends on what its producer reads.
    if (keep && r.producer != operator_id::none) (*graph_)[r.producer].swept_down = false;
    if (!reloads(r))
      add(r.producer, sums_.reloads);
    else if (std::exchange(r.mark, mark_) != mark_)
      sums_.reloads += reload(r, *conditions_);
  }
  // From `t` to what was computed from it and is missing, and on. The ancestors are not expanded
  // downwards: their other descendants are not t's.
  void expand_down(tensor_id t, bool keep) noexcept {
    const std::size_t ancestors = count_;
    for (const operator_id c : graph_->readers(t)) add_reader(c);
    for (std::size_t i = ancestors; i < count_ && sums_.complete; ++i)
      for (const tensor_id out : graph_->outputs(found_[i]))
        if (missing(at(out)))
          for (const operator_id c : graph_->readers(out)) add_reader(c);
    if (keep)
      for (std::size_t i = ancestors; i < count_; ++i)
        (*graph_)[found_[i]].swept_up = (*graph_)[found_[i]].grown_up = false;
  }
  // A reader counts if a missing output may be asked for: by the program, or a recomputation.
  void add_reader(operator_id c) noexcept {
    if (std::ranges::any_of(graph_->outputs(c), [&](tensor_id o) {
          return missing(at(o)) && (at(o).references > 0 || at(o).edges != tensor_record::nowhere);
        }))
      add(c, sums_.records);
  }

  // True if a plan reloads this host ancestor rather than recomputing it.
  [[nodiscard]] bool reloads(const tensor_record& r) const noexcept {
    if (r.producer == operator_id::none) return true;
    const operator_record& o = (*graph_)[r.producer];
    return (r.host && static_cast<double>(o.cost.count()) >= reload(r, *conditions_)) ||
           std::ranges::any_of(graph_->inputs(r.producer),
                               [&](tensor_id i) { return !on_device(at(i).where); });
  }

  const graph* graph_;
  const machine_state* conditions_;
  std::array<operator_id, limit> found_;  // in the order of the walk
  std::size_t count_ = 0, most_ = 0;
  std::uint32_t mark_ = 0;
  double enough_ = 0;
  sums sums_;
};

/// What a closure costs: told from what is kept with the tensor where the graph keeps it, else by a
/// walk. What it reads outlives it.
struct closure_pricing {
  const graph* tensors;
  const machine_state* now;
  cost_query* asked = nullptr;  ///< lower bounds will do; null: the cost must be exact

  /// In ns, as far as it is asked for. Of a closure with a tensor on the host a lower bound is
  /// kept: reload prices change with the queue. O(closure), or what of it costs `enough`.
  [[nodiscard]] double cost(tensor_id t, closure what, double enough) const noexcept {
    // A rough answer looks at four records, each closer question at four times as many.
    constexpr std::uint8_t first_reach = 1, deepest = 5;
    static_assert(closure_walk::limit == std::size_t{1} << (2 * deepest));
    const tensor_record& r = (*tensors)[t];
    const bool keep = tensors->cached_closure == what;
    std::size_t most = closure_walk::limit;
    if (keep) {
      const bool known = r.cost >= 0;
      if (known && (r.reach == tensor_record::all_of_it || r.cost > enough)) return r.cost;
      if (asked != nullptr) {
        if (known && asked->refine != t) return asked->bounded = true, r.cost;
        r.reach = known ? std::min(static_cast<std::uint8_t>(r.reach + 1), deepest) : first_reach;
        most = std::size_t{1} << (2 * r.reach);
      }
    }
    closure_walk walk(*tensors, *now);
    const closure_walk::sums w = walk.sum(t, what, keep, most, enough);
    if (keep) {
      r.cost = w.records;
      if (w.complete && !w.through_host)
        r.reach = tensor_record::all_of_it;
      else if (asked == nullptr)
        r.reach = w.complete ? deepest : first_reach;
    }
    if (!w.complete && asked != nullptr && w.records <= enough) asked->bounded = true;
    return w.records + w.reloads;
  }
};

}  // namespace delta::detail
