// delta executor: the observers of one run, as one.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "delta/engine/manager_interface.hpp"
#include "delta/observer.hpp"
#include "delta/timeline.hpp"
#include "device/machine.hpp"
#include "observe/decision_log.hpp"

namespace delta::executor {

/// Writes a timeline, the decisions, or both. Beside a timeline, that of a machine's profiler gets
/// a mark for every decision, with the number that it has in ours: "36 offload layer1.0.conv1". One
/// object for all of them.
struct watchers final : any_observer {
  std::optional<timeline> lanes;
  std::optional<decision_log> log;

  /// Null: without. The streams and the machine outlive this.
  watchers(std::ostream* timeline, std::ostream* decisions, machine* where = nullptr)
      : machine_(where) {
    if (timeline != nullptr) lanes.emplace(*timeline);
    if (decisions != nullptr) log.emplace(*decisions);
  }
  /// This; null where there is nothing to write.
  [[nodiscard]] any_observer* if_any() noexcept { return lanes || log ? this : nullptr; }
  void on(const event& e) override {
    if (log) log->on(e);
    if (!lanes) return;
    const std::uint64_t before = lanes->decisions();
    lanes->on(e);
    if (machine_ == nullptr || lanes->decisions() == before) return;
    text_.assign(std::to_string(before + 1)).append(" ").append(timeline::name_of(e.what));
    if (*e.label != '\0') text_.append(" ").append(e.label);
    machine_->mark_moment(text_.c_str());
  }

 private:
  machine* machine_;
  std::string text_;
};

}  // namespace delta::executor
