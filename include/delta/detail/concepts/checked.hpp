// delta: how a wrong type gets to its sentences (explain.hpp) wherever it is given, and no other
// error hides them.
//
// `manager`, `policy` and `switching` take any types: of a constraint that is not met the compiler
// would say in its own words that it is not. Instead each names a checked_... of every part, which
// instantiates the explain_... that prints the sentences. Once they are printed a stand_in takes
// the part's place, so that the rest compiles. Of a right type a checked_... is the type itself.
#pragma once

#include <cstdint>
#include <type_traits>

#include "delta/answers.hpp"
#include "delta/concepts.hpp"
#include "delta/observer.hpp"
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

template <class H>
using checked_heuristic = std::conditional_t<explain_heuristic<H>() && Heuristic<H>, H, stand_in>;
template <class D>
using checked_decider = std::conditional_t<explain_decider<D>() && Decider<D>, D, stand_in>;
template <class P>
using checked_prefetcher =
    std::conditional_t<explain_prefetcher<P>() && Prefetcher<P>, P, stand_in>;
template <class O>
using checked_observer = std::conditional_t<explain_observer<O>() && Observer<O>, O, stand_in>;

/// The three roles' sentences at once: of several assertions in a class clang reports the first.
template <class H, class D, class P>
consteval bool explain_roles() {
  return explain_heuristic<H>() && explain_decider<D>() && explain_prefetcher<P>();
}

}  // namespace delta::detail
