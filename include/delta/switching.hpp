// delta: several policies in one, of which one decides at a time.
//
//   auto mine = delta::switching(my_selector{}, delta::online(), delta::learned());
//   delta::manager manager{mine, storage};
//
// Which one, a selector says whenever a step has ended; halfway through a step only where the one
// that decides can't go on, as recomputation thrashes. With one selector for all three roles they
// can't disagree.
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
#include "delta/detail/engine/roles.hpp"
#include "delta/detail/victims/scores.hpp"
#include "delta/manager.hpp"

namespace delta {

template <class S>
concept chooses_policy = requires(S& s, const context& c) {
  { s.choose(c) } -> std::same_as<std::uint32_t>;
};
template <class S>
concept right_replacement_or_none = names_another<S> || !detail::names_instead<S>;

/// `choose(context)` -> std::uint32_t: which policy decides in the step that begins, counted from
/// 0; called when a step has ended. The first step is the first policy's. Smallest model: `always`.
///
/// Detected: `instead(context)` -> std::uint32_t: who decides the rest of the step, as
/// recomputation thrashes under the one that does: that one again where there is nobody else
/// (default). It should name each once in a step; the manager asks 16 times at most.
template <class S>
concept Selector = chooses_policy<S> && right_replacement_or_none<S>;

/// Of a selector: a sentence per mistake, as explain_heuristic (detail/concepts/explain.hpp).
template <class S>
consteval bool explain_selector() {
  static_assert(chooses_policy<S>,
                "a Selector needs 'std::uint32_t choose(const delta::context&)' (which policy "
                "decides in the step that begins, counted from 0)");
  static_assert(right_replacement_or_none<S>,
                "'instead' is there, but not as 'std::uint32_t instead(const delta::context&)' "
                "(which policy decides the rest of the step)");
  return true;
}

/// The null model: the same one always, after the first step.
struct always {
  std::uint32_t variant = 0;
  std::uint32_t choose(const context&) const noexcept { return variant; }
};

namespace detail {

template <class S>
using checked_selector = std::conditional_t<explain_selector<S>() && Selector<S>, S, stand_in>;

/// How many policies a role stands for: one, or those of a `settings_of`.
template <class T>
inline constexpr std::uint32_t width_of = 1;

/// Calls `f` with the role that stands for that policy; with the first role, where there is none.
template <std::size_t I = 0, class Tuple, class F>
decltype(auto) with_variant(Tuple& all, std::uint32_t i, F&& f) {
  constexpr std::uint32_t width =
      width_of<std::remove_cvref_t<std::tuple_element_t<I, std::remove_const_t<Tuple>>>>;
  if (i < width) return f(std::get<I>(all));
  if constexpr (I + 1 < std::tuple_size_v<std::remove_const_t<Tuple>>)
    return with_variant<I + 1>(all, i - width, std::forward<F>(f));
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

/// Several policies of one type, which differ in their settings: among those of `switching` they
/// stand for as many, counted from `first`, and are compiled once.
template <class Role, std::size_t N>
struct settings_of {
  std::array<Role, N> each{};
  std::uint32_t first = 0;
  static constexpr bool learns = delta::learns<Role>();

  [[nodiscard]] const Role& at(const context& c) const noexcept {
    return each[std::min<std::size_t>(c.variant() - first, N - 1)];
  }
  [[nodiscard]] Role& at(const context& c) noexcept {
    return each[std::min<std::size_t>(c.variant() - first, N - 1)];
  }
};
template <Heuristic H, std::size_t N>
struct heuristics_of : settings_of<H, N> {
  static constexpr bool drifts = true, later_if_dearer = delta::later_if_dearer<H>();
  static constexpr quantity depends_on = delta::depends_on<H>() | quantity::staleness;
  double score(const context& c, tensor_id t) const noexcept { return score_of(this->at(c), c, t); }
};
template <Decider D, std::size_t N>
  requires weighs_waiting<D> && prices_release<D>
struct deciders_of : settings_of<D, N> {
  static constexpr bool evicts = delta::evicts<D>(), offloads = delta::offloads<D>();
  action decide(const context& c, tensor_id t) { return this->at(c).decide(c, t); }
  [[nodiscard]] bool keeps() const {
    return std::ranges::any_of(this->each, [](const D& d) { return delta::keeps(d); });
  }
  bool rather_wait(const context& c, tensor_id t, double wait) {
    return this->at(c).rather_wait(c, t, wait);
  }
  double release_cost(const context& c, tensor_id t) const {
    return this->at(c).release_cost(c, t);
  }
};
template <Prefetcher P, std::size_t N>
  requires copies_out_ahead<P> && follows_steps<P>
struct prefetchers_of : settings_of<P, N> {
  tensor_id next(const context& c) { return this->at(c).next(c); }
  tensor_id copy_ahead(const context& c) { return this->at(c).copy_ahead(c); }
  void end_of_step(const context& c) {
    for (P& p : this->each) p.end_of_step(c);
  }
};
template <class Role, std::size_t N>
inline constexpr std::uint32_t width_of<heuristics_of<Role, N>> = N;
template <class Role, std::size_t N>
inline constexpr std::uint32_t width_of<deciders_of<Role, N>> = N;
template <class Role, std::size_t N>
inline constexpr std::uint32_t width_of<prefetchers_of<Role, N>> = N;

}  // namespace detail

/// Heuristics of which one answers; it has the selector. Answers are not kept, as they would be
/// another's after a switch: every search asks all candidates.
template <class S, class... Hs>
struct switched_heuristic {
  static constexpr bool learns = (delta::learns<Hs>() || ...);
  static constexpr quantity depends_on =
      static_cast<quantity>((static_cast<unsigned>(delta::depends_on<Hs>()) | ...)) |
      quantity::staleness;
  static constexpr bool drifts = (delta::drifts<Hs>() || ...);
  static constexpr bool later_if_dearer = (delta::later_if_dearer<Hs>() && ...);

  detail::checked_selector<S> selector;
  std::tuple<detail::checked_heuristic<Hs>...> all;

  double score(const context& c, tensor_id t) const noexcept {
    return detail::with_variant(all, c.variant(),
                                [&](const auto& h) -> double { return score_of(h, c, t); });
  }
  /// Which closures it asks for: that of the one that decides.
  [[nodiscard]] closure keeps(std::uint32_t variant) const noexcept {
    return detail::with_variant(all, variant, [](const auto& h) -> closure {
      return costs_to_keep<std::remove_cvref_t<decltype(h)>>();
    });
  }
  std::uint32_t select(const context& c) { return selector.choose(c); }
  std::uint32_t instead(const context& c) {
    if constexpr (names_another<detail::checked_selector<S>>)
      return selector.instead(c);
    else
      return c.variant();
  }
  void end_of_operator(const context& c) { detail::tell_all_end_of_operator(all, c); }
  void end_of_step(const context& c) { detail::tell_all_end_of_step(all, c); }
};

/// Deciders of which one decides; the defaults are those of detail/engine/roles.hpp.
template <class... Ds>
struct switched_decider {
  static constexpr bool learns = (delta::learns<Ds>() || ...);
  static constexpr bool evicts = (delta::evicts<Ds>() || ...);
  static constexpr bool offloads = (delta::offloads<Ds>() || ...);

  std::tuple<detail::checked_decider<Ds>...> all;

  action decide(const context& c, tensor_id t) {
    return detail::with_variant(all, c.variant(), [&](auto& d) { return d.decide(c, t); });
  }
  [[nodiscard]] bool keeps() const {
    return std::apply([](const auto&... d) { return (delta::keeps(d) || ...); }, all);
  }
  restoration restore(const context& c, tensor_id t) {
    return detail::with_variant(all, c.variant(),
                                [&](auto& d) { return detail::restoration_of(d, c, t); });
  }
  bool rather_wait(const context& c, tensor_id t, double wait) {
    return detail::with_variant(all, c.variant(),
                                [&](auto& d) { return detail::rather_waits(d, c, t, wait); });
  }
  double release_cost(const context& c, tensor_id t) const {
    return detail::with_variant(all, c.variant(),
                                [&](const auto& d) { return detail::release_cost_of(d, c, t); });
  }
  void end_of_operator(const context& c) { detail::tell_all_end_of_operator(all, c); }
  void end_of_step(const context& c) { detail::tell_all_end_of_step(all, c); }
};

/// Prefetchers of which one is asked.
template <class... Ps>
struct switched_prefetcher {
  static constexpr bool learns = (delta::learns<Ps>() || ...);
  static constexpr bool any_releases_early = (releases_early<Ps> || ...);

  std::tuple<detail::checked_prefetcher<Ps>...> all;

  tensor_id next(const context& c) {
    return detail::with_variant(all, c.variant(), [&](auto& p) { return p.next(c); });
  }
  tensor_id copy_ahead(const context& c) {
    return detail::with_variant(all, c.variant(),
                                [&](auto& p) { return detail::copy_ahead_of(p, c); });
  }
  double early_release_bytes(const context& c) {
    return detail::with_variant(all, c.variant(),
                                [&](auto& p) { return detail::early_release_of(p, c); });
  }
  void wasted(const context& c, tensor_id t) {
    detail::with_variant(all, c.variant(), [&](auto& p) { detail::tell_of_waste(p, c, t); });
  }
  void end_of_operator(const context& c) { detail::tell_all_end_of_operator(all, c); }
  void end_of_step(const context& c) { detail::tell_all_end_of_step(all, c); }
};

/// The policies as one. The first decides until the selector says otherwise. Each role asks the one
/// of its kind; all of them are told of ends of operators and steps. A selector that is wrong is
/// told so in sentences.
template <class S, class... H, class... D, class... P>
policy<switched_heuristic<S, H...>, switched_decider<D...>, switched_prefetcher<P...>> switching(
    S selector, policy<H, D, P>... all) {
  return {{std::move(selector), {all.heuristic...}}, {{all.decider...}}, {{all.prefetcher...}}};
}

}  // namespace delta
