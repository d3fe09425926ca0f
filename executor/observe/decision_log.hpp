// delta executor: an observer that writes a manager's decisions, so that those of two runs can be
// compared line by line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>

#include "cli/json_text.hpp"
#include "delta/observer.hpp"

namespace delta::executor {

/// Writes every decision as a JSON object in a line of its own, as it is told:
///
///   {"decision":1,"time_ns":5000,"for":"conv2","what":"offload","tensor":7,"label":"conv1",
///    "bytes":4096,"score":0.25,"cost_ns":700,"alternative_ns":1000}
///
/// | key              | meaning                                                                  |
/// |------------------|--------------------------------------------------------------------------|
/// | `decision`       | its number, from 1                                                       |
/// | `time_ns`        | when, by the storage's clock; of a recompute, when it began              |
/// | `for`            | the operation that needed room or the tensor; of a recompute, its own    |
/// | `what`           | evict, offload, clean_drop, reload, prefetch, wait, recompute, or once   |
/// |                  | costs_unknown (observer.hpp)                                             |
/// | `tensor`         | the manager's number of it, used again after a drop; null: none          |
/// | `label`          | the operation that made it, or what the program called it                |
/// | `bytes`          | its size as the program asked for it                                     |
/// | `score`          | of a tensor that leaves: what the Filter saw, the lowest of its round    |
/// | `cost_ns`        | to get it back this way; of a recompute, what it took                    |
/// | `alternative_ns` | to get it back the other way                                             |
///
/// What is not known, does not apply or is infinite is null. With a virtual clock all of it repeats
/// exactly, in a replay of the recorded run too (docs/traces.md). With a real one a recompute is
/// told when its time is known, which may be behind later decisions.
///
///   delta::executor::decision_log log{stream};
///   delta::manager manager{delta::online(), storage, delta::observed_by{&log}};
///
/// The stream outlives it; whether the writing succeeded is the stream's to say.
class decision_log {
 public:
  explicit decision_log(std::ostream& to) : to_(&to) {}
  decision_log(const decision_log&) = delete;
  decision_log& operator=(const decision_log&) = delete;
  ~decision_log() = default;

  /// Called by the manager. Throws std::bad_alloc, and what the stream was told to throw.
  void on(const event& e) {
    if (name_of(e.what).empty()) return;
    line_.clear();
    write(e);
    const std::string_view line = line_.so_far();
    to_->write(line.data(), static_cast<std::streamsize>(line.size()));
  }

 private:
  /// Empty: no decision, but work.
  static constexpr std::string_view name_of(event_kind what) noexcept {
    constexpr std::array<std::string_view, 11> names{
        "",           "recompute", "",         "",     "evict",        "offload",
        "clean_drop", "reload",    "prefetch", "wait", "costs_unknown"};
    return names[static_cast<std::size_t>(what)];
  }
  void write(const event& e) {
    const bool work = e.what == event_kind::recompute;
    line_.text("{\"decision\":");
    line_.whole(++decisions_);
    line_.text(",\"time_ns\":");
    line_.whole(e.began.count());
    line_.text(",\"for\":");
    line_.string(e.operation);
    line_.text(",\"what\":");
    line_.string(name_of(e.what));
    line_.text(",\"tensor\":");
    e.tensor == tensor_id::none ? line_.text("null") : line_.whole(index(e.tensor));
    line_.text(",\"label\":");
    line_.string(e.label);
    line_.text(",\"bytes\":");
    line_.whole(e.size.count);
    line_.text(",\"score\":");
    line_.real(e.score);
    line_.text(",\"cost_ns\":");
    line_.real(work ? static_cast<double>(e.took.count()) : e.cost);
    line_.text(",\"alternative_ns\":");
    line_.real(e.alternative);
    line_.text("}\n");
  }

  std::ostream* to_;
  json_text line_;
  std::uint64_t decisions_ = 0;
};

static_assert(Observer<decision_log> && Observer<observed_by<decision_log>>);

}  // namespace delta::executor
