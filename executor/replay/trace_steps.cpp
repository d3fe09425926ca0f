#include "replay/trace_steps.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "replay/trace_assembly.hpp"

namespace delta::executor {
namespace {

using events = std::span<const trace::event>;

/// How many events come before the last step.
std::size_t before_last_step(const trace& t) {
  const auto ends = [](const trace::event& e) { return e.what == trace::kind::end_of_step; };
  if (t.events.empty() || !ends(t.events.back()))
    throw std::invalid_argument("the recording does not end with a step");
  const auto earlier = std::find_if(t.events.rbegin() + 1, t.events.rend(), ends);
  if (earlier == t.events.rend()) throw std::invalid_argument("the recording has a single step");
  return static_cast<std::size_t>(t.events.rend() - earlier);
}

/// What is known of a tensor when the last step begins.
struct holding {
  std::uint32_t references = 0;
  bool written = false;
};

std::vector<holding> holdings_after(const trace& t, events past) {
  std::vector<holding> held(t.tensors.size());
  for (const trace::event& e : past) {
    switch (e.what) {
      case trace::kind::run:
        for (const std::uint32_t made : t.outputs(t.operations[e.index])) held[made].references = 1;
        break;
      case trace::kind::constant:
      case trace::kind::variable:
      case trace::kind::share:
        ++held[e.index].references;
        break;
      case trace::kind::drop:
        --held[e.index].references;
        break;
      case trace::kind::write:
        held[e.index].written = true;
        break;
      case trace::kind::read:
      case trace::kind::backward:
      case trace::kind::end_of_step:
        break;
    }
  }
  return held;
}

/// Writes events of one trace into another, in which tensors have other numbers.
class copyist {
 public:
  explicit copyist(const trace& from) : from_(from), numbers_(from.tensors.size(), trace::none) {}

  /// Those of the sources in `past` that are held behind it.
  void add_held(events past) {
    const std::vector<holding> held = holdings_after(from_, past);
    for (const trace::event& e : past) {
      if (e.what == trace::kind::run) {
        refuse_held_outputs(from_.operations[e.index], held);
      } else if (is_source(e.what) && held[e.index].references > 0) {
        add(e);
        if (held[e.index].written) to_.add(trace::kind::write, numbers_[e.index]);
        for (std::uint32_t i = 1; i < held[e.index].references; ++i)
          to_.add(trace::kind::share, numbers_[e.index]);
      }
    }
  }
  void add(events all) {
    for (const trace::event& e : all) add(e);
  }
  trace take() {
    if (from_.recorded_on) to_.set_origin(*from_.recorded_on);
    return to_.take();
  }

 private:
  static bool is_source(trace::kind what) {
    return what == trace::kind::constant || what == trace::kind::variable;
  }
  void refuse_held_outputs(const trace::operation& o, const std::vector<holding>& held) const {
    for (const std::uint32_t made : from_.outputs(o))
      if (held[made].references > 0)
        throw std::invalid_argument("the last step begins with an output of '" + from_.name(o) +
                                    "'");
  }
  void add(const trace::event& e) {
    if (e.what == trace::kind::run) {
      add_run(from_.operations[e.index]);
    } else if (is_source(e.what)) {
      const trace::tensor& t = from_.tensors[e.index];
      numbers_[e.index] = to_.add_source(e.what, t.size, name_of(t));
    } else {
      const bool mark = e.what == trace::kind::backward || e.what == trace::kind::end_of_step;
      to_.add(e.what, mark ? 0 : numbers_[e.index]);
    }
  }
  void add_run(const trace::operation& o) {
    trace_assembly::draft made{.name = from_.name(o),
                               .cost = o.cost,
                               .inputs = numbers_of(from_.inputs(o)),
                               .outputs = {},
                               .updates = numbers_of(from_.updates(o)),
                               .workspace = o.workspace,
                               .traits = o.traits};
    for (const std::uint32_t t : from_.outputs(o)) {
      const trace::tensor& output = from_.tensors[t];
      const bool view = output.view_of != trace::none;
      made.outputs.push_back({output.size, view ? numbers_[output.view_of] : trace::none});
    }
    std::uint32_t next = to_.add_run(made);
    for (const std::uint32_t t : from_.outputs(o)) numbers_[t] = next++;
  }
  [[nodiscard]] std::vector<std::uint32_t> numbers_of(std::span<const std::uint32_t> list) const {
    std::vector<std::uint32_t> numbers;
    for (const std::uint32_t t : list) numbers.push_back(numbers_[t]);
    return numbers;
  }
  [[nodiscard]] std::optional<std::string_view> name_of(const trace::tensor& t) const {
    if (t.name == trace::none) return std::nullopt;
    return from_.names[t.name];
  }

  const trace& from_;
  trace_assembly to_;
  std::vector<std::uint32_t> numbers_;  // in the new trace, by number in the old
};

}  // namespace

trace repeat_last_step(const trace& recorded, std::size_t times) {
  const events all(recorded.events);
  const std::size_t begins = before_last_step(recorded);
  try {
    copyist copy(recorded);
    copy.add_held(all.first(begins));
    for (std::size_t i = 0; i < times; ++i) copy.add(all.subspan(begins));
    return copy.take();
  } catch (const trace_fault& fault) {
    throw std::length_error("the step can't be repeated: " + fault.wrong +
                            "; expected: " + fault.expected);
  }
}

}  // namespace delta::executor
