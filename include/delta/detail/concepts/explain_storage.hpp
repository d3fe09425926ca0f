// delta: the Storage concept's atoms as sentences, for people whose storage is not a model yet. How
// a wrong type gets to them through a manager is told in explain.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta {
namespace detail {

// Never run: what was moved from is named again only to have every member's body compiled.
// NOLINTBEGIN(bugprone-use-after-move)
template <class S>
void call_storage(S& s, block& b, slab& h, transfer& t, bytes n, stamp p, direction d) {
  // Figures are asked of a const storage, all else changes it.
  const S& asked = s;
  const std::span<const block* const> blocks;
  static_cast<void>(s.allocate(n, lifetime::transient));
  static_cast<void>(s.copy_out(b));
  static_cast<void>(s.copy_in(std::move(h), std::move(b)));
  static_cast<void>(s.land(std::move(t)));
  s.begin_operator(blocks, blocks);
  static_cast<void>(s.end_operator(nanoseconds{}));
  static_cast<void>(s.reached(p));
  s.wait(p);
  static_cast<void>(s.elapsed(p));
  static_cast<void>(asked.now());
  static_cast<void>(asked.rate(d)), static_cast<void>(asked.latency(d));
  static_cast<void>(asked.backlog(d));
  static_cast<void>(asked.capacity()), static_cast<void>(asked.used());
  static_cast<void>(asked.host_capacity()), static_cast<void>(asked.host_used());
  static_cast<void>(asked.rounded(n));
  if constexpr (has_addresses<S>) static_cast<void>(s.data(b));
  if constexpr (holds_blocks<S>) s.hold(b), s.unhold(b);
  if constexpr (has_a_native_stream<S>) static_cast<void>(s.native_stream());
  if constexpr (shows_its_holes<S>) {
    static_cast<void>(s.largest_hole()), static_cast<void>(s.bytes_to_move(n));
    static_cast<void>(s.move_rate());
    s.walk_blocks([](std::uint32_t, bytes, bool) {});
  }
  if constexpr (tells_burdens<S>) static_cast<void>(asked.burden(d)), static_cast<void>(s.alone(p));
  if constexpr (tells_beginnings<S>) static_cast<void>(s.began(p));
  if constexpr (knows_its_blocks<S>) static_cast<void>(asked.knows(b, n));
  if constexpr (hears_of_owners<S>) s.owned_by(b, tensor_id::none);
  if constexpr (tells_whether_it_scatters<S>) static_cast<void>(asked.scatters());
  if constexpr (tells_whether_it_allocates_within_brackets<S>)
    static_cast<void>(asked.allocates_within_brackets());
  s.free(std::move(h)), s.free(std::move(b));
}
// NOLINTEND(bugprone-use-after-move)

}  // namespace detail

/// Of a Storage: a sentence per atom. `const` is said alone: the others are asked of the type
/// without it.
template <class T>
consteval bool explain_storage() {
  static_assert(!std::is_const_v<T>, "a Storage changes: it can't be const");
  using S = std::remove_const_t<T>;  // NOLINT(readability-identifier-naming): as in templates
  // Memory on the device and on the host.
  static_assert(allocates_blocks<S>,
                "a Storage needs 'std::optional<delta::block> allocate(delta::bytes, "
                "delta::lifetime)' (nullopt: no room)");
  static_assert(frees_blocks<S>, "a Storage needs 'void free(delta::block&&)'");
  static_assert(frees_slabs<S>, "a Storage needs 'void free(delta::slab&&)'");
  static_assert(
      copies_out<S>,
      "a Storage needs 'std::optional<delta::transfer> copy_out(delta::block&)' (nullopt: "
      "the host is full)");
  // And back; a transfer owns both of its ends.
  static_assert(copies_in<S>,
                "a Storage needs 'delta::transfer copy_in(delta::slab&&, delta::block&&)'");
  static_assert(lands_transfers<S>,
                "a Storage needs "
                "'std::pair<delta::block, delta::slab> land(delta::transfer&&)'");
  // The bracket around an operator, and stamps.
  static_assert(begins_operators<S>,
                "a Storage needs 'void begin_operator(std::span<const delta::block* const> reads, "
                "std::span<const delta::block* const> writes)'");
  static_assert(ends_operators<S>,
                "a Storage needs 'delta::stamp end_operator(delta::nanoseconds cost)'");
  static_assert(asks_for_stamps<S>, "a Storage needs 'bool reached(delta::stamp)'");
  static_assert(waits_for_stamps<S>, "a Storage needs 'void wait(delta::stamp)'");
  static_assert(measures_work<S>,
                "a Storage needs 'std::optional<delta::nanoseconds> elapsed(delta::stamp)' "
                "(nullopt: not known)");
  // Time and rates, which costs are made of.
  static_assert(tells_time<S>, "a Storage needs 'delta::nanoseconds now() const'");
  static_assert(tells_rates<S>,
                "a Storage needs 'double rate(delta::direction) const' (bytes per second)");
  static_assert(tells_latencies<S>,
                "a Storage needs 'delta::nanoseconds latency(delta::direction) const'");
  static_assert(tells_backlogs<S>,
                "a Storage needs 'delta::nanoseconds backlog(delta::direction) const'");
  // The two budgets.
  static_assert(has_a_capacity<S>, "a Storage needs 'delta::bytes capacity() const'");
  static_assert(counts_used_bytes<S>, "a Storage needs 'delta::bytes used() const'");
  static_assert(has_a_host_capacity<S>, "a Storage needs 'delta::bytes host_capacity() const'");
  static_assert(counts_used_host_bytes<S>, "a Storage needs 'delta::bytes host_used() const'");
  static_assert(rounds_requests<S>, "a Storage needs 'delta::bytes rounded(delta::bytes) const'");
  // What is detected: absent, or right.
  static_assert(right_data_or_none<S>,
                "'data' is there, but not as 'std::byte* data(const delta::block&)'");
  static_assert(right_hold_and_unhold_or_none<S>,
                "'hold' or 'unhold' is there, but not both as 'void hold(const delta::block&)' and "
                "'void unhold(const delta::block&)'");
  static_assert(right_native_stream_or_none<S>,
                "'native_stream' is there, but not as 'void* native_stream()'");
  static_assert(right_four_about_holes_or_none<S>,
                "one of 'largest_hole', 'bytes_to_move', 'move_rate', 'walk_blocks' is there, but "
                "not all four as 'delta::bytes largest_hole()', "
                "'std::optional<delta::bytes> bytes_to_move(delta::bytes)', 'double move_rate()', "
                "'void walk_blocks(f)' calling 'f(std::uint32_t row, delta::bytes, bool used)'");
  static_assert(right_burden_and_alone_or_none<S>,
                "'burden' or 'alone' is there, but not both as 'double burden(delta::direction) "
                "const' and 'std::optional<delta::nanoseconds> alone(delta::stamp)'");
  static_assert(right_read_and_write_bytes_or_none<S>,
                "'read_bytes' or 'write_bytes' is there, but not both as 'bool read_bytes(const "
                "delta::block&, std::uint64_t, std::span<std::byte>)' and 'bool write_bytes(const "
                "delta::block&, std::uint64_t, std::span<const std::byte>)'");
  static_assert(right_began_or_none<S>,
                "'began' is there, but not as "
                "'std::optional<delta::nanoseconds> began(delta::stamp)'");
  static_assert(right_knows_or_none<S>,
                "'knows' is there, but not as 'bool knows(const delta::block&, delta::bytes) "
                "const'");
  static_assert(right_owned_by_or_none<S>,
                "'owned_by' is there, but not as 'void owned_by(const delta::block&, "
                "delta::tensor_id)'");
  static_assert(right_scatters_or_none<S>,
                "'scatters' is there, but not as 'bool scatters() const'");
  static_assert(right_allocates_within_brackets_or_none<S>,
                "'allocates_within_brackets' is there, but not as 'bool "
                "allocates_within_brackets() const'");
  if constexpr (Storage<S>) {
    [[maybe_unused]] constexpr auto* bodies = &detail::call_storage<S>;
  }
  return true;
}

namespace detail {

/// Takes the place of a storage that is wrong, once its sentences are printed, so that nothing else
/// is said about it. It models Storage with as little as that needs, and is made from anything. A
/// manager takes a reference: this one is used as const, so that it can be a temporary. Never
/// linked.
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

/// Is it right? If not, that has been told. What is right is not asked for its sentences, which
/// would take the compiler longer than the concept.
template <class S>
consteval bool storage_or_told() {
  if constexpr (Storage<S>)
    return true;
  else
    return !explain_storage<S>();
}
/// A storage as a manager has it: the type itself, or after its sentences the stand-in.
template <class S>
using checked_storage = std::conditional_t<storage_or_told<S>(), S, const stand_in_storage>;

/// For a storage given as a temporary: it would be gone after the declaration, and the manager's
/// reference with it.
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
