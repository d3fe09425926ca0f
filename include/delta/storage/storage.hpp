// delta: the Storage concept: where bytes live, how they move, and in what order. A storage
// includes this header alone, no policy's. `explain_storage` says what a type lacks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "delta/detail/concepts/members.hpp"
#include "delta/units.hpp"

namespace delta {

// ---------------------------------------------------------------------------------------------
// Semantic rules (a compiler can't check them; test/support/storage_contract.hpp does):
//  * capacity() is hard: used() <= capacity() at every instant; blocks, workspace and both ends of
//    copies in flight count, each rounded up by rounded().
//  * Order between the lanes is kept by the storage, per block: an operator begins after the last
//    writer of what it reads, and all users of what it writes; a copy out after the last writer; a
//    copy in after its own copy out and all users of its destination; memory given out again is
//    written only after its last user is done. The caller orders nothing, and waits only for bytes.
//  * A freed block may be handed out again at once; a copy still reading it delays the next writer.
//  * Nothing moves between begin_operator and end_operator, nor what is held.
//  * Who shares the storage with a manager allocates and frees on its thread, between its calls and
//    from within a kernel; those bytes count in used(). What is allocated in an operator's bracket
//    is written by it, and may be freed at once; what the bracket names is not freed.
//  * Each lane is serial and first in, first out.
// ---------------------------------------------------------------------------------------------

namespace detail {

#define DELTA_DETAIL_STORAGE(row, name, params, note, ...) \
  DELTA_DETAIL_FUNCTION(row, name, false, "a Storage needs ", params, same, note, __VA_ARGS__)

/// `allocate(bytes, lifetime)` gives a block, or nullopt when there is no room for it (not an
/// error: the manager then releases something). `bytes` may be zero.
DELTA_DETAIL_STORAGE(allocate, allocate, (delta::bytes, delta::lifetime), " (nullopt: no room)",
                     std::optional<delta::block>);
/// `free(block&&)` and `free(slab&&)` take memory back.
DELTA_DETAIL_STORAGE(free_block, free, (delta::block&&), "", void);
DELTA_DETAIL_STORAGE(free_slab, free, (delta::slab&&), "", void);
/// `copy_out(block&)` queues a copy to a new slab and takes the block, or gives nullopt.
DELTA_DETAIL_STORAGE(copy_out, copy_out, (delta::block&), " (nullopt: the host is full)",
                     std::optional<delta::transfer>);
/// `copy_in(slab&&, block&&)` queues a copy of the slab into a block allocated before.
DELTA_DETAIL_STORAGE(copy_in, copy_in, (delta::slab&&, delta::block&&), "", delta::transfer);
/// `land(transfer&&)` gives block and slab back, at any time: fences order what follows. The block
/// of a copy out stays readable throughout. A transfer owns both of its ends.
DELTA_DETAIL_STORAGE(land, land, (delta::transfer&&), "", std::pair<delta::block, delta::slab>);
/// `begin_operator(reads, writes)`: the compute lane waits for what these blocks need.
DELTA_DETAIL_STORAGE(begin_operator, begin_operator,
                     (std::span<const delta::block* const> reads,
                      std::span<const delta::block* const> writes),
                     "", void);
/// `end_operator(cost)`: the operator is queued; gives its stamp. `cost` is what the caller expects
/// the operator to take: a storage in virtual time advances by it, others ignore it.
DELTA_DETAIL_STORAGE(end_operator, end_operator, (delta::nanoseconds cost), "", delta::stamp);
/// `reached(stamp)` asks, `wait(stamp)` makes the host wait (in virtual time: advances the clock),
/// `elapsed(stamp)` is a measured time of an operator or copy, known now, later, or never. Where
/// never, set operation::cost: else operators are priced by bytes (counters::guessed_costs).
DELTA_DETAIL_STORAGE(reached, reached, (delta::stamp), "", bool);
DELTA_DETAIL_STORAGE(wait, wait, (delta::stamp), "", void);
DELTA_DETAIL_STORAGE(elapsed, elapsed, (delta::stamp), " (nullopt: not known)",
                     std::optional<delta::nanoseconds>);
/// `now()`, `rate(direction)` in bytes per second, `latency(direction)` per copy, and
/// `backlog(direction)`: how long a copy queued now would wait before it starts.
DELTA_DETAIL_STORAGE(now, now, () const, "", delta::nanoseconds);
DELTA_DETAIL_STORAGE(rate, rate, (delta::direction) const, " (bytes per second)", double);
DELTA_DETAIL_STORAGE(latency, latency, (delta::direction) const, "", delta::nanoseconds);
DELTA_DETAIL_STORAGE(backlog, backlog, (delta::direction) const, "", delta::nanoseconds);
/// The two budgets and what is taken of them, and what a request really takes.
DELTA_DETAIL_STORAGE(capacity, capacity, () const, "", delta::bytes);
DELTA_DETAIL_STORAGE(used, used, () const, "", delta::bytes);
DELTA_DETAIL_STORAGE(host_capacity, host_capacity, () const, "", delta::bytes);
DELTA_DETAIL_STORAGE(host_used, host_used, () const, "", delta::bytes);
DELTA_DETAIL_STORAGE(rounded, rounded, (delta::bytes) const, "", delta::bytes);

// Detected, with defaults in the manager.

/// `data(const block&)` is the address now (default: none, bytes exist in name only).
DELTA_DETAIL_DETECTED_CALL(data, (const delta::block&), same, "", std::byte*);
/// `hold(const block&)`, `unhold(const block&)`: the block may not move in between.
DELTA_DETAIL_DETECTED_CALL(hold, (const delta::block&), anything, "", void);
DELTA_DETAIL_DETECTED_CALL(unhold, (const delta::block&), anything, "", void);
DELTA_DETAIL_TOGETHER(holds, "'hold', 'unhold'", has_hold<T>, has_unhold<T>);
/// `largest_hole()`; `bytes_to_move(n)` for `n` bytes in one piece (nullopt: not possible now, or
/// for 0 bytes: blocks never move); `walk_blocks(f)`: `f(row, size, used)` for blocks (`row` is the
/// token's index) and holes by address. With `move_rate` they let the manager weigh moving blocks
/// against releasing neighbours where free bytes lie scattered (default: it does not ask).
DELTA_DETAIL_DETECTED_CALL(largest_hole, (), same, "", delta::bytes);
DELTA_DETAIL_DETECTED_CALL(bytes_to_move, (delta::bytes), same, "", std::optional<delta::bytes>);
DELTA_DETAIL_DETECTED_CALL(walk_blocks, (void (*f)(std::uint32_t row, delta::bytes, bool used)),
                           anything, "", void);
DELTA_DETAIL_TOGETHER(holes, "'largest_hole', 'bytes_to_move', 'move_rate', 'walk_blocks'",
                      has_largest_hole<T>, has_bytes_to_move<T>, has_move_rate<T>,
                      has_walk_blocks<T>);
DELTA_DETAIL_TOGETHER(burdens, "'burden', 'alone'", has_burden<T>, has_alone<T>);
/// `read_bytes(block, from, span)` copies bytes of a block to the host, `write_bytes(block, to,
/// span)` back; both are over when they return, and false says that the storage keeps no bytes.
/// Whoever uses the block is done before (default: none; replays can't be checked, replay_check).
DELTA_DETAIL_DETECTED_CALL(read_bytes, (const delta::block&, std::uint64_t, std::span<std::byte>),
                           same, "", bool);
DELTA_DETAIL_DETECTED_CALL(write_bytes,
                           (const delta::block&, std::uint64_t, std::span<const std::byte>), same,
                           "", bool);
DELTA_DETAIL_TOGETHER(bytes, "'read_bytes', 'write_bytes'", has_read_bytes<T>, has_write_bytes<T>);
/// `knows(block, n)`: is it a block in use here, of rounded(n) bytes? Asked of blocks that the
/// program hands over (default: the program is taken at its word).
DELTA_DETAIL_DETECTED_CALL(knows, (const delta::block&, delta::bytes) const, same, "", bool);
/// `on_owner_changed(block, t)`: tensor `t`'s bytes are in this block, or on their way into it,
/// until it is freed or told of another tensor; none: they are nobody's, as an operator is about to
/// write over them. For who shows tensors by address (default: nobody is told).
DELTA_DETAIL_DETECTED_CALL(on_owner_changed, (const delta::block&, delta::tensor_id), same, "",
                           void);
/// `may_fragment()`: may free bytes lie in several pieces (default: they may)? Where each block,
/// and each slab, is an allocation of its own they don't: whatever fits by its size fits.
DELTA_DETAIL_DETECTED_CALL(may_fragment, () const, same, "", bool);
/// `may_allocate_in_operator()`: may the manager allocate blocks, adopt and free them between
/// begin_operator and end_operator (default: it ends the bracket first)? True only where blocks
/// never move, kernels are over when their call returns, and the lists given to begin_operator are
/// not kept: blocks of them may be another's by the end.
DELTA_DETAIL_DETECTED_CALL(may_allocate_in_operator, () const, same, "", bool);

using storage_rows =
    rows<allocate_row, free_block_row, free_slab_row, copy_out_row, copy_in_row, land_row,
         begin_operator_row, end_operator_row, reached_row, wait_row, elapsed_row, now_row,
         rate_row, latency_row, backlog_row, capacity_row, used_row, host_capacity_row,
         host_used_row, rounded_row, data_row, hold_row, unhold_row, holds_row, native_stream_row,
         largest_hole_row, bytes_to_move_row, move_rate_row, walk_blocks_row, holes_row, burden_row,
         alone_row, burdens_row, read_bytes_row, write_bytes_row, bytes_row, began_row, knows_row,
         on_owner_changed_row, may_fragment_row, may_allocate_in_operator_row>;

/// Bytes per second of moves where nobody says: one core of a current machine.
inline constexpr double assumed_move_rate = 8e9;

}  // namespace detail

/// Where bytes live. Smallest model: examples/own_storage.cpp; with a Device, arena is one.
template <class S>
concept Storage = detail::storage_rows::right<S>;

namespace detail {
/// True if what is free in it may lie in several pieces.
template <class S>
[[nodiscard]] bool may_fragment(const S& storage) {
  return answer_or<may_fragment_row>(true, storage);
}
/// ns of moving blocks until `n` bytes are free in one piece; nullopt: not possible now. O(blocks).
template <class S>
[[nodiscard]] std::optional<double> time_to_move(S& storage, bytes n) {
  const auto in_the_way = storage.bytes_to_move(n);
  if (!in_the_way) return std::nullopt;
  const double rate = storage.move_rate();  // 0: moves take no time
  return rate > 0 ? 1e9 * static_cast<double>(in_the_way->count) / rate : 0.0;
}
/// True if blocks may come and go while a kernel runs, as nothing is in flight.
template <class S>
[[nodiscard]] bool may_allocate_in_operator(const S& storage) {
  return answer_or<may_allocate_in_operator_row>(false, storage);
}

}  // namespace detail

/// Of a Storage: a sentence per member that is missing or wrong; `const` is said alone.
template <class T>
consteval bool explain_storage() {
  static_assert(!std::is_const_v<T>, "a Storage changes: it can't be const");
  using S = std::remove_const_t<T>;  // NOLINT(readability-identifier-naming): as in templates
  return detail::storage_rows::tell<S>();
}

namespace detail {
/// Takes the place of a wrong storage, once its sentences are printed, so that nothing else is
/// said. Models Storage with as little as that needs, is made from anything, and used as const, so
/// that it can be a temporary. Never linked.
struct stand_in_storage {
  template <class T>
  explicit(false) stand_in_storage(const T&);
  std::optional<block> allocate(bytes, lifetime) const;
  void free(block&&) const;
  void free(slab&&) const;
  std::optional<transfer> copy_out(block&) const;
  transfer copy_in(slab&&, block&&) const;
  std::pair<block, slab> land(transfer&&) const;
  void begin_operator(std::span<const block* const>, std::span<const block* const>) const;
  stamp end_operator(nanoseconds) const;
  bool reached(stamp) const;
  void wait(stamp) const;
  std::optional<nanoseconds> elapsed(stamp) const;
  nanoseconds now() const;
  double rate(direction) const;
  nanoseconds latency(direction) const;
  nanoseconds backlog(direction) const;
  bytes capacity() const;
  bytes used() const;
  bytes host_capacity() const;
  bytes host_used() const;
  bytes rounded(bytes) const;
};

DELTA_DETAIL_CHECKED(storage, Storage, const stand_in_storage);

/// For a storage given as a temporary, which would be gone after the declaration.
template <class S>
consteval bool explain_temporary() {
  static_assert(std::is_lvalue_reference_v<S>,
                "a manager keeps a reference to its storage: give it a variable that outlives the "
                "manager, not a temporary");
  return std::is_lvalue_reference_v<S>;
}
template <class S>
using no_temporary = std::conditional_t<explain_temporary<S>(), S, const stand_in_storage>;
}  // namespace detail

}  // namespace delta
