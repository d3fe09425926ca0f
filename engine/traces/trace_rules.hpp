// delta: the rules of a trace (docs/traces.md), checked event by event.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "delta/units.hpp"
#include "traces/trace_data.hpp"

namespace delta {

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
    std::uint32_t last = 0;
    for (const trace::gradient& g : t.gradients) {
      if (g.tensor >= t.tensors.size() || g.after >= t.operations.size() || g.after < last)
        return finding{"gradients of no tensor or operation, or out of order",
                       "each behind the operation that completes it"};
      last = g.after;
    }
    return {};
  }

 private:
  struct state {
    std::uint64_t references = 1;
    std::uint64_t touched = 0;   ///< 1 + the last operation that had it among inputs and updates
    std::uint64_t updated = 0;   ///< 1 + the last operation that updated it
    std::uint64_t writable = 0;  ///< from this many ends of steps on
    bool replaced = false;       ///< a new version has its block
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
      return finding{"an unknown trait", "random, effect_once, never_replay, asynchronous"};
    if (o.replaced > std::min(o.inputs, o.outputs))
      return finding{"more new versions than inputs or outputs", "at most so many"};
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
    for (const std::uint32_t tensor : t.inputs(o).first(o.replaced)) {
      if (t.tensors[tensor].view_of != trace::none)
        return finding{"a new version of a view", "of the tensor that it is a view of"};
      if (tensors_[tensor].updated == stamp || std::exchange(tensors_[tensor].replaced, true))
        return finding{"a new version of what is updated, or has one", "one, of an input"};
    }
    for (std::uint32_t i = 0; i < o.outputs; ++i) {
      const std::uint32_t tensor = t.outputs(o)[i];
      if (tensor != tensors_.size() || tensor >= t.tensors.size()) return out_of_order;
      const auto& made = t.tensors[tensor];
      if (made.producer != index)
        return finding{"an output whose producer is another", "the operation that makes it"};
      if (made.name != trace::none)
        return finding{"a name of what an operation makes", "none: it has the operation's"};
      if (i < o.replaced &&
          (made.view_of != trace::none || made.size != t.tensors[t.inputs(o)[i]].size))
        return finding{"a new version that is a view, or of another size",
                       "a tensor of the old one's size"};
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
  static constexpr unsigned every_trait = 15;
  static constexpr bytes most_bytes{std::numeric_limits<std::int64_t>::max()};
  static constexpr std::uint64_t most_granularity = std::uint64_t{1} << 32;
  static constexpr nanoseconds most_time = nanoseconds::max();

  std::vector<state> tensors_;
  std::uint64_t operations_ = 0;
  std::uint64_t steps_ = 0;  // that have ended
  bytes bytes_{};
  nanoseconds time_{};
};

}  // namespace delta
