#include "trace/steps.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>

#include "trace/assembly.hpp"
#include "trace/copy.hpp"

namespace delta::executor {
namespace {

/// How many events come before the last step.
std::size_t before_last_step(const trace& t) {
  const auto ends = [](const trace::event& e) { return e.what == trace::kind::end_of_step; };
  if (t.events.empty() || !ends(t.events.back()))
    throw std::invalid_argument("the recording does not end with a step");
  const auto earlier = std::find_if(t.events.rbegin() + 1, t.events.rend(), ends);
  if (earlier == t.events.rend()) throw std::invalid_argument("the recording has a single step");
  return static_cast<std::size_t>(t.events.rend() - earlier);
}

}  // namespace

trace repeat_last_step(const trace& recorded, std::size_t times) {
  const std::span all(recorded.events);
  const std::size_t begins = before_last_step(recorded);
  try {
    trace_assembly program;
    if (recorded.recorded_on) program.set_origin(*recorded.recorded_on);
    copyist copy(recorded, program);
    copy.add_held(all.first(begins));
    for (std::size_t i = 0; i < times; ++i)
      for (const trace::event& e : all.subspan(begins)) copy.add(e);
    return program.take();
  } catch (const trace_fault& fault) {
    throw std::length_error("the step can't be repeated: " + fault.wrong +
                            "; expected: " + fault.expected);
  }
}

}  // namespace delta::executor
