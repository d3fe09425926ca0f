// delta: three roles of a policy as one value.
#pragma once

#include "delta/concepts.hpp"
#include "delta/detail/concepts/checked.hpp"

namespace delta {

/// A composition of three roles by value: what a preset is. Its parts take no room where they have
/// no state. A part that is wrong is told so in sentences.
///
///   const delta::policy mine{my_heuristic{}, delta::cheaper{}, delta::no_prefetch{}};
template <class H, class D, class P>
struct policy {
  static_assert(detail::told_roles<H, D, P>());
  [[no_unique_address]] H heuristic;   ///< who leaves first
  [[no_unique_address]] D decider;     ///< how it leaves, and how it comes back
  [[no_unique_address]] P prefetcher;  ///< what happens while nobody waits
};
/// Clang 16 does not deduce an aggregate's arguments by itself.
template <class H, class D, class P>
policy(H, D, P) -> policy<H, D, P>;

}  // namespace delta
