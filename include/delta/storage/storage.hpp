// delta: the Storage concept: where bytes live, how they move, and in what order. A storage
// includes this header alone, no policy's.
//
//   static_assert(delta::explain_storage<my_storage>());
//
// lists everything that is missing or wrong in a storage of one's own, in sentences.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "delta/detail/concepts/member_names.hpp"
#include "delta/units.hpp"

namespace delta {

// ---------------------------------------------------------------------------------------------
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
//  * Who shares the storage with a manager allocates and frees beside it, on its thread: between
//    its calls, and from within a kernel. Those bytes count in used(). Between begin_operator and
//    end_operator what is allocated is written by that operator, and may be freed at once; what
//    the bracket names is not freed.
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
concept frees_blocks = requires(S& s, block&& b) {
  { s.free(std::move(b)) } -> std::same_as<void>;
};
template <class S>
concept frees_slabs = requires(S& s, slab&& h) {
  { s.free(std::move(h)) } -> std::same_as<void>;
};

/// `copy_out(block&)` queues a copy to a new slab. The block is moved from only on success;
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
template <class S>
concept begins_operators = requires(S& s, std::span<const block* const> blocks) {
  { s.begin_operator(blocks, blocks) } -> std::same_as<void>;
};
/// `end_operator(cost)`: the operator is queued; gives its stamp. `cost` is what the caller expects
/// the operator to take: a storage in virtual time advances by it, others ignore it.
template <class S>
concept ends_operators = requires(S& s, nanoseconds cost) {
  { s.end_operator(cost) } -> std::same_as<stamp>;
};

/// `reached(stamp)` asks, `wait(stamp)` makes the host wait (in virtual time: advances the clock),
/// `elapsed(stamp)` is an operator's or a copy's measured time: known now, later, or never. Where
/// it is never known, say what operators cost (operation::cost): else they are priced by the bytes
/// that they touch, and counters::guessed_costs counts them.
template <class S>
concept asks_for_stamps = requires(S& s, stamp p) {
  { s.reached(p) } -> std::same_as<bool>;
};
template <class S>
concept waits_for_stamps = requires(S& s, stamp p) {
  { s.wait(p) } -> std::same_as<void>;
};
template <class S>
concept measures_work = requires(S& s, stamp p) {
  { s.elapsed(p) } -> std::same_as<std::optional<nanoseconds>>;
};

/// `now()`, `rate(direction)` in bytes per second, `latency(direction)` per copy, and
/// `backlog(direction)`: how long a copy queued now would wait before it starts.
template <class S>
concept tells_time = requires(const S& s) {
  { s.now() } -> std::same_as<nanoseconds>;
};
template <class S>
concept tells_rates = requires(const S& s, direction d) {
  { s.rate(d) } -> std::same_as<double>;
};
template <class S>
concept tells_latencies = requires(const S& s, direction d) {
  { s.latency(d) } -> std::same_as<nanoseconds>;
};
template <class S>
concept tells_backlogs = requires(const S& s, direction d) {
  { s.backlog(d) } -> std::same_as<nanoseconds>;
};

/// The two budgets and what is taken of them, and what a request really takes.
template <class S>
concept has_a_capacity = requires(const S& s) {
  { s.capacity() } -> std::same_as<bytes>;
};
template <class S>
concept counts_used_bytes = requires(const S& s) {
  { s.used() } -> std::same_as<bytes>;
};
template <class S>
concept has_a_host_capacity = requires(const S& s) {
  { s.host_capacity() } -> std::same_as<bytes>;
};
template <class S>
concept counts_used_host_bytes = requires(const S& s) {
  { s.host_used() } -> std::same_as<bytes>;
};
template <class S>
concept rounds_requests = requires(const S& s, bytes n) {
  { s.rounded(n) } -> std::same_as<bytes>;
};

/// Detected, with defaults in the manager.
/// `data(const block&)` is the address now (default: none, bytes exist in name only).
template <class S>
concept has_addresses = requires(S& s, const block& b) {
  { s.data(b) } -> std::same_as<std::byte*>;
};
/// `hold(const block&)`, `unhold(const block&)`: the block may not move in between.
template <class S>
concept holds_blocks = requires(S& s, const block& b) { s.hold(b), s.unhold(b); };
/// `native_stream()`: what a kernel is launched on (default: null).
template <class S>
concept has_a_native_stream = requires(S& s) {
  { s.native_stream() } -> std::convertible_to<void*>;
};
/// `largest_hole()`; `bytes_to_move(n)` for `n` bytes in one piece (nullopt: it can't be done now,
/// or for 0 bytes: blocks never move);
/// `move_rate()` in bytes per second (0: takes no time); `walk_blocks(f)`: `f(row, size, used)` for
/// blocks (`row` is the token's index) and holes in address order. Together they let the manager
/// weigh moving blocks against releasing a window of neighbours where free bytes lie scattered
/// (default: it does not ask).
template <class S>
concept shows_its_holes = requires(S& s, bytes n, void (*f)(std::uint32_t, bytes, bool)) {
  { s.largest_hole() } -> std::same_as<bytes>;
  { s.bytes_to_move(n) } -> std::same_as<std::optional<bytes>>;
  { s.move_rate() } -> std::same_as<double>;
  s.walk_blocks(f);
};
/// What moves are taken to reach where nobody says, in bytes per second: one core of a current
/// machine.
inline constexpr double assumed_move_rate = 8e9;
/// `burden(direction)`: compute time lost per ns of copying that way at the same time, from 0 to 1
/// (default: 0); `alone(stamp)`: what an operator would have taken without copies beside it, known
/// when `elapsed` is (default: that).
template <class S>
concept tells_burdens = requires(S& s, const S& asked, direction d, stamp p) {
  { asked.burden(d) } -> std::same_as<double>;
  { s.alone(p) } -> std::same_as<std::optional<nanoseconds>>;
};
/// `read_bytes(block, from, span)` copies bytes of a block to the host, `write_bytes(block, to,
/// span)` back; both are over when they return, and false says that the storage keeps no bytes.
/// Whoever uses the block is done before (default: none; replays can't be checked,
/// replay_check.hpp).
template <class S>
concept shows_its_bytes = requires(S& s, const block& b, std::uint64_t at, std::span<std::byte> to,
                                   std::span<const std::byte> from) {
  { s.read_bytes(b, at, to) } -> std::same_as<bool>;
  { s.write_bytes(b, at, from) } -> std::same_as<bool>;
};
/// `began(stamp)`: when that work began, by `now`'s clock, known when `elapsed` is; for timelines
/// (default: when it was queued).
template <class S>
concept tells_beginnings = requires(S& s, stamp p) {
  { s.began(p) } -> std::same_as<std::optional<nanoseconds>>;
};
/// `knows(block, n)`: is it a block in use here, of rounded(n) bytes? Asked of blocks that the
/// program hands over (default: the program is taken at its word).
template <class S>
concept knows_its_blocks = requires(const S& s, const block& b, bytes n) {
  { s.knows(b, n) } -> std::same_as<bool>;
};
/// `owned_by(block, t)`: tensor `t`'s bytes are in this block from now on, or on their way into it,
/// until it is freed or told of another tensor; none: they are nobody's, as an operator is about to
/// write over them. For who shows tensors by address: told whenever bytes come, and `free` says
/// when they go (default: nobody is told).
template <class S>
concept hears_of_owners = requires(S& s, const block& b, tensor_id t) {
  { s.owned_by(b, t) } -> std::same_as<void>;
};
/// `scatters()`: may free bytes lie in several pieces (default: they may)? Where each block, and
/// each slab, is an allocation of its own they don't: whatever fits by its size fits.
template <class S>
concept tells_whether_it_scatters = requires(const S& s) {
  { s.scatters() } -> std::same_as<bool>;
};
/// `allocates_within_brackets()`: may the manager allocate blocks, adopt and free them between
/// begin_operator and end_operator (default: it ends the bracket first)? True only where blocks
/// never move, kernels are over when their call returns, and the lists that begin_operator was
/// given are not kept: blocks of them may be another's by the end. An open operator then leaves its
/// bracket open as long as nothing has to leave for what it allocates.
template <class S>
concept tells_whether_it_allocates_within_brackets = requires(const S& s) {
  { s.allocates_within_brackets() } -> std::same_as<bool>;
};
template <class S>
concept right_data_or_none = has_addresses<S> || !detail::names_data<S>;
template <class S>
concept right_hold_and_unhold_or_none =
    holds_blocks<S> || (!detail::names_hold<S> && !detail::names_unhold<S>);
template <class S>
concept right_native_stream_or_none = has_a_native_stream<S> || !detail::names_native_stream<S>;
template <class S>
concept right_four_about_holes_or_none = shows_its_holes<S> || !detail::names_holes<S>;
template <class S>
concept right_burden_and_alone_or_none = tells_burdens<S> || !detail::names_burdens<S>;
template <class S>
concept right_read_and_write_bytes_or_none = shows_its_bytes<S> || !detail::names_its_bytes<S>;
template <class S>
concept right_began_or_none = tells_beginnings<S> || !detail::names_began<S>;
template <class S>
concept right_knows_or_none = knows_its_blocks<S> || !detail::names_knows<S>;
template <class S>
concept right_owned_by_or_none = hears_of_owners<S> || !detail::names_owned_by<S>;
template <class S>
concept right_scatters_or_none = tells_whether_it_scatters<S> || !detail::names_scatters<S>;
template <class S>
concept right_allocates_within_brackets_or_none =
    tells_whether_it_allocates_within_brackets<S> || !detail::names_allocates_within_brackets<S>;

/// Where bytes live. Smallest model: examples/own_storage.cpp; with a Device, arena is one.
template <class S>
concept Storage =
    allocates_blocks<S> && frees_blocks<S> && frees_slabs<S> && copies_out<S> && copies_in<S> &&
    lands_transfers<S> && begins_operators<S> && ends_operators<S> && asks_for_stamps<S> &&
    waits_for_stamps<S> && measures_work<S> && tells_time<S> && tells_rates<S> &&
    tells_latencies<S> && tells_backlogs<S> && has_a_capacity<S> && counts_used_bytes<S> &&
    has_a_host_capacity<S> && counts_used_host_bytes<S> && rounds_requests<S> &&
    right_data_or_none<S> && right_hold_and_unhold_or_none<S> && right_native_stream_or_none<S> &&
    right_four_about_holes_or_none<S> && right_burden_and_alone_or_none<S> &&
    right_began_or_none<S> && right_read_and_write_bytes_or_none<S> && right_knows_or_none<S> &&
    right_owned_by_or_none<S> && right_scatters_or_none<S> &&
    right_allocates_within_brackets_or_none<S>;

namespace detail {
/// May what is free in it lie in several pieces?
template <class S>
[[nodiscard]] bool scatters(const S& storage) {
  if constexpr (tells_whether_it_scatters<S>)
    return storage.scatters();
  else
    return true;
}
/// May blocks come and go while a kernel runs, as nothing is in flight?
template <class S>
[[nodiscard]] bool allocates_within_brackets(const S& storage) {
  if constexpr (tells_whether_it_allocates_within_brackets<S>)
    return storage.allocates_within_brackets();
  else
    return false;
}
}  // namespace detail

}  // namespace delta

#include "delta/detail/concepts/explain_storage.hpp"  // the sentences
