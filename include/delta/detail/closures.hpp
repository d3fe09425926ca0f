// delta: closures: which costs that are kept change when a tensor's bytes come or go. A cost is kept
// with its tensor (`context` does that) and forgotten here.
#pragma once

#include <algorithm>
#include <vector>

#include "delta/detail/graph.hpp"
#include "delta/tensor.hpp"

namespace delta::detail {

/// Forgets costs. What is missing stands in the closures of all that are computed from it, through
/// whatever else is missing (`down`); and, where descendants count, in the neighbourhoods of all
/// that it is computed from (`up`):
///
///   a ---> [o] ---> (x) ---> [p] ---> (y) ---> [q] ---> b       ( ) missing
///                                                       b's closure: q, p, o
///                                                       a's neighbourhood: o, p
///
/// A walk stops where an earlier one has passed and no question since: all costs that count such a
/// record are forgotten already. So walks cost no more than the questions that they make necessary.
/// Where nobody keeps costs (`graph::keeps`), nothing is done.
class closure_watch {
 public:
  /// The bytes of `t` have gone, have come, or are on the host or no longer. O(what depends on it).
  void tensor_changed(graph& g, tensor_id t) {
    if (g.keeps == closure::none) return;
    for (const operator_id o : g.readers(t)) down_.push_back(o);
    if (g.keeps == closure::neighbourhood && g[t].producer != operator_id::none)
      up_.push_back(g[t].producer);
    walk(g);
  }
  /// An operator's cost has changed, or its record is about to go.
  void operator_changed(graph& g, operator_id o) {
    if (g.keeps == closure::none) return;
    down_.push_back(o);
    if (g.keeps == closure::neighbourhood &&
        std::ranges::any_of(g.outputs(o), [&](tensor_id t) { return missing(g, t); }))
      up_.push_back(o);
    walk(g);
  }
  /// A missing output of `o` is one that nobody asks for any more.
  void output_forgotten(graph& g, operator_id o) {
    if (g.keeps != closure::neighbourhood) return;
    up_.push_back(o);
    walk(g);
  }

 private:
  static bool missing(const graph& g, tensor_id t) noexcept {
    return !on_device(g[t].where) && g[t].where != residency::host;
  }
  static void forget(graph& g, tensor_id t) noexcept {
    g[t].cost = tensor::unknown;
    g.reweigh(t);
  }
  // Where a walk begins it never stops at once: that somebody counts a record now may be the news.
  void walk(graph& g) {
    while (!down_.empty()) {
      const operator_id o = down_.back();
      down_.pop_back();
      g[o].swept_down = true;
      for (const tensor_id t : g.outputs(o)) {
        forget(g, t);
        if (on_device(g[t].where)) continue;
        // Through what is on the host, too: a plan may recompute it.
        for (const operator_id r : g.readers(t))
          if (!g[r].swept_down) g[r].swept_down = true, down_.push_back(r);
      }
    }
    while (!up_.empty()) {
      const operator_id o = up_.back();
      up_.pop_back();
      g[o].swept_up = true;
      for (const tensor_id t : g.inputs(o)) {
        forget(g, t);
        const operator_id from = g[t].producer;
        if (missing(g, t) && from != operator_id::none && !g[from].swept_up)
          g[from].swept_up = true, up_.push_back(from);
      }
    }
  }

  std::vector<operator_id> down_, up_;
};

}  // namespace delta::detail
