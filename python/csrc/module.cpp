// delta_torch: the functions that the Python package calls.
#include <pthread.h>
#include <pybind11/functional.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "addresses.hpp"
#include "allocator.hpp"
#include "arguments.hpp"
#include "delta/engine/engine.hpp"
#include "delta/policy_names.hpp"
#include "device_part.hpp"
#include "errors.hpp"
#include "managed_operator.hpp"
#include "own/own_policies.hpp"
#include "planning.hpp"
#include "reading_check.hpp"
#include "replaying.hpp"
#include "reports.hpp"
#include "session.hpp"
#include "streams.hpp"
#include "threads.hpp"
#include "versions.hpp"

namespace py = pybind11;

namespace delta_torch {

namespace {

// Calls `f` between two operators, with the session's locks.
template <class F>
decltype(auto) between_operators(F&& f) {
  session& s = session::get();
  if (this_thread().within_operator || replaying::here() != nullptr)
    throw std::runtime_error(
        "delta: this can't be called from within an operator's kernel; call it before or after");
  const session::locked one(s.operators);
  const session::inside lock(s);
  return translated(s, [&]() -> decltype(auto) { return f(s); });
}

// Their names: delta's, and behind them one's own.
std::vector<std::string> policies() {
  std::vector<std::string> names;
  for (const delta::preset& p : delta::named_policies) names.emplace_back(p.name);
  std::ranges::move(delta::own::policies(), std::back_inserter(names));
  return names;
}

void need_run(const session& s) {
  if (!s.on()) throw std::runtime_error("delta: no run is under way; see delta_torch.budget");
}

void start(const std::string& policy, std::optional<std::int64_t> budget, std::int64_t host,
           bool check_replays, bool verify_tensors, bool lifts_limit, const std::string& timeline,
           const std::string& device) {
  static const bool told = [] {
    pthread_atfork(nullptr, nullptr, [] { session::get().now_a_child(); });
    return true;
  }();
  (void)told;
  if (session::get().forked())
    throw std::runtime_error(
        "delta: this process was forked off while a run was under way; start new ones by spawn");
  if (const auto known = policies(); std::ranges::find(known, policy) == known.end())
    throw std::invalid_argument("delta: there is no policy '" + policy + "'");
  if (budget.value_or(1) < 1 || host < 0)
    throw std::invalid_argument("delta: a budget is a positive number of bytes");
  register_fallback();
  between_operators([&](session& s) {
    s.start({.policy = policy,
             .budget = budget ? static_cast<std::size_t>(*budget) : no_limit,
             .host = static_cast<std::size_t>(host),
             .check_replays = check_replays,
             .verify_tensors = verify_tensors,
             .lifts_limit = lifts_limit,
             .timeline = timeline,
             .device = c10::Device(device)});
  });
  if (check_replays) check_reading(true);
  install_allocator();
  manage_thread(true);
}

void stop() {
  manage_thread(false);
  check_reading(false);
  remove_allocator();
  const auto lost = between_operators([](session& s) { return s.stop(); });
  if (lost.count > 0)
    throw std::runtime_error("delta: the bytes of " + std::to_string(lost.count) +
                             " tensors could not be brought back: " + lost.why);
}

// The dense storages of a tensor, or of a storage itself.
std::vector<c10::intrusive_ptr<c10::StorageImpl>> storages_of(py::handle object) {
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> found;
  const auto add = [&](c10::StorageImpl* s) {
    if (s != nullptr && s->device() == managed_device())
      found.push_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(s));
  };
  if (torch::isStorage(object.ptr())) {
    add(torch::createStorage(object.ptr()).unsafeGetStorageImpl());
    return found;
  }
  const auto t = object.cast<at::Tensor>();
  if (!t.defined()) return found;
  add(storage_of(t));
  if (t.layout() == c10::kStrided) return found;
  const c10::impl::ExcludeDispatchKeyGuard unseen(dispatch_key());
  for (const at::Tensor& part : parts_of(t))
    if (part.defined()) add(storage_of(part));
  return found;
}

// A kernel in Python reads its tensors: they are on the device until it ends. Where it gives their
// memory to somebody else they stay for good. False: the run does not know them.
bool within_kernel(py::handle object, bool may_write, bool shown) {
  session& s = session::get();
  if (replaying::here() != nullptr || !s.on()) return false;  // a replay's tensors are nobody's
  const auto storages = storages_of(object);
  const session::inside lock(s);
  bool any = false;
  for (const auto& storage : storages) {
    entry* const e = tensor_table::find(storage.get());
    if (e == nullptr) continue;
    any = true;
    if (e->at == nullptr)
      throw std::runtime_error(
          "delta: an operator's kernel reads a tensor that is none of its arguments, and its bytes "
          "are away: make it an argument");
    if (may_write) watch_bytes(s, *e);
    if (shown) s.stay(*e, true);
  }
  return any;
}
[[nodiscard]] bool in_kernel() {
  return this_thread().within_operator || replaying::here() != nullptr;
}

// Calls `f` for those that the run knows; false: none of them.
template <class F>
bool each_entry(py::handle object, F&& f, bool may_write = false) {
  if (in_kernel()) return within_kernel(object, may_write, false);
  const auto storages = storages_of(object);
  return between_operators([&](session& s) {
    if (!s.on()) return false;
    s.drain();
    bool any = false;
    for (const auto& storage : storages)
      if (entry* const e = tensor_table::find(storage.get())) {
        any = true;
        f(s, *e);
      }
    return any;
  });
}

bool bring_back(py::handle object) {
  return each_entry(object,
                    [](session& s, entry& e) { const auto here = s.manager().acquire(e.id); });
}
// True: something was not held before.
bool hold(py::handle object) {
  bool anew = false;
  each_entry(object, [&](session& s, entry& e) { anew = anew || !e.held, s.hold(e); });
  return anew;
}
void let_go(py::handle object) {
  each_entry(object, [](session& s, entry& e) {
    if (!e.lent) s.let_go(e);
  });
}
void lend(py::handle object) {
  each_entry(
      object, [](session& s, entry& e) { s.lend(e); }, true);
}
// Its storages are to have no bytes. Python takes one with bytes and without an address, as those
// of what is away, for invalid: so they are emptied here, and nothing has to come back for it.
void empty(py::handle object) {
  if (in_kernel()) return void(within_kernel(object, true, true));
  each_entry(object, [](session&, entry& e) {
    const auto storage = e.storage.lock();
    if (!storage) return;
    allow_reading(*storage);
    ignore_addresses(*storage);
    storage->set_data_ptr_noswap(at::DataPtr(nullptr, storage->device()));
    storage->set_nbytes(0);
  });
}
bool mapped(py::handle object) {
  bool any = false;
  each_entry(object, [&](session&, entry& e) { any = any || e.mapped; });
  return any;
}
void stay(py::handle object, bool exposed) {
  if (in_kernel()) return void(within_kernel(object, exposed, exposed));
  const auto storages = storages_of(object);
  between_operators([&](session& s) {
    need_run(s);
    s.drain();
    for (const auto& storage : storages)
      if (entry* const e = s.adopt(storage.get(), "data")) s.pin(*e, exposed);
  });
}

void name_tensor(py::handle tensor, const std::string& name, bool parameter) {
  const auto t = tensor.cast<at::Tensor>();
  c10::StorageImpl* const storage = t.defined() ? storage_of(t) : nullptr;
  if (storage == nullptr) return;
  session& s = session::get();
  const session::inside lock(s);
  if (s.on()) s.name(*storage, {name, parameter ? "parameter" : "buffer"});
}

// As "1.weight's exp_avg", where the parameter has a name.
void name_state(py::handle tensor, py::handle parameter, const std::string& key) {
  const auto t = tensor.cast<at::Tensor>(), p = parameter.cast<at::Tensor>();
  c10::StorageImpl* const storage = t.defined() ? storage_of(t) : nullptr;
  c10::StorageImpl* const of = p.defined() ? storage_of(p) : nullptr;
  if (storage == nullptr || of == nullptr || storage == of) return;
  session& s = session::get();
  const session::inside lock(s);
  if (!s.on()) return;
  if (const tensor_name known = s.name_of(of); !known.name.empty())
    s.name(*storage, {known.name + "'s " + key, "optimizer state"});
}

void enter_module(std::uint32_t module, bool keep) {
  thread_state& thread = this_thread();
  follow_run(thread, session::get().number());
  module_scope& here = thread.module;
  outer_modules().push_back(here);
  here = {module, keep || here.keep};
}
void leave_module() {
  auto& outer = outer_modules();
  if (outer.empty()) return;
  this_thread().module = outer.back();
  outer.pop_back();
}

// CUDA's part comes from an extension of its own.
void adopt_part(const py::capsule& part, const std::string& type) {
  if (std::string_view(part.name() != nullptr ? part.name() : "") != device_part_capsule)
    throw std::invalid_argument("delta: this is no device's part");
  use_part(c10::Device(type).type(), *part.get_pointer<device_part>());
}

template <class F>
auto wrapped(F&& f) {
  return torch::wrap_pybind_function(std::forward<F>(f));
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "The functions that the package delta_torch calls; not for programs.";
  m.def("policies", wrapped(policies));
  m.def("load_policy", wrapped(delta::own::load_policy));
  m.def("own_policies", wrapped(delta::own::policies));
  m.def("start", wrapped(start), py::arg("policy"), py::arg("budget"), py::arg("host"),
        py::kw_only(), py::arg("check_replays") = false, py::arg("verify_tensors") = false,
        py::arg("lifts_limit") = false, py::arg("timeline") = "", py::arg("device") = "cpu");
  m.def("stop", wrapped(stop));
  m.def("active", [] { return session::get().on(); });
  m.def("attach", wrapped(manage_thread));
  m.def("set_rank", [](int rank) { session::get().rank = rank; });
  m.def("on_shortage", wrapped([](std::function<void(const std::string&)> f) {
          session& s = session::get();
          const session::inside lock(s);
          s.on_shortage = std::move(f);
        }));
  m.def("wait_begins", wrapped([] {
          session& s = session::get();
          const session::inside lock(s);
          s.flights().time()->begin();
        }));
  m.def("wait_ends", wrapped([] {
          session& s = session::get();
          const session::inside lock(s);
          s.flights().time()->end();
        }));
  m.def("enter_callback", wrapped([] {
          const thread_mode before = enter_callback();
          return std::make_tuple(before.included, before.excluded, before.within_callback);
        }));
  m.def("leave_callback", wrapped([](std::tuple<bool, bool, bool> before) {
          leave_callback({std::get<0>(before), std::get<1>(before), std::get<2>(before)});
        }));
  m.def("end_of_step", wrapped([] {
          between_operators([](session& s) {
            need_run(s);
            s.end_of_step();
          });
        }));
  m.def("hold_share", wrapped([](double share, std::size_t peak) {
          between_operators([&](session& s) {
            need_run(s);
            s.hold_share(share, peak);
          });
        }),
        py::arg("share"), py::arg("peak") = 0);
  m.def("name_tensor", wrapped(name_tensor));
  m.def("name_state", wrapped(name_state));
  const auto reader = [&](const char* name, away_reader r) {
    m.def(name, wrapped([r](bool on) {
            session& s = session::get();
            const session::inside lock(s);
            s.tensors().read_away(r, on);
          }));
  };
  reader("profile", away_reader::profiler);
  reader("reduce", away_reader::reducer);
  m.def("name_module", wrapped([](const std::string& name) {
          session& s = session::get();
          const session::inside lock(s);
          return s.past().module(name);
        }));
  m.def("enter_module", enter_module);
  m.def("leave_module", leave_module);
  m.def("bring_back", wrapped(bring_back));
  m.def("hold", wrapped(hold));
  m.def("let_go", wrapped(let_go));
  m.def("lend", wrapped(lend));
  m.def("mapped", wrapped(mapped));
  m.def("empty", wrapped(empty));
  m.def("pin", wrapped([](py::handle object) { stay(object, false); }));
  m.def("expose", wrapped([](py::handle object) { stay(object, true); }));
  m.def("reset_peak", wrapped([] {
          session& s = session::get();
          const session::inside lock(s);
          if (s.on()) s.memory().reset_peak();
        }));
  m.def("adopt_part", wrapped(adopt_part));
  // For tests: one kind of wait between streams is not made, to see that it is missed.
  m.def("leave_out_wait", wrapped([](std::size_t waiter, std::size_t awaited, bool on) {
          device_streams::leave_out(waiter, awaited, on);
        }));
  add_planning(m);
  add_reports(m);
  m.def("key", [] { return std::string(c10::toString(dispatch_key())); });
  m.def("keys", [] {  // all that a run's threads have, by number: Python has no names of them
    return std::vector{static_cast<int>(dispatch_key()), static_cast<int>(reading_key)};
  });
}

}  // namespace delta_torch
