// delta: prefetchers: what comes back early, and what leaves early. Asked after every operator
// (detail/runtime/idle_work.hpp). Where there is no room they do nothing; a reload on demand
// follows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "delta/concepts.hpp"
#include "delta/context.hpp"

namespace delta {

/// The null model: everything comes back on demand, nothing leaves early.
struct no_prefetch {
  tensor_id next(const context&) const noexcept { return tensor_id::none; }
};

/// The paper's Algorithm 4, for programs that call manager::backward: in the backward pass, after
/// every operator, reload from the queue of offloaded tensors while memory is enough, but at most n
/// of them (P-8 and P-10: AND, and an empty queue ends it). Memory is enough when the tensor fits
/// under the high watermark and leaves what the coming operator is likely to need. n is halved when
/// a tensor leaves again unused, and never raised. In the forward pass release starts early, at the
/// watermark (Algorithm 1, line 11; P-4). All members are O(1).
struct fifo_prefetch {
  std::uint32_t n = 8;      ///< reloads after one operator, at most
  double watermark = 0.75;  ///< share of the budget

  /// The next of the queue, or none: enough for this operator, or no room under the watermark.
  tensor_id next(const context& c) noexcept {
    if (!c.backward() || asked_ >= n || c.offloaded().empty()) return tensor_id::none;
    const tensor_id t = c.offloaded().front();
    if (c.used() + c.bytes(t) + c.coming_need() > high_watermark * c.budget())
      return tensor_id::none;
    ++asked_;
    return t;
  }
  /// Bytes above the watermark, those that are leaving already not counted.
  double early_release_bytes(const context& c) const noexcept {
    return c.backward() ? 0.0 : std::max(0.0, c.used() - c.leaving() - watermark * c.budget());
  }
  /// Came back early for nothing: be more careful from now on (P-8, P-26).
  void wasted(const context&, tensor_id) noexcept { n = std::max<std::uint32_t>(1, n / 2); }
  /// The count of `n` starts anew.
  void end_of_operator(const context&) noexcept { asked_ = 0; }

 private:
  // Of the budget. Above it a reload would only push something else out.
  static constexpr double high_watermark = 0.95;
  std::uint32_t asked_ = 0;
};

static_assert(Prefetcher<no_prefetch> && Prefetcher<fifo_prefetch>);

}  // namespace delta
