// delta: the candidates: what a policy may be asked about; what leaves without asking; and what the
// program has dropped, but records still read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "delta/detail/tensors/graph.hpp"
#include "delta/detail/tensors/id_set.hpp"
#include "delta/detail/tensors/records.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Sets of ids: O(1), and no heap but in `cover`, as what unlocks a tensor must not fail.
/// Of resident tensors:
///   candidates  not pinned both ways: a policy says who leaves. Locked ones stay in the set and
///               are passed over: an operator locks its inputs, few searches come between
///   parked      of these, those without any way out: unasked until something happens to them
///   cached      dropped by the program, computed again on the way, and kept while there is room
/// Wherever their bytes are:
///   retained    dropped by the program, made by no record, and read by some: kept so that what was
///               computed from them can be computed again
class candidate_list {
 public:
  [[nodiscard]] const id_set& all() const noexcept { return list_; }
  [[nodiscard]] const id_set& parked() const noexcept { return parked_; }
  [[nodiscard]] const id_set& cached() const noexcept { return cached_; }
  [[nodiscard]] const id_set& retained() const noexcept { return retained_; }
  /// How many were retained so far, those that went again included.
  [[nodiscard]] std::uint64_t ever_retained() const noexcept { return ever_retained_; }
  /// Bytes of what is cached.
  [[nodiscard]] bytes cached_bytes() const noexcept { return cached_bytes_; }
  /// True: from now on a tensor that comes back is asked about again, as its answer may be another.
  void ask_again_of_returned(bool yes) noexcept { asks_again_ = yes; }

  /// Tensors below `rows` can be listed from now on. Throws std::bad_alloc.
  void cover(std::size_t rows) {
    if (rows <= list_.words() * id_set::word_bits) return;
    for (id_set* s : {&list_, &parked_, &cached_, &retained_}) s->cover(rows);
  }
  /// Adds `t` to the candidates if it is one and is in no set.
  void enlist(graph& g, tensor_id t) noexcept {
    tensor_record& r = g[t];
    if (r.pinned == pin::both || !may_be_listed(r)) return;
    r.is_candidate = true;
    list_.insert(t);
    if (!r.has_score || asks_again_) g.changed().insert(t);
  }
  /// Caches `t`; false where it can't be. Its pins don't matter: nobody wants it back.
  bool cache(graph& g, tensor_id t) noexcept {
    tensor_record& r = g[t];
    if (r.cached) return true;
    delist(g, t);
    if (r.locks > 0 || !may_be_listed(r)) return false;
    r.is_candidate = r.cached = true;
    cached_.insert(t);
    cached_bytes_ += r.footprint;
    return true;
  }
  /// Takes `t` out of the set that it is in, if any.
  void delist(graph& g, tensor_id t) noexcept {
    tensor_record& r = g[t];
    if (!std::exchange(r.is_candidate, false)) return;
    if (std::exchange(r.cached, false)) {
      cached_.erase(t);
      cached_bytes_ -= r.footprint;
    } else {
      list_.erase(t);
      parked_.erase(t);
    }
  }
  /// Of a candidate: nobody is to be asked about it until it is enlisted anew.
  void park(tensor_id t) noexcept {
    list_.erase(t);
    parked_.insert(t);
  }
  void retain(tensor_id t) noexcept {
    if (retained_.contains(t)) return;
    retained_.insert(t);
    ++ever_retained_;
  }
  /// `t` is retained no longer, if it was.
  void let_go(tensor_id t) noexcept { retained_.erase(t); }
  /// Takes a candidate out of sight for the length of one search; `show` ends that.
  void hide(tensor_id t) noexcept { list_.erase(t); }
  void show(tensor_id t) noexcept { list_.insert(t); }

 private:
  static bool may_be_listed(const tensor_record& r) noexcept {
    return !r.is_candidate && r.where == residency::resident && r.footprint.count > 0;
  }

  id_set list_, parked_, cached_, retained_;
  std::uint64_t ever_retained_ = 0;
  bytes cached_bytes_{};
  bool asks_again_ = false;
};

}  // namespace delta::detail
