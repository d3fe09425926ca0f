// delta: units, identifiers and the tokens that stand for memory. The lowest floor: no other delta
// header is included here.
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

/// `n` rounded up to a multiple of `granularity`, which is a power of two (not checked here).
/// Storages count every request so; see Storage's `rounded`.
constexpr bytes round_up(bytes n, std::uint64_t granularity) noexcept {
  return bytes{(n.count + granularity - 1) & ~(granularity - 1)};
}

namespace detail {
/// The most that one call of a manager may ask for: more is misuse, so that no sum of sizes leaves
/// 64 bits. Whoever asks for more has computed a size that is negative.
inline constexpr bytes largest_request{std::uint64_t{1} << 62};
}  // namespace detail

/// Sizes as literals: `512_MiB` is bytes{512 << 20}. Powers of two throughout. For users outside of
/// the namespace: `using namespace delta::literals`.
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

/// Time, measured or virtual. Policies compute in double (ns); clocks and records keep integers. 64
/// bits hold 292 years, so sums of costs do not overflow.
using nanoseconds = std::chrono::duration<std::int64_t, std::nano>;

/// The operator counter: one tick per operator that the program runs (replays do not count). Random
/// kernels draw from it.
using tick = std::uint64_t;

/// A managed tensor: one storage's bytes, shared by its views. The manager gives ids out and gives
/// them out again after the tensor is gone, so an id that is kept too long may name another one.
/// Ties between equal scores go to the lower id.
enum class tensor_id : std::uint32_t { none = 0xffffffffu };
/// An operator record: who made which tensors from what. Only the graph uses it; a program knows
/// tensors.
enum class operator_id : std::uint32_t { none = 0xffffffffu };

/// The id as a row number, for tables by tensor or by record. O(1).
constexpr std::uint32_t index(tensor_id t) noexcept {
  return static_cast<std::uint32_t>(t);
}
constexpr std::uint32_t index(operator_id o) noexcept {
  return static_cast<std::uint32_t>(o);
}

/// The three serial lanes of a device. Work on one runs in the order in which it was queued; the
/// three run side by side, and order between them is by stamps.
enum class lane : std::uint8_t { compute, copy_out, copy_in };
inline constexpr std::size_t lane_count = 3;

/// Which way a copy goes: out to the host, or in to the device. Also an index: 0 and 1.
enum class direction : std::uint8_t { out, in };
/// The lane that carries out copies of that direction.
constexpr lane lane_of(direction d) noexcept {
  return d == direction::out ? lane::copy_out : lane::copy_in;
}

/// A point on one lane: everything queued there up to and including it. What `point` counts (a
/// sequence number, a virtual time) is the storage's own affair; on one lane it only grows, so of
/// two stamps of a lane the larger point comes later. Stamps of two lanes are not comparable.
struct stamp {
  lane where = lane::compute;
  std::uint64_t point = 0;  ///< 0: reached from the beginning
  constexpr bool operator==(const stamp&) const = default;
};

/// One point per lane: reached when all three are. Joining two fences is an element-wise max: as
/// a lane is first in, first out, its latest point stands for all earlier ones. So a fence never
/// grows, however many users it stands for. A fence of zeros is reached from the beginning.
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

/// How long a block is expected to live: the time of a few operators, or across steps. Storages may
/// place the two kinds apart (regions grow them from opposite ends), so that long-lived blocks do
/// not split the room of short-lived ones. A hint: nothing but the placement depends on it.
enum class lifetime : std::uint8_t { transient, persistent };

/// A move-only handle to memory that a storage owns. It does not free by itself: only the storage
/// that gave it can take it back, so a token that is copied, forgotten or used twice is a bug that
/// the type makes hard to write. `index` names a row in the storage's own table, not an address:
/// blocks may be moved together between operators.
///
/// An owner that frees itself, as std::unique_ptr does, was rejected: it would need the storage's
/// address in each of thousands of tokens.
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
/// (the eight transfer rules; detail/storage/storage_rules.hpp keeps them). `Storage::land` gives
/// both back.
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
