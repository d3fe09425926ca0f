// delta: a recorded program: what a framework asked of its memory, in order. docs/traces.md has the
// rules and the file format; reading and writing files is the executor's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "delta/error.hpp"
#include "delta/kernel.hpp"
#include "delta/units.hpp"

namespace delta {

/// Where a trace was recorded. Rates are in bytes per second; 0: not known.
struct trace_origin {
  std::string device = {};
  std::uint64_t rate_out = 0;               ///< of copies to the host
  std::uint64_t rate_in = 0;                ///< of copies from the host
  std::uint64_t rate_move = 0;              ///< within the device; 0: moves take no time
  std::optional<nanoseconds> latency = {};  ///< of every copy; absent: not known
  std::uint64_t granularity = 0;            ///< blocks are rounded up to it; 0: 1
  bool operator==(const trace_origin&) const = default;
};

/// A recorded program: what a framework asked of its memory, in order.
///
/// Tensors and operations are numbered in the order in which events make and run them. A tensor is
/// made with one reference; `share` adds one, `drop` takes one, and what an operation touches has
/// at least one. A reference to a view is a reference to that tensor. A storage's bytes are in use
/// while its tensor or any view of it, direct or not, has a reference. What has references at the
/// end is the program's result, unless the last event is the end of a step: then a next step would
/// follow, and what it needs may be anywhere.
struct trace {
  static constexpr std::uint32_t none = 0xffffffffu;

  /// A value: a storage's bytes, or a view of another tensor.
  struct tensor {
    bytes size{};                   ///< of its storage if it owns one, 0 for a view
    std::uint32_t view_of = none;   ///< the tensor whose bytes it shares: its producer touches it
    std::uint32_t producer = none;  ///< the operation that made it; none: a constant or variable
    std::uint32_t name = none;      ///< of a constant or variable, index into `names`; none: none
    bool operator==(const tensor&) const = default;
  };

  /// Its lists lie one behind the other in `lists`: inputs, then outputs, then updates.
  struct operation {
    std::uint32_t name = 0;  ///< index into `names`
    nanoseconds cost{};
    std::uint32_t first = 0;    ///< where its lists begin
    std::uint32_t inputs = 0;   ///< how many tensors it reads
    std::uint32_t outputs = 0;  ///< how many it makes
    std::uint32_t updates = 0;  ///< how many it changes in place
    bytes workspace{};          ///< scratch, while it runs
    trait traits = trait::pure;
    bool operator==(const operation&) const = default;
  };

  enum class kind : std::uint8_t {
    constant,    ///< a tensor without a producer appears, and stays on the device
    variable,    ///< the same, but it may leave
    run,         ///< an operation runs, and its outputs appear
    share,       ///< a tensor gets one more reference
    drop,        ///< a tensor loses one
    read,        ///< the program itself looks at a tensor's bytes
    write,       ///< it overwrites them: whatever was made from the old ones can't be made again
    backward,    ///< the backward pass begins
    end_of_step  ///< a training step ends
  };

  struct event {
    kind what = kind::end_of_step;
    std::uint32_t index = 0;  ///< a tensor; an operation for run; 0 for backward and end_of_step
    bool operator==(const event&) const = default;
  };

  using origin = trace_origin;

  std::vector<tensor> tensors;
  std::vector<operation> operations;
  std::vector<std::uint32_t> lists;
  std::vector<event> events;
  std::vector<std::string> names;
  std::optional<origin> recorded_on;

  bool operator==(const trace&) const = default;

  [[nodiscard]] std::span<const std::uint32_t> inputs(const operation& o) const noexcept {
    return list(o.first, o.inputs);
  }
  [[nodiscard]] std::span<const std::uint32_t> outputs(const operation& o) const noexcept {
    return list(o.first + std::size_t{o.inputs}, o.outputs);
  }
  [[nodiscard]] std::span<const std::uint32_t> updates(const operation& o) const noexcept {
    return list(o.first + std::size_t{o.inputs} + o.outputs, o.updates);
  }
  [[nodiscard]] const std::string& name(const operation& o) const noexcept { return names[o.name]; }
  /// What a block of `n` bytes takes where the trace was recorded.
  [[nodiscard]] bytes rounded(bytes n) const noexcept {
    return recorded_on && recorded_on->granularity > 1 ? round_up(n, recorded_on->granularity) : n;
  }
  /// Is what has references at the end the program's result?
  [[nodiscard]] bool has_results() const noexcept {
    return events.empty() || events.back().what != kind::end_of_step;
  }

 private:
  [[nodiscard]] std::span<const std::uint32_t> list(std::size_t first,
                                                    std::size_t count) const noexcept {
    return std::span(lists).subspan(first, count);
  }
};

/// A trace that breaks the rules, or a file that holds none. `what()` is one line: where, what is
/// wrong, what was expected.
class bad_trace : public error {
 public:
  /// In memory: event number `event` breaks a rule; the number of events: the trace as a whole.
  bad_trace(std::uint64_t number, const char* wrong, const char* expected) noexcept
      : event(number) {
    print("trace, event %llu: %s; expected: %s", static_cast<unsigned long long>(number), wrong,
          expected);
  }
  /// In a file. `number` counts from 1; 0: the file as a whole.
  bad_trace(std::string_view path, std::uint64_t number, const char* wrong,
            const char* expected) noexcept
      : line(number) {
    constexpr std::size_t most = 512;  // of a path, so that the message is not cut off
    const auto shown = path.substr(path.size() - std::min(path.size(), most));
    file_length_ = shown.size();
    print("%.*s", static_cast<int>(shown.size()), shown.data());
    if (number > 0) print(":%llu", static_cast<unsigned long long>(number));
    print(": %s; expected: %s", wrong, expected);
  }

  /// The file, or its path's last 512 bytes; empty: a trace in memory.
  [[nodiscard]] std::string_view file() const noexcept { return {what(), file_length_}; }

  std::uint64_t line = 0;
  std::uint64_t event = 0;

 private:
  std::size_t file_length_ = 0;
};

/// The rules of a trace, applied event by event: how readers find the line that breaks one.
class trace_rules {
 public:
  /// What is wrong with an event, and what it should be.
  struct finding {
    const char* wrong;
    const char* expected;
  };

  /// Before the first event: what `t` says of where it was recorded.
  [[nodiscard]] static std::optional<finding> begin(const trace& t) noexcept {
    if (!t.recorded_on) return {};
    const trace::origin& o = *t.recorded_on;
    if (std::max({o.rate_out, o.rate_in, o.rate_move}) > most_bytes.count)
      return finding{"a copy rate beyond 63 bits", "less"};
    if (o.latency && o.latency->count() < 0) return finding{"a negative latency", "0 ns or more"};
    if (o.granularity > most_granularity || (o.granularity & (o.granularity - 1)) != 0)
      return finding{"a granularity that is no power of two", "one of at most 2^32"};
    return {};
  }

  /// The next event of `t`, whose operation and tensors are in `t` already. Linear in the
  /// operation's lists. Throws std::bad_alloc.
  [[nodiscard]] std::optional<finding> next(const trace& t, const trace::event& e) {
    switch (e.what) {
      case trace::kind::constant:
      case trace::kind::variable:
        return source(t, e.index);
      case trace::kind::run:
        return run(t, e.index);
      case trace::kind::share:
        if (!held(e.index)) return not_held;
        ++tensors_[e.index].references;
        return {};
      case trace::kind::drop:
        if (!held(e.index)) return not_held;
        --tensors_[e.index].references;
        return {};
      case trace::kind::read:
        return held(e.index) ? std::nullopt : std::optional(not_held);
      case trace::kind::write:
        return write(e.index);
      case trace::kind::backward:
      case trace::kind::end_of_step:
        if (e.index != 0) return finding{"a mark with an index", "the index 0"};
        steps_ += e.what == trace::kind::end_of_step;
        return {};
    }
    return finding{"an event of no known kind", "one of delta::trace::kind"};
  }

  /// After the last event: everything in `t` has appeared in one.
  [[nodiscard]] std::optional<finding> end(const trace& t) const noexcept {
    if (t.tensors.size() != tensors_.size())
      return finding{"a tensor that no event makes", "one event for each tensor"};
    if (t.operations.size() != operations_)
      return finding{"an operation that no event runs", "one event for each operation"};
    return {};
  }

 private:
  struct state {
    std::uint64_t references = 1;
    std::uint64_t touched = 0;   ///< 1 + the last operation that had it among inputs and updates
    std::uint64_t updated = 0;   ///< 1 + the last operation that updated it
    std::uint64_t writable = 0;  ///< from this many ends of steps on
  };
  static constexpr finding not_held{"a tensor that nothing holds",
                                    "one that was made and not dropped since"};

  [[nodiscard]] bool held(std::uint32_t tensor) const noexcept {
    return tensor < tensors_.size() && tensors_[tensor].references > 0;
  }

  std::optional<finding> source(const trace& t, std::uint32_t tensor) {
    if (tensor != tensors_.size() || tensor >= t.tensors.size()) return out_of_order;
    if (t.tensors[tensor].producer != trace::none || t.tensors[tensor].view_of != trace::none)
      return finding{"a constant or variable with a producer, or that is a view", "neither"};
    if (const std::uint32_t name = t.tensors[tensor].name;
        name != trace::none && name >= t.names.size())
      return finding{"a tensor's name outside `names`", "an index into it"};
    return make(t, t.tensors[tensor], 0);
  }

  std::optional<finding> write(std::uint32_t tensor) const {
    if (!held(tensor)) return not_held;
    if (tensors_[tensor].writable > steps_)
      return finding{"a write to what an operation of this step made",
                     "a constant, a variable, or what an earlier step left"};
    return {};
  }

  std::optional<finding> run(const trace& t, std::uint32_t index) {
    if (index != operations_ || index >= t.operations.size())
      return finding{"an operation out of its order", "operations by number, each once"};
    const auto& o = t.operations[index];
    const std::uint64_t length = std::uint64_t{o.inputs} + o.outputs + o.updates;
    if (o.first > t.lists.size() || length > t.lists.size() - o.first)
      return finding{"an operation's lists outside `lists`", "a range within it"};
    if (o.name >= t.names.size())
      return finding{"an operation's name outside `names`", "an index into it"};
    if (static_cast<unsigned>(o.traits) > every_trait)
      return finding{"an unknown trait", "random, effect_once, never_replay"};
    if (o.cost.count() < 0) return finding{"a negative cost", "0 ns or more"};
    if (o.cost > most_time - time_) return finding{"costs beyond 63 bits", "less in all"};
    time_ += o.cost;
    if (auto f = account(t, o.workspace)) return f;

    const std::uint64_t stamp = ++operations_;
    for (const std::uint32_t tensor : t.inputs(o)) {
      if (!held(tensor)) return not_held;
      tensors_[tensor].touched = stamp;
    }
    for (const std::uint32_t tensor : t.updates(o)) {
      if (!held(tensor)) return not_held;
      if (tensors_[tensor].updated == stamp)
        return finding{"a tensor that one operation updates twice", "each once"};
      tensors_[tensor].touched = tensors_[tensor].updated = stamp;
    }
    for (const std::uint32_t tensor : t.outputs(o)) {
      if (tensor != tensors_.size() || tensor >= t.tensors.size()) return out_of_order;
      const auto& made = t.tensors[tensor];
      if (made.producer != index)
        return finding{"an output whose producer is another", "the operation that makes it"};
      if (made.name != trace::none)
        return finding{"a name of what an operation makes", "none: it has the operation's"};
      std::uint64_t writable = steps_ + 1;
      if (made.view_of != trace::none) {
        if (made.view_of >= tensors_.size() || tensors_[made.view_of].touched != stamp)
          return finding{"a view of what its operation does not touch",
                         "one of its inputs or updates"};
        if (made.size != bytes{}) return finding{"a view with bytes of its own", "size 0"};
        writable = tensors_[made.view_of].writable;
      }
      if (auto f = make(t, made, writable)) return f;
    }
    return {};
  }

  std::optional<finding> make(const trace& t, const trace::tensor& tensor, std::uint64_t writable) {
    if (auto f = account(t, tensor.size)) return f;
    tensors_.push_back({.writable = writable});
    return {};
  }

  /// Keeps every sum of rounded sizes within 63 bits, so that nobody who adds some up has to look.
  std::optional<finding> account(const trace& t, bytes size) noexcept {
    constexpr finding too_large{"sizes beyond 63 bits", "less in all"};
    if (size > most_bytes) return too_large;  // so that rounding it up stays within 64
    if (t.rounded(size) > most_bytes - bytes_) return too_large;
    bytes_ += t.rounded(size);
    return {};
  }

  static constexpr finding out_of_order{"a tensor made out of its order",
                                        "tensors by number, each once"};
  static constexpr unsigned every_trait = 7;
  static constexpr bytes most_bytes{std::numeric_limits<std::int64_t>::max()};
  static constexpr std::uint64_t most_granularity = std::uint64_t{1} << 32;
  static constexpr nanoseconds most_time = nanoseconds::max();

  std::vector<state> tensors_;
  std::uint64_t operations_ = 0;
  std::uint64_t steps_ = 0;  // that have ended
  bytes bytes_{};
  nanoseconds time_{};
};

/// Throws bad_trace at the first event that breaks the rules. Linear in the trace.
inline void check(const trace& t) {
  trace_rules rules;
  if (const auto f = trace_rules::begin(t)) throw bad_trace(t.events.size(), f->wrong, f->expected);
  for (std::size_t i = 0; i < t.events.size(); ++i)
    if (const auto f = rules.next(t, t.events[i])) throw bad_trace(i, f->wrong, f->expected);
  if (const auto f = rules.end(t)) throw bad_trace(t.events.size(), f->wrong, f->expected);
}

/// What all operations take together. The trace keeps the rules.
inline nanoseconds total_cost(const trace& t) noexcept {
  nanoseconds sum{};
  for (const auto& o : t.operations) sum += o.cost;
  return sum;
}

/// The most bytes in use at once, rounded as the trace says, every storage from the event that
/// makes it to the last reference to it or a view of it, and an operation's workspace while it
/// runs: what the program takes without a budget. Linear in the trace, which keeps the rules.
/// Throws std::bad_alloc.
inline bytes unmanaged_peak(const trace& t) {
  struct storage {
    std::uint32_t owner = 0;       // of the tensor's bytes: itself, but for views
    std::uint64_t references = 0;  // to an owner and its views
  };
  std::vector<storage> storages(t.tensors.size());
  bytes now{};
  bytes most{};
  const auto make = [&](std::uint32_t tensor) {
    const auto& made = t.tensors[tensor];
    const bool view = made.view_of != trace::none;
    storages[tensor].owner = view ? storages[made.view_of].owner : tensor;
    ++storages[storages[tensor].owner].references;
    now += t.rounded(made.size);
  };
  for (const auto& e : t.events) {
    bytes scratch{};
    switch (e.what) {
      case trace::kind::constant:
      case trace::kind::variable:
        make(e.index);
        break;
      case trace::kind::run:
        for (const std::uint32_t tensor : t.outputs(t.operations[e.index])) make(tensor);
        scratch = t.rounded(t.operations[e.index].workspace);
        break;
      case trace::kind::share:
        ++storages[storages[e.index].owner].references;
        break;
      case trace::kind::drop: {
        const std::uint32_t owner = storages[e.index].owner;
        if (--storages[owner].references == 0) now -= t.rounded(t.tensors[owner].size);
        break;
      }
      case trace::kind::read:
      case trace::kind::write:
      case trace::kind::backward:
      case trace::kind::end_of_step:
        break;
    }
    most = std::max(most, now + scratch);
  }
  return most;
}

}  // namespace delta
