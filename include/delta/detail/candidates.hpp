// delta: the candidates: what a policy may be asked about.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "delta/detail/graph.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Tensors that are resident, unlocked, and not pinned both ways. All of it is O(1), as every
/// operator locks and unlocks; so the order means nothing (ties go to the lower id).
class candidate_list {
 public:
  [[nodiscard]] std::span<const tensor_id> all() const noexcept { return list_; }
  /// Bytes of those that were set aside: free to whoever asks the Filter, as they leave first.
  [[nodiscard]] bytes spare() const noexcept { return spare_; }

  /// Adds `t` if it is one and is not there. Throws std::bad_alloc.
  void enlist(graph& g, tensor_id t) {
    tensor& r = g[t];
    if (r.place != tensor::nowhere || r.locks > 0 || r.where != residency::resident ||
        r.pinned == pin::both || r.footprint.count == 0)
      return;
    list_.push_back(t);
    r.place = static_cast<std::uint32_t>(list_.size() - 1);
  }
  /// The last one fills the gap.
  void delist(graph& g, tensor_id t) noexcept {
    tensor& r = g[t];
    if (r.place == tensor::nowhere) return;
    g[list_.back()].place = r.place;
    list_[r.place] = list_.back();
    list_.pop_back();
    r.place = tensor::nowhere;
    if (std::exchange(r.spare, false)) spare_ -= r.footprint;
  }
  /// Adds `t`, whose bytes nobody asks for at the moment.
  void set_aside(graph& g, tensor_id t) {
    enlist(g, t);
    if (g[t].place != tensor::nowhere && !std::exchange(g[t].spare, true)) spare_ += g[t].footprint;
  }

 private:
  std::vector<tensor_id> list_;  // a tensor's `place` is its index
  bytes spare_{};
};

}  // namespace delta::detail
