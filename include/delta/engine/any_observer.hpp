// delta: an observer that is chosen at run time, or absent: for delta::engine, whose managers are
// compiled once.
#pragma once

#include "delta/observer.hpp"

namespace delta {

/// An Observer behind a virtual function. The rules are the concept's: `on` neither throws nor
/// calls the manager.
class any_observer {
 public:
  virtual void on(const event&) = 0;

 protected:
  any_observer() = default;
  any_observer(const any_observer&) = default;
  any_observer& operator=(const any_observer&) = default;
  ~any_observer() = default;
};

/// How a manager that is chosen at run time is made, beside its policy and storage.
struct manager_options {
  any_observer* observer = nullptr;  ///< told of every event, outlives the manager; null: nobody
  /// Every operator that may be replayed is, right after it has run, and compared:
  /// replay_check.hpp.
  bool check_replays = false;
};

namespace detail {

/// Hands events to such an observer. Without one no event is made, and each place where one would
/// have been costs a test of a pointer.
struct maybe_observed : manager_options {
  [[nodiscard]] bool listens() const noexcept { return observer != nullptr; }
  [[nodiscard]] bool checks_replays() const noexcept { return check_replays; }
  void on(const event& e) const { observer->on(e); }
};

static_assert(Observer<maybe_observed>);

}  // namespace detail

}  // namespace delta
