// delta: several policies in one, of which one decides at a time.
//
//   auto mine = delta::switching(my_selector{}, delta::online(), delta::learned());
//   delta::manager manager{mine, storage};
//
// Which one, a selector says whenever a step has ended, and, if it has an opinion, after every
// operator. With one selector for all three roles they can't disagree.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/detail/concepts/checked.hpp"
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

/// Calls `f` with the role that stands for that policy; with the first role, where there is none.
template <std::size_t I = 0, class Tuple, class F>
decltype(auto) with_variant(Tuple& all, std::uint32_t i, F&& f) {
  if (i == I) return f(std::get<I>(all));
  if constexpr (I + 1 < std::tuple_size_v<std::remove_const_t<Tuple>>)
    return with_variant<I + 1>(all, i, std::forward<F>(f));
  else
    return f(std::get<0>(all));
}

/// The end of an operator, or of a step, for all that follow it: who does not decide looks on.
template <class Tuple>
void tell_all_end_of_operator(Tuple& all, const context& c) {
  std::apply([&](auto&... one) { (tell_end_of_operator(one, c), ...); }, all);
}
template <class Tuple>
void tell_all_end_of_step(Tuple& all, const context& c) {
  std::apply([&](auto&... one) { (tell_end_of_step(one, c), ...); }, all);
}

/// Heuristics of which one answers; it has the selector. Answers are not kept, as they would be
/// another's after a switch: every search asks all candidates.
template <class S, class... Hs>
struct switched_heuristic {
  static constexpr bool learns = (value_of_learns<Hs>() || ...);
  static constexpr quantity depends_on =
      static_cast<quantity>((static_cast<unsigned>(detail::value_of_depends_on<Hs>()) | ...)) |
      quantity::staleness;
  static constexpr bool drifts = (value_of_drifts<Hs>() || ...);
  static constexpr bool later_if_dearer = (value_of_later_if_dearer<Hs>() && ...);

  checked_selector<S> selector;
  std::tuple<checked_heuristic<Hs>...> all;

  double score(const context& c, tensor_id t) const noexcept {
    return with_variant(all, c.variant(),
                        [&](const auto& h) -> double { return score_of(h, c, t); });
  }
  /// Which closures it asks for: that of the one that decides.
  [[nodiscard]] closure cached_closure(std::uint32_t variant) const noexcept {
    return with_variant(all, variant, [](const auto& h) -> closure {
      return costs_to_keep<std::remove_cvref_t<decltype(h)>>();
    });
  }
  std::uint32_t select(const context& c) { return selector.choose(c); }
  std::uint32_t replacement(const context& c, bool thrashes) {
    if constexpr (answers_replacement<checked_selector<S>>)
      return selector.replacement(c, thrashes);
    else
      return c.variant();
  }
  void end_of_operator(const context& c) { tell_all_end_of_operator(all, c); }
  void end_of_step(const context& c) { tell_all_end_of_step(all, c); }
};

/// Deciders of which one decides; the defaults are those of detail/runtime/roles.hpp.
template <class... Ds>
struct switched_decider {
  static constexpr bool learns = (value_of_learns<Ds>() || ...);
  static constexpr bool evicts = (detail::value_of_evicts<Ds>() || ...);
  static constexpr bool offloads = (detail::value_of_offloads<Ds>() || ...);

  std::tuple<checked_decider<Ds>...> all;

  /// What that one may do, of both.
  [[nodiscard]] static constexpr bool may(action a, std::uint32_t variant) noexcept {
    constexpr std::array all_evict{detail::value_of_evicts<Ds>()...},
        all_offload{detail::value_of_offloads<Ds>()...};
    const std::size_t v = variant < sizeof...(Ds) ? variant : 0;
    return a == action::evict ? all_evict[v] : all_offload[v];
  }
  action decide(const context& c, tensor_id t) {
    return with_variant(all, c.variant(), [&](auto& d) { return d.decide(c, t); });
  }
  [[nodiscard]] bool may_keep() const {
    return std::apply([](const auto&... d) { return (detail::may_answer_keep(d) || ...); }, all);
  }
  restoration restore(const context& c, tensor_id t) {
    return with_variant(all, c.variant(), [&](auto& d) { return restoration_of(d, c, t); });
  }
  bool rather_wait(const context& c, tensor_id t, double wait) {
    return with_variant(all, c.variant(), [&](auto& d) { return rather_waits(d, c, t, wait); });
  }
  double release_cost(const context& c, tensor_id t) const {
    return with_variant(all, c.variant(), [&](const auto& d) { return release_cost_of(d, c, t); });
  }
  void end_of_operator(const context& c) { tell_all_end_of_operator(all, c); }
  void end_of_step(const context& c) { tell_all_end_of_step(all, c); }
};

/// Prefetchers of which one is asked.
template <class... Ps>
struct switched_prefetcher {
  static constexpr bool learns = (value_of_learns<Ps>() || ...);
  static constexpr bool any_releases_early = (has_early_release_bytes<Ps> || ...);

  std::tuple<checked_prefetcher<Ps>...> all;

  tensor_id next(const context& c) {
    return with_variant(all, c.variant(), [&](auto& p) { return p.next(c); });
  }
  tensor_id copy_ahead(const context& c) {
    return with_variant(all, c.variant(), [&](auto& p) { return copy_ahead_of(p, c); });
  }
  double early_release_bytes(const context& c) {
    return with_variant(all, c.variant(), [&](auto& p) { return early_release_of(p, c); });
  }
  void wasted(const context& c, tensor_id t) {
    with_variant(all, c.variant(), [&](auto& p) { tell_of_waste(p, c, t); });
  }
  void end_of_operator(const context& c) { tell_all_end_of_operator(all, c); }
  void end_of_step(const context& c) { tell_all_end_of_step(all, c); }
};

}  // namespace detail

/// The policies as one. The first decides until the selector says otherwise. Each role asks the one
/// of its kind; all of them are told of ends of operators and steps. A selector that is wrong is
/// told so in sentences.
template <class S, class... H, class... D, class... P>
auto switching(S selector, policy<H, D, P>... all)
    -> policy<detail::switched_heuristic<S, H...>, detail::switched_decider<D...>,
              detail::switched_prefetcher<P...>> {
  return {{std::move(selector), {all.heuristic...}}, {{all.decider...}}, {{all.prefetcher...}}};
}

}  // namespace delta
