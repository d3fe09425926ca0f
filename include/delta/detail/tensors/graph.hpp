// delta: who made which tensors from what. Operator records, strong edges to their inputs, and the
// rules by which records come and go.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/tensors/edge_lists.hpp"
#include "delta/detail/tensors/id_set.hpp"
#include "delta/detail/tensors/records.hpp"
#include "delta/error.hpp"
#include "delta/kernel.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Of which closures the costs are kept with the tensors, once asked for: `context`'s two.
enum class closure : std::uint8_t {
  none,
  ancestors,     ///< recompute_cost
  neighbourhood  ///< neighbourhood_cost
};

/// Tensors and operator records. Invariant: a tensor with a producer can be computed again, because
/// every input of a living record has its bytes somewhere or has a producer; losing the one takes
/// the record away (`residency_table::forget_records_around`). So "can it be recomputed?" is one
/// comparison. Edges are strong (repairs P-20): a dropped tensor keeps its record while something
/// may be recomputed through it. Records and lists are recycled: a steady program stops asking the
/// heap.
class graph {
  static constexpr std::uint32_t none = edge_lists::none;

 public:
  /// Set once, before there are tensors, by whoever knows what policies ask.
  closure cached_closure = closure::none;

  /// The record of an id that is known to be good. Not checked. References hold until the next
  /// add_tensor or add_record.
  [[nodiscard]] tensor_record& operator[](tensor_id t) noexcept { return tensors_[index(t)]; }
  [[nodiscard]] const tensor_record& operator[](tensor_id t) const noexcept {
    return tensors_[index(t)];
  }
  [[nodiscard]] operator_record& operator[](operator_id o) noexcept { return records_[index(o)]; }
  [[nodiscard]] const operator_record& operator[](operator_id o) const noexcept {
    return records_[index(o)];
  }
  /// The record of an id that the program gave. Throws unknown_tensor where it names nothing, or
  /// what the program has dropped. O(1).
  [[nodiscard]] const tensor_record& checked(tensor_id t) const {
    if (index(t) >= tensors_.size() || !(*this)[t].in_use || (*this)[t].references == 0)
      throw unknown_tensor(t);
    return (*this)[t];
  }
  /// Rows in the tables, used or not: ids below these may be looked at. O(1).
  [[nodiscard]] std::size_t tensor_slots() const noexcept { return tensors_.size(); }
  [[nodiscard]] std::size_t record_slots() const noexcept { return records_.size(); }
  /// No operator was recomputed so far in this step. O(records).
  void forget_replays() noexcept {
    for (operator_record& r : records_) r.replays = 0;
  }
  /// Destroys every kernel that is stored: nothing is made again. O(records).
  void forget_kernels() noexcept {
    for (operator_record& r : records_) r.replay.reset();
  }
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
      // Whole words of rows; and before the record, which counts them.
      if (last_use_.size() == tensors_.size())
        last_use_.resize(tensors_.size() + id_set::word_bits);
      changed_.cover(tensors_.size() + 1);
      tensors_.emplace_back();
    } else {
      t = free_tensors_.back();
      free_tensors_.pop_back();
    }
    tensor_record& r = (*this)[t];
    r.size = size;
    r.footprint = footprint;
    r.references = 1;
    r.in_use = true;
    last_use_[index(t)] = 0;
    return t;
  }

  /// When an operator touched the tensor: ns, by `machine_state::clock`; a double is exact for 104
  /// days. Apart from the records, as a search for a victim reads those of all candidates.
  [[nodiscard]] double last_use(tensor_id t) const noexcept { return last_use_[index(t)]; }
  void set_last_use(tensor_id t, nanoseconds when) noexcept {
    last_use_[index(t)] = static_cast<double>(when.count());
  }
  /// All of them; whole words of 64 rows.
  [[nodiscard]] const double* last_uses() const noexcept { return last_use_.data(); }
  /// The tensor's weight may be another by now than when it was asked for. O(1).
  void reweigh(tensor_id t) noexcept {
    tensor_record& r = (*this)[t];
    if (std::exchange(r.has_score, false) && r.is_candidate) changed_.insert(t);
  }
  /// Candidates that are to be weighed anew. Who keeps weights marks them as weighed and clears
  /// this; so it holds what happened since the last search, however long that is ago.
  [[nodiscard]] id_set& changed() noexcept { return changed_; }

  /// A fresh record of an operator that makes `outputs` from `inputs`, with its edges; the caller
  /// fills in the rest. Amortised O(inputs + outputs + updates).
  operator_id add_record(std::span<const tensor_id> inputs, std::span<const tensor_id> outputs,
                         std::span<const tensor_id> updates = {}) {
    operator_id o;
    if (free_records_.empty()) {
      o = static_cast<operator_id>(records_.size());
      records_.emplace_back();
    } else {
      o = free_records_.back();
      free_records_.pop_back();
    }
    operator_record& r = (*this)[o];
    r.updating_ = !updates.empty();
    const std::size_t all = inputs.size() + outputs.size() + updates.size() + r.updating_;
    r.lists_ = lists_.take(all);
    r.edges_ = edges_.take(inputs.size());
    r.inputs_ = static_cast<std::uint32_t>(inputs.size());
    r.outputs_ = static_cast<std::uint32_t>(outputs.size());
    auto to = lists_.at(r.lists_, all).begin();
    for (const auto& list : {inputs, outputs}) to = std::ranges::copy(list, to).out;
    if (r.updating_) {
      *to++ = static_cast<tensor_id>(updates.size());
      std::ranges::copy(updates, to);
    }
    for (std::uint32_t i = 0; i < r.inputs_; ++i)
      edges_.link(o, (*this)[inputs[i]].edges, r.edges_ + i);
    for (const tensor_id t : outputs) (*this)[t].producer = o;
    r.in_use = true;
    return o;
  }

  /// What the operator reads, makes and updates, as stated. Valid until the next add_record.
  [[nodiscard]] std::span<const tensor_id> inputs(operator_id o) const noexcept {
    const operator_record& r = (*this)[o];
    return lists_.at(r.lists_, r.inputs_);
  }
  [[nodiscard]] std::span<const tensor_id> outputs(operator_id o) const noexcept {
    const operator_record& r = (*this)[o];
    return lists_.at(r.lists_ + r.inputs_, r.outputs_);
  }
  [[nodiscard]] std::span<const tensor_id> updates(operator_id o) const noexcept {
    const operator_record& r = (*this)[o];
    if (!r.updating_) return {};
    const std::uint32_t count = r.lists_ + r.inputs_ + r.outputs_;
    return lists_.at(count + 1, index(lists_[count]));
  }
  /// The records that read `t`: strong edges (repairs P-20).
  [[nodiscard]] auto readers(tensor_id t) const noexcept { return edges_.from((*this)[t].edges); }

  /// Takes a record away: its outputs can't be computed again, its inputs lose a reader. `orphans`
  /// gets each tensor that may be useless now, for `residency_table::sweep`. O(inputs + outputs).
  void disconnect(operator_id o, std::vector<tensor_id>& orphans) {
    operator_record& r = (*this)[o];
    for (const tensor_id t : outputs(o)) {
      (*this)[t].producer = operator_id::none;
      reweigh(t);
      if ((*this)[t].references == 0) orphans.push_back(t);
    }
    for (std::uint32_t i = 0; i < r.inputs_; ++i) {
      const tensor_id t = inputs(o)[i];
      edges_.unlink((*this)[t].edges, r.edges_ + i);
      if ((*this)[t].references == 0) orphans.push_back(t);
    }
    const std::size_t updating = r.updating_ ? updates(o).size() + 1 : 0;
    lists_.give(r.lists_, std::size_t{r.inputs_} + r.outputs_ + updating);
    edges_.give(r.edges_, r.inputs_);
    r = operator_record{};
    free_records_.push_back(o);
  }

  /// Records visited for costs, and to forget kept ones: what decisions took, as a count.
  [[nodiscard]] std::uint64_t walked() const noexcept { return walked_; }
  void note_walk(std::size_t records) const noexcept { walked_ += records; }

  /// Gives a tensor's record back; it must have no bytes, references, producer or readers. O(1).
  void recycle(tensor_id t) {
    tensor_record& r = (*this)[t];
    assert(r.references == 0 && r.locks == 0 && r.edges == none && !r.device && !r.host);
    r = tensor_record{};
    free_tensors_.push_back(t);
  }

  /// Ids are given out in ascending order from now on: a step that repeats gets the same again, and
  /// so decides the same where the lower id breaks a tie. O(free log free).
  void sort_free_ids() {
    const auto sort = [](auto& ids) {
      const auto later = [](auto a, auto b) { return a > b; };
      if (!std::is_sorted(ids.begin(), ids.end(), later)) std::sort(ids.begin(), ids.end(), later);
    };
    sort(free_tensors_), sort(free_records_);
  }

  /// Of an empty graph: ids are given out in this order, then those between them and above in
  /// ascending order. Each may be named once. O(highest id).
  void give_out(std::span<const tensor_id> order) {
    std::uint32_t rows = 0;
    for (const tensor_id t : order) rows = std::max(rows, index(t) + 1);
    std::vector<bool> named(rows, false);
    for (const tensor_id t : order) named[index(t)] = true;
    tensors_.resize(rows);
    last_use_.resize((rows + id_set::word_bits - 1) / id_set::word_bits * id_set::word_bits);
    changed_.cover(rows);
    free_tensors_.clear();
    for (std::uint32_t i = rows; i-- > 0;)
      if (!named[i]) free_tensors_.push_back(static_cast<tensor_id>(i));
    free_tensors_.insert(free_tensors_.end(), order.rbegin(), order.rend());
  }

  /// True if nobody is left who could ask for an output of `o`, directly or by recomputing: the
  /// record can go (repairs P-1). O(outputs).
  [[nodiscard]] bool useless(operator_id o) const noexcept {
    return std::ranges::all_of(outputs(o), [&](tensor_id t) {
      const tensor_record& r = (*this)[t];
      return r.references == 0 && r.locks == 0 && r.restore_references == 0 && r.edges == none;
    });
  }

  /// Calls `visit(u)`, once, for every referenced tensor that is computed from `t` directly or
  /// through dropped tensors: what could not be computed again without `t`. The same for the record
  /// that made `t`, if any: `t` itself and its siblings. A referenced tensor ends the walk: once
  /// its bytes are safe, so is what follows it. `walk` is scratch. O(descendants).
  template <class Visit>
  void for_each_dependent(tensor_id t, std::vector<operator_id>& walk, const Visit& visit) const {
    const std::uint32_t mark = next_mark();
    walk.clear();
    const auto go_on = [&](tensor_id from) {
      for (const operator_id o : readers(from)) walk.push_back(o);
    };
    go_on(t);
    if ((*this)[t].producer != operator_id::none) walk.push_back((*this)[t].producer);
    while (!walk.empty()) {
      const operator_id o = walk.back();
      walk.pop_back();
      if (std::exchange((*this)[o].mark, mark) == mark) continue;
      for (const tensor_id out : outputs(o))
        if ((*this)[out].references > 0)
          visit(out);
        else
          go_on(out);
    }
  }

  /// Bytes of all tensors in these lists that `counts(record)`, each once. O(tensors in the lists).
  template <class Counts>
  [[nodiscard]] bytes footprint(std::initializer_list<std::span<const tensor_id>> lists,
                                const Counts& counts) const noexcept {
    const std::uint32_t mark = next_mark();
    bytes all{};
    for (const auto list : lists)
      for (const tensor_id t : list)
        if (const tensor_record& r = (*this)[t]; std::exchange(r.mark, mark) != mark && counts(r))
          all += r.footprint;
    return all;
  }

  /// A number that no earlier walk has used; marks tell visited records without clearing them
  /// first. Walks must not be nested: the inner one overwrites marks of the outer.
  std::uint32_t next_mark() const noexcept {
    if (++mark_ == 0) {  // once in four billion walks
      for (const tensor_record& r : tensors_) r.mark = 0;
      for (const operator_record& r : records_) r.mark = 0;
      mark_ = 1;
    }
    return mark_;
  }

 private:
  std::vector<tensor_record> tensors_;
  std::vector<operator_record> records_;
  slices<tensor_id> lists_;
  edge_lists edges_;
  std::vector<tensor_id> free_tensors_;
  std::vector<operator_id> free_records_;
  std::vector<double> last_use_;
  id_set changed_;
  mutable std::uint32_t mark_ = 0;
  mutable std::uint64_t walked_ = 0;
};

/// Memory that a replay takes: the outputs that are missing, scratch for those that are not (a
/// kernel writes all of them), and workspace. O(outputs).
inline bytes replay_need(const graph& g, operator_id o, bytes workspace_footprint) {
  bytes need = workspace_footprint;
  for (const tensor_id t : g.outputs(o)) need += g[t].footprint;
  return need;
}

}  // namespace delta::detail
