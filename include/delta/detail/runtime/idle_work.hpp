// delta: what is done after every operator, when nobody waits: release before memory is full, the
// prefetcher's reloads, copies ahead (docs/paper.md, repairs P-4, P-10).
#pragma once

#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/observer.hpp"
#include "delta/storage/storage.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"

namespace delta::detail {

/// True if a copy in of `n` bytes, which takes `copy` ns, finds a hole, or moving blocks makes one
/// in a small part of that time. O(1); O(blocks) where some have to move.
template <class S>
[[nodiscard]] bool can_place_early(S& storage, bytes n, double copy) {
  constexpr double part = 0.25;
  if constexpr (has_holes<S>)
    if (storage.largest_hole() < storage.rounded(n))
      return time_to_move(storage, n).value_or(never) <= part * copy;
  return true;
}

/// Releases the bytes that the prefetcher wants early; fewer, where the Filter finds no more.
template <class Reclaimer>
void release_early(Reclaimer& r) {
  auto& table = r.table();
  const auto staying = [&] {
    return table.storage().used() - table.candidates().cached_bytes() - table.leaving();
  };
  const double target = r.policy().prefetcher().early_release_bytes(r.view());
  for (const bytes before = staying();
       static_cast<double>((before - staying()).count) < target && r.release_idle();) {
  }
}

/// Reloads what the prefetcher names, until it names nothing or something that does not fit.
template <class Reclaimer>
void reload_early(Reclaimer& r) {
  auto& table = r.table();
  for (;;) {
    const context c = r.view();
    const tensor_id t = r.policy().prefetcher().next(c);
    // No answer: what is not on the host, or does not fit, as the next answer would be the same.
    if (t == tensor_id::none || table.tensors[t].where != residency::host) break;
    const bytes need = table.tensors[t].footprint;
    if (table.free_bytes() + table.candidates().cached_bytes() < need) break;
    while (table.free_bytes() < need && r.drop_cached()) continue;
    if (!can_place_early(table.storage(), table.tensors[t].size, c.copy_cost(t, direction::in)))
      break;
    auto b = table.storage().allocate(table.tensors[t].size, table.tensors[t].expected());
    if (!b) break;
    r.bring_back(t, std::move(*b), event_kind::prefetch);
    table.refresh_machine_state();
  }
}

/// Copies out what the prefetcher names, without freeing it.
template <class Reclaimer>
void copy_ahead(Reclaimer& r) {
  auto& table = r.table();
  for (;;) {
    const context c = r.view();
    const tensor_id t = r.policy().prefetcher().copy_ahead(c);
    // No answer: what has a copy or may have none; and what is held, as its holder may write it.
    if (t == tensor_id::none || !c.candidates().contains(t) || c.is_held(t) ||
        table.tensors[t].host || !c.can_offload(t))
      break;
    const auto done = table.copy_ahead(t);
    if (!done) break;
    r.events().copy(event_kind::copy_out, r.operation(), t, *done);
    table.refresh_machine_state();
  }
}

/// All three, after the operator `o`; none after an `asynchronous` one: tensors that it still uses
/// could be released, overwritten or copied half written. Never throws for lack of memory.
template <class Reclaimer>
void do_idle_work(Reclaimer& r, const ended_operator& o, bool asynchronous) {
  using prefetcher = typename Reclaimer::policy_roles::prefetcher_type;
  r.begin_idle(o);
  r.table().harvest();
  r.table().refresh_machine_state();
  if (!asynchronous) {
    if constexpr (has_early_release_bytes<prefetcher>) release_early(r);
    reload_early(r);
    if constexpr (has_copy_ahead<prefetcher>) copy_ahead(r);
  }
  r.events().flush();
  r.policy().end_of_operator(r.view());
  r.end_idle();
}

}  // namespace delta::detail
