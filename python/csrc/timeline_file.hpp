// delta_torch: a run's timeline, written to a file.
#pragma once

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <string>

#include "delta/engine/engine.hpp"
#include "delta/timeline.hpp"

namespace delta_torch {

/// An observer that writes what happens to a file. Behind the names of the lanes is a line that
/// says when time 0 was, by the machine's clock, and whose rank it is: so the timelines of several
/// processes can be put together.
struct timeline_file final : delta::any_observer {
  /// now: of the run's clock. rank: -1 for a process that is alone.
  timeline_file(const std::string& file, delta::nanoseconds now, int rank) : to(file) {
    if (!to) throw std::runtime_error("delta: the timeline '" + file + "' can't be written");
    const auto zero = std::chrono::system_clock::now().time_since_epoch() - now;
    to << ",\n"
       << R"({"name":"delta_torch","ph":"M","pid":0,"tid":0,"args":{"rank":)" << rank
       << R"(,"unix_ns":)" << std::chrono::nanoseconds(zero).count() << "}}";
  }
  void on(const delta::event& e) override { lanes.on(e); }
  std::ofstream to;
  delta::timeline lanes{to};
};

}  // namespace delta_torch
