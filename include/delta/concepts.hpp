// delta: the four concepts, as conjunctions of named atoms. Readable without any model.
#pragma once

#include <concepts>
#include <optional>
#include <span>

#include "delta/context.hpp"
#include "delta/units.hpp"

namespace delta {

/// How a tensor leaves the device; `keep`: not now (not judged again in this reservation).
enum class action : std::uint8_t { evict, offload, keep };
/// How it comes back.
enum class restoration : std::uint8_t { recompute, reload };

// ---------------------------------------------------------------------------------------------
// Heuristic: which tensor leaves first (the paper's F_h, Algorithm 2). One of two forms.
//
// Semantic rules:
//  * Lower scores leave first; equal scores are broken by the lower id.
//  * Neither form throws; both depend on nothing but the context, and allocate nothing of their
//  own.
//  * `weight(context, t)` stands for the score 1 / (weight x staleness). It does not depend on the
//    current tick, so a tensor's rank among equals changes only when it is touched or its weight
//    changes. A weight is not negative; weight 0 leaves last.
//  * A tensor that the program has dropped, and that can be made again, leaves before all others,
//    unasked.
// ---------------------------------------------------------------------------------------------

/// `score(context, tensor)` -> double: anything at all.
template <class H>
concept scores_tensor = requires(const H& h, const context& c, tensor_id t) {
  { h.score(c, t) } -> std::convertible_to<double>;
};
/// `weight(context, tensor)` -> double: the score is 1 / (weight x staleness).
template <class H>
concept weighs_tensor = requires(const H& h, const context& c, tensor_id t) {
  { h.weight(c, t) } -> std::convertible_to<double>;
};
template <class H>
concept Heuristic = scores_tensor<H> || weighs_tensor<H>;

// ---------------------------------------------------------------------------------------------
// Decider: how the chosen tensor leaves (the paper's F_decision, Algorithm 3), and how one that is
// needed comes back.
//
// Semantic rules:
//  * `judge` is asked about a resident tensor that can leave in at least one way. An action that is
//    impossible for it is taken for the other one where that is possible, else for keep.
//  * A clean tensor needs no copy: it simply goes, whether evict or offload was chosen.
//
// Detected, with a default:
//  * `restore(context, t)` -> restoration: of a tensor on the host (default: the cheaper);
//  * `rather_wait(context, t, nanoseconds)` -> bool: copies under way will free enough after that
//    time; wait for them rather than release t (default: when waiting is cheaper);
//  * `evicts`, `offloads`: static constexpr bool (default true): false promises that it never
//    answers so, and spares the manager the records.
// ---------------------------------------------------------------------------------------------

/// `judge(context, tensor)` -> action.
template <class D>
concept judges_tensor = requires(D& d, const context& c, tensor_id t) {
  { d.judge(c, t) } -> std::same_as<action>;
};
template <class D>
concept Decider = judges_tensor<D>;

template <class D>
concept chooses_restoration = requires(D& d, const context& c, tensor_id t) {
  { d.restore(c, t) } -> std::same_as<restoration>;
};
template <class D>
concept weighs_waiting = requires(D& d, const context& c, tensor_id t, double wait) {
  { d.rather_wait(c, t, wait) } -> std::same_as<bool>;
};
template <class D>
consteval bool evicts() {
  if constexpr (requires { D::evicts; }) return D::evicts;
  return true;
}
template <class D>
consteval bool offloads() {
  if constexpr (requires { D::offloads; }) return D::offloads;
  return true;
}

// ---------------------------------------------------------------------------------------------
// Prefetcher: what the copy engines do while nobody waits (Algorithm 4 and the early start).
//
// Semantic rules:
//  * Asked after every operator, until it answers none or something that does not fit.
//  * `next` names a tensor out of `context.offloaded()`.
//
// Detected, default nothing:
//  * `ahead(context)` -> double: bytes to release early (the Filter says which); soft: it never
//    waits, and stops without candidates;
//  * `wasted(context, t)`: a tensor brought back early left again unused.
// ---------------------------------------------------------------------------------------------

/// `next(context)` -> tensor_id to reload now, or tensor_id::none.
template <class P>
concept names_next_reload = requires(P& p, const context& c) {
  { p.next(c) } -> std::same_as<tensor_id>;
};
template <class P>
concept Prefetcher = names_next_reload<P>;

template <class P>
concept starts_early = requires(P& p, const context& c) {
  { p.ahead(c) } -> std::convertible_to<double>;
};
template <class P>
concept learns_of_waste = requires(P& p, const context& c, tensor_id t) { p.wasted(c, t); };

/// All policies, detected: `end_of_operator(context)` and `end_of_step(context)`.
template <class P>
concept follows_operators = requires(P& p, const context& c) { p.end_of_operator(c); };
template <class P>
concept follows_steps = requires(P& p, const context& c) { p.end_of_step(c); };

// ---------------------------------------------------------------------------------------------
// Storage: where bytes live, how they move, in what order.
//
// Semantic rules (a compiler can't check them; test/support/storage_contract.hpp does):
//  * capacity() is hard: used() <= capacity() at every instant; blocks, workspace and both ends of
//    copies in flight count, each rounded up by rounded().
//  * Order between the engines is kept by the storage, per block: an operator begins after the
//    last writer of what it reads, and after the last reader and writer of what it writes; a copy
//    out after the last writer; a copy in after its own copy out and after the last reader and
//    writer of its destination; memory given out again is written only after its last user is
//    done. The caller therefore never orders anything; it waits only when it needs bytes back.
//  * A freed block may be handed out again at once; a copy still reading it delays the next writer.
//  * Nothing moves between begin_operator and end_operator, nor what is held.
//  * Each engine is serial and first in, first out.
// ---------------------------------------------------------------------------------------------

/// `allocate(bytes, lifetime)` gives a block, or nullopt when there is no room for it (not an
/// error: the manager then releases something). `bytes` may be zero.
template <class S>
concept allocates_blocks = requires(S& s, bytes n, lifetime l) {
  { s.allocate(n, l) } -> std::same_as<std::optional<block>>;
};

/// `free(block&&)` and `free(slab&&)` take memory back.
template <class S>
concept frees_memory = requires(S& s, block&& b, slab&& h) {
  { s.free(std::move(b)) } -> std::same_as<void>;
  { s.free(std::move(h)) } -> std::same_as<void>;
};

/// `copy_out(block&)` queues a copy to a fresh slab. The block is moved from only on success;
/// nullopt means that the host side is full.
template <class S>
concept copies_out = requires(S& s, block& b) {
  { s.copy_out(b) } -> std::same_as<std::optional<transfer>>;
};

/// `copy_in(slab&&, block&&)` queues a copy of the slab into a block allocated before.
template <class S>
concept copies_in = requires(S& s, block&& b, slab&& h) {
  { s.copy_in(std::move(h), std::move(b)) } -> std::same_as<transfer>;
};

/// `land(transfer&&)` gives block and slab back, at any time: fences order what follows. The block
/// of a copy out stays readable throughout.
template <class S>
concept lands_transfers = requires(S& s, transfer&& t) {
  { s.land(std::move(t)) } -> std::same_as<std::pair<block, slab>>;
};

/// `begin_operator(reads, writes)`: the compute engine waits for what these blocks need.
/// `end_operator(cost)`: the operator is queued; gives its stamp. `cost` is what the caller
/// expects the operator to take: a storage in virtual time advances by it, others ignore it.
template <class S>
concept brackets_operators = requires(S& s, std::span<const block* const> blocks, nanoseconds c) {
  { s.begin_operator(blocks, blocks) } -> std::same_as<void>;
  { s.end_operator(c) } -> std::same_as<stamp>;
};

/// `reached(stamp)` asks, `wait(stamp)` makes the host wait (in virtual time: advances the clock),
/// `elapsed(stamp)` is an operator's or a copy's measured time: known now, later, or never.
template <class S>
concept orders_by_stamps = requires(S& s, stamp p) {
  { s.reached(p) } -> std::same_as<bool>;
  { s.wait(p) } -> std::same_as<void>;
  { s.elapsed(p) } -> std::same_as<std::optional<nanoseconds>>;
};

/// `now()`, `rate(direction)` in bytes per second, `latency(direction)` per copy, and
/// `backlog(direction)`: how long a copy queued now would wait before it starts.
template <class S>
concept tells_time_and_rates = requires(const S& s, direction d) {
  { s.now() } -> std::same_as<nanoseconds>;
  { s.rate(d) } -> std::same_as<double>;
  { s.latency(d) } -> std::same_as<nanoseconds>;
  { s.backlog(d) } -> std::same_as<nanoseconds>;
};

/// The two budgets and what is taken of them, and what a request really takes.
template <class S>
concept accounts_bytes = requires(const S& s, bytes n) {
  { s.capacity() } -> std::same_as<bytes>;
  { s.used() } -> std::same_as<bytes>;
  { s.host_capacity() } -> std::same_as<bytes>;
  { s.host_used() } -> std::same_as<bytes>;
  { s.rounded(n) } -> std::same_as<bytes>;
};

/// `largest_hole()`; `bytes_to_move(n)` for `n` bytes in one piece (nullopt: it can't be done now);
/// `move_rate()` in bytes per second (0: takes no time); `walk_blocks(f)`: `f(row, size, used)` for
/// blocks (`row` is the token's index) and holes in address order.
template <class S>
concept shows_its_holes = requires(S& s, bytes n, void (*f)(std::uint32_t, bytes, bool)) {
  { s.largest_hole() } -> std::same_as<bytes>;
  { s.bytes_to_move(n) } -> std::same_as<std::optional<bytes>>;
  { s.move_rate() } -> std::same_as<double>;
  s.walk_blocks(f);
};

/// Detected, with defaults in the manager:
///  * `data(const block&)` -> std::byte*: the address now (default: none, bytes exist in name
///  only);
///  * `hold(const block&)` / `unhold(const block&)`: the block may not move in between;
///  * `native_stream()` -> void*: what a kernel is launched on;
///  * `waited()` -> nanoseconds: how long the host and the compute engine waited for copies;
///  * `shows_its_holes`: together these let the manager weigh moving blocks against releasing a
///    window of neighbours where free bytes lie scattered (default: it does not ask).
template <class S>
concept Storage =
    allocates_blocks<S> && frees_memory<S> && copies_out<S> && copies_in<S> && lands_transfers<S> &&
    brackets_operators<S> && orders_by_stamps<S> && tells_time_and_rates<S> && accounts_bytes<S>;

}  // namespace delta
