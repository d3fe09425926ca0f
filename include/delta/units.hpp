// delta: units, identifiers and the tokens that stand for memory. Includes no other delta header.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace delta {

/// A number of bytes. A strong type, because sizes, ticks and identifiers look alike as integers.
struct bytes {
  std::uint64_t count = 0;

  constexpr bytes() = default;
  /// Explicit, so that no bare number is taken for a size: write `bytes{n}` or `64_KiB`.
  constexpr explicit bytes(std::uint64_t n) noexcept : count(n) {}
  constexpr auto operator<=>(const bytes&) const = default;
  /// Sums and differences are those of the 64-bit count: nothing checks that they stay in range.
  /// Where `a - b` may be negative, use detail::saturating_sub.
  constexpr bytes& operator+=(bytes o) noexcept { return count += o.count, *this; }
  constexpr bytes& operator-=(bytes o) noexcept { return count -= o.count, *this; }
  friend constexpr bytes operator+(bytes a, bytes b) noexcept { return a += b; }
  friend constexpr bytes operator-(bytes a, bytes b) noexcept { return a -= b; }
  friend constexpr bytes operator*(bytes a, std::uint64_t n) noexcept { return bytes{a.count * n}; }
};

namespace detail {
/// `a - b`, or zero where that would be negative. For budgets: what is free, what is still lacking.
constexpr bytes saturating_sub(bytes a, bytes b) noexcept {
  return a > b ? a - b : bytes{};
}
}  // namespace detail

/// `n` rounded up to a multiple of `granularity`, a power of two (not checked): as storages count.
constexpr bytes round_up(bytes n, std::uint64_t granularity) noexcept {
  return bytes{(n.count + granularity - 1) & ~(granularity - 1)};
}

namespace detail {
/// The most that one call of a manager may ask for (else misuse): no sum of sizes leaves 64 bits.
inline constexpr bytes largest_request{std::uint64_t{1} << 62};
}  // namespace detail

/// Sizes as literals: `512_MiB` is bytes{512 << 20}. Elsewhere: `using namespace delta::literals`.
inline namespace literals {
constexpr bytes operator""_B(unsigned long long n) noexcept {
  return bytes{n};
}
constexpr bytes operator""_KiB(unsigned long long n) noexcept {
  return bytes{n << 10};
}
constexpr bytes operator""_MiB(unsigned long long n) noexcept {
  return bytes{n << 20};
}
constexpr bytes operator""_GiB(unsigned long long n) noexcept {
  return bytes{n << 30};
}
}  // namespace literals

/// Time, measured or virtual; 64 bits hold 292 years of ns. Policies compute in double (ns).
using nanoseconds = std::chrono::duration<std::int64_t, std::nano>;

/// The operator counter: one tick per operator that the program runs, replays not counted.
using tick = std::uint64_t;

/// A managed tensor: one storage's bytes, shared by its views. Ids are given out again after the
/// tensor is gone, so one kept too long may name another. Equal scores: the lower id leaves first.
enum class tensor_id : std::uint32_t { none = 0xffffffffu };
/// An operator record: who made which tensors from what. Only the graph uses it.
enum class operator_id : std::uint32_t { none = 0xffffffffu };

/// The id as a row number, for tables by tensor or by record. O(1).
constexpr std::uint32_t index(tensor_id t) noexcept {
  return static_cast<std::uint32_t>(t);
}
constexpr std::uint32_t index(operator_id o) noexcept {
  return static_cast<std::uint32_t>(o);
}

/// The three serial lanes of a device: each first in, first out; stamps order them.
enum class lane : std::uint8_t { compute, copy_out, copy_in };
inline constexpr std::size_t lane_count = 3;

/// Which way a copy goes: out to the host, or in to the device. Also an index: 0 and 1.
enum class direction : std::uint8_t { out, in };
/// The lane that carries out copies of that direction.
constexpr lane lane_of(direction d) noexcept {
  return d == direction::out ? lane::copy_out : lane::copy_in;
}

/// A point on one lane: everything queued there up to and including it. What `point` counts is the
/// storage's own affair; on one lane it only grows. Stamps of two lanes are not comparable.
struct stamp {
  lane where = lane::compute;
  std::uint64_t point = 0;  ///< 0: reached from the beginning
  constexpr bool operator==(const stamp&) const = default;
};

/// One point per lane: reached when all three are, of zeros from the beginning. Joining is an
/// element-wise max, as a lane's latest point stands for all earlier ones: a fence never grows.
struct fence {
  std::array<std::uint64_t, lane_count> point{};

  /// Waits for `s`, too. Gives itself, so that joins can be chained.
  constexpr fence& join(stamp s) noexcept {
    auto& p = point[static_cast<std::size_t>(s.where)];
    p = s.point > p ? s.point : p;
    return *this;
  }
  /// Waits for all that `o` waits for, too.
  constexpr fence& join(const fence& o) noexcept {
    for (std::size_t e = 0; e < lane_count; ++e) join(stamp{static_cast<lane>(e), o.point[e]});
    return *this;
  }
  constexpr bool operator==(const fence&) const = default;
};

/// How long a block is expected to live: a few operators, or across steps. A hint for placement
/// alone: kept apart, long-lived blocks do not split the room of short-lived ones.
enum class lifetime : std::uint8_t { transient, persistent };

/// A move-only handle to memory that a storage owns. It does not free by itself: only the storage
/// that gave it takes it back. `index` names a row in the storage's own table, not an address:
/// blocks may be moved together between operators.
template <class Kind>
class token {
 public:
  static constexpr std::uint32_t none = 0xffffffffu;

  /// Names nothing.
  constexpr token() noexcept = default;
  /// For storages: a token of that row.
  constexpr explicit token(std::uint32_t index) noexcept : index_(index) {}
  /// Afterwards `o` names nothing. What the target of an assignment named is forgotten, not freed.
  constexpr token(token&& o) noexcept : index_(std::exchange(o.index_, none)) {}
  constexpr token& operator=(token&& o) noexcept {
    index_ = std::exchange(o.index_, none);
    return *this;
  }
  token(const token&) = delete;
  token& operator=(const token&) = delete;

  /// True if it names anything.
  constexpr explicit operator bool() const noexcept { return index_ != none; }
  /// The row in the storage's table; `none` where it names nothing.
  [[nodiscard]] constexpr std::uint32_t index() const noexcept { return index_; }

 private:
  std::uint32_t index_ = none;
};

using block = token<struct block_kind>;  ///< bytes on the device
using slab = token<struct slab_kind>;    ///< bytes on the host, in the budgeted host arena

/// A copy under way. It owns both of its ends, so nobody else can name a block or a slab in motion
/// (detail/storage/storage_rules.hpp has the rules). `Storage::land` gives both back.
class transfer {
 public:
  /// For storages: a copy between these two that is over when `done` is reached.
  transfer(block device, slab host, stamp done) noexcept
      : device_(std::move(device)), host_(std::move(host)), done_(done) {}
  /// When the copy is over: for the storage's `reached` and `wait`.
  [[nodiscard]] stamp done() const noexcept { return done_; }
  /// Its end on the device.
  [[nodiscard]] const block& device() const noexcept { return device_; }
  /// For storages, in `land`: both ends, whether the copy is over or not. Once.
  [[nodiscard]] std::pair<block, slab> take() && noexcept {
    return {std::move(device_), std::move(host_)};
  }

 private:
  block device_;
  slab host_;
  stamp done_;
};

}  // namespace delta
