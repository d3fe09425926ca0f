// delta_torch: a run's timeline, written to a file.
#pragma once

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <string>

#include "delta/engine/engine.hpp"
#include "delta/timeline.hpp"

namespace delta_torch {

/// The time at which a run's clock was 0, in ns since 1970. Two clocks can't be read at once, and a
/// thread may be interrupted between them: so the machine's clock is read between two readings of
/// the run's, sixteen times, and the time counts at which these two were nearest.
template <class Clock>
[[nodiscard]] delta::nanoseconds unix_time_of_zero(const Clock& now) {
  delta::nanoseconds nearest = delta::nanoseconds::max(), zero{};
  for (int reading = 0; reading < 16; ++reading) {
    const delta::nanoseconds before = now();
    const delta::nanoseconds wall = std::chrono::system_clock::now().time_since_epoch();
    const delta::nanoseconds between = now() - before;
    if (between >= nearest) continue;
    nearest = between;
    zero = wall - before - between / 2;
  }
  return zero;
}

/// An observer that writes what happens to a file. Behind the names of the lanes is a line that
/// says when time 0 was, by the machine's clock, and whose rank it is: so the timelines of several
/// processes can be put together.
struct timeline_file final : delta::any_observer {
  /// now: reads the run's clock. rank: -1 for a process that is alone.
  template <class Clock>
  timeline_file(const std::string& file, const Clock& now, int rank) : to(file) {
    if (!to) throw std::runtime_error("delta: the timeline '" + file + "' can't be written");
    to << ",\n"
       << R"({"name":"delta_torch","ph":"M","pid":0,"tid":0,"args":{"rank":)" << rank
       << R"(,"unix_ns":)" << unix_time_of_zero(now).count() << "}}";
  }
  void on(const delta::event& e) override { lanes.on(e); }
  std::ofstream to;
  delta::timeline lanes{to};
};

}  // namespace delta_torch
