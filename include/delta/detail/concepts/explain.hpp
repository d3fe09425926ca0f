// delta: the concepts' atoms as sentences, for people whose type is not a model yet.
//
// Functions, not classes, hold the sentences: of a class clang reports the first failed one only.
// All are asserted one by one, whether or not others failed, so that a type is mended in one go.
// The compiler's own note on a failed conjunction names an atom, but not the signature that was
// wanted. test/compile_fail checks the sentences, on every compiler at hand.
//
// checked.hpp tells how a wrong type gets to them through a manager.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "delta/concepts.hpp"
#include "delta/detail/concepts/explain_storage.hpp"
#include "delta/observer.hpp"

namespace delta {
namespace detail {

// Never run: that they are named compiles them, and with them what they call. A concept looks at
// signatures only, so a body with a mistake in it would come out deep in the manager. Here it comes
// out beside the type.
template <class P>
void call_ends(P& p, const context& c) {
  if constexpr (follows_operators<P>) p.end_of_operator(c);
  if constexpr (follows_steps<P>) p.end_of_step(c);
}
template <class H>
void call_heuristic(H& h, const context& c, tensor_id t) {
  // As the Filter asks: const.
  const H& asked = h;
  if constexpr (scores_tensor<H>) static_cast<void>(static_cast<double>(asked.score(c, t)));
  if constexpr (weighs_tensor<H>) static_cast<void>(static_cast<double>(asked.weight(c, t)));
  if constexpr (selects_variant<H>)
    static_cast<void>(h.select(c)), static_cast<void>(asked.keeps(0));
  if constexpr (replaces_variant<H>) static_cast<void>(h.instead(c, true));
  call_ends(h, c);
}
template <class D>
void call_decider(D& d, const context& c, tensor_id t) {
  static_cast<void>(d.decide(c, t));
  if constexpr (chooses_restoration<D>) static_cast<void>(d.restore(c, t));
  if constexpr (weighs_waiting<D>) static_cast<void>(d.rather_wait(c, t, 0.0));
  const D& asked = d;
  if constexpr (prices_release<D>) static_cast<void>(static_cast<double>(asked.release_cost(c, t)));
  call_ends(d, c);
}
template <class P>
void call_prefetcher(P& p, const context& c, tensor_id t) {
  static_cast<void>(p.next(c));
  if constexpr (releases_early<P>) static_cast<void>(static_cast<double>(p.early_release_bytes(c)));
  if constexpr (copies_out_ahead<P>) static_cast<void>(p.copy_ahead(c));
  if constexpr (learns_of_waste<P>) p.wasted(c, t);
  call_ends(p, c);
}

// Both are every policy's: one place for their sentences.
template <class P>
consteval void explain_ends() {
  static_assert(right_end_of_operator_or_none<P>,
                "'end_of_operator' is there, but not as "
                "'void end_of_operator(const delta::context&)'");
  static_assert(right_end_of_step_or_none<P>,
                "'end_of_step' is there, but not as 'void end_of_step(const delta::context&)'");
  static_assert(right_learns_or_none<P>,
                "'learns' is there, but not as 'static constexpr bool learns'");
}

}  // namespace detail

/// True, or errors that say in a sentence per member what is missing or wrong. For static_assert
/// beside a type of one's own; the manager's deduction guides ask them too. The other three alike.
/// Costs compile time only.
///
///   static_assert(delta::explain_heuristic<my_heuristic>());
template <class H>
consteval bool explain_heuristic() {
  static_assert(
      ranks_tensors<H>,
      "a Heuristic needs "
      "'double score(const delta::context&, delta::tensor_id) const' (lower leaves first) "
      "or 'double weight(const delta::context&, delta::tensor_id) const' (it stands for "
      "the score 1 / (weight x staleness))");
  static_assert(answers_in_one_form<H>,
                "a Heuristic has 'score' or 'weight', not both: only one can say who leaves first");
  static_assert(right_score_or_none<H>,
                "'score' is there, but not as "
                "'double score(const delta::context&, delta::tensor_id) const'");
  static_assert(right_weight_or_none<H>,
                "'weight' is there, but not as "
                "'double weight(const delta::context&, delta::tensor_id) const'");
  static_assert(right_depends_on_or_none<H>,
                "'depends_on' is there, but not as 'static constexpr delta::quantity depends_on'");
  static_assert(right_later_if_dearer_or_none<H>,
                "'later_if_dearer' is there, but not as 'static constexpr bool later_if_dearer'");
  static_assert(right_drifts_or_none<H>,
                "'drifts' is there, but not as 'static constexpr bool drifts'");
  static_assert(right_select_and_keeps_or_none<H>,
                "'select' or 'keeps' is there, but not both as "
                "'std::uint32_t select(const delta::context&)' and "
                "'delta::closure keeps(std::uint32_t variant) const'");
  static_assert(
      right_instead_or_none<H>,
      "'instead' is there, but not as 'std::uint32_t instead(const delta::context&, bool)' "
      "beside 'select' and 'keeps'");
  detail::explain_ends<H>();
  // Bodies only once the signatures are right: calls of wrong ones would add errors of their own.
  if constexpr (Heuristic<H>) {
    [[maybe_unused]] constexpr auto* bodies = &detail::call_heuristic<H>;
  }
  return true;
}

/// Of a Decider: decide, and what is detected.
template <class D>
consteval bool explain_decider() {
  static_assert(decides_action<D>,
                "a Decider needs 'delta::action decide(const delta::context&, delta::tensor_id)' "
                "(evict, offload or keep)");
  static_assert(right_restore_or_none<D>,
                "'restore' is there, but not as "
                "'delta::restoration restore(const delta::context&, delta::tensor_id)'");
  static_assert(right_rather_wait_or_none<D>,
                "'rather_wait' is there, but not as 'bool rather_wait(const delta::context&, "
                "delta::tensor_id, double nanoseconds)'");
  static_assert(right_release_cost_or_none<D>,
                "'release_cost' is there, but not as "
                "'double release_cost(const delta::context&, delta::tensor_id) const' (ns)");
  static_assert(right_keeps_or_none<D>, "'keeps' is there, but not as 'bool keeps() const'");
  static_assert(right_evicts_or_none<D>,
                "'evicts' is there, but not as 'static constexpr bool evicts'");
  static_assert(right_offloads_or_none<D>,
                "'offloads' is there, but not as 'static constexpr bool offloads'");
  detail::explain_ends<D>();
  if constexpr (Decider<D>) {
    [[maybe_unused]] constexpr auto* bodies = &detail::call_decider<D>;
  }
  return true;
}

/// Of a Prefetcher: next, and what is detected.
template <class P>
consteval bool explain_prefetcher() {
  static_assert(names_next_reload<P>,
                "a Prefetcher needs 'delta::tensor_id next(const delta::context&)' (what to reload "
                "now, or delta::tensor_id::none)");
  static_assert(right_early_release_bytes_or_none<P>,
                "'early_release_bytes' is there, but not as 'double early_release_bytes(const "
                "delta::context&)' (bytes)");
  static_assert(right_copy_ahead_or_none<P>,
                "'copy_ahead' is there, but not as 'delta::tensor_id copy_ahead(const "
                "delta::context&)' (what "
                "to copy out now, or delta::tensor_id::none)");
  static_assert(right_wasted_or_none<P>,
                "'wasted' is there, but not as "
                "'void wasted(const delta::context&, delta::tensor_id)'");
  detail::explain_ends<P>();
  if constexpr (Prefetcher<P>) {
    [[maybe_unused]] constexpr auto* bodies = &detail::call_prefetcher<P>;
  }
  return true;
}

}  // namespace delta
