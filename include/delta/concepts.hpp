// delta: the concepts of a policy and of its roles (Heuristic, Decider, Prefetcher), each role's as
// the rows of its members. storage/storage.hpp, included here, has the fourth concept, Storage.
//
// Optional members have defaults; if you declare one, its signature must match exactly.
// `explain_heuristic` and its like say in sentences what is missing or wrong in a type.
#pragma once

#include <concepts>

#include "delta/context.hpp"
#include "delta/detail/concepts/members.hpp"
#include "delta/policy_answers.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta {

namespace detail {

/// All policies, detected: `end_of_operator(context)`, called after every operator of the program,
/// when the prefetcher has been asked; and `end_of_step(context)`, when a step has ended.
DELTA_DETAIL_DETECTED_CALL(end_of_operator, (const delta::context&), anything, "", void);
DELTA_DETAIL_DETECTED_CALL(end_of_step, (const delta::context&), anything, "", void);
/// `learns`: steps are recorded, for `context::past` and `next_use` (default: no).
DELTA_DETAIL_CONSTANT(learns, bool, "bool", false)

using policy_rows = rows<end_of_operator_row, end_of_step_row, learns_row>;

}  // namespace detail

// ---------------------------------------------------------------------------------------------
// Heuristic: which tensor leaves first (the paper's F_h, Algorithm 2). One of two forms.
//
// Semantic rules:
//  * Lower scores leave first; equal scores are broken by the lower id.
//  * Neither form throws or allocates; both depend on nothing but the context.
//  * `weight(context, t)` stands for the score 1 / (weight x staleness), and does not depend on the
//    time. A weight is not negative; weight 0 leaves last.
//  * A tensor that is dropped and can be made again leaves before all others, unasked.
//  * While the quantities that it depends on stay as they are for a tensor, its answer stays.
//    verify_heuristic (testing/verify_heuristic.hpp) tries to catch a false word.
//
// Detected, with a default:
//  * `depends_on`: static constexpr quantity (default: everything): nothing else is read. Kept
//    answers find the next victim without asking: all weights, and scores that don't depend on
//    `staleness`, unless everything may be read.
// ---------------------------------------------------------------------------------------------

namespace detail {

/// `score(context, tensor)` -> double: anything at all.
DELTA_DETAIL_DETECTED_CALL(score, (const delta::context&, delta::tensor_id) const, convertible, "",
                           double);
/// `weight(context, tensor)` -> double: the score is 1 / (weight x staleness).
DELTA_DETAIL_DETECTED_CALL(weight, (const delta::context&, delta::tensor_id) const, convertible, "",
                           double);
DELTA_DETAIL_NEEDED(score_or_weight,
                    "a Heuristic needs "
                    "'double score(const delta::context&, delta::tensor_id) const' (lower leaves "
                    "first) "
                    "or 'double weight(const delta::context&, delta::tensor_id) const' (it stands "
                    "for the score 1 / (weight x staleness))",
                    has_score<T> || has_weight<T>);
/// Only one of the two: else nobody knows which of them counts.
DELTA_DETAIL_NEEDED(one_form,
                    "a Heuristic has 'score' or 'weight', not both: only one can say who leaves "
                    "first",
                    !(has_score<T> && has_weight<T>));
DELTA_DETAIL_CONSTANT(depends_on, quantity, "delta::quantity", quantity::everything)
/// `later_if_dearer`: a higher recompute cost never makes a tensor leave earlier; delta may then
/// use lower bounds of that cost for all but the victim (default: no).
DELTA_DETAIL_CONSTANT(later_if_dearer, bool, "bool", false)
/// `victim(context, may_leave)` -> tensor_id: which of `context.candidates()` leaves next, where no
/// search is needed. None, or one for which `may_leave(t)` is false: the lowest score (default).
DELTA_DETAIL_DETECTED(
    victim, "'delta::tensor_id victim(const delta::context&, const auto& may_leave) const'",
    requires(const T& h, const context& c, bool (&may_leave)(tensor_id)) {
      { h.victim(c, may_leave) } -> std::same_as<tensor_id>;
    });

using heuristic_rows = rows<score_or_weight_row, one_form_row, score_row, weight_row,
                            depends_on_row, later_if_dearer_row, victim_row>;

}  // namespace detail

/// Who leaves first. Smallest models: `lru`, `greedy` (heuristic.hpp).
template <class H>
concept Heuristic = detail::heuristic_rows::right<H> && detail::policy_rows::right<H>;

/// For `static_assert(delta::explain_heuristic<my_heuristic>());`: true, or an error for each
/// member that is missing or wrong, and the errors in the bodies of the others, which a concept
/// does not compile. The other explain_... alike. Costs compile time only.
template <class H>
consteval bool explain_heuristic() {
  return detail::heuristic_rows::tell<H>() && detail::policy_rows::tell<H>();
}

// ---------------------------------------------------------------------------------------------
// Decider: how the chosen tensor leaves (the paper's F_decision, Algorithm 3), and how one that is
// needed comes back.
//
// Semantic rules:
//  * `decide` is asked about a resident tensor that can leave in at least one way. An action that
//    is impossible for it is taken for the other one where that is possible, else for keep.
//  * A clean tensor needs no copy: it simply goes, whether evict or offload was chosen.
//
// Detected, with a default:
//  * `restore(context, t)` -> restoration: of a tensor on the host (default: the cheaper);
//  * `evicts`, `offloads`: static constexpr bool (default true): false promises that it never
//    answers so, and spares the manager the records;
//  * `may_keep()` -> bool: may it answer keep? (Default: yes.) If not, errors can name a budget;
//  * `keeps_dropped(context, t)` -> bool: the program drops t, or has, and records read it: does it
//    stay for a recomputation, until room can't be made otherwise? (Default: no.)
//  * `on_thrash(context)` -> bool: a restore has replayed twice what would make everything once, or
//    nothing more can leave. True: the policy decides otherwise from now on, what failed is tried
//    again, and it is not asked again in this step. False (default): it may be asked again. A
//    restore goes on, and what leaves goes to the host for the rest of the step; where that is not
//    open, it fails at ten times what would make everything once. Where nothing more can leave, the
//    operator fails.
// ---------------------------------------------------------------------------------------------

namespace detail {

DELTA_DETAIL_NEEDED_CALL(decide, "a Decider needs ", (const delta::context&, delta::tensor_id),
                         same, " (evict, offload or keep)", delta::action);
// The defaults of the functions are in detail/runtime/roles.hpp.
DELTA_DETAIL_DETECTED_CALL(restore, (const delta::context&, delta::tensor_id), same, "",
                           delta::restoration);
DELTA_DETAIL_DETECTED_CALL(may_keep, () const, same, "", bool);
DELTA_DETAIL_DETECTED_CALL(keeps_dropped, (const delta::context&, delta::tensor_id) const, same, "",
                           bool);
DELTA_DETAIL_DETECTED_CALL(on_thrash, (const delta::context&), same, "", bool);
DELTA_DETAIL_CONSTANT(evicts, bool, "bool", true)
DELTA_DETAIL_CONSTANT(offloads, bool, "bool", true)

using decider_rows = rows<decide_row, restore_row, may_keep_row, keeps_dropped_row, on_thrash_row,
                          evicts_row, offloads_row>;

}  // namespace detail

/// How it leaves, and comes back. Smallest model: `evict_only` (decider.hpp).
template <class D>
concept Decider = detail::decider_rows::right<D> && detail::policy_rows::right<D>;
template <class D>
consteval bool explain_decider() {
  return detail::decider_rows::tell<D>() && detail::policy_rows::tell<D>();
}

namespace detail {
/// True if `decider` may answer keep: its word, or the default.
template <class D>
[[nodiscard]] constexpr bool may_answer_keep(const D& decider) {
  return answer_or<may_keep_row>(true, decider);
}
}  // namespace detail

// ---------------------------------------------------------------------------------------------
// Prefetcher: what the copy lanes do while nobody waits (Algorithm 4 and the early start).
//
// Semantic rules:
//  * Asked after every operator, until it answers none or something that does not fit.
//  * `next` names a tensor out of `context.offloaded()`.
//
// Detected, default nothing:
//  * `early_release_bytes(context)` -> double: bytes to release early (the Filter says which);
//    soft: it never waits, and stops without candidates;
//  * `releases_with_room`: static constexpr bool (default: true if it releases early): false
//    promises to release nothing where all fits, so that errors may name smaller budgets;
//  * `copy_ahead(context)` -> tensor_id: a resident tensor, of `context.candidates()` and not held,
//    to copy out without freeing it, or none; asked until it answers none;
//  * `wasted(context, t)`: a tensor brought back early left again unused.
// ---------------------------------------------------------------------------------------------

namespace detail {

DELTA_DETAIL_NEEDED_CALL(next, "a Prefetcher needs ", (const delta::context&), same,
                         " (what to reload now, or delta::tensor_id::none)", delta::tensor_id);
DELTA_DETAIL_DETECTED_CALL(early_release_bytes, (const delta::context&), convertible, " (bytes)",
                           double);
DELTA_DETAIL_DETECTED_CALL(copy_ahead, (const delta::context&), same,
                           " (what to copy out now, or delta::tensor_id::none)", delta::tensor_id);
DELTA_DETAIL_DETECTED_CALL(wasted, (const delta::context&, delta::tensor_id), anything, "", void);
DELTA_DETAIL_CONSTANT(releases_with_room, bool, "bool", has_early_release_bytes<T>)

using prefetcher_rows =
    rows<next_row, early_release_bytes_row, releases_with_room_row, copy_ahead_row, wasted_row>;

}  // namespace detail

/// What comes back early. Smallest model: `no_prefetch` (prefetcher.hpp).
template <class P>
concept Prefetcher = detail::prefetcher_rows::right<P> && detail::policy_rows::right<P>;
template <class P>
consteval bool explain_prefetcher() {
  return detail::prefetcher_rows::tell<P>() && detail::policy_rows::tell<P>();
}

// ---------------------------------------------------------------------------------------------
// Policy: the three roles together: `policy{heuristic, decider, prefetcher}` (policy.hpp), or one
// object with the members of all three, whose ends of operators and steps are told once.
// ---------------------------------------------------------------------------------------------

template <class H, class D, class P>
struct policy;

namespace detail {
/// Which objects play a policy's roles, and where they are: an object of one's own plays all three.
template <class P>
struct roles_of {
  using heuristic = P;
  using decider = P;
  using prefetcher = P;
  static constexpr bool composed = false;
  static constexpr auto& heuristic_in(auto& p) noexcept { return p; }
  static constexpr auto& decider_in(auto& p) noexcept { return p; }
  static constexpr auto& prefetcher_in(auto& p) noexcept { return p; }
};
template <class H, class D, class P>
struct roles_of<policy<H, D, P>> {
  using heuristic = H;
  using decider = D;
  using prefetcher = P;
  static constexpr bool composed = true;
  static constexpr auto& heuristic_in(auto& p) noexcept { return p.heuristic; }
  static constexpr auto& decider_in(auto& p) noexcept { return p.decider; }
  static constexpr auto& prefetcher_in(auto& p) noexcept { return p.prefetcher; }
};
template <class P>
using heuristic_of_type = typename roles_of<P>::heuristic;
template <class P>
using decider_of_type = typename roles_of<P>::decider;
template <class P>
using prefetcher_of_type = typename roles_of<P>::prefetcher;
}  // namespace detail

/// What a manager asks. Smallest models: the presets (presets.hpp).
template <class P>
concept Policy = Heuristic<detail::heuristic_of_type<P>> && Decider<detail::decider_of_type<P>> &&
                 Prefetcher<detail::prefetcher_of_type<P>>;

namespace detail {
/// As explain_heuristic, of all three of a policy's roles.
template <class P>
consteval bool explain_policy() {
  static_cast<void>(explain_heuristic<heuristic_of_type<P>>());
  static_cast<void>(explain_decider<decider_of_type<P>>());
  static_cast<void>(explain_prefetcher<prefetcher_of_type<P>>());
  return true;
}

// `manager` and `policy` take any types and name a checked_... of every part: of a right type the
// type itself; of a wrong one a stand_in_..., so that the rest compiles and no other error hides
// the sentences that explain_... prints.

/// Models all roles with as little as each needs, and is made from anything. Never linked.
struct stand_in_policy {
  template <class T>
  explicit(false) stand_in_policy(const T&);
  double score(const context&, tensor_id) const;
  action decide(const context&, tensor_id) const;
  tensor_id next(const context&) const;
};

DELTA_DETAIL_CHECKED(policy, Policy, stand_in_policy);
}  // namespace detail

}  // namespace delta
