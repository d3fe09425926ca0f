// delta: an observer that has every operator replayed right after its first run, and compared byte
// for byte: a test of a program's kernels, before a policy relies on them.
#pragma once

#include <concepts>

#include "delta/observer.hpp"

namespace delta {

/// An observer that asks for the check (observer.hpp: checks_replays), and hands events on to
/// another one.
///
///   delta::manager manager{delta::online(), storage, delta::replay_check{}};
///
/// Every operator that may be replayed (its traits and updates allow it, whether or not the policy
/// ever would) is run once more at its end, with its inputs copied to other addresses, into blocks
/// that hold the complement of what it has just written. replay_differs is thrown where a byte
/// differs, and where it has changed an input that it does not list among its updates; then it has
/// no outputs, as if its kernel had thrown.
///
/// This finds: a byte of an output that is not written; memory that is read before it is written;
/// numbers that do not come from call::sequence(); updates that are not declared; addresses that
/// are kept beyond the kernel, of inputs and of outputs. It can't find what depends on something
/// outside that stays the same until the next replay.
///
/// It costs a second run of each operator, and copies of what it touches to the host and back: the
/// device waits for the host all the time. Room for the second run is made as for an operator;
/// where there is none for the inputs' copies they stay where they are, and where there is none for
/// the outputs the operator is not checked. `counters` says how many of each. The storage must show
/// its bytes (storage.hpp: shows_its_bytes); the arena does, over any Device.
template <Observer Next = no_observer>
struct replay_check {
  [[no_unique_address]] Next next = {};

  [[nodiscard]] constexpr bool checks_replays() const noexcept { return true; }
  [[nodiscard]] bool listens() const {
    if constexpr (std::same_as<Next, no_observer>)
      return false;
    else if constexpr (requires(const Next& n) {
                         { n.listens() } -> std::same_as<bool>;
                       })
      return next.listens();
    else
      return true;
  }
  void on(const event& e) { next.on(e); }
};
/// Clang 16 does not deduce an aggregate's arguments by itself.
template <class Next>
replay_check(Next) -> replay_check<Next>;
replay_check() -> replay_check<no_observer>;

static_assert(Observer<replay_check<>> && asks_for_replay_checks<replay_check<>>);

}  // namespace delta
