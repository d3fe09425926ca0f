// delta: the concepts of a policy's three roles (Heuristic, Decider, Prefetcher), as conjunctions
// of named atoms. The fourth concept, Storage, is in storage/storage.hpp, which this header
// includes.
//
// A member that is detected and has a default may be left out, but not be there with another
// signature: that is what the atoms called right_..._or_none say. Of a type of one's own,
//   static_assert(delta::explain_heuristic<my_heuristic>());
// lists everything that is missing or wrong, in sentences, and compiles the bodies of its members
// too, which a concept does not; so do explain_decider, explain_prefetcher and explain_storage.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "delta/answers.hpp"
#include "delta/context.hpp"
#include "delta/detail/concepts/member_names.hpp"
#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta {

/// All policies, detected: `end_of_operator(context)`, called after every operator of the program,
/// when the prefetcher has been asked; and `end_of_step(context)`, when a step has ended.
template <class P>
concept follows_operators = requires(P& p, const context& c) { p.end_of_operator(c); };
template <class P>
concept follows_steps = requires(P& p, const context& c) { p.end_of_step(c); };
template <class P>
concept right_end_of_operator_or_none = follows_operators<P> || !detail::names_end_of_operator<P>;
template <class P>
concept right_end_of_step_or_none = follows_steps<P> || !detail::names_end_of_step<P>;

/// All policies, detected: `learns`, a static constexpr bool: that steps are recorded, so that
/// `context::past` and `next_use` know something (default: false).
template <class P>
concept says_whether_it_learns = std::same_as<decltype(&P::learns), const bool*> &&
                                 requires { typename std::bool_constant<P::learns>; };
template <class P>
concept right_learns_or_none = says_whether_it_learns<P> || !detail::names_learns<P>;
/// Its word, or the default: no.
template <class P>
consteval bool learns() {
  if constexpr (says_whether_it_learns<P>) return P::learns;
  return false;
}

// ---------------------------------------------------------------------------------------------
// Heuristic: which tensor leaves first (the paper's F_h, Algorithm 2). One of two forms.
//
// Semantic rules:
//  * Lower scores leave first; equal scores are broken by the lower id.
//  * Neither form throws; both depend on nothing but the context, and allocate nothing of their
//  own.
//  * `weight(context, t)` stands for the score 1 / (weight x staleness). It does not depend on the
//    time, so a tensor's rank among equals changes only when it is touched or its weight
//    changes. A weight is not negative; weight 0 leaves last.
//  * A tensor that the program has dropped, and that can be made again, leaves before all others,
//    unasked.
//  * While the quantities that it depends on stay as they are for a tensor, its answer stays.
//    verify_heuristic (testing/verify_heuristic.hpp) tries to catch a false word.
//
// Detected, with a default:
//  * `depends_on`: static constexpr quantity (default: everything). `bytes | recompute_cost` says
//    that nothing else is read, which spares asking again when something else changes. Where the
//    answer is kept, the next victim is found without asking: all weights are, and scores that
//    don't depend on `staleness`; not where everything may be read.
// ---------------------------------------------------------------------------------------------

/// `score(context, tensor)` -> double: anything at all.
template <class H>
concept scores_tensor = requires(const H& h, const context& c, tensor_id t) {
  { h.score(c, t) } -> std::convertible_to<double>;
};
/// `weight(context, tensor)` -> double: the score is 1 / (weight x staleness).
template <class H>
concept weighs_tensor = requires(const H& h, const context& c, tensor_id t) {
  { h.weight(c, t) } -> std::convertible_to<double>;
};
/// Only one of the two, or which of them counts?
template <class H>
concept answers_in_one_form = !(scores_tensor<H> && weighs_tensor<H>);

/// Detected, each a static constexpr bool (default: false). `later_if_dearer`: the more the closure
/// costs, the later a tensor leaves, or as late; so a lower bound of the cost will do for all but
/// the victim. `drifts`: a score that reads the time may be some operators old, but for the
/// victim's.
template <class H>
concept says_whether_later_if_dearer =
    std::same_as<decltype(&H::later_if_dearer), const bool*> &&
    requires { typename std::bool_constant<H::later_if_dearer>; };
template <class H>
concept says_whether_it_drifts = std::same_as<decltype(&H::drifts), const bool*> &&
                                 requires { typename std::bool_constant<H::drifts>; };
/// Detected: `select(context)` -> std::uint32_t, `context::variant` of the step that begins, asked
/// when one has ended; and `keeps(variant)`, the closure whose costs are then kept.
template <class H>
concept selects_variant = requires(H& h, const H& asked, const context& c, std::uint32_t v) {
  { h.select(c) } -> std::same_as<std::uint32_t>;
  { asked.keeps(v) } -> std::same_as<closure>;
};
/// Detected beside those two: `instead(context, thrashes)` -> std::uint32_t: who decides the rest
/// of the step. Asked after every operator, so it has to be O(1); and, with `thrashes`, where
/// recomputation does not come to an end: then the same again fails the operator. Default: who
/// does.
template <class H>
concept names_another = requires(H& h, const context& c) {
  { h.instead(c, true) } -> std::same_as<std::uint32_t>;
};
template <class H>
concept replaces_variant = selects_variant<H> && names_another<H>;

/// `depends_on`, as a constant expression.
template <class H>
concept declares_dependence = std::same_as<decltype(&H::depends_on), const quantity*> && requires {
  typename std::integral_constant<quantity, H::depends_on>;
};
/// A member of that name that nobody would ever call is a mistake: detected ones are right or
/// absent.
template <class H>
concept right_score_or_none = scores_tensor<H> || !detail::names_score<H>;
template <class H>
concept right_weight_or_none = weighs_tensor<H> || !detail::names_weight<H>;
template <class H>
concept right_depends_on_or_none = declares_dependence<H> || !detail::names_depends_on<H>;
template <class H>
concept right_later_if_dearer_or_none =
    says_whether_later_if_dearer<H> || !detail::names_later_if_dearer<H>;
template <class H>
concept right_drifts_or_none = says_whether_it_drifts<H> || !detail::names_drifts<H>;
template <class H>
concept right_select_and_keeps_or_none =
    selects_variant<H> || (!detail::names_select<H> && !detail::names_keeps<H>);
/// Alone it is a mistake, too; beside a wrong `select` or `keeps` those are named.
template <class H>
concept right_instead_or_none =
    !detail::names_instead<H> ||
    (names_another<H> && (detail::names_select<H> || detail::names_keeps<H>));
/// It has an answer.
template <class H>
concept ranks_tensors = scores_tensor<H> || weighs_tensor<H>;
/// Who leaves first. Smallest models: `lru`, `greedy` (heuristic.hpp).
template <class H>
concept Heuristic =
    ranks_tensors<H> && answers_in_one_form<H> && right_score_or_none<H> &&
    right_weight_or_none<H> && right_depends_on_or_none<H> && right_later_if_dearer_or_none<H> &&
    right_drifts_or_none<H> && right_select_and_keeps_or_none<H> && right_instead_or_none<H> &&
    right_learns_or_none<H> && right_end_of_operator_or_none<H> && right_end_of_step_or_none<H>;

/// What `H` says that it reads, or the default.
template <class H>
consteval quantity depends_on() {
  if constexpr (declares_dependence<H>) return H::depends_on;
  return quantity::everything;
}
/// Its word for both, or the default: no.
template <class H>
consteval bool later_if_dearer() {
  if constexpr (says_whether_later_if_dearer<H>) return H::later_if_dearer;
  return false;
}
template <class H>
consteval bool drifts() {
  if constexpr (says_whether_it_drifts<H>) return H::drifts;
  return false;
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
//  * `rather_wait(context, t, nanoseconds)` -> bool: copies under way will free enough after that
//    time; wait for them rather than release t (default: when waiting is cheaper);
//  * `release_cost(context, t)` -> double: ns to get t back, where windows of neighbours and copies
//    under way are weighed (default: the cheaper way's);
//  * `evicts`, `offloads`: static constexpr bool (default true): false promises that it never
//    answers so, and spares the manager the records;
//  * `keeps()` -> bool: may it ever answer keep? (Default: yes.) Where it can't, errors can name
//    the largest operator's need as a budget that will do.
// ---------------------------------------------------------------------------------------------

/// `decide(context, tensor)` -> action.
template <class D>
concept decides_action = requires(D& d, const context& c, tensor_id t) {
  { d.decide(c, t) } -> std::same_as<action>;
};
/// The three that are detected; their defaults are in detail/engine/roles.hpp.
template <class D>
concept chooses_restoration = requires(D& d, const context& c, tensor_id t) {
  { d.restore(c, t) } -> std::same_as<restoration>;
};
template <class D>
concept weighs_waiting = requires(D& d, const context& c, tensor_id t, double wait) {
  { d.rather_wait(c, t, wait) } -> std::same_as<bool>;
};
template <class D>
concept prices_release = requires(const D& d, const context& c, tensor_id t) {
  { d.release_cost(c, t) } -> std::convertible_to<double>;
};
/// `keeps()` -> bool.
template <class D>
concept says_whether_it_keeps = requires(const D& d) {
  { d.keeps() } -> std::same_as<bool>;
};
/// Types are compared to the letter: `static bool` or `enum { evicts }` would be something else.
template <class D>
concept says_whether_it_evicts = std::same_as<decltype(&D::evicts), const bool*> &&
                                 requires { typename std::bool_constant<D::evicts>; };
template <class D>
concept says_whether_it_offloads = std::same_as<decltype(&D::offloads), const bool*> &&
                                   requires { typename std::bool_constant<D::offloads>; };
template <class D>
concept right_restore_or_none = chooses_restoration<D> || !detail::names_restore<D>;
template <class D>
concept right_rather_wait_or_none = weighs_waiting<D> || !detail::names_rather_wait<D>;
template <class D>
concept right_release_cost_or_none = prices_release<D> || !detail::names_release_cost<D>;
template <class D>
concept right_keeps_or_none = says_whether_it_keeps<D> || !detail::names_keeps<D>;
template <class D>
concept right_evicts_or_none = says_whether_it_evicts<D> || !detail::names_evicts<D>;
template <class D>
concept right_offloads_or_none = says_whether_it_offloads<D> || !detail::names_offloads<D>;
/// How it leaves, and comes back. Smallest model: `evict_only` (decider.hpp).
template <class D>
concept Decider = decides_action<D> && right_restore_or_none<D> && right_rather_wait_or_none<D> &&
                  right_release_cost_or_none<D> && right_keeps_or_none<D> &&
                  right_evicts_or_none<D> && right_offloads_or_none<D> && right_learns_or_none<D> &&
                  right_end_of_operator_or_none<D> && right_end_of_step_or_none<D>;

/// May `D` ever answer so? Its word, or the default: yes.
template <class D>
consteval bool evicts() {
  if constexpr (says_whether_it_evicts<D>) return D::evicts;
  return true;
}
template <class D>
consteval bool offloads() {
  if constexpr (says_whether_it_offloads<D>) return D::offloads;
  return true;
}
template <class D>
[[nodiscard]] constexpr bool keeps(const D& decider) {
  if constexpr (says_whether_it_keeps<D>)
    return decider.keeps();
  else
    return true;
}

// ---------------------------------------------------------------------------------------------
// Prefetcher: what the copy engines do while nobody waits (Algorithm 4 and the early start).
//
// Semantic rules:
//  * Asked after every operator, until it answers none or something that does not fit.
//  * `next` names a tensor out of `context.offloaded()`.
//
// Detected, default nothing:
//  * `early_release_bytes(context)` -> double: bytes to release early (the Filter says which);
//    soft: it never waits, and stops without candidates;
//  * `copy_ahead(context)` -> tensor_id: a resident tensor, of `context.candidates()`, to copy out
//    without freeing it, or none; asked until it answers none;
//  * `wasted(context, t)`: a tensor brought back early left again unused.
// ---------------------------------------------------------------------------------------------

/// `next(context)` -> tensor_id to reload now, or tensor_id::none.
template <class P>
concept names_next_reload = requires(P& p, const context& c) {
  { p.next(c) } -> std::same_as<tensor_id>;
};
/// The three that are detected.
template <class P>
concept releases_early = requires(P& p, const context& c) {
  { p.early_release_bytes(c) } -> std::convertible_to<double>;
};
template <class P>
concept copies_out_ahead = requires(P& p, const context& c) {
  { p.copy_ahead(c) } -> std::same_as<tensor_id>;
};
template <class P>
concept learns_of_waste = requires(P& p, const context& c, tensor_id t) { p.wasted(c, t); };
template <class P>
concept right_early_release_bytes_or_none =
    releases_early<P> || !detail::names_early_release_bytes<P>;
template <class P>
concept right_copy_ahead_or_none = copies_out_ahead<P> || !detail::names_copy_ahead<P>;
template <class P>
concept right_wasted_or_none = learns_of_waste<P> || !detail::names_wasted<P>;
/// What comes back early. Smallest model: `no_prefetch` (prefetcher.hpp).
template <class P>
concept Prefetcher =
    names_next_reload<P> && right_early_release_bytes_or_none<P> && right_copy_ahead_or_none<P> &&
    right_wasted_or_none<P> && right_learns_or_none<P> && right_end_of_operator_or_none<P> &&
    right_end_of_step_or_none<P>;

}  // namespace delta

#include "delta/detail/concepts/explain.hpp"  // the sentences
