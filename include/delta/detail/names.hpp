// delta: has a type a member of that name, whatever its signature? A member that is detected, and
// is there with another signature than the one asked for, would otherwise be passed over in
// silence.
//
// Seen: functions and data by their address; overloads and templates where they can be called with
// what the manager has to give. Not seen: what is private or constrained away, and overloads and
// templates that take something else altogether.
#pragma once

#include <concepts>

#include "delta/context.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// `Call` calls the member on its first argument, with the others.
template <class T, class Call>
concept can_be_called =
    std::invocable<Call, T&, const context&> ||
    std::invocable<Call, T&, const context&, tensor_id> ||
    std::invocable<Call, T&, const context&, tensor_id, double> || std::invocable<Call, T&> ||
    std::invocable<Call, T&, tensor_id> || std::invocable<Call, T&, tensor_id, const context&> ||
    std::invocable<Call, T&, const block&> || std::invocable<Call, T&, bytes>;

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

struct call_ahead {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.ahead(a...));
};
template <class T>
concept names_ahead = requires { &T::ahead; } || can_be_called<T, call_ahead>;
struct call_wasted {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.wasted(a...));
};
template <class T>
concept names_wasted = requires { &T::wasted; } || can_be_called<T, call_wasted>;

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

/// Data: seen unless private.
template <class T>
concept names_evicts = requires { T::evicts; } || requires { &T::evicts; };
template <class T>
concept names_offloads = requires { T::offloads; } || requires { &T::offloads; };
template <class T>
concept names_depends_on = requires { T::depends_on; } || requires { &T::depends_on; };

/// One of the four that only count together.
template <class T>
concept names_holes = requires { &T::largest_hole; } || requires { &T::bytes_to_move; } ||
                      requires { &T::move_rate; } || requires { &T::walk_blocks; };

}  // namespace delta::detail
