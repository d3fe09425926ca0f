// delta: a policy that is composed of three roles, and the role that a policy's object plays.
#pragma once

#include "delta/concepts.hpp"

namespace delta {

/// A composition of three roles by value: what most presets are. A wrong part is a compile error in
/// sentences. Roles that share a state are one object instead, with the members of all three.
///   const delta::policy mine{my_heuristic{}, delta::cheaper{}, delta::no_prefetch{}};
///   struct own : delta::evict_only, delta::no_prefetch { double score(...) const; };
template <class H, class D, class P>
struct policy {
  // Of several assertions clang reports the first: one function tells of all three.
  static_assert((static_cast<void>(detail::policy_or_told<policy>()), true));
  [[no_unique_address]] H heuristic;   ///< who leaves first
  [[no_unique_address]] D decider;     ///< how it leaves, and how it comes back
  [[no_unique_address]] P prefetcher;  ///< what happens while nobody waits
};
/// Clang 16 does not deduce an aggregate's arguments by itself.
template <class H, class D, class P>
policy(H, D, P) -> policy<H, D, P>;

namespace detail {

/// True if any of its roles asks what the steps before showed.
template <class P>
consteval bool policy_learns() {
  return value_of_learns<heuristic_of_type<P>>() || value_of_learns<decider_of_type<P>>() ||
         value_of_learns<prefetcher_of_type<P>>();
}
/// Calls `f` with each object that plays a role, once.
template <class P, class F>
void for_each_role(P& p, F&& f) {
  if constexpr (roles_of<P>::composed)
    f(p.prefetcher), f(p.heuristic), f(p.decider);
  else
    f(p);
}

}  // namespace detail

}  // namespace delta
