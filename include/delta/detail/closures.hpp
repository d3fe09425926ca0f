// delta: closures: which costs that are kept change when a tensor's bytes come or go. A cost is
// kept with its tensor (`context` does that) and forgotten here.
#pragma once

#include <cstddef>
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
/// A walk stops at a record that no cost counts: because nobody has asked, or as an earlier walk
/// has passed and nobody has asked since (`swept_down`, `swept_up`). So walks cost no more than the
/// questions that they make necessary, and nothing where there are none. Where nobody keeps costs
/// (`graph::keeps`), nothing is done either.
class closure_watch {
 public:
  /// The bytes of `t` have gone, have come, or are on the host or no longer. O(what depends on it).
  void tensor_changed(graph& g, tensor_id t) {
    if (g.keeps == closure::none) return;
    for (const operator_id o : g.readers(t)) go_down(g, o);
    // That its producer counts as a descendant may be the news: nobody need have counted it before.
    const operator_id p = g[t].producer;
    if (g.keeps == closure::neighbourhood && p != operator_id::none) look_up(g, p);
    walk(g);
  }
  /// An operator's cost has changed, or its record is about to go.
  void operator_changed(graph& g, operator_id o) {
    if (g.keeps == closure::none) return;
    go_down(g, o);
    go_up(g, o);
    walk(g);
  }
  /// A missing output of `o` is one that nobody asks for any more.
  void output_forgotten(graph& g, operator_id o) {
    if (g.keeps != closure::neighbourhood) return;
    go_up(g, o);
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
  void go_down(graph& g, operator_id o) {
    if (!g[o].swept_down) g[o].swept_down = true, down_.push_back(o);
  }
  void go_up(graph& g, operator_id o) {
    if (!g[o].swept_up) g[o].swept_up = true, up_.push_back(o);
  }
  void look_up(graph& g, operator_id o) {
    for (const tensor_id t : g.inputs(o)) {
      forget(g, t);
      if (missing(g, t) && g[t].producer != operator_id::none) go_up(g, g[t].producer);
    }
  }
  void walk(graph& g) {
    std::size_t visited = 0;
    for (; !down_.empty(); ++visited) {
      const operator_id o = down_.back();
      down_.pop_back();
      for (const tensor_id t : g.outputs(o)) {
        forget(g, t);
        // Through what is on the host, too: a plan may recompute it.
        if (!on_device(g[t].where))
          for (const operator_id r : g.readers(t)) go_down(g, r);
      }
    }
    for (; !up_.empty(); ++visited) {
      const operator_id o = up_.back();
      up_.pop_back();
      look_up(g, o);
    }
    g.note_walk(visited);
  }

  std::vector<operator_id> down_, up_;
};

}  // namespace delta::detail
