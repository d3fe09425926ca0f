// delta: the rows of members that concepts are made of. A row says how a member is called, and in a
// sentence its signature; from it come the test whether a type has the member, the test whether it
// is right, and the error for a type in which it is wrong.
//
// An optional member with another signature would be passed over in silence: `double
// weight(delta::context&, delta::tensor_id)`, without the first const, would make a heuristic
// without a weight. So a type has the member right, or nothing of that name. Names are seen of
// functions, data and enumerators, and of overloads and templates that can be called with what the
// manager gives; not of what is private or constrained away.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "delta/units.hpp"

namespace delta {
class context;  // these two are only ever named by reference here
struct event;
}  // namespace delta

namespace delta::detail {

/// True if a class can be derived from it without overriding anything.
template <class T>
concept can_be_derived_from =
    std::is_class_v<T> && !std::is_final_v<T> && !std::is_polymorphic_v<T>;

/// `Call` calls the member on its first argument, with any list that a detected member takes, or a
/// wrong one that is easily written: without the context, or with swapped arguments.
template <class T, class Call>
concept can_be_called =
    std::invocable<Call, T&, const context&> ||
    std::invocable<Call, T&, const context&, tensor_id> || std::invocable<Call, T&> ||
    std::invocable<Call, T&, tensor_id> || std::invocable<Call, T&, tensor_id, const context&> ||
    std::invocable<Call, T&, std::uint32_t> || std::invocable<Call, T&, const event&> ||
    std::invocable<Call, T&, const block&> || std::invocable<Call, T&, const block&, bytes> ||
    std::invocable<Call, T&, const block&, tensor_id> || std::invocable<Call, T&, bytes> ||
    std::invocable<Call, T&, direction> || std::invocable<Call, T&, stamp>;

/// `names_NAME<T>`: T has a member of that name. `beside_NAME<T>` is a cheap first look: a name
/// that T has, too, is ambiguous in it. `T::name` finds data and enumerators, its address
/// functions, the calls overloads and templates.
#define DELTA_DETAIL_NAMES(name)                                                \
  struct only_##name {                                                          \
    int name;                                                                   \
  };                                                                            \
  template <class T>                                                            \
  struct beside_##name : T, only_##name {};                                     \
  struct call_##name {                                                          \
    auto operator()(auto& x, const auto&... a) const -> decltype(x.name(a...)); \
  };                                                                            \
  template <class T>                                                            \
  concept names_##name =                                                        \
      (!can_be_derived_from<T> || !requires { &beside_##name<T>::name; }) &&    \
      (                                                                         \
          requires { &T::name; } || requires { T::name; } || can_be_called<T, call_##name>);

/// A row: `has_ROW<T>`, the expression of T behind the sentence, and `ROW_row` for `rows`.
/// `missing` says of T whether it may be without.
#define DELTA_DETAIL_ROW(row, missing, sentence, ...) \
  template <class T>                                  \
  concept has_##row = __VA_ARGS__;                    \
  DELTA_DETAIL_ROW_BEGINS(row, missing, sentence)     \
  }
#define DELTA_DETAIL_ROW_BEGINS(row, missing, sentence) \
  struct row##_row {                                    \
    template <class T>                                  \
    static constexpr bool has = has_##row<T>;           \
    template <class T>                                  \
    static constexpr bool right = has<T> || (missing);  \
    template <class T>                                  \
    static consteval void tell() {                      \
      static_assert(right<T>, sentence);                \
    }
/// A row of one function: `RESULT name params`, as a function type has it, is both what is looked
/// for and what the sentence says. What it returns is the `same`, `convertible`, or `anything`.
#define DELTA_DETAIL_FUNCTION(row, name, missing, sentence, params, returns, note, ...)           \
  struct row##_call {                                                                             \
    template <class T, class... A>                                                                \
    constexpr auto operator()(T& x, A&&... a) const -> decltype(x.name(static_cast<A&&>(a)...)) { \
      return x.name(static_cast<A&&>(a)...);                                                      \
    }                                                                                             \
  };                                                                                              \
  template <class T>                                                                              \
  concept has_##row = signature<__VA_ARGS__ params>::template returns<T, row##_call>;             \
  DELTA_DETAIL_ROW_BEGINS(row, missing, sentence "'" #__VA_ARGS__ " " #name #params "'" note)     \
  using call = row##_call;                                                                        \
  using type = signature<__VA_ARGS__ params>;                                                     \
  }
template <bool is_const, class R, class... A>
struct signature_of {
  template <class T>
  using asked = std::conditional_t<is_const, const T, T>;
  template <class T, class Call>
  static constexpr bool same = requires {
    { Call()(std::declval<asked<T>&>(), std::declval<A>()...) } -> std::same_as<R>;
  };
  template <class T, class Call>
  static constexpr bool convertible = requires {
    { Call()(std::declval<asked<T>&>(), std::declval<A>()...) } -> std::convertible_to<R>;
  };
  template <class T, class Call>
  static constexpr bool anything = std::invocable<Call, asked<T>&, A...>;
  /// Never run: that it is named compiles the function's body, and what that calls.
  template <class T, class Call>
  static void run(asked<T>& x, A... a) {
    static_cast<void>(Call()(x, static_cast<A&&>(a)...));
  }
};
template <class F>
struct signature;
template <class R, class... A>
struct signature<R(A...)> : signature_of<false, R, A...> {};
template <class R, class... A>
struct signature<R(A...) const> : signature_of<true, R, A...> {};
/// `checked_NAME<T>`: T where it models `Concept`; else its sentences are printed, and it is
/// `stand_in`, so that the rest compiles. A right type is not asked, to spare compile time.
// NOLINTBEGIN(bugprone-macro-parentheses): names of templates have none
#define DELTA_DETAIL_CHECKED(name, Concept, stand_in) \
  template <class T>                                  \
  consteval bool name##_or_told() {                   \
    if constexpr (Concept<T>)                         \
      return true;                                    \
    else                                              \
      return !explain_##name<T>();                    \
  }                                                   \
  template <class T>                                  \
  using checked_##name = std::conditional_t<name##_or_told<T>(), T, stand_in>
// NOLINTEND(bugprone-macro-parentheses)
/// What a concept can't do without: "a Decider needs '...'".
#define DELTA_DETAIL_NEEDED(row, sentence, ...) DELTA_DETAIL_ROW(row, false, sentence, __VA_ARGS__)
#define DELTA_DETAIL_NEEDED_CALL(name, who, params, returns, note, ...) \
  DELTA_DETAIL_FUNCTION(name, name, false, who, params, returns, note, __VA_ARGS__)
/// One member that is detected.
#define DELTA_DETAIL_DETECTED(name, signature, ...)                                       \
  DELTA_DETAIL_NAMES(name)                                                                \
  DELTA_DETAIL_ROW(name, !names_##name<T>, "'" #name "' is there, but not as " signature, \
                   __VA_ARGS__)
#define DELTA_DETAIL_DETECTED_CALL(name, params, returns, note, ...)                               \
  DELTA_DETAIL_NAMES(name)                                                                         \
  DELTA_DETAIL_FUNCTION(name, name, !names_##name<T>, "'" #name "' is there, but not as ", params, \
                        returns, note, __VA_ARGS__)
/// Members that are detected one by one, and are of use together only: has_ROW<T> if all are there.
#define DELTA_DETAIL_TOGETHER(row, names, ...)                                                  \
  DELTA_DETAIL_ROW(row, none_of(__VA_ARGS__), "one of " names " is there, but not all of them", \
                   all_of(__VA_ARGS__))
consteval bool all_of(auto... has) {
  return (has && ...);
}
consteval bool none_of(auto... has) {
  return !(has || ...);
}
/// A constant that is detected, and its value or the default. Its type must match to the letter.
#define DELTA_DETAIL_CONSTANT(name, type, type_said, otherwise)  \
  DELTA_DETAIL_DETECTED(                                         \
      name, "'static constexpr " type_said " " #name "'",        \
      std::same_as<decltype(&T::name), const type*>&& requires { \
        typename std::integral_constant<type, T::name>;          \
      });                                                        \
  template <class T>                                             \
  consteval type value_of_##name() {                             \
    if constexpr (has_##name<T>) return T::name;                 \
    return otherwise;                                            \
  }

/// What the row's function says of `x`, or the default where it has none.
template <class Row, class R, class T, class... A>
constexpr R answer_or(R otherwise, T& x, A&&... a) {
  if constexpr (Row::template has<std::remove_const_t<T>>)
    return typename Row::call()(x, static_cast<A&&>(a)...);
  else
    return otherwise;
}

/// The rows of a concept.
template <class... Row>
struct rows {
  /// All of them are as they should be.
  template <class T>
  static constexpr bool right = (Row::template right<T> && ...);
  /// True; an error with a sentence for each row that is not right, whether or not others failed.
  /// The bodies of a right type's functions are compiled, so that a mistake in one comes out here
  /// and not deep in the manager.
  template <class T>
  static consteval bool tell() {
    (Row::template tell<T>(), ...);
    if constexpr (right<T>) (compile_body<T, Row>(), ...);
    return true;
  }

 private:
  template <class T, class One>
  static consteval void compile_body() {
    if constexpr (requires { typename One::call; })
      if constexpr (One::template has<T>) {
        [[maybe_unused]] constexpr auto* body = &One::type::template run<T, typename One::call>;
      }
  }
};

// A storage's and a device's alike.

/// `native_stream()`: what a kernel is launched on (default: null).
DELTA_DETAIL_DETECTED_CALL(native_stream, (), convertible, "", void*);
/// `began(stamp)`: when that work began, by `now`'s clock, known when `elapsed` is; for timelines
/// (default: when it was queued).
DELTA_DETAIL_DETECTED_CALL(began, (delta::stamp), same, "", std::optional<delta::nanoseconds>);
/// `move_rate()`: bytes per second within the device (a storage's may be 0: moving takes no time).
/// What operators of unknown cost are priced by, too (default: one core's).
DELTA_DETAIL_DETECTED_CALL(move_rate, (), convertible, " (bytes per second)", double);
/// `burden(direction)`: what kernels lose by copies that way beside them, in ns per ns of copying,
/// from 0 to 1 (default: 0).
DELTA_DETAIL_DETECTED_CALL(burden, (delta::direction) const, convertible, "", double);
/// `alone(stamp)`: what work on the compute lane would have taken without copies beside it, known
/// when `elapsed` is (default: what that says).
DELTA_DETAIL_DETECTED_CALL(alone, (delta::stamp), same, "", std::optional<delta::nanoseconds>);

}  // namespace delta::detail
