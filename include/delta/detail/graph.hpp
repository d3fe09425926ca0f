// delta: who made which tensors from what. Operator records, strong edges to their inputs, and the
// rules by which records come and go.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/error.hpp"
#include "delta/kernel.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta {

/// The record of one operator that may have to run again. Records exist only where the policy may
/// evict: without that nothing is ever replayed, and no kernel is stored.
struct operator_record {
  std::vector<tensor_id> inputs, outputs, updates;  ///< as the operator stated them
  kernel replay;                                    ///< makes all outputs again
  bytes workspace{};                                ///< as asked for
  nanoseconds cost{};                               ///< as measured last, or a prior
  std::uint64_t sequence = 0;                       ///< its number in the program's order
  mutable std::uint64_t mark = 0;                   ///< last walk that visited it
  const char* name = "";                            ///< for errors and timelines
  std::uint32_t replays = 0;                        ///< in this step
  trait traits = trait::pure;                       ///< what the replay must respect
  bool in_use = false;  ///< the record stands for an operator (else it waits to be recycled)
};

/// Tensors and operator records. Invariant: a tensor with a producer can be computed again, because
/// every input of a living record either has its bytes somewhere or has a producer itself; losing
/// the one takes the record away (`sever`). So "can it be recomputed?" is one comparison, without a
/// walk.
///
/// Edges are strong (repairs P-20): a tensor that the program has dropped keeps its record while
/// something may be recomputed through it. Records and their lists are recycled, so a steady
/// program stops asking the heap.
class graph {
 public:
  /// The record of an id that is known to be good. Not checked. References hold until the next
  /// add_tensor or add_record.
  [[nodiscard]] tensor& operator[](tensor_id t) noexcept { return tensors_[index(t)]; }
  [[nodiscard]] const tensor& operator[](tensor_id t) const noexcept { return tensors_[index(t)]; }
  [[nodiscard]] operator_record& operator[](operator_id o) noexcept { return records_[index(o)]; }
  [[nodiscard]] const operator_record& operator[](operator_id o) const noexcept {
    return records_[index(o)];
  }
  /// The record of an id that the program gave. Throws unknown_tensor where it names nothing, or
  /// what the program has dropped. O(1).
  tensor& checked(tensor_id t) {
    return const_cast<tensor&>(static_cast<const graph&>(*this).checked(t));
  }
  [[nodiscard]] const tensor& checked(tensor_id t) const {
    if (index(t) >= tensors_.size() || !(*this)[t].in_use || (*this)[t].references == 0)
      throw unknown_tensor(t);
    return (*this)[t];
  }
  /// Rows in the tables, used or not: ids below these may be looked at. O(1).
  [[nodiscard]] std::size_t tensor_slots() const noexcept { return tensors_.size(); }
  [[nodiscard]] std::size_t record_slots() const noexcept { return records_.size(); }
  /// Records and tensors in use; of tensors, dropped ones with a record included. O(1).
  [[nodiscard]] std::size_t live_records() const noexcept {
    return records_.size() - free_records_.size();
  }
  [[nodiscard]] std::size_t live_tensors() const noexcept {
    return tensors_.size() - free_tensors_.size();
  }

  /// A fresh tensor with one reference, dead: it has no bytes yet. `size` is what the program asked
  /// for, `footprint` what the storage counts. Amortised O(1).
  tensor_id add_tensor(bytes size, bytes footprint) {
    tensor_id t;
    if (free_tensors_.empty()) {
      t = static_cast<tensor_id>(tensors_.size());
      tensors_.emplace_back();
    } else {
      t = free_tensors_.back();
      free_tensors_.pop_back();
    }
    tensor& r = (*this)[t];
    r.size = size;
    r.footprint = footprint;
    r.references = 1;
    r.in_use = true;
    return t;
  }

  /// A fresh record; the caller fills it and calls `connect`. Amortised O(1).
  operator_id add_record() {
    operator_id o;
    if (free_records_.empty()) {
      o = static_cast<operator_id>(records_.size());
      records_.emplace_back();
    } else {
      o = free_records_.back();
      free_records_.pop_back();
    }
    (*this)[o].in_use = true;
    return o;
  }

  /// Draws the edges of a filled record. O(inputs + outputs).
  void connect(operator_id o) {
    for (tensor_id t : (*this)[o].inputs) (*this)[t].consumers.push_back(o);
    for (tensor_id t : (*this)[o].outputs) (*this)[t].producer = o;
  }

  /// Takes a record away: its outputs can't be computed again, its inputs lose a consumer.
  /// `orphans` receives every tensor that may have become useless; what becomes of them is the
  /// caller's affair (`ledger::sweep`), so that nothing recurses. O(edges x consumers).
  void disconnect(operator_id o, std::vector<tensor_id>& orphans) {
    operator_record& r = (*this)[o];
    for (tensor_id t : r.outputs) {
      (*this)[t].producer = operator_id::none;
      orphans.push_back(t);
    }
    for (tensor_id t : r.inputs) {
      auto& c = (*this)[t].consumers;
      if (const auto at = std::find(c.begin(), c.end(), o); at != c.end()) {
        *at = c.back();
        c.pop_back();
      }
      orphans.push_back(t);
    }
    r.inputs.clear(), r.outputs.clear(), r.updates.clear();
    r.replay.reset();
    r.workspace = {}, r.cost = {}, r.replays = 0, r.traits = trait::pure, r.name = "";
    r.in_use = false;
    free_records_.push_back(o);
  }

  /// Gives a tensor's record back; it must have no bytes, references, producer or consumers. Its
  /// list of consumers keeps its memory for the next tensor. O(1).
  void recycle(tensor_id t) {
    tensor& r = (*this)[t];
    assert(r.references == 0 && r.locks == 0 && r.consumers.empty() && !r.device && !r.host);
    auto consumers = std::move(r.consumers);
    consumers.clear();
    r = tensor{};
    r.consumers = std::move(consumers);
    free_tensors_.push_back(t);
  }

  /// Is nobody left who could ask for any output of `o`, directly or by recomputing? Then the
  /// record can go (repairs P-1). O(outputs).
  [[nodiscard]] bool useless(operator_id o) const noexcept {
    return std::all_of((*this)[o].outputs.begin(), (*this)[o].outputs.end(), [&](tensor_id t) {
      const tensor& r = (*this)[t];
      return r.references == 0 && r.locks == 0 && r.wanted == 0 && r.consumers.empty();
    });
  }

  /// Calls `visit(u)` for every referenced tensor that is computed from `t` directly, or through
  /// tensors that the program has dropped: what could not be computed again without `t`. The same
  /// for the record that made `t`, if there is one: `t` itself and its siblings. A referenced
  /// tensor ends the walk: once its bytes are safe, so is what follows it. Nothing is visited
  /// twice. `walk` is scratch. O(descendants).
  template <class Visit>
  void for_each_dependent(tensor_id t, std::vector<operator_id>& walk, const Visit& visit) const {
    const std::uint64_t mark = next_mark();
    walk.assign((*this)[t].consumers.begin(), (*this)[t].consumers.end());
    if ((*this)[t].producer != operator_id::none) walk.push_back((*this)[t].producer);
    while (!walk.empty()) {
      const operator_id o = walk.back();
      walk.pop_back();
      if (std::exchange((*this)[o].mark, mark) == mark) continue;
      for (const tensor_id out : (*this)[o].outputs)
        if (const tensor& r = (*this)[out]; r.references > 0)
          visit(out);
        else
          walk.insert(walk.end(), r.consumers.begin(), r.consumers.end());
    }
  }

  /// A number that no earlier walk has used; marks tell visited records without clearing them
  /// first. Walks must not be nested: the inner one overwrites marks of the outer.
  std::uint64_t next_mark() const noexcept { return ++mark_; }

 private:
  std::vector<tensor> tensors_;
  std::vector<operator_record> records_;
  std::vector<tensor_id> free_tensors_;
  std::vector<operator_id> free_records_;
  mutable std::uint64_t mark_ = 0;
};

/// Memory that a replay takes: the outputs that are missing, scratch for those that are not (a
/// kernel writes all of them), and workspace. O(outputs).
inline bytes replay_need(const graph& g, operator_id o, bytes workspace_footprint) {
  bytes need = workspace_footprint;
  for (tensor_id t : g[o].outputs) need += g[t].footprint;
  return need;
}

}  // namespace delta
