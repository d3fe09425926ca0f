// delta_torch: what Python reads of a run, as Python's own types.
#include "reports.hpp"

#include <torch/csrc/Exceptions.h>

#include <utility>

#include "memory_log.hpp"
#include "session.hpp"

namespace py = pybind11;

namespace delta_torch {

namespace {

py::dict stats() {
  session& s = session::get();
  const session::inside lock(s);
  record::totals now = s.past().last;
  if (s.on()) {
    s.past().stop(s.memory(), s.manager().counts(), s.manager().live_tensors(),
                  s.manager().live_records());
    std::swap(now, s.past().last);
  }
  const delta::counters& c = now.counts;
  const auto& own = s.past().own;
  py::dict d;
  const auto put = [&](const char* name, std::uint64_t value) { d[name] = value; };
  d["budget"] = now.budget < no_limit ? py::cast(now.budget) : py::none();
  put("host", now.host), put("used", now.used), put("peak", now.peak);
  put("host_used", now.host_used), put("host_peak", now.host_peak);
  put("operators", c.operators), put("steps", own.steps), put("evictions", c.evictions);
  put("offloads", c.offloads), put("reloads", c.reloads), put("prefetches", c.prefetches);
  put("recomputes", c.recomputes);
  put("recompute_ns", static_cast<std::uint64_t>(c.recompute_time.count()));
  put("clean_drops", c.clean_drops), put("bytes_out", c.bytes_out), put("bytes_in", c.bytes_in);
  put("waits", c.waits), put("adopted", own.adopted), put("in_place", own.in_place);
  put("updates", own.updates), put("not_replayable", own.not_replayable);
  put("refused", own.refused);
  put("addresses", own.addresses), put("replay_copies", own.replay_copies),
      put("guessed_costs", c.guessed_costs);
  put("in_collectives", s.flights().tensors());
  put("collective_waits", own.collective_waits), put("collective_over", own.collective_over);
  put("collectives", own.collectives), put("collective_bytes", own.collective_bytes);
  put("collective_ns", static_cast<std::uint64_t>(s.flights().time()->total().count()));
  put("replays_checked", c.replays_checked), put("replays_unchecked", c.replays_unchecked);
  put("tensors_compared",
      s.hashes() != nullptr ? s.hashes()->counts().compared() : own.tensors_compared);
  put("live_tensors", now.tensors), put("live_records", now.records);
  put("unmanaged_peak", own.unmanaged_peak);
  return d;
}

py::list samples() {
  session& s = session::get();
  const session::inside lock(s);
  py::list all;
  for (const sample& x : s.past().samples())
    all.append(py::make_tuple(x.time, x.used, x.host_used, x.evictions, x.offloads, x.reloads,
                              x.recomputes));
  return all;
}

py::list addresses() {
  session& s = session::get();
  const session::inside lock(s);
  py::list all;
  for (const address_count& a : s.past().addresses()) all.append(py::make_tuple(a.label, a.times));
  return all;
}

py::list modules() {
  session& s = session::get();
  const session::inside lock(s);
  py::list all;
  for (const module_record& m : s.past().modules()) {
    py::dict d;
    d["name"] = m.name;
    d["made_bytes"] = m.made_bytes, d["at_peak_bytes"] = m.at_peak_bytes;
    d["left"] = m.left, d["left_bytes"] = m.left_bytes;
    d["recomputes"] = m.recomputes, d["recompute_ns"] = m.recompute_ns;
    all.append(d);
  }
  return all;
}

const char* name_of(delta::budget_basis b) {
  switch (b) {
    case delta::budget_basis::largest_need:
      return "largest_need";
    case delta::budget_basis::everything:
      return "everything";
    case delta::budget_basis::no_moving:
      return "no_moving";
    case delta::budget_basis::trial:
      return "trial";
    default:
      return "nothing";
  }
}

py::object last_error() {
  session& s = session::get();
  const session::inside lock(s);
  const failure* const f = s.past().last_failure();
  if (f == nullptr) return py::none();
  py::dict d;
  const delta::memory_report& r = f->report;
  d["kind"] = f->kind, d["message"] = f->message, d["operation"] = f->operation;
  const auto put = [&](const char* name, delta::bytes n) { d[name] = n.count; };
  put("requested", r.requested), put("capacity", r.capacity), put("used", r.used);
  put("immovable", r.immovable), put("foreign", r.foreign);
  put("host_capacity", r.host_capacity), put("host_used", r.host_used);
  put("smallest_budget", r.smallest_budget);
  put("budget_with_host", r.budget_with_host), put("enough_host", r.enough_host);
  d["basis"] = name_of(r.basis);
  py::list holders;
  for (std::size_t i = 0; i < r.holders; ++i) {
    py::dict h;
    h["label"] = f->names[i].tensor.name, h["role"] = f->names[i].tensor.role;
    h["bytes"] = r.biggest[i].size.count;
    h["why"] = f->names[i].why;
    holders.append(h);
  }
  d["holders"] = holders;
  return d;
}

// Of a run, also of one that is over: (taken, address, bytes, maker, needed by, ns since 1970).
py::list changes(const memory_log& log) {
  const session::inside lock(session::get());
  py::list all;
  for (const auto& [b, taken, time] : log.changes())
    all.append(py::make_tuple(taken, b.address, b.bytes, b.maker, b.needed_by, time));
  return all;
}

// The same of blocks in use, without what only changes have: (address, bytes, maker, needed by).
py::list in_use(const memory_log& log) {
  const session::inside lock(session::get());
  py::list all;
  for (const memory_log::block& b : log.in_use())
    all.append(py::make_tuple(b.address, b.bytes, b.maker, b.needed_by));
  return all;
}

}  // namespace

void add_reports(py::module_& m) {
  m.def("stats", torch::wrap_pybind_function(stats));
  m.def("samples", torch::wrap_pybind_function(samples));
  m.def("modules", torch::wrap_pybind_function(modules));
  m.def("addresses", torch::wrap_pybind_function(addresses));
  m.def("last_error", torch::wrap_pybind_function(last_error));
  py::class_<memory_log, std::shared_ptr<memory_log>>(m, "MemoryLog")
      .def("changes", torch::wrap_pybind_function(changes))
      .def("in_use", torch::wrap_pybind_function(in_use));
  m.def("memory_log", torch::wrap_pybind_function([] {
          const session::inside lock(session::get());
          return session::get().log();
        }));
}

}  // namespace delta_torch
