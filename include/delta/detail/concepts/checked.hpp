// delta: how a wrong type gets to its sentences (explain.hpp) wherever it is given, and no other
// error hides them.
//
// `manager`, `policy` and `switching` take any types: of a constraint that is not met the compiler
// would say in its own words that it is not. Instead each names a checked_... of every part. Of a
// right type that is the type itself; of a wrong one it instantiates the explain_... that prints
// the sentences, and is a stand_in, so that the rest compiles.
#pragma once

#include <cstdint>
#include <type_traits>

#include "delta/concepts.hpp"
#include "delta/observer.hpp"
#include "delta/policy_answers.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// Models all roles with as little as each needs, and is made from anything. Never linked.
struct stand_in {
  template <class T>
  explicit(false) stand_in(const T&);
  double score(const context&, tensor_id) const;
  action decide(const context&, tensor_id) const;
  tensor_id next(const context&) const;
  std::uint32_t choose(const context&) const;  // of switching's selector
  void on(const event&) const;
};

// Is it right? If not, that has been told. What is right is not asked for its sentences, which
// would take the compiler longer than the concept.
template <class H>
consteval bool heuristic_or_told() {
  if constexpr (Heuristic<H>)
    return true;
  else
    return !explain_heuristic<H>();
}
template <class D>
consteval bool decider_or_told() {
  if constexpr (Decider<D>)
    return true;
  else
    return !explain_decider<D>();
}
template <class P>
consteval bool prefetcher_or_told() {
  if constexpr (Prefetcher<P>)
    return true;
  else
    return !explain_prefetcher<P>();
}
template <class O>
consteval bool observer_or_told() {
  if constexpr (Observer<O>)
    return true;
  else
    return !explain_observer<O>();
}

template <class H>
using checked_heuristic = std::conditional_t<heuristic_or_told<H>(), H, stand_in>;
template <class D>
using checked_decider = std::conditional_t<decider_or_told<D>(), D, stand_in>;
template <class P>
using checked_prefetcher = std::conditional_t<prefetcher_or_told<P>(), P, stand_in>;
template <class O>
using checked_observer = std::conditional_t<observer_or_told<O>(), O, stand_in>;

/// The three roles' at once: of several assertions in a class clang reports the first. True, as
/// what is wrong has been told.
template <class H, class D, class P>
consteval bool told_roles() {
  static_cast<void>(heuristic_or_told<H>());
  static_cast<void>(decider_or_told<D>());
  static_cast<void>(prefetcher_or_told<P>());
  return true;
}

}  // namespace delta::detail
