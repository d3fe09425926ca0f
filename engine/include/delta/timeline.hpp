// delta: an observer that writes what happens as a timeline for Perfetto (ui.perfetto.dev) and
// chrome://tracing, in the Trace Event Format.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <utility>

#include "delta/observer.hpp"

namespace delta {

/// Writes events to a stream as they come, so that a run which ends early leaves a timeline that
/// both viewers open. Lanes: compute, copy out, copy in, and the decisions with number, score, cost
/// and alternative; counters: bytes resident, in flight and on the host.
///
///   delta::timeline lanes{stream};
///   delta::manager manager{delta::online(), storage, delta::observed_by{&lanes}};
///
/// The stream outlives it; whether the writing succeeded is the stream's to say. An event takes
/// some hundred characters. Nothing is kept, so a run may be as long as the disk is large.
class timeline {
 public:
  /// Writes the opening bracket and the names of the lanes.
  explicit timeline(std::ostream& to) : to_(&to) {
    text("[\n");
    constexpr std::array<std::string_view, 4> lanes{"compute", "copy out", "copy in", "decisions"};
    name("process_name", 0, "delta");
    for (std::uint32_t lane = 0; lane < lanes.size(); ++lane)
      name("thread_name", lane, lanes[lane]);
  }
  timeline(const timeline&) = delete;
  timeline& operator=(const timeline&) = delete;
  /// Closes the bracket. The manager must have told its last event: destroy it first.
  ~timeline() { text("\n]\n"); }

  /// Called by the manager. Times are those of the storage's clock. Throws only if the stream was
  /// told to.
  void on(const event& e) {
    switch (e.what) {
      case event_kind::run:
      case event_kind::recompute:
        slice(e, lane::compute);
        return counters_at(e.began + e.took, e.use);
      case event_kind::copy_out:
        return slice(e, lane::copy_out);
      case event_kind::copy_in:
        return slice(e, lane::copy_in);
      default:
        decision(e);
        return counters_at(e.began, e.use);
    }
  }

  /// How many decisions were told: the number of the last one.
  [[nodiscard]] std::uint64_t decisions() const noexcept { return decisions_; }
  /// "offload", as the timeline has it.
  static std::string_view name_of(event_kind what) noexcept {
    constexpr std::array<std::string_view, 11> names{
        "run",        "recompute", "copy out", "copy in", "evict",        "offload",
        "clean drop", "reload",    "prefetch", "wait",    "costs unknown"};
    return names[static_cast<std::size_t>(what)];
  }

 private:
  // Behind the lanes, whose numbers are their lanes.
  static constexpr std::uint32_t lane_of_decisions = 3;

  // Metadata: phase "M". Names the process or a lane.
  void name(std::string_view what, std::uint32_t lane, std::string_view value) {
    open(what, "M", lane);
    put(",\"args\":{\"name\":", value);
    text("}}");
  }
  // Work: phase "X", complete, with beginning and length. A slice is named after its operator; a
  // copy after its direction, as many operators share it.
  void slice(const event& e, lane lane) {
    const bool compute = lane == lane::compute;
    open(compute ? std::string_view(e.operation) : name_of(e.what), "X",
         static_cast<std::uint32_t>(lane));
    put(",\"cat\":", name_of(e.what));
    put(",\"ts\":", e.began);
    put(",\"dur\":", e.took);
    text(",\"args\":{");
    subject(e);
    text("}}");
  }
  // An instant: phase "i", scope thread. The number tells decisions of one nanosecond apart: in
  // virtual time many happen at once.
  void decision(const event& e) {
    open(name_of(e.what), "i", lane_of_decisions);
    text(",\"cat\":\"decision\",\"s\":\"t\"");
    put(",\"ts\":", e.began);
    put(",\"args\":{\"decision\":", ++decisions_);
    text(",");
    subject(e);
    put(",\"for\":", e.operation);
    put(",\"score\":", e.score);
    put(",\"cost_ns\":", e.cost);
    put(",\"alternative_ns\":", e.alternative);
    text("}}");
  }
  // Phase "C". chrome://tracing stacks the series of a counter, so they must not overlap: resident
  // is without what is in flight.
  void counters_at(nanoseconds when, const memory_use& use) {
    open("bytes", "C", 0);
    put(",\"ts\":", when);
    put(",\"args\":{\"resident\":", detail::saturating_sub(use.device, use.in_flight).count);
    put(",\"in flight\":", use.in_flight.count);
    put(",\"host\":", use.host.count);
    text("}}");
  }

  // The head that all events share. The comma goes before every event but the first, so that the
  // array is well formed up to its last complete line at any time.
  void open(std::string_view name, std::string_view phase, std::uint32_t lane) {
    if (std::exchange(began_, true)) text(",\n");
    put("{\"name\":", name);
    put(",\"ph\":", phase);
    put(",\"pid\":0,\"tid\":", lane);
  }
  // Which tensor: the three fields that all slices and decisions have.
  void subject(const event& e) {
    if (e.tensor == tensor_id::none)
      text("\"tensor\":null");
    else
      put("\"tensor\":", index(e.tensor));
    put(",\"label\":", e.label);
    put(",\"bytes\":", e.size.count);
  }

  // What stands before a value, then the value. The format's unit of time is the microsecond; three
  // decimals keep every nanosecond.
  void put(std::string_view key, nanoseconds t) {
    const auto ns = t.count() < 0 ? std::uint64_t{0} : static_cast<std::uint64_t>(t.count());
    put(key, ns / 1000);
    const std::uint64_t rest = ns % 1000;
    const auto digit = [](std::uint64_t n) { return static_cast<char>('0' + n); };
    const std::array<char, 4> decimals{'.', digit(rest / 100), digit(rest / 10 % 10),
                                       digit(rest % 10)};
    text({decimals.data(), decimals.size()});
  }
  // What is not a number, or not finite, is null: JSON has neither.
  void put(std::string_view key, double value) {
    text(key);
    std::isfinite(value) ? number(value) : text("null");
  }
  void put(std::string_view key, std::unsigned_integral auto value) {
    text(key);
    number(value);
  }
  // JSON forbids control characters in strings. A label is for people: a space will do.
  void put(std::string_view key, std::string_view value) {
    text(key);
    text("\"");
    for (const char c : value) {
      if (c == '"' || c == '\\') text("\\");
      const bool control = static_cast<unsigned char>(c) < ' ';
      text(control ? std::string_view(" ") : std::string_view(&c, 1));
    }
    text("\"");
  }
  // to_chars, as a stream's own numbers depend on its locale and flags.
  void number(auto value) {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    text({digits.data(), static_cast<std::size_t>(end - digits.data())});
  }
  void text(std::string_view s) { to_->write(s.data(), static_cast<std::streamsize>(s.size())); }

  std::ostream* to_;
  std::uint64_t decisions_ = 0;
  bool began_ = false;
};

static_assert(Observer<timeline> && Observer<observed_by<timeline>>);

}  // namespace delta
