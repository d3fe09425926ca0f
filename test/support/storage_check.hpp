// delta tests: whether the books of a storage are in order: what lies where, what is counted, and
// who has used addresses before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "delta/detail/storage/address_fences.hpp"
#include "delta/detail/storage/allocations.hpp"
#include "delta/detail/storage/regions.hpp"
#include "delta/detail/storage/storage_rules.hpp"

namespace delta::detail {

/// Each answer is empty when all is well, else what is not.
struct storage_check {
  /// Past users in order, side by side, and no more than there may be.
  static std::string_view of(const address_fences& f) noexcept {
    std::uint64_t end = 0;
    for (const auto& r : f.ranges_) {
      if (r.begin < end || r.begin >= r.end) return "past users are out of order, or overlap";
      end = r.end;
    }
    return f.ranges_.size() <= address_fences::most ? "" : "too many past users are kept";
  }
  /// True if a part of it has past users.
  static bool knows(const address_fences& f, std::uint64_t begin, std::uint64_t end) noexcept {
    return std::ranges::any_of(f.ranges_,
                               [&](const auto& r) { return r.begin < end && begin < r.end; });
  }
  /// The stretches tile the region, holes are joined and indexed, used() is the sum. O(stretches,
  /// log holes for each hole).
  static std::string_view of(const region& all) noexcept {
    constexpr std::uint32_t none = region::none;
    std::uint64_t at = 0, used = 0, holes = 0;
    std::uint32_t before = none;
    if (!all.places_) return "";
    for (std::uint32_t i = all.head_; i != none; before = i, i = all.rows_[i].after) {
      const stretch& r = all.rows_[i];
      if (r.offset != at) return "stretches do not tile the region";
      if (r.size == 0) return "an empty stretch is in the list";
      if (r.before != before) return "the list of stretches is broken";
      if (!r.used && before != none && !all.rows_[before].used) return "two holes are not joined";
      if (!r.used && !all.holes_.contains({r.size, r.offset, i}))
        return "a hole is not in the index";
      at += r.size;
      (r.used ? used : holes) += r.used ? r.size : 1;
    }
    if (at != all.capacity_ || all.tail_ != before)
      return "stretches do not reach the end of the region";
    if (holes != all.holes_.size()) return "the index names a hole that is none";
    return used == all.used_ ? "" : "used() is not the sum of what is used";
  }
  /// No two allocations overlap, each is in the index, used() is the sum. O(allocations).
  template <bool synchronous>
  static std::string_view of(const allocations<synchronous>& all) noexcept {
    std::uint64_t sum = 0, placed = 0, end = 0;
    for (const allocation& r : all.rows_) {
      sum += r.used ? r.size : 0;
      placed += r.offset != 0 ? 1 : 0;
      if (!r.used && r.offset != 0) return "an allocation is nobody's";
    }
    if (sum != all.used_) return "used() is not the sum of what is used";
    if constexpr (synchronous) return {};
    if (placed != all.by_address_.size()) return "the index names what is no allocation";
    for (const auto& [at, i] : all.by_address_) {
      const allocation& r = all.rows_[i];
      if (r.offset != at || at < end) return "two allocations overlap, or the index is wrong";
      end = at + r.gives;
      if (knows(all.past_, at, end)) return "bytes in use have users of before";
    }
    return of(all.past_);
  }
  /// Of both memories. O(blocks).
  template <class Lanes, class Places>
  static std::string_view of(const storage_rules<Lanes, Places>& s) noexcept {
    const auto device = of(s.device_);
    return device.empty() ? of(s.host_) : device;
  }
};

}  // namespace delta::detail

namespace delta {

/// Of any storage on storage_rules, or with a word of its own.
template <class S>
std::string_view check_invariants(const S& s) {
  if constexpr (requires { s.check_invariants(); })
    return s.check_invariants();
  else
    return detail::storage_check::of(s);
}

}  // namespace delta
