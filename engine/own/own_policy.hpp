// delta: makes a policy of what a user's header has, which is found by its members: a heuristic, a
// decider, a prefetcher, or a function that returns one of them or a whole policy.
//
// Who compiles it (delta-replay --policy-file, delta_torch.compile_policy) compiles a file that
// includes this one, includes the header, and names the policy in DELTA_OWN_POLICY.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "delta/delta.hpp"
#include "delta/engine/manager_of.hpp"
#include "policy_library.hpp"

namespace delta::own {

/// A whole policy: a composition, or one object that plays all roles.
template <class T>
inline constexpr bool is_policy = delta::detail::roles_of<T>::composed || delta::Policy<T>;

// Members that are not detected by name (members.hpp), as each concept requires them.
struct call_decide {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.decide(a...));
};
struct call_next {
  auto operator()(auto& x, const auto&... a) const -> decltype(x.next(a...));
};

// What a type was meant to be: it has a member with a name that only this role knows. Whether the
// signature is right is the concept's affair.
template <class T>
concept meant_as_heuristic =
    delta::detail::names_score<T> || delta::detail::names_weight<T> ||
    delta::detail::names_depends_on<T> || delta::detail::names_later_if_dearer<T>;
template <class T>
concept meant_as_decider =
    requires { &T::decide; } || delta::detail::can_be_called<T, call_decide> ||
    delta::detail::names_restore<T> || delta::detail::names_evicts<T> ||
    delta::detail::names_offloads<T>;
template <class T>
concept meant_as_prefetcher =
    requires { &T::next; } || delta::detail::can_be_called<T, call_next> ||
    delta::detail::names_early_release_bytes<T> || delta::detail::names_copy_ahead<T> ||
    delta::detail::names_wasted<T>;

/// True where a policy can be made of a T. Where it can't, static assertions say why in sentences.
template <class T>
consteval bool right_or_told() {
  if constexpr (is_policy<T>) {
    return delta::Policy<T>;  // what is wrong with its parts delta::policy itself tells
  } else if constexpr (meant_as_heuristic<T> || meant_as_decider<T> || meant_as_prefetcher<T>) {
    bool right = true;
    if constexpr (meant_as_heuristic<T>) {
      static_cast<void>(delta::explain_heuristic<T>());
      right = right && delta::Heuristic<T>;
    }
    if constexpr (meant_as_decider<T>) {
      static_cast<void>(delta::explain_decider<T>());
      right = right && delta::Decider<T>;
    }
    if constexpr (meant_as_prefetcher<T>) {
      static_cast<void>(delta::explain_prefetcher<T>());
      right = right && delta::Prefetcher<T>;
    }
    return right;
  } else {
    static_assert(is_policy<T>,
                  "a policy is a struct with 'score' or 'weight' (a Heuristic), 'decide' (a "
                  "Decider) or 'next' (a Prefetcher), or a function that returns a delta::policy; "
                  "this has none of these members, or they are private");
    return false;
  }
}

/// A whole policy: `part` in each role that it has, and `online` in the others.
template <class T>
auto completed(T part) {
  if constexpr (is_policy<T>) {
    return part;
  } else {
    auto rest = delta::online();
    const auto chosen = [&]<bool Own>(std::bool_constant<Own>, auto& otherwise) {
      if constexpr (Own)
        return part;
      else
        return otherwise;
    };
    return delta::policy{chosen(std::bool_constant<delta::Heuristic<T>>(), rest.heuristic),
                         chosen(std::bool_constant<delta::Decider<T>>(), rest.decider),
                         chosen(std::bool_constant<delta::Prefetcher<T>>(), rest.prefetcher)};
  }
}

/// What the library returns; `Make` is a type without state that calls the user's function or
/// makes the struct. Where a sentence says what is wrong no manager is compiled, so that nothing
/// else is printed.
template <class Make>
const policy_library* library_of() {
  using part = std::remove_cvref_t<decltype(Make{}())>;
  static constexpr policy_library library{
      this_abi,
      [](std::unique_ptr<delta::any_storage> storage,
         const delta::manager_options& options) -> std::unique_ptr<delta::manager_interface> {
        if constexpr (right_or_told<part>())
          return delta::make_manager(completed<part>(Make{}()), std::move(storage), options);
        else
          return nullptr;
      }};
  return &library;
}

}  // namespace delta::own

/// Defines the library's one visible function. `name`: a struct or a function of the global
/// namespace; both are written name().
#define DELTA_OWN_POLICY(name)                                                                     \
  namespace {                                                                                      \
  struct delta_own_make {                                                                          \
    auto operator()() const {                                                                      \
      return ::name();                                                                             \
    }                                                                                              \
  };                                                                                               \
  }                                                                                                \
  extern "C" [[gnu::visibility("default")]] const delta::own::policy_library* delta_own_policy() { \
    return delta::own::library_of<delta_own_make>();                                               \
  }
