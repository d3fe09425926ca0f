// delta: how little time a trace can take under a budget, whatever the policy.
#pragma once

#include <cstdint>

#include "delta/units.hpp"
#include "traces/trace.hpp"

namespace delta {

/// What a policy has to work with.
struct bound_machine {
  bytes budget{};
  double rate_out = 0;  ///< bytes per second, device to host; 0: nothing is copied
  double rate_in = 0;   ///< bytes per second, host to device
};

/// What becomes of storages that nobody refers to any more.
enum class dead_storage : std::uint8_t {
  may_stay,  ///< a policy may keep them: nothing is charged for computing them again
  is_gone    ///< they are given up at once, as eager eviction does
};

/// A lower bound on time / unmanaged time, at least 1; infinity where an operator does not fit.
///
/// Let an operator run for the first time, w of the operators' time T before it, and let O be the
/// overhead, so that a run takes T + O. Of the storages that are live then, and are read later or
/// are results, all but `budget` bytes are absent; what the operator itself touches is not. Each
/// absent byte was
/// - copied out before and in after: at most rate_out (w + O) and rate_in (T - w + O) bytes, or
/// - computed again after: by its operator, which makes all its outputs in its one time. A byte
///   costs its share of that, as if bytes could be had singly. With is_gone also a share of the
///   dead ancestors that are reached through dead ones only: the time of each, divided by the
///   number of operators with outputs that may be absent and need it, as it may serve them all.
/// It takes least to copy the dearest bytes and to compute the X cheapest again. That time, R(X),
/// is convex: a segment of slope d that begins at X_k gives R(X) >= R(X_k) + d (X - X_k). From O >=
/// R(X) and X >= missing - rate (window + O) follows, for each segment and either direction,
///   O >= (R(X_k) + d (missing - rate window - X_k)) / (1 + d rate).
/// Each instant alone gives one, and the 64 where most is missing beyond what can be copied are
/// looked at.
///
/// A window of operators gives another one, for what it takes itself: of all that it touches and
/// that was there before, as all parameters and their optimizer state where they are updated, all
/// but `budget` bytes come in within it, or are computed again within it. Windows that do not
/// overlap add up; the step is cut into 64 parts, and the dearest windows from cut to cut count.
/// The bound is the larger of the two.
///
/// It is optimistic: copies have no latency, views, new versions and workspace cost nothing, an
/// operator that runs again finds its inputs, for an instant what has no producer (constants,
/// variables) is out of the way for nothing, what the program itself reads or writes need not be
/// there, and only one instant counts. T + O is what the device takes; where the trace has
/// collectives, that over the unmanaged time with them (network.hpp) is the bound. With may_stay no
/// policy can beat it; with is_gone none that keeps nothing dead. O(events + 64 x (operations +
/// their inputs)), and O(operations log operations) for each window in which more is missing than
/// can be copied; with is_gone 64 x edges of live storages' dead ancestors besides. `t` keeps the
/// rules of `check`.
[[nodiscard]] double lower_bound(const trace& t, const bound_machine&,
                                 dead_storage = dead_storage::may_stay);

}  // namespace delta
