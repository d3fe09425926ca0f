// delta: forgets kept costs of closures when the bytes of a tensor come or go. A cost is kept with
// its tensor (by `context`).
#pragma once

#include <cstddef>
#include <vector>

#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/records.hpp"

namespace delta::detail {

/// Invalidates kept costs, or marks them as inexact. A missing tensor is in the closure of each
/// tensor that is computed from it through missing ones (`down`); and, where descendants count, in
/// the neighbourhood of each tensor that it is computed from (`up`):
///
///   a ---> [o] ---> (x) ---> [p] ---> (y) ---> [q] ---> b       ( ) missing
///                                                       b's closure: q, p, o
///                                                       a's neighbourhood: o, p
///
/// What leaves the device makes these costs rise, so what is kept of them is a lower bound from
/// then on; all else forgets them. A walk stops at a record that no kept cost includes: it was
/// never read, or not since an earlier walk (`swept_down`, `swept_up`; of exact costs `grown_down`,
/// `grown_up`): so walks cost no more than the questions that they make necessary.
class closure_watch {
 public:
  /// The bytes of `t` have gone from the device (`left`); or have come, or are missing where they
  /// were on the host. O(what depends on it).
  void tensor_changed(graph& g, tensor_id t, bool left) {
    if (g.cached_closure == closure::none) return;
    rising_ = left;
    for (const operator_id o : g.readers(t)) go_down(g, o);
    // Its producer may only now count as a descendant, so that no earlier cost includes it.
    const operator_id p = g[t].producer;
    if (g.cached_closure == closure::neighbourhood && p != operator_id::none) look_up(g, p);
    walk(g);
  }
  /// An operator's cost has changed, or its record is about to go.
  void operator_changed(graph& g, operator_id o) {
    if (g.cached_closure == closure::none) return;
    rising_ = false;
    go_down(g, o);
    go_up(g, o);
    walk(g);
  }
  /// A missing output of `o` is one that nobody asks for any more.
  void output_forgotten(graph& g, operator_id o) {
    if (g.cached_closure != closure::neighbourhood) return;
    rising_ = false;
    go_up(g, o);
    walk(g);
  }

 private:
  void changed(graph& g, tensor_id t) const noexcept {
    tensor_record& r = g[t];
    if (!rising_) {
      r.cost = tensor_record::unknown;
      g.reweigh(t);
    } else if (r.reach == tensor_record::all_of_it) {
      r.reach = 0;
    }
  }
  void go_down(graph& g, operator_id o) {
    operator_record& r = g[o];
    if (rising_ ? r.grown_down : r.swept_down) return;
    r.grown_down = true, r.swept_down = r.swept_down || !rising_;
    down_.push_back(o);
  }
  void go_up(graph& g, operator_id o) {
    operator_record& r = g[o];
    if (rising_ ? r.grown_up : r.swept_up) return;
    r.grown_up = true, r.swept_up = r.swept_up || !rising_;
    up_.push_back(o);
  }
  void look_up(graph& g, operator_id o) {
    for (const tensor_id t : g.inputs(o)) {
      changed(g, t);
      if (missing(g[t]) && g[t].producer != operator_id::none) go_up(g, g[t].producer);
    }
  }
  void walk(graph& g) {
    std::size_t visited = 0;
    for (; !down_.empty(); ++visited) {
      const operator_id o = down_.back();
      down_.pop_back();
      for (const tensor_id t : g.outputs(o)) {
        changed(g, t);
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

  bool rising_ = false;
  std::vector<operator_id> down_, up_;
};

}  // namespace delta::detail
