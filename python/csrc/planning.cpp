// delta_torch: recorded steps for Python: made of arrays, replayed without the interpreter's lock.
#include "planning.hpp"

#include <torch/csrc/Exceptions.h>

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "delta/engine/any_storage.hpp"
#include "operators.hpp"
#include "recorded_step.hpp"
#include "session.hpp"
#include "traces/bound.hpp"
#include "traces/collectives.hpp"
#include "traces/network.hpp"

namespace py = pybind11;

namespace delta_torch {

namespace {

using numbers = std::vector<std::int64_t>;

// Of an operation: name, cost in ns, traits, inputs, outputs, updates, new versions, workspace.
constexpr std::size_t fields = 8;

std::uint32_t index_of(std::int64_t n) {
  if (n < 0 || n >= delta::trace::none)
    throw std::invalid_argument("a recorded step has an index that is out of range");
  return static_cast<std::uint32_t>(n);
}
delta::bytes size_of(std::int64_t n) {
  if (n < 0) throw std::invalid_argument("a recorded step has a negative size");
  return delta::bytes{static_cast<std::uint64_t>(n)};
}

void add_operations(delta::trace& t, const numbers& operations) {
  if (operations.size() % fields != 0)
    throw std::invalid_argument("a recorded step has an operation that is cut off");
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < operations.size(); i += fields) {
    const std::int64_t* const o = &operations[i];
    t.operations.push_back({.name = index_of(o[0]),
                            .cost = delta::nanoseconds{o[1]},
                            .first = first,
                            .inputs = index_of(o[3]),
                            .outputs = index_of(o[4]),
                            .updates = index_of(o[5]),
                            .workspace = size_of(o[7]),
                            .traits = static_cast<delta::trait>(o[2] & 7),
                            .replaced = index_of(o[6])});
    const auto& made = t.operations.back();
    first += made.inputs + made.outputs + made.updates;
  }
}

// Who made each tensor.
void name_producers(delta::trace& t) {
  for (std::uint32_t i = 0; i < t.operations.size(); ++i) {
    const auto& o = t.operations[i];
    const std::size_t end = std::size_t{o.first} + o.inputs + o.outputs + o.updates;
    if (end > t.lists.size())
      throw std::invalid_argument("a recorded step has a list that is cut off");
    for (const std::uint32_t out : t.outputs(o)) {
      if (out >= t.tensors.size())
        throw std::invalid_argument("a recorded step makes a tensor that it does not have");
      t.tensors[out].producer = i;
    }
  }
}

std::unique_ptr<delta::trace> made(const numbers& sizes, const numbers& labels,
                                   const numbers& operations, const numbers& lists,
                                   const numbers& events, const numbers& gradients,
                                   std::vector<std::string> names, std::uint64_t granularity) {
  auto step = std::make_unique<delta::trace>();
  delta::trace& t = *step;
  t.names = std::move(names);
  t.recorded_on.emplace().granularity = granularity;
  if (labels.size() != sizes.size() || events.size() % 2 != 0 || gradients.size() % 2 != 0)
    throw std::invalid_argument("a recorded step has arrays whose lengths don't fit");
  for (std::size_t i = 0; i < sizes.size(); ++i)
    t.tensors.push_back({.size = size_of(sizes[i]),
                         .name = labels[i] < 0 ? delta::trace::none : index_of(labels[i])});
  for (const std::int64_t n : lists) t.lists.push_back(index_of(n));
  add_operations(t, operations);
  name_producers(t);
  for (std::size_t i = 0; i < events.size(); i += 2) {
    if (events[i] < 0 || events[i] > static_cast<std::int64_t>(delta::trace::kind::end_of_step))
      throw std::invalid_argument("a recorded step has an event of no known kind");
    t.events.push_back({static_cast<delta::trace::kind>(events[i]), index_of(events[i + 1])});
  }
  for (std::size_t i = 0; i < gradients.size(); i += 2)
    t.gradients.push_back({.tensor = index_of(gradients[i]), .after = index_of(gradients[i + 1])});
  delta::check(t);
  if (t.has_results())
    throw delta::bad_trace(t.events.size(), "a step without its end",
                           "end_of_step as the last event");
  return step;
}

const char* name_of(rehearsed::verdict v) {
  switch (v) {
    case rehearsed::verdict::fits:
      return "fits";
    case rehearsed::verdict::out_of_memory:
      return "out of memory";
    default:
      return "too slow";
  }
}

py::dict replayed(const delta::trace& s, const std::string& policy, std::int64_t budget,
                  std::int64_t host, double rate_out, double rate_in, std::int64_t latency,
                  double burden, unsigned steps, double limit, bool one_link) {
  const rehearsal_machine on{.policy = policy,
                             .budget = size_of(budget),
                             .host = size_of(host),
                             .rate_out = rate_out,
                             .rate_in = rate_in,
                             .latency = delta::nanoseconds{latency},
                             .burden = burden,
                             .steps = steps,
                             .limit = limit,
                             .one_link = one_link};
  const rehearsed r = [&] {
    const py::gil_scoped_release others_may_run;
    return rehearse(s, on);
  }();
  py::dict d;
  d["verdict"] = name_of(r.what);
  d["time_ns"] = r.time.count();
  d["unmanaged_ns"] = r.unmanaged.count();
  d["recompute_ns"] = r.recompute.count();
  d["stall_ns"] = r.stall.count();
  d["network_ns"] = r.network.count();
  d["peak_bytes"] = r.peak.count;
  d["host_peak_bytes"] = r.host_peak.count;
  d["evictions"] = r.counts.evictions;
  d["offloads"] = r.counts.offloads;
  d["reloads"] = r.counts.reloads;
  d["recomputes"] = r.counts.recomputes;
  d["bytes_out"] = r.counts.bytes_out;
  d["bytes_in"] = r.counts.bytes_in;
  d["error"] = r.error;
  d["smallest_budget"] = r.smallest_budget.count;
  return d;
}

// The step of one rank of several, the slowest.
std::unique_ptr<delta::trace> on_ranks(const delta::trace& s, std::uint64_t ranks, bool tree,
                                       double network, std::int64_t latency, double copy_rate,
                                       double jitter, bool sharded, std::int64_t unit) {
  const delta::rank_group group{
      .ranks = ranks,
      .how = tree ? delta::all_reduce::tree : delta::all_reduce::ring,
      .rate = network,
      .latency = delta::nanoseconds{latency},
      .copy_rate = copy_rate,
      .sharded = sharded,
      .unit = size_of(unit),
  };
  return std::make_unique<delta::trace>(
      delta::slowed(delta::with_collectives(s, group), delta::expected_slowest(ranks, jitter)));
}

// What the most bytes at once are, where nothing leaves: sources by their names, what collectives
// make by the operation's, the rest as "" together.
std::map<std::string, std::uint64_t> at_peak(const delta::trace& t) {
  std::map<std::string, std::uint64_t> held, most;
  std::uint64_t now = 0, peak = 0;
  std::vector<bool> gone(t.tensors.size(), false);  // or a new version has its bytes
  const auto count = [&](std::uint32_t tensor, bool more) {
    const delta::trace::tensor& made = t.tensors[tensor];
    const auto& maker =
        made.producer == delta::trace::none ? nullptr : &t.operations[made.producer];
    const std::string& who = maker == nullptr ? t.names[made.name] : t.name(*maker);
    const bool named =
        maker == nullptr || who == "all_gather" || who == "to_bucket" || who == "reduce_scatter";
    const std::uint64_t size = t.rounded(made.size).count;
    std::uint64_t& of = held[named ? who : ""];
    more ? of += size : of -= size;
    more ? now += size : now -= size;
    gone[tensor] = !more;
  };
  for (const delta::trace::event& e : t.events) {
    std::uint64_t scratch = 0;
    if (e.what == delta::trace::kind::run) {
      const auto& o = t.operations[e.index];
      for (const std::uint32_t old : t.inputs(o).first(o.replaced)) count(old, false);
      for (const std::uint32_t made : t.outputs(o)) count(made, true);
      scratch = t.rounded(o.workspace).count;
    } else if (delta::is_source(e.what)) {
      count(e.index, true);
    } else if (e.what == delta::trace::kind::drop && !gone[e.index]) {
      count(e.index, false);
    }
    if (now + scratch <= peak) continue;
    peak = now + scratch;
    most = held;
    most[""] += scratch;
  }
  return most;
}

// Of time / unmanaged time, whatever the policy.
double bound(const delta::trace& s, std::int64_t budget, double rate_out, double rate_in) {
  const delta::bound_machine on{size_of(budget), rate_out, rate_in};
  const py::gil_scoped_release others_may_run;
  return delta::lower_bound(s, on);
}

// The last step of the run that is on, and what its memory's copies take. None: there is none, or
// it can't be repeated.
py::object last_step() {
  session& s = session::get();
  const session::inside lock(s);
  const delta::step_record* const last = s.on() ? s.manager().last_step() : nullptr;
  if (last == nullptr) return py::none();
  py::dict d;
  try {
    const delta::bytes least = s.memory().rounded(delta::bytes{1});
    d["program"] = std::make_unique<delta::trace>(trace_of(*last, least.count));
  } catch (const delta::bad_trace&) {
    return py::none();
  }
  const delta::any_storage& memory = s.manager().storage();
  d["rate_out"] = memory.rate(delta::direction::out);
  d["rate_in"] = memory.rate(delta::direction::in);
  d["latency"] = memory.latency(delta::direction::out).count();
  d["burden"] = memory.burden(delta::direction::out);
  return d;
}

// What a run knows of an operator. One that is not the dispatcher's, as prim's, is not seen there.
py::dict rules_of(const std::string& name, const std::string& overload) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  const operator_info info = op ? info_of(*op) : operator_info{};
  py::dict d;
  d["written"] = info.written, d["running"] = info.running, d["conditions"] = info.conditions;
  d["random"] = info.random, d["statistics"] = info.statistics;
  d["advances"] = info.advances, d["any_order"] = info.any_order;
  d["repeatable"] = !info.resizes && !info.opaque;
  d["composite"] = op && is_made_of_others(*op);
  d["unseen"] = !op || passes_through(*op);
  return d;
}

}  // namespace

void add_planning(py::module_& m) {
  py::class_<delta::trace>(m, "RecordedStep")
      .def(py::init(torch::wrap_pybind_function(made)), py::arg("sizes"), py::arg("labels"),
           py::arg("operations"), py::arg("lists"), py::arg("events"), py::arg("gradients"),
           py::arg("names"), py::arg("granularity"))
      .def("on_ranks", torch::wrap_pybind_function(on_ranks), py::arg("ranks"), py::arg("tree"),
           py::arg("network"), py::arg("latency"), py::arg("copy_rate"), py::arg("jitter"),
           py::arg("sharded"), py::arg("unit"))
      .def("at_peak", torch::wrap_pybind_function(at_peak))
      .def("replay", torch::wrap_pybind_function(replayed), py::arg("policy"), py::arg("budget"),
           py::arg("host"), py::arg("rate_out"), py::arg("rate_in"), py::arg("latency"),
           py::arg("burden"), py::arg("steps"), py::arg("limit"), py::arg("one_link") = false)
      .def("lower_bound", torch::wrap_pybind_function(bound), py::arg("budget"),
           py::arg("rate_out"), py::arg("rate_in"))
      .def_property_readonly("operators", [](const delta::trace& t) { return t.operations.size(); })
      .def_property_readonly("unmanaged_ns",
                             [](const delta::trace& t) { return delta::unmanaged_time(t).count(); })
      .def_property_readonly("peak_bytes",
                             [](const delta::trace& t) { return delta::unmanaged_peak(t).count; });
  m.def("last_step", torch::wrap_pybind_function(last_step));
  m.def("expected_slowest", delta::expected_slowest, py::arg("ranks"), py::arg("sigma"));
  m.def("operator_rules", torch::wrap_pybind_function(rules_of));
}

}  // namespace delta_torch
