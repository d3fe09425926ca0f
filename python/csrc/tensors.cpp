// delta_torch: the entries of storages.
#include "tensors.hpp"

#include <utility>

#include "addresses.hpp"
#include "target.hpp"
#include "versions.hpp"

namespace delta_torch {

namespace {
// By one atomic instruction; from a strong pointer it takes three.
c10::weak_intrusive_ptr<c10::StorageImpl> weak(c10::StorageImpl* storage) {
  c10::raw::weak_intrusive_ptr::incref(storage);
  return c10::weak_intrusive_ptr<c10::StorageImpl>::reclaim(storage);
}
}  // namespace

std::atomic<entry*> tensor_table::dead_{nullptr};

entry& tensor_table::add(c10::StorageImpl* storage, std::size_t size) {
  entry* e = spare_;
  if (e != nullptr) {
    spare_ = e->next;
    e->next = nullptr;
  } else {
    e = &entries_.emplace_back();
  }
  e->storage = weak(storage);
  e->size = size;
  bytes_ += size;
  return *e;
}

entry* tensor_table::find(c10::StorageImpl* storage) {
  entry* const e = find(storage->_mutable_data_ptr_no_checks());
  // Two storages may have swapped their pointers.
  if (e != nullptr && e->storage._unsafe_get_target() != storage) e->storage = weak(storage);
  return e;
}

entry* tensor_table::find(const at::DataPtr& data) noexcept {
  return data.get_deleter() == &bury ? static_cast<entry*>(data.get_context()) : nullptr;
}

void tensor_table::name(entry& e, delta::tensor_id id) {
  if (e.id != delta::tensor_id::none) by_id_[delta::index(e.id)] = nullptr;
  e.id = id;
  if (id == delta::tensor_id::none) return;
  const auto i = delta::index(id);
  if (i >= by_id_.size()) by_id_.resize(i + 1u + i / 2u);
  by_id_[i] = &e;
}

entry* tensor_table::of(delta::tensor_id id) const noexcept {
  const auto i = delta::index(id);
  return i < by_id_.size() ? by_id_[i] : nullptr;
}

void tensor_table::show(entry& e, c10::StorageImpl& storage, std::byte* at, bool watched) {
  (void)storage._mutable_data_ptr_no_checks().release_context();
  storage.set_data_ptr_noswap(at::DataPtr(at, &e, &bury, managed_device()));
  e.at = at;
  if (watched) watch(e, storage);
}

void tensor_table::watch(const entry& e, c10::StorageImpl& storage) {
  // Of what is away nobody can take one; and once it was given away nothing is left to be seen.
  if (e.at != nullptr && !e.exposed && !e.lent) watch_addresses(storage, &address_taken);
}

void tensor_table::watch(delta::tensor_id t) const {
  const entry* const e = of(t);
  if (e == nullptr || e->dead.load(std::memory_order_relaxed)) return;
  if (const auto held = e->storage.lock()) watch(*e, *held);
}

void tensor_table::moved(delta::tensor_id id, std::byte* at) {
  entry* e = of(id);
  if (e == nullptr || e->at == at) return;
  const bool was_here = e->at != nullptr;
  e->outside = nullptr;  // its owner is told by the storage itself
  if (was_here != (at != nullptr) && told != nullptr) told(*e, at != nullptr);
  e->at = at;
  // Dead, or its storage has another pointer by now: nobody looks at this one any more.
  if (e->dead.load(std::memory_order_relaxed)) return;
  const auto storage = e->storage.lock();
  if (!storage) return;
  if (!was_here) allow_reading(*storage);
  show(*e, *storage, at);
  if (at == nullptr && away_readers == 0) forbid_reading(*storage, bytes_are_away);
}

void tensor_table::read_away(away_reader r, bool on) {
  set_away_reader(r, on);
  for (const entry* const e : by_id_) {
    if (e == nullptr || e->at != nullptr || e->dead) continue;
    const auto storage = e->storage.lock();
    if (!storage) continue;
    allow_reading(*storage);
    if (away_readers == 0) forbid_reading(*storage, bytes_are_away);
  }
}

void tensor_table::forget(entry& e) {
  name(e, delta::tensor_id::none);
  e.storage.reset();
  e.at = nullptr;
  bytes_ -= std::exchange(e.size, 0);
  e.outside = nullptr;
  e.label = "";
  e.module = 0;
  e.pinned = e.exposed = e.held = e.mapped = e.lent = e.of_lists = e.untouched = e.parameter =
      false;
  e.dead = false;
  e.seen = 0;
  e.next = std::exchange(spare_, &e);
}

void tensor_table::bury(void* context) {
  auto* e = static_cast<entry*>(context);
  if (e == nullptr) return;
  e->dead.store(true, std::memory_order_relaxed);
  e->next = dead_.load(std::memory_order_relaxed);
  while (!dead_.compare_exchange_weak(e->next, e)) {
  }
}

}  // namespace delta_torch
