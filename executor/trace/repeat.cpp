#include "trace/repeat.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "trace/assembly.hpp"
#include "trace/copy.hpp"
#include "traces/handed_over.hpp"

namespace delta::executor {
namespace {

using events = std::span<const trace::event>;

bool ends_step(const trace::event& e) {
  return e.what == trace::kind::end_of_step;
}

/// What is repeated of a trace, and what comes before it: nothing, where that is the whole.
struct parts {
  events past, step;
};

parts parts_of(const trace& t) {
  const events all(t.events);
  const std::size_t ends = static_cast<std::size_t>(std::ranges::count_if(all, ends_step));
  if (ends == 0 || (ends == 1 && !t.has_results())) return {all.first(0), all};
  if (t.has_results()) throw std::invalid_argument("the recording does not end with a step");
  const auto earlier = std::find_if(all.rbegin() + 1, all.rend(), ends_step);
  const auto begins = static_cast<std::size_t>(all.rend() - earlier);
  return {all.first(begins), all.subspan(begins)};
}

/// One trace's part of a program: what comes once, and any number of steps.
class repeated_step {
 public:
  repeated_step(const trace& from, trace_assembly& to)
      : from_(&from),
        to_(&to),
        copy_(from, to),
        parts_(parts_of(from)),
        once_(from.tensors.size(), false),
        change_(from.tensors.size(), 0),
        made_(from.tensors.size(), false),
        is_there_(from.tensors.size(), false),
        skipped_(parts_.step.size(), false) {
    choose_what_comes_once();
    read_step();
    becomes_.assign(from.tensors.size(), trace::none);
    if (parts_.past.empty()) becomes_ = handed_over(from);
  }

  /// What comes once. First, and once.
  void begin() {
    copy_.add_held(parts_.past);
    for (std::size_t i = 0; i < parts_.step.size(); ++i)
      if (skipped_[i] && parts_.step[i].what != trace::kind::drop) copy_.add(parts_.step[i]);
  }
  /// One step, up to its end.
  void add_step() {
    for (std::size_t i = 0; i < parts_.step.size(); ++i) {
      const trace::event& e = parts_.step[i];
      if (!skipped_[i] && !(is_source(e.what) && is_there_[e.index])) copy_.add(e);
    }
    is_there_.assign(is_there_.size(), false);
    if (!from_->has_results()) return;
    gather_results();
    let_go();
    to_->add(trace::kind::end_of_step);
  }
  /// Behind a step, where another one follows: its leftovers go, or if that is another step like it
  /// become what that one drops.
  void add_interval(bool same_step) {
    if (from_->has_results()) return;
    if (same_step)
      for (std::uint32_t t = 0; t < becomes_.size(); ++t)
        if (const std::uint32_t next = becomes_[t]; next != trace::none)
          copy_.hand_over(t, next), is_there_[next] = true;
    let_go();
  }

 private:
  void choose_what_comes_once() {
    if (!parts_.past.empty()) {
      const std::vector<holding> before = holdings_after(*from_, parts_.past);
      for (std::size_t t = 0; t < before.size(); ++t) once_[t] = before[t].references > 0;
      return;
    }
    const std::vector<holding> after = holdings_after(*from_, parts_.step);
    bool at_start = true;
    for (std::size_t i = 0; i < parts_.step.size(); ++i) {
      const trace::event& e = parts_.step[i];
      at_start = at_start && e.what != trace::kind::run;
      if (is_source(e.what) && (at_start || from_->has_results()))
        once_[e.index] = skipped_[i] = after[e.index].references > 0;
      else if (e.what == trace::kind::write && at_start)
        skipped_[i] = once_[e.index];
    }
  }

  /// What a step does to the references of what comes once, and what it makes itself.
  void read_step() {
    for (std::size_t i = 0; i < parts_.step.size(); ++i) {
      const trace::event& e = parts_.step[i];
      if (skipped_[i]) continue;
      if (is_source(e.what)) {
        make(e.index);
      } else if (e.what == trace::kind::run) {
        for (const std::uint32_t t : from_->outputs(from_->operations[e.index])) make(t);
      } else if (e.what == trace::kind::share) {
        ++change_[e.index];
      } else if (e.what == trace::kind::drop) {
        --change_[e.index];
      }
    }
    keep_one_reference();
  }
  void make(std::uint32_t tensor) {
    made_[tensor] = true;
    change_[tensor] = 1;
  }
  /// Leaves out the drops of what the past made and the step drops for good: the last ones.
  void keep_one_reference() {
    if (parts_.past.empty()) return;
    const std::vector<holding> after = holdings_after(*from_, from_->events);
    std::vector<bool> kept(once_.size(), false);
    for (std::size_t i = parts_.step.size(); i-- > 0;) {
      const trace::event& e = parts_.step[i];
      if (e.what != trace::kind::drop || !once_[e.index] || kept[e.index]) continue;
      kept[e.index] = true;
      if (after[e.index].references > 0) continue;
      skipped_[i] = true;
      ++change_[e.index];
    }
  }

  void gather_results() {
    trace_assembly::draft all;
    all.name = "results";
    for (std::uint32_t t = 0; t < made_.size(); ++t)
      if (made_[t] && change_[t] > 0) all.inputs.push_back(copy_.number(t));
    to_->add_run(all);
  }
  /// Brings the references back to what they were when the step began.
  void let_go() {
    for (std::uint32_t t = 0; t < change_.size(); ++t) {
      if (becomes_[t] != trace::none && is_there_[becomes_[t]]) continue;
      for (std::int64_t i = change_[t]; i < 0; ++i) copy_.add(trace::kind::share, t);
      for (std::int64_t i = change_[t]; i > 0; --i) copy_.add(trace::kind::drop, t);
    }
  }

  const trace* from_;
  trace_assembly* to_;
  copyist copy_;
  parts parts_;
  std::vector<bool> once_;              // by tensor: it comes once
  std::vector<std::int64_t> change_;    // by tensor: what a step adds to its references
  std::vector<bool> made_;              // by tensor: every step makes it
  std::vector<bool> is_there_;          // by tensor: the step before has left it
  std::vector<std::uint32_t> becomes_;  // by tensor: handed_over
  std::vector<bool> skipped_;           // by event of the step: no step does it
};

/// The program that `build` writes.
template <class Build>
trace assembled(const std::optional<trace::origin>& recorded_on, const Build& build) {
  try {
    trace_assembly program;
    if (recorded_on) program.set_origin(*recorded_on);
    build(program);
    return program.take();
  } catch (const trace_fault& fault) {
    throw std::length_error("the step can't be repeated: " + fault.wrong +
                            "; expected: " + fault.expected);
  }
}

void refuse_none(std::size_t times) {
  if (times == 0) throw std::invalid_argument("a program of no steps");
}

}  // namespace

trace repeat_trace(const trace& recorded, std::size_t times) {
  refuse_none(times);
  if (times == 1 && parts_of(recorded).past.empty()) return recorded;
  return assembled(recorded.recorded_on, [&](trace_assembly& program) {
    repeated_step steps(recorded, program);
    steps.begin();
    for (std::size_t i = 0; i < times; ++i) {
      if (i > 0) steps.add_interval(true);
      steps.add_step();
    }
  });
}

trace alternate(const trace& a, const trace& b, std::size_t times) {
  refuse_none(times);
  if (a.recorded_on != b.recorded_on)
    throw std::invalid_argument("the recordings are of different machines");
  return assembled(a.recorded_on, [&](trace_assembly& program) {
    repeated_step first(a, program), second(b, program);
    first.begin();
    second.begin();
    for (std::size_t i = 0; i < times; ++i) {
      if (i > 0) second.add_interval(false);
      first.add_step();
      first.add_interval(false);
      second.add_step();
    }
  });
}

}  // namespace delta::executor
