// delta_torch: the run's tensors: how storages become them, and which have to stay where they are.
#include <ATen/MapAllocator.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "memory_log.hpp"
#include "session.hpp"
#include "versions.hpp"

namespace delta_torch {

namespace {
// Its address is of no use to anybody any more: the next who takes it is seen again.
void taken_back(entry& e) {
  e.held = false;
  if (!std::exchange(e.lent, false)) return;
  if (const auto storage = e.storage.lock()) tensor_table::watch(e, *storage);
}

// The allocator that made a DataPtr is done with it: the manager has freed the block.
void let_go_of_outside(void* self, void*, std::size_t) {
  delete static_cast<at::DataPtr*>(self);
}
}  // namespace

// Whose bytes a DataPtr's are that is not ours.
enum class origin : std::uint8_t {
  heap,    // PyTorch's own allocator's: nobody else has them
  mapped,  // a file, or shared with other processes: a DataLoader's workers, say
  foreign  // somebody else's as well, as NumPy's: they may change between two operators
};
static origin origin_of(const target& device, const at::DataPtr& data) {
  if (device.frees_so(data.get_deleter())) return origin::heap;
  if (at::MapAllocator::fromDataPtr(data) != nullptr ||
      at::RefcountedMapAllocator::fromDataPtr(data) != nullptr)
    return origin::mapped;
  return origin::foreign;
}

entry* session::adopt(c10::StorageImpl* storage, const char* label) {
  if (entry* known = tensor_table::find(storage)) return known;
  if (storage->nbytes() == 0) return nullptr;
  at::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  header* const ours = device_->header_of_data(data);
  if (ours == nullptr) end_copy_on_write(*storage);
  auto* const at = static_cast<std::byte*>(data.get());
  if (at == nullptr) return nullptr;

  const delta::bytes size{ours != nullptr ? ours->size : storage->nbytes()};
  const origin from = ours != nullptr ? origin::heap : origin_of(*device_, data);
  std::unique_ptr<at::DataPtr> outside;
  delta::block block;
  header* const counted = ours != nullptr && ours->block ? ours : nullptr;
  if (counted != nullptr) {
    block = leave(*counted);
    // Nobody has told what the program did with it, perhaps since an operator that was open.
    memory_->settle(block);
  } else {
    take_note_of(size.count);
    try {
      manager_->make_room(size);
    } catch (const delta::budget_exceeded& e) {
      delta::memory_report r = e.report;
      r.operation = "(a tensor of before the run)";
      const tensor_name known = name_of(storage);
      throw no_room(r, known.name.empty()
                           ? "a tensor of before the run"
                           : "'" + known.name + "', a " + known.role + " of before the run,");
    }
    outside = std::make_unique<at::DataPtr>();
    auto adopted = memory_->adopt(at, size, &let_go_of_outside, outside.get());
    if (!adopted) throw std::bad_alloc();
    block = std::move(*adopted);
    const tensor_name known = name_of(storage);
    log_->take(block.index(),
               {.address = reinterpret_cast<std::uintptr_t>(at),
                .bytes = memory_->rounded(size).count,
                .maker = known.name.empty() ? label : log_->keep(known.name + " " + known.role)},
               /*adopted=*/true);
  }
  // From here on only a program that is wrong, or the heap, could fail: needs no room.
  const auto id = from == origin::heap ? manager_->variable(size, label, std::move(block))
                                       : manager_->constant(size, label, std::move(block));
  entry& e = tensors_.add(storage, size.count);
  e.label = label;
  e.pinned = from != origin::heap;
  e.mapped = from == origin::mapped;
  e.exposed = from == origin::foreign;
  if (outside) {
    *outside = std::move(data);
    e.outside = outside.release();
  }
  tensors_.name(e, id);
  tensor_table::show(e, *storage, at);
  if (counted != nullptr) device_->retire(*counted);
  record_.moved(e, true);
  ++record_.own.adopted;
  return &e;
}

void session::hold(entry& e) {
  if (e.held) return;
  held_.push_back({e.id, manager_->acquire(e.id)});
  e.held = true;
}

void session::let_go(entry& e) {
  if (!e.held) return;
  held_.remove_if([&](const held_tensor& h) { return h.id == e.id; });
  order_unseen(e);
  taken_back(e);
}

void session::let_all_go() {
  std::vector<entry*> all;
  for (const held_tensor& h : held_)
    if (entry* const e = tensors_.of(h.id)) all.push_back(e);
  held_.clear();
  for (entry* const e : all) {
    order_unseen(*e);
    taken_back(*e);
  }
}

// Kernels that were launched by its address are queued behind the operator that has severed it, and
// in none: a copy of the bytes would not wait for them. It does for another one from now on.
void session::order_unseen(entry& e) {
  if (!e.lent || e.dead || device_->device().is_cpu()) return;
  try {
    sever(e);
  } catch (const delta::poisoned&) {  // NOLINT(bugprone-empty-catch): nothing is copied any more
  }
}

// What was computed from its bytes comes back, and is not computed again; nor are they, or taken
// for those of a copy on the host: as by an operator that updates them, and goes on doing so.
void session::sever(entry& e) {
  auto op = manager_->begin({.updates = {e.id},
                             .traits = delta::trait::asynchronous,
                             .name = "delta_torch: address given away"});
  op.end(std::span<delta::tensor_id>{});
}

void session::lend(entry& e) {
  if (!e.lent && !e.exposed) {
    sever(e);
    hold(e);
    e.lent = true;
    if (const auto storage = e.storage.lock()) ignore_addresses(*storage);
  }
  hold(e);
}

void session::pin(entry& e, bool exposed) {
  { const auto here = manager_->acquire(e.id); }
  if (exposed && !e.exposed) sever(e);
  stay(e, exposed);
}

void session::stay(entry& e, bool exposed) {
  manager_->forbid(e.id, delta::pin::both);
  e.pinned = true;
  e.exposed = e.exposed || exposed;
}

}  // namespace delta_torch
