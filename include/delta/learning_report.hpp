// delta: what a manager has learned, for reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "delta/history.hpp"
#include "delta/units.hpp"

namespace delta {

/// What a manager has learned, for reports.
struct learning_report {
  /// A step's time over its operators' time, each counted once: as its plan was rehearsed, and as
  /// it came out.
  struct outcome {
    double predicted = 0;  ///< 0: there was no plan
    double measured = 0;
  };

  std::uint64_t steps = 0;      ///< that ended
  std::uint64_t kinds = 0;      ///< of them, that are kept
  std::uint32_t operators = 0;  ///< of the last one
  bytes peak{};                 ///< the most that the program held in it: what it takes unmanaged
  double expected = 0;  ///< the time of one like it under its plan / the operators'; 0: it has none
  double measured = 0;  ///< the same of the last one, as measured
  std::uint64_t divergences = 0;  ///< steps that turned out to be none that was seen
  std::size_t memory = 0;         ///< bytes that the history takes
  bool plans = false;             ///< the policy makes plans of steps
  /// The steps that ended, in order, as far back as the policy keeps them.
  std::vector<outcome> outcomes{};
};

/// What `m` has learned; nothing where its policy does not. O(kinds + outcomes that are kept).
template <class Manager>
[[nodiscard]] learning_report learning_report_of(const Manager& m) {
  learning_report l;
  const history& past = m.past();
  l.steps = past.steps();
  if (l.steps == 0) return l;
  l.kinds = past.records();
  l.operators = past.last().length();
  l.peak = bytes{past.last().peak};
  l.measured = past.last().time > 0 ? past.last_took() / past.last().time : 0;
  l.divergences = past.divergences();
  l.memory = past.footprint();
  if constexpr (requires { m.policy().outcomes(); }) {
    l.plans = true, l.outcomes = m.policy().outcomes();
    const step_record& next = past.follows() ? past.followed() : past.last();
    if (next.time > 0) l.expected = m.policy().expected(next) / next.time;
  }
  return l;
}

}  // namespace delta
