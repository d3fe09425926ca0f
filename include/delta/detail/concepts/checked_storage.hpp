// delta: what takes the place of a storage in a manager where it is wrong, once explain_storage has
// said so (storage/storage.hpp).
#pragma once

#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "delta/storage/storage.hpp"
#include "delta/units.hpp"

namespace delta::detail {

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

}  // namespace delta::detail
