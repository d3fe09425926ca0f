// delta_torch: memory that counts and is no tensor's: a kernel's, or one that a tensor is to have.
#include <algorithm>
#include <utility>

#include "errors.hpp"
#include "host_memory.hpp"
#include "replaying.hpp"
#include "session.hpp"

namespace delta_torch {

// What was counted when another thread freed it may be the program's alone by now: the run has
// ended meanwhile.
void session::settle_late(target& of, header& h) {
  if (h.block)
    give_back(h);
  else
    of.free(h);
}

header& session::take(std::size_t size) {
  const delta::bytes counted = memory_->rounded(delta::bytes{size});
  if (counted > delta::detail::saturating_sub(memory_->capacity(), memory_->used())) drain();
  take_note_of(size);
  // On an accelerator no thread but the operator's own allocates for its kernel; nor does a process
  // group's.
  const bool outside = taken.operation == 0 ||
                       (!device_->device().is_cpu() && !this_thread().within_operator) ||
                       is_groups_thread();
  delta::block block;
  {
    const struct mark {
      bool& on;
      ~mark() { on = false; }
    } marked{taking_outside = outside};
    try {
      block = manager_->take_block(delta::bytes{size});
    } catch (const delta::budget_exceeded& e) {
      if (taken.operation != 0) throw;
      delta::memory_report r = e.report;
      r.operation = "(outside of operators)";
      throw no_room(r, "memory that is taken outside of operators");
    }
  }
  // Within an operator's kernel the manager orders what is written there.
  if (outside) memory_->settle(block);
  header& h = device_->head(memory_->data(block));
  h.size = size;
  h.block = std::move(block);
  h.operation = outside ? 0 : taken.operation;
  h.next = &counted_;
  h.previous = counted_.previous;
  h.previous->next = counted_.previous = &h;
  counted_bytes_ += size;
  if (!outside)
    taken.most = std::max(taken.most, taken.now += static_cast<std::int64_t>(counted.count));
  record_.look(*memory_, manager_->counts(), false);
  return h;
}

bool session::used_by(const at::DataPtr& data, c10::Stream stream) {
  if (const entry* const e = tensor_table::find(data); e != nullptr) {
    if (e->outside != nullptr)
      device_->used_by(*e->outside, stream);
    else if (e->at != nullptr)
      device_->used_by(e->at, stream);
    return true;
  }
  const header* const h = device_->header_of_data(data);
  if (h != nullptr) device_->used_by(h->memory, stream);
  return h != nullptr;
}

delta::block session::leave(header& h) noexcept {
  h.previous->next = h.next;
  h.next->previous = h.previous;
  h.next = h.previous = nullptr;
  counted_bytes_ -= h.size;
  return std::move(h.block);
}

void session::give_back(header& h) {
  if (taken.operation != 0 && h.operation == taken.operation)
    taken.now -= static_cast<std::int64_t>(memory_->rounded(delta::bytes{h.size}).count);
  delta::block block = leave(h);
  device_->retire(h);
  manager_->give_back(std::move(block));
}

void release_memory(void* memory) noexcept {
  if (memory != nullptr && !replaying::owns(memory))
    session::release(cpu_target(), header_of(memory));
}

void session::release(target& of, header& h) noexcept {
  session& s = get();
  // A forked process has no accelerator, and whoever held the locks of its memory is not there.
  if (s.child_ && !of.device().is_cpu()) return;
  // In a forked process the run is the parent's.
  if (!h.block || s.forked()) return of.free(h);
  // The lock may be this thread's, or a manager's who waits for this thread.
  if (!inside::here() && s.state.try_lock()) {
    s.settle_late(of, h);
    s.state.unlock();
    return;
  }
  h.waiting = late_.load(std::memory_order_relaxed);
  while (!late_.compare_exchange_weak(h.waiting, &h)) {
  }
}

}  // namespace delta_torch
