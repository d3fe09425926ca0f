// delta executor: the observers of one run, as one.
#pragma once

#include <optional>
#include <ostream>

#include "decision_log.hpp"
#include "delta/observer.hpp"
#include "delta/timeline.hpp"

namespace delta::executor {

/// Writes a timeline, the decisions, or both.
struct watchers {
  std::optional<timeline> lanes;
  std::optional<decision_log> log;

  /// Null: without. The streams outlive this.
  watchers(std::ostream* timeline, std::ostream* decisions) {
    if (timeline != nullptr) lanes.emplace(*timeline);
    if (decisions != nullptr) log.emplace(*decisions);
  }
  [[nodiscard]] bool any() const noexcept { return lanes || log; }
  void on(const event& e) {
    if (lanes) lanes->on(e);
    if (log) log->on(e);
  }
};

}  // namespace delta::executor
