// delta: an observer that has every operator replayed right after its first run: a test of the
// program's kernels.
#pragma once

#include <concepts>

#include "delta/detail/runtime/replay_checker.hpp"
#include "delta/observer.hpp"
#include "delta/testing/replay_differs.hpp"

namespace delta {

/// An observer that asks for the check (`checks_replays`), and hands events on to
/// another one.
///
///   delta::manager manager{delta::online(), storage, delta::replay_check{}};
///
/// Every operator that may be replayed (its traits and updates allow it, whether or not the policy
/// ever would) is run once more at its end, with its inputs copied to other addresses. Before that
/// its new output blocks are filled with the inverted bytes of the first run's outputs. The manager
/// throws replay_differs where a byte of an output differs, and where the operator has changed an
/// input that it does not list among its updates. Then it has no outputs, as if its kernel had
/// thrown; one that was begun is still open.
///
/// This finds: a byte of an output that is not written; memory that is read before it is written;
/// random numbers that differ between two runs, and sums whose order does; updates that are not
/// declared; addresses that are kept beyond the kernel, of inputs and of outputs. It can't find
/// what differs only later or only sometimes, such as a dependence on outside data that has not
/// changed yet.
///
/// It costs a second run of each operator, copies of what it touches to the host and back, for
/// which the device and the host wait for each other, and host memory beside the budget: a copy of
/// the operator's inputs and half a MiB. Room for the second run is made as for an operator, which
/// changes what the policy decides; where there is none for the inputs' copies they stay where they
/// are, and where there is none for the outputs the operator is not checked. counters'
/// `replays_checked` and `replays_unchecked` say how many were and were not; operators without
/// outputs, and those that may not be replayed, are neither. The storage must show its bytes
/// (storage.hpp: shows_its_bytes); the arena does, over any Device.
template <Observer Next = no_observer>
struct replay_check {
  [[no_unique_address]] Next next = {};

  [[nodiscard]] constexpr bool checks_replays() const noexcept { return true; }
  [[nodiscard]] bool listens() const {
    if constexpr (std::same_as<Next, no_observer>)
      return false;
    else if constexpr (detail::has_listens<Next>)
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

static_assert(Observer<replay_check<>> && detail::has_checks_replays<replay_check<>>);

}  // namespace delta
