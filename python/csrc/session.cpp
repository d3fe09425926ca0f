// delta_torch: the run that is on.
#include "session.hpp"

#include <ATen/Parallel.h>
#include <Python.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "away_reads.hpp"
#include "delta/engine/engine.hpp"
#include "errors.hpp"
#include "memory_log.hpp"
#include "own/own_policies.hpp"
#include "replaying.hpp"
#include "timeline_file.hpp"
#include "versions.hpp"

namespace delta_torch {

std::atomic<header*> session::late_{nullptr};

session& session::get() {
  static session& one = *new session;  // never destroyed: PyTorch frees tensors until the very end
  return one;
}

session::session() {
  counted_.next = counted_.previous = &counted_;
  tensors_.told = [](const entry& e, bool here) { get().record_.moved(e, here); };
  flights_.landed = [](delta::tensor_id t) { get().tensors_.watch(t); };
}

session::locked::locked(std::mutex& m) : mutex_(&m) {
  if (m.try_lock()) return;
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) {
    m.lock();
    return;
  }
  PyThreadState* const python = PyEval_SaveThread();
  m.lock();
  PyEval_RestoreThread(python);
}

void session::start(const run_options& o) {
  if (on()) throw std::runtime_error("delta: a run is under way already; one at a time");
  drain();
  set_away_reader(away_reader::streams, false);
  set_away_reader(away_reader::reducer, false);
  target& device = target_of(o.device);
  auto memory = device.open(
      {.capacity = delta::bytes{o.budget},
       .host_capacity = delta::bytes{o.host},
       .on_owner_changed = [this](delta::tensor_id t, std::byte* at) { tensors_.moved(t, at); }});
  const auto now = [&memory] { return memory->now(); };
  auto told = o.timeline.empty() ? nullptr : std::make_unique<timeline_file>(o.timeline, now, rank);
  auto log = std::make_shared<memory_log>();
  std::unique_ptr<delta::any_storage> storage =
      std::make_unique<logged_storage>(memory->storage(), log);
  delta::hashes::hashed_storage* hashes = nullptr;
  if (o.verify_tensors) {
    auto hashed = std::make_unique<delta::hashes::hashed_storage>(std::move(storage), hashing());
    hashes = hashed.get();
    storage = std::move(hashed);
  }
  auto manager = delta::own::make_manager(
      o.policy, std::move(storage), {.observer = told.get(), .check_replays = o.check_replays});
  device_ = &device;
  device_of_run = device.device();
  memory_ = std::move(memory);
  told_ = std::move(told);
  log_ = std::move(log);
  manager_ = std::move(manager);
  hashes_ = hashes;
  checks_replays_ = o.check_replays;
  lifts_limit_ = o.lifts_limit;
  flights_.restart_time();
  taken = {};
  own_peak_ = 0;
  share_ = 0;
  record_.start(*memory_, o.budget);
  device.limit(memory_->capacity(), {});
  ++number_;
  on_.store(true, std::memory_order_release);
}

delta::hashes::hash_options session::hashing() {
  return {.written_by_others =
              [this](delta::tensor_id t) {
                const entry* const e = tensors_.of(t);
                return e != nullptr && (e->exposed || e->lent || e->mapped || flights_.uses(t));
              },
          .in_parallel =
              [](std::size_t n, const std::function<void(std::size_t)>& f) {
                at::parallel_for(0, static_cast<std::int64_t>(n), 1,
                                 [&](std::int64_t from, std::int64_t to) {
                                   for (; from < to; ++from) f(static_cast<std::size_t>(from));
                                 });
              }};
}

session::lost_tensors session::stop() {
  if (!on()) return {};
  log_->close();
  let_all_go();
  flights_.clear();  // all that is here stays where it is from now on
  drain();
  record_.stop(*memory_, manager_->counts(), manager_->live_tensors(), manager_->live_records());
  // Before tensors come back, which takes more than the run did.
  memory_->set_capacity(delta::bytes{no_limit});
  device_->unlimit();
  lost_tensors lost;
  // Tensor by tensor: each leaves the budget before the next one comes back.
  for (std::size_t i = 0; i < tensors_.by_id().size(); ++i) {
    entry* const e = tensors_.by_id()[i];
    if (e == nullptr) continue;
    const auto id = e->id;
    try {
      const auto here = manager_->acquire(id);
    } catch (const std::exception& error) {
      // Of a manager that is unusable, as a policy has thrown, what is here is saved all the same.
      if (e->at == nullptr) {
        if (lost.count++ == 0) lost.why = error.what();
        tensors_.name(*e, delta::tensor_id::none);
        continue;
      }
    }
    detach(*e);
    try {
      manager_->drop(id);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the manager goes anyway
    }
  }
  while (counted_.next != &counted_) {
    header& h = *counted_.next;
    device_->keep(h.memory, true);
    manager_->give_back(leave(h));
  }
  on_.store(false, std::memory_order_release);
  drain();  // what other threads have freed meanwhile
  names_.clear();
  random.end();
  std::optional<delta::hashes::tensor_differs> differs;
  if (hashes_ != nullptr) {
    record_.own.tensors_compared = hashes_->counts().compared();
    try {
      std::exchange(hashes_, nullptr)->check();
    } catch (const delta::hashes::tensor_differs& e) {
      differs = e;
    }
  }
  manager_.reset();
  told_.reset();
  memory_.reset();
  device_->closed();
  if (differs) throw *differs;
  return lost;
}

void session::detach(entry& e) {
  tensors_.name(e, delta::tensor_id::none);
  std::byte* const at = e.at;
  const auto storage = e.storage.lock();
  if (!storage || e.dead) return;  // in the list of the dead, and forgotten by `drain`
  at::DataPtr now = e.outside != nullptr ? std::move(*e.outside) : device_->plain(at, e.size);
  if (e.outside == nullptr && at != nullptr) device_->keep(at, true);
  ignore_addresses(*storage);
  (void)storage->_mutable_data_ptr_no_checks().release_context();
  storage->set_data_ptr_noswap(std::move(now));
  tensors_.forget(e);
}

void session::end_of_step() {
  let_all_go();
  drain();
  random.end();
  manager_->end_of_step();
  if (hashes_ != nullptr) hashes_->check(), hashes_->end_of_step();
  ++record_.own.steps;
  record_.look(*memory_, manager_->counts(), true);
}

void session::hold_share(double share, std::size_t peak) {
  const std::size_t unmanaged = peak > 0 ? peak : memory_->peak().count;
  own_peak_ = std::max(own_peak_, peak);
  share_ = share;
  record_.own.unmanaged_peak = unmanaged;
  let_all_go();
  drain();
  const delta::bytes budget = share_of_peak();
  // First to what is in use, so that the manager makes room for what is above the budget alone.
  memory_->set_capacity(memory_->rounded(std::max(memory_->used(), budget)));
  const auto lacking = delta::detail::saturating_sub(memory_->used(), budget);
  std::optional<delta::memory_report> failed;
  if (lacking.count > 0) try {
      manager_->make_room(lacking);
    } catch (const delta::budget_exceeded& e) {
      failed = e.report;
    }
  limit(budget);
  memory_->reset_peak();
  record_.reset_peak();
  if (!failed) return;
  failed->capacity = memory_->capacity();
  failed->operation = "(the budget)";
  throw share_too_small(*failed, share, unmanaged);
}

delta::bytes session::share_of_peak() const {
  const double peak = static_cast<double>(record_.own.unmanaged_peak);
  return delta::bytes{static_cast<std::uint64_t>(share_ * peak)};
}

void session::limit(delta::bytes budget) {
  memory_->set_capacity(budget);
  device_->limit(budget, memory_->used());
  record_.last.budget = budget.count;
}

// The program is about to refer to so many bytes more than now.
void session::take_note_of(std::size_t more) {
  const std::size_t own = tensors_.bytes() + counted_bytes_ + more;
  if (own <= own_peak_) return;
  const std::size_t grown = own - std::exchange(own_peak_, own);
  if (share_ <= 0) return;
  // More than when it was measured: a larger batch, an evaluation.
  record_.own.unmanaged_peak += grown;
  limit(share_of_peak());
}

void session::name(c10::StorageImpl& storage, tensor_name name) {
  if (names_.size() >= names_at_most_) {
    std::erase_if(names_, [](const auto& n) { return n.second.storage.expired(); });
    names_at_most_ = std::max<std::size_t>(1024, 2 * names_.size());
  }
  named_storage known{c10::weak_intrusive_ptr<c10::StorageImpl>(
                          c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage)),
                      std::move(name)};
  names_.try_emplace(&storage, std::move(known));  // of tied weights the first
}

tensor_name session::name_of(delta::tensor_id t) const {
  const entry* const e = tensors_.of(t);
  return e != nullptr ? name_of(e->storage._unsafe_get_target()) : tensor_name{};
}
tensor_name session::name_of(const c10::StorageImpl* storage) const {
  const auto at = names_.find(storage);
  return at != names_.end() ? at->second.name : tensor_name{};
}

void session::drain() {
  flights_.land();
  // Mostly there is nothing: a look costs less than an exchange.
  header* h = late_.load(std::memory_order_relaxed) != nullptr ? late_.exchange(nullptr) : nullptr;
  while (h != nullptr) {
    header* const next = h->waiting;
    settle_late(*device_, *h);
    h = next;
  }
  for (entry* e = tensors_.dead(); e != nullptr;) {
    entry* const next = e->next;
    // The operator under way still looks at it.
    if (taken.operation != 0 && e->seen == taken.operation) {
      tensor_table::bury(e);
      e = next;
      continue;
    }
    const auto id = e->id;
    if (on()) {
      let_go(*e);
      flights_.forget(id);
    }
    record_.forgotten(*e);
    tensors_.forget(*e);
    if (id != delta::tensor_id::none && on()) try {
        manager_->drop(id);
      } catch (const delta::poisoned&) {  // NOLINT(bugprone-empty-catch): its bytes go with it
      }
    e = next;
  }
}

c10::intrusive_ptr<c10::ivalue::Future> session::landing_to_await(bool may_wait) {
  flights_.land();
  auto oldest = may_wait ? flights_.oldest() : nullptr;
  if (oldest) ++record_.own.collective_waits;
  return oldest;
}

bool session::lift_limit(const delta::budget_exceeded& e) {
  if (!std::exchange(lifts_limit_, false)) return false;
  record_failure(*this, e, "");
  share_ = 0;
  memory_->set_capacity(delta::bytes{no_limit});
  device_->limit(delta::bytes{no_limit}, {});
  return true;
}

bool session::is_groups_thread() noexcept {
  return !this_thread().within_operator && managed_device().is_cpu() &&
         c10::impl::tls_is_dispatch_key_excluded(dispatch_key());
}

}  // namespace delta_torch
