// delta: what explain_heuristic and its siblings say of a type that is not a model yet: a sentence
// per member that is missing or wrong, and the errors in the bodies of those that are right.
//
// Functions, not classes, hold the sentences: of a class clang reports the first failed one only.
// test/compile_fail checks the sentences, on every compiler at hand.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "delta/concepts.hpp"
#include "delta/observer.hpp"
#include "delta/policy_answers.hpp"
#include "delta/units.hpp"

namespace delta {
namespace detail {

// Never run: that they are named compiles them, and with them what they call. A concept looks at
// signatures only, so a body with a mistake in it would come out deep in the manager. Here it comes
// out beside the type.
template <class P>
void call_ends(P& p, const context& c) {
  if constexpr (detail::has_end_of_operator<P>) p.end_of_operator(c);
  if constexpr (detail::has_end_of_step<P>) p.end_of_step(c);
}
template <class H>
void call_heuristic(H& h, const context& c, tensor_id t) {
  // As the Filter asks: const.
  const H& asked = h;
  if constexpr (detail::has_score<H>) static_cast<void>(static_cast<double>(asked.score(c, t)));
  if constexpr (detail::has_weight<H>) static_cast<void>(static_cast<double>(asked.weight(c, t)));
  call_ends(h, c);
}
template <class D>
void call_decider(D& d, const context& c, tensor_id t) {
  static_cast<void>(d.decide(c, t));
  if constexpr (detail::has_restore<D>) static_cast<void>(d.restore(c, t));
  if constexpr (detail::has_on_thrash<D>) static_cast<void>(d.on_thrash(c));
  call_ends(d, c);
}
template <class P>
void call_prefetcher(P& p, const context& c, tensor_id t) {
  static_cast<void>(p.next(c));
  if constexpr (detail::has_early_release_bytes<P>)
    static_cast<void>(static_cast<double>(p.early_release_bytes(c)));
  if constexpr (detail::has_copy_ahead<P>) static_cast<void>(p.copy_ahead(c));
  if constexpr (detail::has_wasted<P>) p.wasted(c, t);
  call_ends(p, c);
}

}  // namespace detail

/// True, or errors that say in a sentence per member what is missing or wrong. For static_assert
/// beside a type of one's own; the manager's deduction guides ask them too. The other three alike.
/// Costs compile time only.
///
///   static_assert(delta::explain_heuristic<my_heuristic>());
template <class H>
consteval bool explain_heuristic() {
  static_cast<void>(detail::heuristic_rows::tell<H>());
  static_cast<void>(detail::policy_rows::tell<H>());
  // Bodies only once the signatures are right: calls of wrong ones would add errors of their own.
  if constexpr (Heuristic<H>) {
    [[maybe_unused]] constexpr auto* bodies = &detail::call_heuristic<H>;
  }
  return true;
}
template <class D>
consteval bool explain_decider() {
  static_cast<void>(detail::decider_rows::tell<D>());
  static_cast<void>(detail::policy_rows::tell<D>());
  if constexpr (Decider<D>) {
    [[maybe_unused]] constexpr auto* bodies = &detail::call_decider<D>;
  }
  return true;
}
template <class P>
consteval bool explain_prefetcher() {
  static_cast<void>(detail::prefetcher_rows::tell<P>());
  static_cast<void>(detail::policy_rows::tell<P>());
  if constexpr (Prefetcher<P>) {
    [[maybe_unused]] constexpr auto* bodies = &detail::call_prefetcher<P>;
  }
  return true;
}

namespace detail {
/// The same of all three of a policy's roles, of which one object may play several.
template <class P>
consteval bool explain_policy() {
  static_cast<void>(explain_heuristic<heuristic_of_type<P>>());
  static_cast<void>(explain_decider<decider_of_type<P>>());
  static_cast<void>(explain_prefetcher<prefetcher_of_type<P>>());
  return true;
}

// `manager` and `policy` take any types: of a constraint that is not met the compiler
// would say in its own words that it is not. Instead each names a checked_... of every part. Of a
// right type that is the type itself; of a wrong one it instantiates the explain_... that prints
// the sentences, and is a stand_in, so that the rest compiles and no other error hides them.

/// Models all roles with as little as each needs, and is made from anything. Never linked.
struct stand_in {
  template <class T>
  explicit(false) stand_in(const T&);
  double score(const context&, tensor_id) const;
  action decide(const context&, tensor_id) const;
  tensor_id next(const context&) const;
  void on(const event&) const;
};

DELTA_DETAIL_CHECKED(policy, Policy, stand_in);
DELTA_DETAIL_CHECKED(observer, Observer, stand_in);

}  // namespace detail
}  // namespace delta
