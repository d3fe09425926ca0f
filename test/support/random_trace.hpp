// Random recorded programs, made from a seed: every kind of event, views, updates, odd names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "traces/trace.hpp"

namespace delta::test {

/// A trace that keeps the rules, with its lists and names in the order of their use.
class random_trace {
 public:
  random_trace(std::uint64_t seed, std::size_t events) : random_(seed) {
    if (below(2) == 0) {
      result_.recorded_on = {.device = odd_name(),
                             .rate_out = below(1u << 30),
                             .rate_in = below(9),
                             .rate_move = below(3),
                             .granularity = below(2) << below(10)};
      if (below(2) == 0) result_.recorded_on->latency = nanoseconds{index_below(3)};
    }
    for (std::size_t i = 0; i < events; ++i) add_event();
  }

  trace take() { return std::move(result_); }

 private:
  std::uint64_t below(std::uint64_t limit) {
    return std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random_);
  }
  std::uint32_t index_below(std::size_t limit) { return static_cast<std::uint32_t>(below(limit)); }
  bytes size() { return bytes{below(3) == 0 ? below(3) : below(std::uint64_t{1} << below(40))}; }

  std::string odd_name() {
    constexpr std::string_view letters = "add_conv \"\\/\n\t\x01\x7f\xc3\xa9";
    std::string name;
    for (std::uint64_t i = below(6); i > 0; --i) name += letters[below(letters.size())];
    return name;
  }
  std::uint32_t name_index() {
    const std::string name = odd_name();
    const auto index = std::ranges::find(result_.names, name) - result_.names.begin();
    if (index == std::ssize(result_.names)) result_.names.push_back(name);
    return static_cast<std::uint32_t>(index);
  }

  void record(trace::kind what, std::uint32_t index = 0) {
    result_.events.push_back({what, index});
  }
  std::uint32_t make(trace::tensor tensor) {
    const auto index = static_cast<std::uint32_t>(result_.tensors.size());
    result_.tensors.push_back(tensor);
    held_.push_back(index);
    return index;
  }
  std::uint32_t any_held() { return held_[below(held_.size())]; }

  void add_event() {
    const auto what = below(held_.empty() ? 2 : 14);
    if (what < 2) {
      const std::uint32_t name = below(2) == 0 ? name_index() : trace::none;
      return record(what == 0 ? trace::kind::constant : trace::kind::variable,
                    make({.size = size(), .name = name}));
    }
    if (what < 7) return add_run();
    if (what < 8) {
      held_.push_back(any_held());
      return record(trace::kind::share, held_.back());
    }
    if (what < 11) {
      const auto which = held_.begin() + static_cast<std::ptrdiff_t>(below(held_.size()));
      record(trace::kind::drop, *which);
      held_.erase(which);
      return;
    }
    if (what < 13) return add_access();
    record(below(2) == 0 ? trace::kind::backward : trace::kind::end_of_step);
  }

  void add_access() {
    const std::uint32_t t = any_held();
    const bool source = result_.tensors[t].producer == trace::none;
    record(source && below(2) == 0 ? trace::kind::write : trace::kind::read, t);
  }

  void add_run() {
    const auto index = static_cast<std::uint32_t>(result_.operations.size());
    trace::operation o{.name = name_index(),
                       .cost = nanoseconds{static_cast<std::int64_t>(below(1u << 20))},
                       .first = static_cast<std::uint32_t>(result_.lists.size()),
                       .inputs = index_below(4),
                       .outputs = index_below(4),
                       .workspace = size(),
                       .traits = static_cast<trait>(below(8))};
    std::vector<std::uint32_t> touched;
    for (std::uint32_t i = 0; i < o.inputs; ++i) touched.push_back(any_held());
    std::vector<std::uint32_t> updated;
    if (below(3) == 0) updated.push_back(any_held());
    o.updates = static_cast<std::uint32_t>(updated.size());
    auto& lists = result_.lists;
    lists.insert(lists.end(), touched.begin(), touched.end());
    touched.insert(touched.end(), updated.begin(), updated.end());
    for (std::uint32_t i = 0; i < o.outputs; ++i) {
      const bool view = !touched.empty() && below(3) == 0;
      lists.push_back(make({.size = view ? bytes{} : size(),
                            .view_of = view ? touched[below(touched.size())] : trace::none,
                            .producer = index}));
    }
    lists.insert(lists.end(), updated.begin(), updated.end());
    result_.operations.push_back(o);
    record(trace::kind::run, index);
  }

  std::mt19937_64 random_;
  trace result_;
  std::vector<std::uint32_t> held_;  ///< one entry per reference
};

}  // namespace delta::test
