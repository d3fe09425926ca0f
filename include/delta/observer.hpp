// delta: what the manager does, counted always and told to an observer chosen at compile time.
#pragma once

#include <cstdint>
#include <limits>

#include "delta/detail/concepts/members.hpp"
#include "delta/units.hpp"

namespace delta {

/// Counts since the manager was made (bytes where it says so), always kept: `manager::counts`.
struct counters {
  std::uint64_t operators = 0;                ///< run by the program, replays not counted
  std::uint64_t evictions = 0;                ///< bytes dropped, to be recomputed
  std::uint64_t offloads = 0;                 ///< copies out that freed, or will free, device bytes
  std::uint64_t clean_drops = 0;              ///< bytes dropped because a host copy existed
  std::uint64_t copies_ahead = 0;             ///< copies out that free nothing yet
  std::uint64_t reloads = 0;                  ///< copies in, on demand or early
  std::uint64_t prefetches = 0;               ///< of the reloads, those done early
  std::uint64_t recomputes = 0;               ///< replays of operators
  std::uint64_t revivals = 0;                 ///< tensors used while their copy out was under way
  std::uint64_t backward_releases = 0;        ///< releases in the backward pass (repairs P-7)
  std::uint64_t waits = 0;                    ///< times the host waited for a copy to free bytes
  std::uint64_t decisions = 0;                ///< tensors that a Decider was asked about
  std::uint64_t bytes_out = 0, bytes_in = 0;  ///< bytes of all copies, as the storage counts them
  nanoseconds recompute_time{};               ///< as measured, where known
  std::uint64_t replays_checked = 0;          ///< operators run twice and compared (replay_check)
  std::uint64_t replays_unchecked = 0;        ///< that should have been, and no room was to be had
  /// Operators whose cost is guessed by the bytes that they touch: neither the program
  /// (operation::cost) nor the storage (Storage::elapsed) tells it. 0 until that is certain.
  std::uint64_t guessed_costs = 0;
  std::uint64_t replacements = 0;  ///< outputs that took the block of an input over
};

/// What an event tells of: work of a lane, with a beginning and a length, or a decision, which
/// is an instant.
enum class event_kind : std::uint8_t {
  run,         ///< work on the compute lane: an operator of the program
  recompute,   ///< and a replay
  copy_out,    ///< work on a copy lane, told when its times are known
  copy_in,     ///< and the other way
  evict,       ///< a decision: the bytes go, to be recomputed
  offload,     ///< they go to the host
  clean_drop,  ///< they go, as the host has a copy
  reload,      ///< a tensor comes back because it is needed
  prefetch,    ///< it comes back early
  wait,        ///< the host waits for a copy to free bytes
  /// A warning, told once, when something has to leave and it is certain that some operators' costs
  /// will never be known: what is recomputed is chosen by guesses (counters::guessed_costs).
  costs_unknown
};

/// What event_kind::costs_unknown says, in a line for people.
inline constexpr const char* costs_unknown_warning =
    "operators of unknown cost are priced by the bytes that they touch: the program gives no "
    "operation::cost, and the device measures none; one that does chooses better what to recompute";

/// Bytes at one instant: all that is taken of the device, what of that is being copied out to leave
/// or was not used since its copy in began, and what is taken of the host.
struct memory_use {
  bytes device{}, in_flight{}, host{};  ///< as the storage counts them
};

/// One event. Of a decision `began` is its instant; of work `began` and `took` are measured, and it
/// may be told after later decisions. Its texts are the program's, and valid during the call.
struct event {
  /// What does not apply, or is not known; not equal to itself.
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

  event_kind what = event_kind::run;
  tensor_id tensor = tensor_id::none;  ///< of work on the compute lane: its first output
  const char* label = "";              ///< the operator that made it, or what the program called it
  const char* operation = "";          ///< the operator that ran, or that needed room
  bytes size{};                        ///< of the tensor
  nanoseconds began{}, took{};         ///< on the storage's clock
  double score = unknown;              ///< what the Filter saw in a tensor that leaves
  double cost = unknown;               ///< ns to get it back this way
  double alternative = unknown;        ///< ns to get it back the other way; infinite: there is none
  memory_use use{};                    ///< when it was told
};

/// The null model: compiles to nothing (a test compares the size of the code to the byte).
struct no_observer {
  void on(const event&) const noexcept {}
};

namespace detail {
DELTA_DETAIL_NEEDED_CALL(on, "an Observer needs ", (const delta::event&), anything, "", void);
DELTA_DETAIL_DETECTED_CALL(listens, () const, same, "", bool);
DELTA_DETAIL_DETECTED_CALL(checks_replays, () const, same, "", bool);
using observer_rows = rows<on_row, listens_row, checks_replays_row>;
}  // namespace detail

/// `on(event)`: called for every event, from within the manager, which waits for it. It must not
/// call the manager (that throws misuse) nor throw, which would poison it. Detected: `listens()` ->
/// bool, asked before an event is made, with an answer that never changes (default: yes);
/// `checks_replays()` -> bool, whether operators shall be run twice and compared (default: no;
/// testing/replay_check.hpp has what compares).
///   struct counter { void on(const delta::event&) { ++count; } int count = 0; };
template <class O>
concept Observer = detail::observer_rows::right<O>;

/// Of an observer: a sentence per mistake, as explain_heuristic (concepts.hpp).
template <class O>
consteval bool explain_observer() {
  return detail::observer_rows::tell<O>();
}

namespace detail {
/// In a manager in place of an observer that is wrong; made from anything, never linked.
struct stand_in_observer : no_observer {
  template <class T>
  explicit(false) stand_in_observer(const T&);
};
DELTA_DETAIL_CHECKED(observer, Observer, stand_in_observer);
}  // namespace detail

/// An observer that somebody else keeps; it outlives the manager, which otherwise moves it into
/// itself (manager::observer gives access then).
template <class O>
struct observed_by {
  static_assert(explain_observer<O>());
  O* observer;
  void on(const event& e) const { observer->on(e); }
};
/// Clang 16 does not deduce an aggregate's arguments by itself.
template <class O>
observed_by(O*) -> observed_by<O>;

static_assert(Observer<no_observer> && Observer<observed_by<no_observer>>);

}  // namespace delta
