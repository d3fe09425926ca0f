// delta_torch: an operator ends: what its kernel has made and changed is the manager's, with a
// record by which it can be made again.
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "addresses.hpp"
#include "errors.hpp"
#include "operator_run.hpp"
#include "reading_check.hpp"

namespace delta_torch {

void operator_run::close() {
  const session::inside lock(session_, thread_);
  translated(session_, [&] {
    std::int64_t most = session_.taken.most;
    session_.device().took(which_, static_cast<std::uint64_t>(most));
    replayable_ = replayable_ && !session_.taken.hidden;
    if (session_.taken.refused) {
      // It has done with less: made again where there is room it would be other bits.
      ++session_.past().own.refused;
      replayable_ = false;
    }
    try {
      refuse_undeclared_writes();
      find_outputs();
      name_outputs();
      std::int64_t kept = 0;
      for (const output& o : w_.outputs)
        if (o.overwritten == output::none)
          kept += static_cast<std::int64_t>(session_.memory().rounded(delta::bytes{o.size}).count);
      // Nor do copies of what it updates count among its outputs; a replay makes them.
      for (const touched& t : w_.storages)
        if (t.role.update != storage_role::none)
          most +=
              static_cast<std::int64_t>(session_.memory().rounded(delta::bytes{t.role.size}).count);
      if (replayable_ && !w_.outputs.empty() && most > kept)
        open_->replay_workspace(delta::bytes{static_cast<std::uint64_t>(most - kept)});
      end();
    } catch (...) {
      drop_deleter();
      open_.reset();
      throw;
    }
    in_flight_ = info_.collective != collective_kind::none;
    settle();
    if (in_flight_) take_off();
    if (auto* const hashes = session_.hashes(); hashes != nullptr) hashes->ends(), hashes->check();
    session_.past().look(session_.memory(), session_.manager().counts(), true);
  });
}

// They can't be undone, and what was computed from the old bytes may be gone.
void operator_run::refuse_undeclared_writes() const {
  const auto undeclared = [&](const entry* e) {
    return std::ranges::any_of(w_.storages,
                               [&](const touched& t) { return t.known == e && !t.written; });
  };
  bool any = false;
  // A view of what it declares has that one's version.
  const auto declared = [&](const at::Tensor& t) {
    const auto* const storage = storage_of(t);
    return storage != nullptr && std::ranges::any_of(w_.storages, [&](const touched& s) {
             return s.storage == storage && s.written;
           });
  };
  for (const auto& [t, version] : w_.undeclared)
    any = any || (t._version() != version && !declared(t));
  for (const auto& w : session_.taken.watched) any = any || (undeclared(w.of) && was_written(w));
  TORCH_CHECK(!any, "delta: '", info_.name,
              "' has written an argument that it does not declare: name ",
              "it in mutates_args of torch.library.custom_op; its old bytes are lost");
}

void operator_run::find_outputs() {
  for (std::size_t i = 0; i < w_.storages.size(); ++i) {
    touched& s = w_.storages[i];
    if (s.known == nullptr || !s.written) continue;
    // Resized meanwhile, or given up: there is nothing to be the new version of.
    if (s.known->dead || s.known->at == nullptr) {
      replayable_ = false;
      continue;
    }
    if (!s.renewed) continue;
    w_.renewed.push_back(s.known);
    w_.replaced.push_back(s.known->id);
    w_.outputs.push_back({.size = s.known->size, .overwritten = static_cast<std::int32_t>(i)});
  }
  std::int32_t returned = 0;
  for (std::size_t i = stack_.size() - info_.returns; i < stack_.size(); ++i)
    each_tensor(stack_[i], [&](const at::Tensor& t, std::int16_t) { find_output(t, returned++); });
}

void operator_run::find_output(const at::Tensor& t, std::int32_t returned) {
  if (!t.defined()) return;
  const auto take = [&](c10::StorageImpl* storage, std::int32_t place) {
    if (storage == nullptr) return;
    header* const bytes = session_.device().header_of_data(storage->_mutable_data_ptr_no_checks());
    if (bytes == nullptr || !bytes->block) return;  // an argument's, or not from our allocator
    for (const auto& f : w_.fresh)
      if (f.bytes == bytes) return;
    // Of an argument that a kernel has given other bytes: its old ones can't be told from these.
    w_.fresh.push_back({c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage), bytes});
    w_.outputs.push_back({.size = bytes->size, .allocation = bytes->place, .returned = place});
    if (bytes->operation != number_) replayable_ = false;  // it was there before
  };
  auto* const storage = storage_of(t);
  take(storage, returned);
  if (storage != nullptr && !t.is_nested()) return;
  replayable_ = false;
  for (const at::Tensor& part : parts_of(t))
    if (part.defined()) take(storage_of(part), output::none);
}

void operator_run::name_outputs() {
  if (!w_.replaced.empty()) {
    // The old versions: from now on nobody is told where they are.
    for (entry* e : w_.renewed) session_.tensors().name(*e, delta::tensor_id::none);
    open_->replace(std::span<const delta::tensor_id>(w_.replaced));
    session_.past().own.in_place += w_.replaced.size();
  }
  for (auto& f : w_.fresh) {
    const delta::bytes size{f.bytes->size};
    session_.device().keep(f.bytes->memory, true);  // until the manager says that it is a tensor
    delta::block block = session_.leave(*f.bytes);
    open_->allocate(size, std::move(block));
  }
}

void operator_run::end() {
  w_.made.resize(w_.outputs.size());
  if (recorded_ != nullptr && replayable_) {
    // Nobody here looks at these any more.
    recorded_->arguments.swap(w_.arguments);
    recorded_->numbers.swap(w_.numbers);
    recorded_->outputs.swap(w_.outputs);
    for (const touched& t : w_.storages) recorded_->storages.push_back(t.role);
    open_->end(w_.made, replay_kernel(std::move(recorded_)));
  } else {
    open_->end(w_.made);
    if (recorded_ != nullptr) replay_kernel(std::move(recorded_));
  }
  open_.reset();
}

// The manager has the outputs: their storages get entries, or their next version.
void operator_run::settle() {
  auto& manager = session_.manager();
  auto& past = session_.past();
  const module_scope in = thread_.module;
  for (std::size_t i = 0; i < w_.made.size(); ++i) {
    const bool anew = i < w_.renewed.size();
    entry* e = nullptr;
    if (anew) {
      e = w_.renewed[i];
      past.forgotten(*e);
    } else {
      auto& f = w_.fresh[i - w_.renewed.size()];
      session_.device().keep(f.bytes->memory, false);
      e = &session_.tensors().add(f.storage.get(), f.bytes->size);
      tensor_table::show(*e, *f.storage, static_cast<std::byte*>(f.bytes->memory), !in_flight_);
      session_.device().retire(*f.bytes);
      past.made(in.module, e->size);
      e->of_lists = !info_.per_tensor.empty();
    }
    e->label = label_;
    e->module = in.module;
    e->untouched = !anew;
    session_.tensors().name(*e, w_.made[i]);
    past.moved(*e, true);
    if (anew) manager.drop(w_.replaced[i]);
    if (in.keep) session_.stay(*e, false);
  }
  w_.fresh.clear();
  session_.taken.operation = 0;
  watch_again();
}

// A collective uses its tensors from now on, behind its operator's return.
void operator_run::take_off() {
  std::vector<delta::tensor_id> used(
      w_.made.begin() + static_cast<std::ptrdiff_t>(w_.renewed.size()), w_.made.end());
  for (const touched& s : w_.storages)
    if (s.known != nullptr && !s.known->dead && s.known->id != delta::tensor_id::none)
      used.push_back(s.known->id);
  auto& own = session_.past().own;
  ++own.collectives;
  for (const delta::tensor_id t : used)
    if (const entry* const e = session_.tensors().of(t)) own.collective_bytes += e->size;
  const auto first = stack_.end() - static_cast<std::ptrdiff_t>(info_.returns);
  if (info_.collective == collective_kind::functional) {
    storage_list results;
    for (auto value = first; value != stack_.end(); ++value)
      each_tensor(*value, [&](const at::Tensor& t, std::int16_t) {
        if (auto* const s = t.defined() ? storage_of(t) : nullptr; s != nullptr)
          results.push_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(s));
      });
    session_.flights().take_off(session_.manager(), std::move(results), used);
  } else if (const auto work = work_among(op_, {first, stack_.end()})) {
    session_.flights().take_off(session_.manager(), work, used);
  } else {
    // Nothing tells when it is over.
    for (const delta::tensor_id t : used)
      if (entry* const e = session_.tensors().of(t)) session_.lend(*e);
    return;
  }
  for (const delta::tensor_id t : used)
    if (!session_.flights().uses(t)) session_.tensors().watch(t);
}

// The operator is over: who takes addresses of its arguments from now on is seen, and what was read
// by its address stays held.
void operator_run::watch_again() {
  const auto watch = [](const entry& e) {
    if (e.dead) return;
    if (const auto storage = e.storage.lock()) tensor_table::watch(e, *storage);
  };
  for (const touched& s : w_.storages) {
    if (s.known == nullptr) continue;
    if (!session_.guarded.empty()) forbid_guarded(session_, s.storage);
    if (!s.written && info_.collective == collective_kind::none) continue;
    if (s.held && !s.known->dead) session_.hold(*s.known);
    // Its threads use the storage from now on: nothing of it may change before it has landed.
    if (!in_flight_) watch(*s.known);
  }
  if (in_flight_) return;
  for (const entry* e : session_.taken.unwatched) watch(*e);
}

// The operator can't be ended: what its kernel has made or overwritten is PyTorch's alone from now
// on. Called before the operator is given up, which frees the blocks.
void operator_run::drop_deleter() noexcept {
  for (std::size_t i = 0; i < w_.renewed.size(); ++i) {
    entry* const e = w_.renewed[i];
    if (e->id != delta::tensor_id::none) continue;  // it is still what it was
    session_.detach(*e);
    session_.manager().drop(w_.replaced[i]);
  }
  for (auto& f : w_.fresh)
    if (f.bytes->block) session_.device().keep(f.bytes->memory, false);
  w_.fresh.clear();
  session_.taken.operation = 0;
}

void operator_run::give_up() {
  const session::inside lock(session_, thread_);
  retreat();
}

void operator_run::retreat() {
  session_.device().expect({});
  open_.reset();
  session_.taken.operation = 0;
  if (recorded_ != nullptr) replay_kernel(std::move(recorded_));
  try {
    watch_again();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the operator's error counts
  }
}

}  // namespace delta_torch
