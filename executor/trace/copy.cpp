#include "trace/copy.hpp"

#include <algorithm>
#include <stdexcept>

namespace delta::executor {

std::vector<holding> holdings_after(const trace& t, std::span<const trace::event> past) {
  const std::vector<std::uint32_t> references = references_after(t, past);
  std::vector<holding> held(t.tensors.size());
  for (std::size_t i = 0; i < held.size(); ++i) held[i].references = references[i];
  for (const trace::event& e : past)
    if (e.what == trace::kind::write) held[e.index].written = true;
  return held;
}

void copyist::add_held(std::span<const trace::event> past) {
  const std::vector<holding> held = holdings_after(*from_, past);
  for (const trace::event& e : past) {
    if (e.what == trace::kind::run) {
      const trace::operation& o = from_->operations[e.index];
      for (const std::uint32_t made : from_->outputs(o))
        if (held[made].references > 0)
          throw std::invalid_argument("the last step begins with an output of '" + from_->name(o) +
                                      "'");
    } else if (is_source(e.what) && held[e.index].references > 0) {
      add(e);
      if (held[e.index].written) add(trace::kind::write, e.index);
      for (std::uint32_t i = 1; i < held[e.index].references; ++i) add(trace::kind::share, e.index);
    }
  }
}

void copyist::add(const trace::event& e) {
  if (e.what == trace::kind::run) {
    add_run(from_->operations[e.index]);
    const auto complete =
        std::ranges::equal_range(from_->gradients, e.index, {}, &trace::gradient::after);
    for (const trace::gradient& g : complete) to_->add_gradient(numbers_[g.tensor]);
  } else if (is_source(e.what)) {
    const trace::tensor& t = from_->tensors[e.index];
    numbers_[e.index] = to_->add_source(e.what, t.size, name_of(t));
  } else if (e.what == trace::kind::backward || e.what == trace::kind::end_of_step) {
    to_->add(e.what);
  } else {
    add(e.what, e.index);
  }
}

void copyist::add_run(const trace::operation& o) {
  trace_assembly::draft made{.name = from_->name(o),
                             .cost = o.cost,
                             .inputs = numbers_of(from_->inputs(o)),
                             .outputs = {},
                             .updates = numbers_of(from_->updates(o)),
                             .workspace = o.workspace,
                             .traits = o.traits,
                             .replaced = o.replaced};
  for (const std::uint32_t t : from_->outputs(o)) {
    const trace::tensor& output = from_->tensors[t];
    const bool view = output.view_of != trace::none;
    made.outputs.push_back({output.size, view ? numbers_[output.view_of] : trace::none});
  }
  std::uint32_t next = to_->add_run(made);
  for (const std::uint32_t t : from_->outputs(o)) numbers_[t] = next++;
}

std::vector<std::uint32_t> copyist::numbers_of(std::span<const std::uint32_t> list) const {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(list.size());
  for (const std::uint32_t t : list) numbers.push_back(numbers_[t]);
  return numbers;
}

std::optional<std::string_view> copyist::name_of(const trace::tensor& t) const {
  if (t.name == trace::none) return std::nullopt;
  return from_->names[t.name];
}

}  // namespace delta::executor
