// delta: several policies in one, of which one decides at a time.
//
//   auto mine = delta::switching(my_selector{}, delta::online(), delta::recompute_only());
//   delta::manager manager{mine, storage};
//
// A selector picks it at the end of every step and, if it defines `replacement`, after every
// operator.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/runtime/roles.hpp"
#include "delta/detail/victims/scores.hpp"
#include "delta/manager.hpp"

namespace delta {

namespace detail {
DELTA_DETAIL_NEEDED(
    choose,
    "a Selector needs 'std::uint32_t choose(const delta::context&)' (which policy "
    "decides in the step that begins, counted from 0)",
    requires(T& s, const context& c) {
      { s.choose(c) } -> std::same_as<std::uint32_t>;
    });
DELTA_DETAIL_ROW(
    selector_replacement, !names_replacement<T>,
    "'replacement' is there, but not as 'std::uint32_t replacement(const delta::context&, "
    "bool)' (which policy decides the rest of the step, and true where recomputation "
    "thrashes)",
    answers_replacement<T>);
using selector_rows = rows<choose_row, selector_replacement_row>;
}  // namespace detail

/// `choose(context)` -> std::uint32_t: which policy decides in the step that begins, counted from
/// 0; called when a step has ended. The first step is the first policy's. Smallest model: `always`.
///
/// Detected: `replacement(context, thrashes)` -> std::uint32_t: who decides the rest of the step;
/// asked after every operator (O(1), please), and where recomputation thrashes under the one that
/// does. The same again: there is nobody else, and the operator fails (default). With `thrashes` it
/// should name each once in a step; the manager asks 16 times at most.
template <class S>
concept Selector = detail::selector_rows::right<S>;

/// Of a selector: a sentence per mistake, as explain_heuristic (detail/concepts/explain.hpp).
template <class S>
consteval bool explain_selector() {
  return detail::selector_rows::tell<S>();
}

/// The null model: the same one always, after the first step.
struct always {
  std::uint32_t variant = 0;
  std::uint32_t choose(const context&) const noexcept { return variant; }
};

namespace detail {

DELTA_DETAIL_CHECKED(selector, Selector, stand_in);

/// Policies of which one decides at a time, and the selector that says which.
template <class S, class... P>
struct switched {
  static constexpr bool learns = (policy_learns<P>() || ...);
  // Answers are not kept, as they would be another's after a switch: every search asks all
  // candidates.
  static constexpr quantity depends_on =
      static_cast<quantity>(
          (static_cast<unsigned>(value_of_depends_on<heuristic_of_type<P>>()) | ...)) |
      quantity::staleness;
  static constexpr bool evicts = (value_of_evicts<decider_of_type<P>>() || ...);
  static constexpr bool offloads = (value_of_offloads<decider_of_type<P>>() || ...);
  static constexpr bool any_releases_early =
      (has_early_release_bytes<prefetcher_of_type<P>> || ...);
  static constexpr bool releases_with_room =
      (releases_early_with_room<prefetcher_of_type<P>>() || ...);

  S selector;
  std::tuple<P...> all;

  std::uint32_t select(const context& c) {
    // It may want to know what they know.
    if constexpr (requires { selector.choose(c, all); })
      return selector.choose(c, all);
    else
      return selector.choose(c);
  }
  std::uint32_t replacement(const context& c, bool thrashes) {
    if constexpr (answers_replacement<S>)
      return selector.replacement(c, thrashes);
    else
      return c.variant();
  }

  double score(const context& c, tensor_id t) const noexcept {
    return ask(all, c.variant(), [&](const auto& p) { return score_of(heuristic_of(p), c, t); });
  }
  tensor_id victim(const context& c) const {
    return ask(all, c.variant(), [&](const auto& p) { return victim_of(heuristic_of(p), c); });
  }
  /// The closure that the one that decides asks for.
  [[nodiscard]] closure cached_closure(std::uint32_t variant) const noexcept {
    return ask(all, variant, [](const auto& p) {
      return costs_to_keep<heuristic_of_type<std::remove_cvref_t<decltype(p)>>>();
    });
  }

  /// What that one may do, of both.
  [[nodiscard]] static constexpr bool may(action a, std::uint32_t variant) noexcept {
    constexpr std::array all_evict{value_of_evicts<decider_of_type<P>>()...},
        all_offload{value_of_offloads<decider_of_type<P>>()...};
    const std::size_t v = variant < sizeof...(P) ? variant : 0;
    return a == action::evict ? all_evict[v] : all_offload[v];
  }
  action decide(const context& c, tensor_id t) {
    return ask(all, c.variant(), [&](auto& p) { return decider_of(p).decide(c, t); });
  }
  [[nodiscard]] bool may_keep() const {
    return std::apply([](const auto&... p) { return (may_answer_keep(decider_of(p)) || ...); },
                      all);
  }
  restoration restore(const context& c, tensor_id t) {
    return ask(all, c.variant(), [&](auto& p) { return restoration_of(decider_of(p), c, t); });
  }
  bool keeps_dropped(const context& c, tensor_id t) const {
    return ask(all, c.variant(),
               [&](const auto& p) { return detail::keeps_dropped(decider_of(p), c, t); });
  }

  tensor_id next(const context& c) {
    return ask(all, c.variant(), [&](auto& p) { return prefetcher_of(p).next(c); });
  }
  tensor_id copy_ahead(const context& c) {
    return ask(all, c.variant(), [&](auto& p) { return copy_ahead_of(prefetcher_of(p), c); });
  }
  double early_release_bytes(const context& c) {
    return ask(all, c.variant(), [&](auto& p) { return early_release_of(prefetcher_of(p), c); });
  }
  void wasted(const context& c, tensor_id t) {
    ask(all, c.variant(), [&](auto& p) { tell_of_waste(prefetcher_of(p), c, t); });
  }

  // Who does not decide looks on.
  void end_of_operator(const context& c) {
    std::apply([&](auto&... p) { (tell_end_of_operator(p, c), ...); }, all);
  }
  void end_of_step(const context& c) {
    std::apply([&](auto&... p) { (tell_end_of_step(p, c), ...); }, all);
  }

 private:
  // Calls `f` with that policy; with the first, where there is none.
  template <std::size_t I = 0, class Tuple, class F>
  static decltype(auto) ask(Tuple& all, std::uint32_t i, F&& f) {
    if (i == I) return f(std::get<I>(all));
    if constexpr (I + 1 < sizeof...(P))
      return ask<I + 1>(all, i, std::forward<F>(f));
    else
      return f(std::get<0>(all));
  }
};

}  // namespace detail

/// The policies as one. The first decides until the selector says otherwise. All of them are told
/// of ends of operators and steps. What is wrong of them, or of the selector, is told in sentences.
template <class S, class... P>
auto switching(S selector, P... all)
    -> detail::switched<detail::checked_selector<S>, detail::checked_policy<P>...> {
  return {std::move(selector), {std::move(all)...}};
}

}  // namespace delta
