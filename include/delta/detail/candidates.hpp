// delta: the candidates: what a policy may be asked about; and what leaves without asking.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/graph.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Two lists of resident, unlocked tensors. Candidates are not pinned both ways, and a policy says
/// who leaves. Spares were set aside: dropped by the program, computed again on the way to
/// something else, and kept while there is room. A tensor's `place` is its index in the one that it
/// is in, `spare` says in which. O(1), as every operator locks and unlocks; so the order means
/// nothing (ties go to the lower id).
class candidate_list {
 public:
  [[nodiscard]] std::span<const tensor_id> all() const noexcept { return list_; }
  [[nodiscard]] std::span<const tensor_id> spares() const noexcept { return spares_; }
  /// Bytes of the spares.
  [[nodiscard]] bytes spare() const noexcept { return spare_; }

  /// Adds `t` to the candidates if it is one and is in neither list. Throws std::bad_alloc.
  void enlist(graph& g, tensor_id t) {
    const tensor& r = g[t];
    if (r.pinned == pin::both || !may_be_listed(r)) return;
    add(g, t, list_);
  }
  /// Makes `t` a spare; false where it can't be one. Its pins don't matter: nobody wants it back.
  bool set_aside(graph& g, tensor_id t) {
    if (g[t].place != tensor::nowhere && g[t].spare) return true;
    delist(g, t);
    if (!may_be_listed(g[t])) return false;
    add(g, t, spares_);
    g[t].spare = true;
    spare_ += g[t].footprint;
    return true;
  }
  /// Takes `t` out of the list that it is in, if any. The last one fills the gap.
  void delist(graph& g, tensor_id t) noexcept {
    tensor& r = g[t];
    if (r.place == tensor::nowhere) return;
    auto& from = r.spare ? spares_ : list_;
    g[from.back()].place = r.place;
    from[r.place] = from.back();
    from.pop_back();
    r.place = tensor::nowhere;
    if (std::exchange(r.spare, false)) spare_ -= r.footprint;
  }

 private:
  static bool may_be_listed(const tensor& r) noexcept {
    return r.place == tensor::nowhere && r.locks == 0 && r.where == residency::resident &&
           r.footprint.count > 0;
  }
  static void add(graph& g, tensor_id t, std::vector<tensor_id>& to) {
    to.push_back(t);
    g[t].place = static_cast<std::uint32_t>(to.size() - 1);
  }

  std::vector<tensor_id> list_, spares_;
  bytes spare_{};
};

}  // namespace delta::detail
