// delta: has a type a member of that name, whatever its signature? A member that is detected, and
// is there with another signature than the one asked for, would otherwise be passed over in
// silence.
//
// An example: `double weight(delta::context&, delta::tensor_id)`, without the first const, is not
// detected, and the heuristic would be one without a weight. So each concept asks, of every member
// that it detects: right, or no member of that name? These are the second halves.
//
// Seen: functions and data by their address; overloads and templates where they can be called with
// what the manager has to give. Not seen: what is private or constrained away, and overloads and
// templates that take something else altogether.
#pragma once

#include <concepts>

#include "delta/units.hpp"

namespace delta {
class context;  // only ever named by reference here
}  // namespace delta

namespace delta::detail {

/// `Call` calls the member on its first argument, with the others. The lists are those that any of
/// the detected members takes, and a few wrong ones that are easily written: a missing context, the
/// arguments turned round.
template <class T, class Call>
concept can_be_called =
    std::invocable<Call, T&, const context&> ||
    std::invocable<Call, T&, const context&, tensor_id> ||
    std::invocable<Call, T&, const context&, tensor_id, double> || std::invocable<Call, T&> ||
    std::invocable<Call, T&, tensor_id> || std::invocable<Call, T&, tensor_id, const context&> ||
    std::invocable<Call, T&, const block&> || std::invocable<Call, T&, bytes>;

// One struct per name, as a name can't be a template argument. The address finds plain members, the
// calls overloads and templates, whose address is ambiguous.
struct call_score {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.score(a...));
};
template <class T>
concept names_score = requires { &T::score; } || can_be_called<T, call_score>;
struct call_weight {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.weight(a...));
};
template <class T>
concept names_weight = requires { &T::weight; } || can_be_called<T, call_weight>;

// A Decider's.
struct call_restore {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.restore(a...));
};
template <class T>
concept names_restore = requires { &T::restore; } || can_be_called<T, call_restore>;
struct call_rather_wait {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.rather_wait(a...));
};
template <class T>
concept names_rather_wait = requires { &T::rather_wait; } || can_be_called<T, call_rather_wait>;
template <class T>
concept names_keeps = requires { &T::keeps; };

// A Prefetcher's.
struct call_early_release_bytes {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.early_release_bytes(a...));
};
template <class T>
concept names_early_release_bytes =
    requires { &T::early_release_bytes; } || can_be_called<T, call_early_release_bytes>;
struct call_wasted {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.wasted(a...));
};
template <class T>
concept names_wasted = requires { &T::wasted; } || can_be_called<T, call_wasted>;
struct call_copy_ahead {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.copy_ahead(a...));
};
template <class T>
concept names_copy_ahead = requires { &T::copy_ahead; } || can_be_called<T, call_copy_ahead>;

// Any policy's.
template <class T>
concept names_learns = requires { &T::learns; } || requires { T::learns; };
struct call_end_of_operator {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.end_of_operator(a...));
};
template <class T>
concept names_end_of_operator =
    requires { &T::end_of_operator; } || can_be_called<T, call_end_of_operator>;
struct call_end_of_step {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.end_of_step(a...));
};
template <class T>
concept names_end_of_step = requires { &T::end_of_step; } || can_be_called<T, call_end_of_step>;

// A Storage's.
struct call_data {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.data(a...));
};
template <class T>
concept names_data = requires { &T::data; } || can_be_called<T, call_data>;
struct call_hold {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.hold(a...));
};
template <class T>
concept names_hold = requires { &T::hold; } || can_be_called<T, call_hold>;
struct call_unhold {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.unhold(a...));
};
template <class T>
concept names_unhold = requires { &T::unhold; } || can_be_called<T, call_unhold>;
struct call_native_stream {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.native_stream(a...));
};
template <class T>
concept names_native_stream =
    requires { &T::native_stream; } || can_be_called<T, call_native_stream>;

/// Data: seen unless private. The first form finds members and enumerators, the second functions of
/// that name.
template <class T>
concept names_evicts = requires { T::evicts; } || requires { &T::evicts; };
template <class T>
concept names_offloads = requires { T::offloads; } || requires { &T::offloads; };
template <class T>
concept names_depends_on = requires { T::depends_on; } || requires { &T::depends_on; };

/// One of the four that only count together: half of them is a mistake, too.
template <class T>
concept names_holes = requires { &T::largest_hole; } || requires { &T::bytes_to_move; } ||
                      requires { &T::move_rate; } || requires { &T::walk_blocks; };
/// One of the two that only count together.
template <class T>
concept names_burdens = requires { &T::burden; } || requires { &T::alone; };

}  // namespace delta::detail
