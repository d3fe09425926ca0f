// delta: what explain_storage says of a type that is not a Storage yet, and what takes its place in
// a manager when that has been said (explain.hpp).
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
  if constexpr (has_data<S>) static_cast<void>(s.data(b));
  if constexpr (has_hold<S>) s.hold(b), s.unhold(b);
  if constexpr (has_native_stream<S>) static_cast<void>(s.native_stream());
  if constexpr (has_holes<S>) {
    static_cast<void>(s.largest_hole()), static_cast<void>(s.bytes_to_move(n));
    static_cast<void>(s.move_rate());
    s.walk_blocks([](std::uint32_t, bytes, bool) {});
  }
  if constexpr (has_burdens<S>) static_cast<void>(asked.burden(d)), static_cast<void>(s.alone(p));
  if constexpr (has_began<S>) static_cast<void>(s.began(p));
  if constexpr (has_knows<S>) static_cast<void>(asked.knows(b, n));
  if constexpr (has_on_owner_changed<S>) s.on_owner_changed(b, tensor_id::none);
  if constexpr (has_may_fragment<S>) static_cast<void>(asked.may_fragment());
  if constexpr (has_may_allocate_in_operator<S>)
    static_cast<void>(asked.may_allocate_in_operator());
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
  static_cast<void>(detail::storage_rows::tell<S>());
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

DELTA_DETAIL_CHECKED(storage, Storage, const stand_in_storage);

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
