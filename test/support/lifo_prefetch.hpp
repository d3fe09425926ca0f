// delta tests: the paper's prefetcher in the order that a backward pass needs things in (repairs
// P-9).
#pragma once

#include <cstdint>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/prefetcher.hpp"

namespace delta {

/// fifo_prefetch, but that what left last comes back first.
struct lifo_prefetch : fifo_prefetch {
  tensor_id next(const context& c) noexcept {
    if (!c.backward() || asked_ >= n || c.offloaded().empty()) return tensor_id::none;
    const tensor_id t = c.offloaded().back();
    if (c.used() + c.bytes(t) + c.coming_need() > 0.95 * c.budget()) return tensor_id::none;
    ++asked_;
    return t;
  }
  void end_of_operator(const context&) noexcept { asked_ = 0; }

 private:
  std::uint32_t asked_ = 0;
};

static_assert(Prefetcher<lifo_prefetch>);

}  // namespace delta
