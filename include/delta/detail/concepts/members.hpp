// delta: the rows of members that concepts are made of. A row says of one member how it is called,
// and in a sentence what its signature is; from it come the test whether a type has the member, the
// test whether it is right, and the error for a type in which it is not.
//
// A member that is detected, and has a default, may be left out, but not be there with another
// signature: it would be passed over in silence. `double weight(delta::context&,
// delta::tensor_id)`, without the first const, is not detected, and the heuristic would be one
// without a weight. So a detected member is right, or the type has no member of that name, whatever
// its signature.
//
// Seen by their names: functions, data and enumerators; overloads and templates where they can be
// called with what the manager has to give. Not seen: what is private or constrained away, and
// overloads and templates that take something else altogether.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "delta/units.hpp"

namespace delta {
class context;  // these two are only ever named by reference here
struct event;
}  // namespace delta

namespace delta::detail {

/// All names that are asked about. In `beside<T>` a name that T has, too, is ambiguous: so one look
/// says of most members that they are absent, as most are, and no call has to be tried.
struct every_name {
  // A policy's.
  int score, weight, depends_on, later_if_dearer, victim;
  int restore, may_keep, keeps_dropped, on_thrash, evicts, offloads;
  int early_release_bytes, copy_ahead, wasted;
  int learns, end_of_operator, end_of_step;
  // An observer's, and a storage's or a device's.
  int listens, checks_replays;
  int data, hold, unhold, native_stream, read_bytes, write_bytes, began, knows, on_owner_changed,
      may_fragment;
  int largest_hole, bytes_to_move, move_rate, walk_blocks, burden, alone;
  int may_allocate_in_operator, synchronous;
};
template <class T>
struct beside : T, every_name {};
/// Others are looked at closely at once: nobody can derive from them, or not without
/// overriding something.
template <class T>
concept can_be_derived_from =
    std::is_class_v<T> && !std::is_final_v<T> && !std::is_polymorphic_v<T>;

/// `Call` calls the member on its first argument, with the others. The lists are those that any of
/// the detected members takes, and a few wrong ones that are easily written: a missing context, the
/// arguments turned round.
template <class T, class Call>
concept can_be_called =
    std::invocable<Call, T&, const context&> ||
    std::invocable<Call, T&, const context&, tensor_id> || std::invocable<Call, T&> ||
    std::invocable<Call, T&, tensor_id> || std::invocable<Call, T&, tensor_id, const context&> ||
    std::invocable<Call, T&, std::uint32_t> || std::invocable<Call, T&, const event&> ||
    std::invocable<Call, T&, const block&> || std::invocable<Call, T&, const block&, bytes> ||
    std::invocable<Call, T&, const block&, tensor_id> || std::invocable<Call, T&, bytes> ||
    std::invocable<Call, T&, direction> || std::invocable<Call, T&, stamp>;

// Macros, as a name can't be a template argument. `T::name` finds data and enumerators, the address
// functions too, the calls overloads and templates, whose address is ambiguous.
#define DELTA_DETAIL_NAMES(name)                                                \
  static_assert(                                                                \
      requires { &every_name::name; }, "list it in every_name, too");           \
  struct call_##name {                                                          \
    auto operator()(auto& x, const auto&... a) const -> decltype(x.name(a...)); \
  };                                                                            \
  template <class T>                                                            \
  concept names_##name =                                                        \
      (!can_be_derived_from<T> || !requires { &beside<T>::name; }) &&           \
      (                                                                         \
          requires { &T::name; } || requires { T::name; } || can_be_called<T, call_##name>)

/// A row: `has_ROW<T>`, the expression of T behind the sentence, and `ROW_row` for `rows`.
/// `missing` says of T whether it may be without.
#define DELTA_DETAIL_ROW(row, missing, sentence, ...)        \
  template <class T>                                         \
  concept has_##row = __VA_ARGS__;                           \
  struct row##_row {                                         \
    template <class T>                                       \
    static constexpr bool right = has_##row<T> || (missing); \
    template <class T>                                       \
    static consteval void tell() {                           \
      static_assert(right<T>, sentence);                     \
    }                                                        \
  }
/// `checked_NAME<T>`: T where it models `Concept`; else its sentences are printed, and it is
/// `stand_in`, so that the rest compiles. What is right is not asked for its sentences, which would
/// take the compiler longer than the concept.
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
/// What a concept can't do without: "a Storage needs '...'".
#define DELTA_DETAIL_NEEDED(row, sentence, ...) DELTA_DETAIL_ROW(row, false, sentence, __VA_ARGS__)
/// One member that is detected.
#define DELTA_DETAIL_DETECTED(name, signature, ...)                                       \
  DELTA_DETAIL_ROW(name, !names_##name<T>, "'" #name "' is there, but not as " signature, \
                   __VA_ARGS__)
/// A constant that is detected, and its value or the default. Types are compared to the letter:
/// `static bool` or `enum { name }` would be something else.
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

/// The rows of a concept.
template <class... Row>
struct rows {
  /// All of them are as they should be.
  template <class T>
  static constexpr bool right = (Row::template right<T> && ...);
  /// True; an error with a sentence for each row that is not right. All of them, whether or not
  /// others failed, so that a type is mended in one go.
  template <class T>
  static consteval bool tell() {
    (Row::template tell<T>(), ...);
    return true;
  }
};

DELTA_DETAIL_NAMES(score);
DELTA_DETAIL_NAMES(weight);
DELTA_DETAIL_NAMES(depends_on);
DELTA_DETAIL_NAMES(later_if_dearer);
DELTA_DETAIL_NAMES(victim);
DELTA_DETAIL_NAMES(may_keep);
DELTA_DETAIL_NAMES(keeps_dropped);
DELTA_DETAIL_NAMES(on_thrash);
DELTA_DETAIL_NAMES(restore);
DELTA_DETAIL_NAMES(evicts);
DELTA_DETAIL_NAMES(offloads);
DELTA_DETAIL_NAMES(early_release_bytes);
DELTA_DETAIL_NAMES(copy_ahead);
DELTA_DETAIL_NAMES(wasted);
DELTA_DETAIL_NAMES(learns);
DELTA_DETAIL_NAMES(end_of_operator);
DELTA_DETAIL_NAMES(end_of_step);
DELTA_DETAIL_NAMES(listens);
DELTA_DETAIL_NAMES(checks_replays);
DELTA_DETAIL_NAMES(data);
DELTA_DETAIL_NAMES(hold);
DELTA_DETAIL_NAMES(unhold);
DELTA_DETAIL_NAMES(native_stream);
DELTA_DETAIL_NAMES(read_bytes);
DELTA_DETAIL_NAMES(write_bytes);
DELTA_DETAIL_NAMES(began);
DELTA_DETAIL_NAMES(knows);
DELTA_DETAIL_NAMES(on_owner_changed);
DELTA_DETAIL_NAMES(may_fragment);
DELTA_DETAIL_NAMES(may_allocate_in_operator);
DELTA_DETAIL_NAMES(largest_hole);
DELTA_DETAIL_NAMES(bytes_to_move);
DELTA_DETAIL_NAMES(move_rate);
DELTA_DETAIL_NAMES(walk_blocks);
DELTA_DETAIL_NAMES(burden);
DELTA_DETAIL_NAMES(alone);
DELTA_DETAIL_NAMES(synchronous);

// A storage's and a device's alike.

/// `native_stream()`: what a kernel is launched on (default: null).
DELTA_DETAIL_DETECTED(
    native_stream, "'void* native_stream()'", requires(T& s) {
      { s.native_stream() } -> std::convertible_to<void*>;
    });
/// `began(stamp)`: when that work began, by `now`'s clock, known when `elapsed` is; for timelines
/// (default: when it was queued).
DELTA_DETAIL_DETECTED(
    began, "'std::optional<delta::nanoseconds> began(delta::stamp)'", requires(T& s, stamp p) {
      { s.began(p) } -> std::same_as<std::optional<nanoseconds>>;
    });

}  // namespace delta::detail
