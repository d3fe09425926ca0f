// delta_torch: addresses that are taken past the dispatcher.
#include "addresses.hpp"

#include <ATen/Parallel.h>

#include <cstdint>

#include "errors.hpp"
#include "hashes/byte_hash.hpp"
#include "replaying.hpp"
#include "session.hpp"
#include "threads.hpp"

namespace delta_torch {

namespace {

// A kernel takes the address of one of its arguments, which is watched again when it has ended; or
// of a tensor that is none: it can't be run again then, and the tensor stays where it is. Operators
// and their workers hold no lock meanwhile but `operators`.
void taken_by_kernel(session& s, thread_state& thread, c10::StorageImpl* storage) {
  const session::inside lock(s, thread);
  entry* const e = s.on() ? tensor_table::find(storage) : nullptr;
  if (e == nullptr) return;
  if (s.taken.operation != 0 && e->seen == s.taken.operation) return s.taken.unwatched.push_back(e);
  s.stay(*e, true);
  s.taken.hidden = true;
  s.past().address_taken(e->label);
}

std::uint64_t hash_of(const entry& e) {
  return delta::hashes::byte_hash(e.at, e.size);
}

}  // namespace

void watch_bytes(session& s, const entry& e) {
  // Of another device they can't be read here.
  if (!managed_device().is_cpu() || e.at == nullptr) return;
  for (const auto& w : s.taken.watched)
    if (w.of == &e) return;
  s.taken.watched.push_back({&e, hash_of(e)});
}

bool was_written(const session::scratch::watched_bytes& w) {
  return w.of->at != nullptr && hash_of(*w.of) != w.hash;
}

void address_taken(c10::StorageImpl* storage) {
  session& s = session::get();
  thread_state& thread = this_thread();
  // A replay's tensors are nobody's; what it reads beside them was seen the first time.
  if (!s.on() || thread.within_manager || thread.replay != nullptr) return;
  // Its tensors were declared, and can't leave.
  if (session::is_groups_thread()) return;
  const bool worker = at::in_parallel_region();
  if (worker && replaying::anywhere()) return;
  if (worker || thread.within_operator) return taken_by_kernel(s, thread, storage);
  const session::locked one_at_a_time(s.operators);
  const session::inside lock(s, thread);
  if (!s.on()) return;
  translated(s, [&] {
    s.drain();
    entry* const e = tensor_table::find(storage);
    if (e == nullptr || e->at == nullptr) return;
    s.past().address_taken(e->label);
    e->untouched ? s.lend(*e) : s.pin(*e, true);
  });
}

}  // namespace delta_torch
