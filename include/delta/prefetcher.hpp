// delta: prefetchers: what comes back early, and what leaves early.
#pragma once

#include <algorithm>
#include <cstdint>

#include "delta/concepts.hpp"
#include "delta/context.hpp"

namespace delta {

/// The null model: everything comes back on demand.
struct no_prefetch {
  tensor_id next(const context&) const noexcept { return tensor_id::none; }
};

/// Which end of the queue of offloaded tensors comes back first.
enum class queue_order : std::uint8_t {
  first_in_first_out,  ///< Algorithm 4 as written
  last_in_first_out    ///< what a backward pass wants (repairs P-9)
};

/// The paper's Algorithm 4: in the backward pass, after every operator, reload from the queue of
/// offloaded tensors while memory is enough, but at most n of them (P-8 and P-10: AND, and
/// an empty queue ends it). Memory is enough when the tensor fits under the high watermark and
/// leaves what the coming operator is likely to need. n is halved when a tensor leaves again
/// unused. In the forward pass release starts early, at the watermark (Algorithm 1, line 11; P-4).
template <queue_order Order>
struct queued_prefetch {
  std::uint32_t n = 8;
  double watermark = 0.75;  ///< share of the budget

  tensor_id next(const context& c) noexcept {
    if (!c.backward() || asked_ >= n || c.offloaded().empty()) return tensor_id::none;
    const tensor_id t =
        Order == queue_order::first_in_first_out ? c.offloaded().front() : c.offloaded().back();
    if (c.used() + c.bytes(t) + c.coming_need() > high_watermark * c.budget())
      return tensor_id::none;
    ++asked_;
    return t;
  }
  double ahead(const context& c) const noexcept {
    return c.backward() ? 0.0 : std::max(0.0, c.used() - c.leaving() - watermark * c.budget());
  }
  void wasted(const context&, tensor_id) noexcept { n = std::max<std::uint32_t>(1, n / 2); }
  void end_of_operator(const context&) noexcept { asked_ = 0; }

 private:
  static constexpr double high_watermark = 0.95;
  std::uint32_t asked_ = 0;
};
using fifo_prefetch = queued_prefetch<queue_order::first_in_first_out>;
using lifo_prefetch = queued_prefetch<queue_order::last_in_first_out>;

static_assert(Prefetcher<no_prefetch> && Prefetcher<fifo_prefetch> && Prefetcher<lifo_prefetch>);

}  // namespace delta
