// delta: has a type a member of that name, whatever its signature? A member that is detected, and
// is there with another signature than the one asked for, would otherwise be passed over in
// silence.
//
// An example: `double weight(delta::context&, delta::tensor_id)`, without the first const, is not
// detected, and the heuristic would be one without a weight. So each concept asks, of every member
// that it detects: right, or no member of that name? These are the second halves.
//
// Seen: functions, data and enumerators by their name; overloads and templates where they can be
// called with what the manager has to give. Not seen: what is private or constrained away, and
// overloads and templates that take something else altogether.
#pragma once

#include <concepts>
#include <cstdint>
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
  int score, weight, depends_on, later_if_dearer, drifts, select, keeps, instead;
  int restore, rather_wait, release_cost, evicts, offloads;
  int early_release_bytes, copy_ahead, wasted;
  int learns, end_of_operator, end_of_step;
  // An observer's, and a storage's.
  int listens, checks_replays;
  int data, hold, unhold, native_stream, read_bytes, write_bytes, began, knows, owned_by, scatters;
  int largest_hole, bytes_to_move, move_rate, walk_blocks, burden, alone;
  int allocates_within_brackets;
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
    std::invocable<Call, T&, const context&, tensor_id> ||
    std::invocable<Call, T&, const context&, tensor_id, double> || std::invocable<Call, T&> ||
    std::invocable<Call, T&, tensor_id> || std::invocable<Call, T&, tensor_id, const context&> ||
    std::invocable<Call, T&, std::uint32_t> || std::invocable<Call, T&, const event&> ||
    std::invocable<Call, T&, const block&> || std::invocable<Call, T&, const block&, bytes> ||
    std::invocable<Call, T&, const block&, tensor_id> || std::invocable<Call, T&, bytes> ||
    std::invocable<Call, T&, direction> || std::invocable<Call, T&, stamp>;

// A macro, as a name can't be a template argument. `T::name` finds data and enumerators, the
// address functions too, the calls overloads and templates, whose address is ambiguous.
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

// A Heuristic's.
DELTA_DETAIL_NAMES(score);
DELTA_DETAIL_NAMES(weight);
DELTA_DETAIL_NAMES(depends_on);
DELTA_DETAIL_NAMES(later_if_dearer);
DELTA_DETAIL_NAMES(drifts);
DELTA_DETAIL_NAMES(select);
DELTA_DETAIL_NAMES(keeps);
DELTA_DETAIL_NAMES(instead);  // a selector's, too

// A Decider's.
DELTA_DETAIL_NAMES(restore);
DELTA_DETAIL_NAMES(rather_wait);
DELTA_DETAIL_NAMES(release_cost);
DELTA_DETAIL_NAMES(evicts);
DELTA_DETAIL_NAMES(offloads);

// A Prefetcher's.
DELTA_DETAIL_NAMES(early_release_bytes);
DELTA_DETAIL_NAMES(copy_ahead);
DELTA_DETAIL_NAMES(wasted);

// Any policy's.
DELTA_DETAIL_NAMES(learns);
DELTA_DETAIL_NAMES(end_of_operator);
DELTA_DETAIL_NAMES(end_of_step);

// An observer's.
DELTA_DETAIL_NAMES(listens);
DELTA_DETAIL_NAMES(checks_replays);

// A Storage's, and some of a Device's.
DELTA_DETAIL_NAMES(data);
DELTA_DETAIL_NAMES(hold);
DELTA_DETAIL_NAMES(unhold);
DELTA_DETAIL_NAMES(native_stream);
DELTA_DETAIL_NAMES(read_bytes);
DELTA_DETAIL_NAMES(write_bytes);
DELTA_DETAIL_NAMES(began);
DELTA_DETAIL_NAMES(knows);
DELTA_DETAIL_NAMES(owned_by);
DELTA_DETAIL_NAMES(scatters);
DELTA_DETAIL_NAMES(allocates_within_brackets);
DELTA_DETAIL_NAMES(largest_hole);
DELTA_DETAIL_NAMES(bytes_to_move);
DELTA_DETAIL_NAMES(move_rate);
DELTA_DETAIL_NAMES(walk_blocks);
DELTA_DETAIL_NAMES(burden);
DELTA_DETAIL_NAMES(alone);
#undef DELTA_DETAIL_NAMES

/// One of the four that only count together: half of them is a mistake, too.
template <class T>
concept names_holes =
    names_largest_hole<T> || names_bytes_to_move<T> || names_move_rate<T> || names_walk_blocks<T>;
/// One of two that only count together.
template <class T>
concept names_its_bytes = names_read_bytes<T> || names_write_bytes<T>;
/// The same of these two.
template <class T>
concept names_burdens = names_burden<T> || names_alone<T>;

}  // namespace delta::detail
